"""A lake that is made without Spark: its ledger has batches and its tables have steps, but its logs and tables have no rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.inputs.progress import results_table, stored_progress
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.rows import SourceBatch, next_row
from tests.support.clock import Clock

_NO_ROWS = pa.table({"result_time": pa.array([], pa.timestamp("us", "UTC"))})


def bare_engine(folder: Path, clock: Clock, sources: Sequence[SourceContract], tables: Sequence[DerivedAsset]) -> Engine:
    """An engine that cannot start a session, on an empty local lake."""
    return bare_engine_on(Lake(str(folder / "lake")), clock, sources, tables)


def bare_engine_on(lake: Lake, clock: Clock, sources: Sequence[SourceContract], tables: Sequence[DerivedAsset]) -> Engine:
    """An engine that cannot start a session, on a lake."""
    named: Any = {s.name: s for s in sources}, {t.name: t for t in tables}
    return Engine(lake, *named, _no_session, clock)


def commit_batch(engine: Engine, by_source: Mapping[str, Mapping[str, Any]]) -> int:
    """Commit a batch that records some sources; returns its number. A source has 10 accepted rows, unless its changes give others."""
    seq, at, last = engine.ledger.head + 1, engine.ledger.now(), engine.ledger.newest_rows()
    rows = list[SourceBatch]()
    for name, changes in by_source.items():
        known = last.get(name) or SourceBatch(seq=0, kind="rows", ingested_at=0, source=name)
        mark = changes.get("watermark", known.watermark)
        counts = {"rows_read": 10, "accepted": 10, "first_event_time": mark or 0, "last_event_time": mark or 0, "max_event_time": mark}
        if changes.get("kind", "rows") != "rows":
            counts = {}
        rows.append(next_row(known, **{"seq": seq, "kind": "rows", "ingested_at": at, **counts, **changes}))
    engine.ledger.commit([tuple(rows)])
    return seq


def commit_step(engine: Engine, table: str, **changes: Any) -> None:
    """Commit a step of a table that has handled all batches, with the given changes of its progress."""
    asset = engine.assets[table]
    before, path = stored_progress(engine.lake, asset), engine.lake.path(results_table(asset))
    after = replace(before, **{"step": before.step + 1, "seq": engine.ledger.head, **changes})
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(after.metadata(before))})
    if before.step == 0:
        write_deltalake(path, _NO_ROWS, commit_properties=properties, storage_options=engine.lake.storage_options)
    else:
        delta = DeltaTable(path, storage_options=engine.lake.storage_options)
        delta.create_write_transaction([], "append", delta.schema(), commit_properties=properties)


def _no_session() -> Never:
    raise AssertionError("a session is started")
