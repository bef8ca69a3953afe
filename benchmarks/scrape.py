"""The cost of a scrape of the metrics: of the shop's tables after many batches, and of many tables for which nothing new arrives.

`python -m benchmarks.scrape FOLDER` needs no Spark. The lake has real ledger batches and real commits with progress, but no rows.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from prometheus_client import CollectorRegistry, generate_latest

from assets.contracts import DerivedAsset
from assets.pipeline import Pipeline
from benchmarks import ledger_age
from operators import Tumbling, WindowedAggregate
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.engine.inputs.progress import Progress, results_table
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.monitoring.lake_metrics import LakeMetrics
from platform_defs.settings import Settings
from platform_defs.shop import shop

_NO_ROWS = pa.table({"result_time": pa.array([], pa.timestamp("us", "UTC"))})


def many_tables(values: Settings, tables: int) -> Pipeline:
    """Many tables of the same windows over the shop's clicks."""
    window = WindowedAggregate(by="item_id", window=Tumbling(size="1 hour"), aggregates={"rows": "count(*)"})
    return Pipeline(
        sources=shop(values).sources,
        tables=[DerivedAsset(name=f"counts_{n}", inputs=("clicks",), operator=window) for n in range(tables)],
    )


def step_tables(engine: Engine, steps: int) -> None:
    """Commit steps of every table; the newest has closed all that the ledger allows."""
    pending = engine.pending
    for asset in engine.assets.values():
        now, path = Progress(), engine.lake.path(results_table(asset))
        for step in range(1, steps + 1):
            seq = max(1, engine.ledger.head * step // steps)
            watermark = operator_timeline(pending.workspace, asset).after[seq] if asset.operator.reads.closes_ranges else None
            read = {of.name: step for of in pending.workspace.tables_of(asset)}
            after = replace(now, step=step, seq=seq, closed_to=watermark, read=read)
            properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(after.metadata(now))})
            if step == 1:
                write_deltalake(path, _NO_ROWS, commit_properties=properties)
            else:
                DeltaTable(path).create_write_transaction([], "append", DeltaTable(path).schema(), commit_properties=properties)
            now = after
        DeltaTable(path).create_checkpoint()


def registry_of(engine: Engine) -> CollectorRegistry:
    """A registry with the metrics of an engine's lake."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeMetrics(engine))
    return registry


def seconds_of_scrapes(engine: Engine, scrapes: int = 5) -> list[dict[str, float]]:
    """The seconds of the first scrapes of a process, by the wall and of the CPU."""
    registry, found = registry_of(engine), list[dict[str, float]]()
    for _ in range(scrapes):
        wall, cpu = time.perf_counter(), time.process_time()
        size = len(generate_latest(registry))
        found.append({"wall": round(time.perf_counter() - wall, 3), "cpu": round(time.process_time() - cpu, 3), "bytes": size})
    return found


def engine_on(work: Path, *, batches: int, steps: int, tables: int | None) -> Engine:
    """An engine on a lake, which is made if it does not exist."""
    root = work / f"scrape-{batches}-{steps}-{tables or 'shop'}"
    values = Settings(lake=str(root), landing=str(work / "landing"))
    engine = make_engine(values, many_tables(values, tables) if tables else None)
    if not root.exists():
        ledger_age.make(root, batches)
        step_tables(engine, steps)
    return engine


def text_of(work: Path, *, batches: int, steps: int, tables: int | None) -> str:
    """The metrics of a lake."""
    return generate_latest(registry_of(engine_on(work, batches=batches, steps=steps, tables=tables))).decode()


def run(work: Path, *, batches: int, steps: int, tables: int | None) -> dict[str, Any]:
    """Measure scrapes of a lake."""
    engine = engine_on(work, batches=batches, steps=steps, tables=tables)
    return {"batches": batches, "steps": steps, "tables": len(engine.assets), "scrapes": seconds_of_scrapes(engine)}


if __name__ == "__main__":
    for of in ({"batches": 1_000, "steps": 1_000, "tables": None}, {"batches": 1_000, "steps": 20, "tables": 100}):
        print(json.dumps(run(Path(sys.argv[1]), **of)))
