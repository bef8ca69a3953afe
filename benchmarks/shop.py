"""Tidemark's part of the benchmark: the sources, the join, the engine, and what is timed of them.

Every call into the platform stands here, so that a change of the engine needs a change in this module alone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, RowRule, SourceContract
from benchmarks.contenders import Job
from benchmarks.data import TABLES, batches_folder
from expectations import suites
from expectations.validation import validate
from operators import IntervalJoin
from operators.contract import SEQ
from platform_defs.engine import Engine
from platform_defs.engine.advance import Step
from platform_defs.resources.lake import Lake
from platform_defs.resources.sources import File
from platform_defs.resources.spark import session
from platform_defs.settings import Settings

ASSET = "payment_orders"
SCHEMAS = {
    "orders": "order_id bigint, customer_id bigint, amount bigint, ts bigint",
    "payments": "payment_id bigint, order_id bigint, amount bigint, ts bigint",
}
KEYS = {"orders": "order_id", "payments": "payment_id"}
RULES = (RowRule("amount_is_positive", "amount > 0"), RowRule("order_is_named", "order_id IS NOT NULL"))
SUITES = {"orders": suites.orders, "payments": suites.payments}


class WrongAnswer(AssertionError):
    """What was computed is not what it must be; a time of it would mean nothing."""


def spark_session(job: Job, **more: str) -> SparkSession:
    """The platform's session, the same for all contenders on Spark."""
    return session(Settings(spark_master=f"local[{job.cores}]", driver_memory=job.heap), **more)  # pyright: ignore[reportCallIssue]


def make_engine(job: Job, spark: SparkSession, max_step: int) -> Engine:
    """An engine on an empty lake in the job's folder; the option `without` leaves a part out."""
    without = job.options.get("without")
    sources = {name: _source(name, job, without) for name in TABLES}
    join = IntervalJoin(on="order_id", lower=0, upper=f"{job.within_ms} ms", how="inner")
    assets = {ASSET: DerivedAsset(name=ASSET, inputs=TABLES, operator=join)}
    folders = {name: str(batches_folder(job.data, job.batches, job.first) / name) for name in TABLES}
    return Engine(Lake(str(job.scratch / "lake")), sources, assets, lambda: spark, max_step=max_step, folders=folders, max_files=1)


def _source(name: str, job: Job, without: str | None) -> SourceContract:
    repeats = name == "orders" and job.options.get("repeated_keys")
    keyed = without != "duplicates" and not repeats
    return SourceContract(
        name=name,
        schema=SCHEMAS[name],
        event_time="timestamp_millis(ts)",
        watermark=BoundedOutOfOrderness("5 seconds"),
        unique_key=(KEYS[name],) if keyed else (),
        future_skew=None,
        rules=() if without == "rules" else RULES,
    )


def let_in(engine: Engine, files: Iterable[tuple[str, Path]]) -> int:
    """Ingest files as one micro-batch; returns the rows that the log took."""
    found = [File(int(p.stat().st_mtime * 1_000), p.absolute().as_uri(), p.stat().st_size, table) for table, p in files]
    entry = engine.ingest.files(found)
    return sum(said.accepted for said in entry or ())


def whole_files(job: Job) -> list[tuple[str, Path]]:
    """Both tables' files, not cut."""
    return [(table, path) for table in TABLES for path in sorted((job.data / table).glob("*.parquet"))]


def hold_to_law(engine: Engine, steps: Iterable[Step]) -> int:
    """Hold the rows that steps have settled to the conservation law; returns how many they are.

    Raises:
        WrongAnswer: it does not hold.
    """
    accounts = [account for step in steps for account in engine.account_step(ASSET, step)]
    broken = [account for account in accounts if not account.holds]
    if broken:
        raise WrongAnswer(f"the conservation law does not hold: {broken}")
    return sum(account.accepted for account in accounts)


def let_in_so_far(engine: Engine) -> int:
    """How many rows the ledger says were let in."""
    return sum(said.accepted for entry in engine.ledger.entries() for said in entry)


def check_batch(engine: Engine) -> None:
    """Run the platform's suites on the rows of the newest entry, as far as they speak of columns that the logs have.

    Raises:
        WrongAnswer: an expectation is not met.
    """
    for table, suite in SUITES.items():
        frame = engine.table(engine.sources[table].log).where(F.col(SEQ) == engine.ledger.head)
        fitting = [e for e in suite().expectations if _columns(e.configuration.kwargs) <= set(frame.columns)]
        failed = [name for name, found in validate(frame, fitting).items() if not found.passed]
        if failed:
            raise WrongAnswer(f"{table} does not meet {failed}")


def _columns(kwargs: Mapping[str, Any]) -> set[str]:
    return {kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs} | set(kwargs.get("column_list", ()))


def pass_time(engine: Engine, ms: int = 1) -> None:
    """Lift the sources' watermarks, without a row."""
    last = engine.ledger.last()
    engine.signals.watermark({name: (last[name].watermark or 0) + ms for name in engine.sources})


def pairs(engine: Engine) -> int:
    """How many pairs the table holds."""
    return engine.table(ASSET).count()


def tables(engine: Engine) -> dict[str, str]:
    """The lake's tables, by a short name."""
    return {"ledger": "ledger", ASSET: ASSET, **{name: source.log for name, source in engine.sources.items()}}


def files_by_table(engine: Engine) -> dict[str, int]:
    """How many data files the newest version of each table is made of."""
    found = {name: engine.lake.delta(table) for name, table in tables(engine).items()}
    return {name: len(delta.file_uris()) for name, delta in found.items() if delta is not None}


class Stopwatch:
    """Seconds by name, lap by lap."""

    def __init__(self) -> None:
        self.laps: list[dict[str, float]] = []

    def lap(self) -> None:
        """Begin the next lap."""
        self.laps.append({})

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Time a block, as a part of this lap."""
        began = time.perf_counter()
        yield
        self.laps[-1][name] = round(self.laps[-1].get(name, 0.0) + time.perf_counter() - began, 3)


def seconds_of(act: Callable[[], Any]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    act()
    return round(time.perf_counter() - began, 3)


def middle(values: Sequence[float]) -> float:
    """The median."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
