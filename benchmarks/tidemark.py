"""Tidemark's part of the benchmarks: runs the engine on a workload and times it.

It wraps the calls of the platform, so that a change of the engine changes few other modules of the benchmarks.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.contenders import Job
from benchmarks.data import batches_folder, tables_of
from benchmarks.workload import workload_of
from expectations.checks import findings, log_findings
from expectations.finding import check_name
from operators.accounting import TracesInputs
from operators.columns import FINAL_AT
from operators.steps import Upsert
from platform_defs.engine import Engine
from platform_defs.engine.accounting.days_of_step import Days
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.formats.reader import File
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import Settings
from platform_defs.spark.session import session


class WrongAnswer(AssertionError):
    """The results are wrong, so their time means nothing."""


def spark_session(job: Job, **more: str) -> SparkSession:
    """The platform's Spark session; all contenders on Spark use it."""
    return session(Settings(spark_master=f"local[{job.cores}]", driver_memory=job.heap), **more)  # pyright: ignore[reportCallIssue]


def make_engine(job: Job, spark: SparkSession, max_step: int) -> Engine:
    """An engine for the workload of a job, with an empty lake in the job's folder."""
    workload = workload_of(job)
    sources, asset = {s.name: s for s in workload.sources(job)}, workload.asset(job)
    folders = {name: str(batches_folder(job.data, job.batches, job.first) / name) for name in sources}
    lake = Lake(str(job.scratch / "lake"))
    return Engine(lake, sources, {asset.name: asset}, lambda: spark, max_step=max_step, folders=folders, max_files=1)


def ingest(engine: Engine, files: Iterable[tuple[str, Path]]) -> int:
    """Ingest files as one micro-batch; returns the number of accepted rows."""
    landed = [File(int(p.stat().st_mtime * 1_000), p.absolute().as_uri(), p.stat().st_size, table) for table, p in files]
    batch = engine.ingestion.batches.files(landed)
    return sum(source.accepted for source in batch or ())


def complete_files(job: Job) -> list[tuple[str, Path]]:
    """The complete files of the tables, as pairs (table, file)."""
    return [(table, path) for table in tables_of(job.data) for path in sorted((job.data / table).glob("*.parquet"))]


def check_conservation(engine: Engine, steps: Iterable[Step]) -> int:
    """Check the conservation law for the rows that each step finalized; returns the number of these rows.

    Raises:
        WrongAnswer: the conservation law does not hold.
    """
    accounts = [account for step in steps for account in engine.accounts.step(derived_table(engine), step)]
    failures = [account for account in accounts if not account.holds]
    if failures:
        raise WrongAnswer(f"the conservation law does not hold: {failures}")
    return sum(account.accepted for account in accounts)


def check_expectations(engine: Engine, job: Job, days: Days | None, checked: Mapping[str, int]) -> dict[str, int]:
    """Check the workload's expectations, as Dagster's checks do: the new rows of event logs, and the changed days of the derived table.

    Args:
        engine: the engine.
        job: the job.
        days: the first and the last day that the step has changed; None for all.
        checked: by source, the batch up to which its rows were checked.

    Returns:
        The batch up to which the rows are checked now, by source.

    Raises:
        WrongAnswer: an expectation is not met.
    """
    upto = dict[str, int]()
    for name, expectations in workload_of(job).expectations.items():
        if name in engine.sources:
            passed = dict.fromkeys(map(check_name, expectations), checked.get(name, 0))
            found = log_findings(engine, name, expectations, lambda _, __, passed=passed: passed)
        else:
            found = findings(engine, name, expectations, day_column=FINAL_AT, days=days)
        failed = [] if found is None else [check for check, finding in found.by_check.items() if not finding.passed]
        if failed:
            raise WrongAnswer(f"expectations of {name} are not met: {failed}")
        upto |= {name: found.log.head} if found and found.log else {}
    return upto


def derived_table(engine: Engine) -> str:
    """The name of the only derived table."""
    [name] = engine.assets
    return name


def accounts_for_steps(engine: Engine) -> bool:
    """Whether single steps can be accounted for. Results of windows do not name their rows, so only whole days can."""
    return isinstance(engine.assets[derived_table(engine)].operator, TracesInputs)


def ingested_rows(engine: Engine) -> int:
    """The number of ingested rows in the ledger, of all sources."""
    return sum(source.accepted for batch in engine.ledger.batches() for source in batch)


def raise_watermarks(engine: Engine, ms: int = 1) -> None:
    """Raise the watermarks of all sources by a control batch without rows."""
    last = engine.ledger.newest_rows()
    engine.ingestion.control_batches.watermark({name: (last[name].watermark or 0) + ms for name in engine.sources})


def outcome(engine: Engine, job: Job) -> dict[str, Any]:
    """The summary of the derived table, and the number of changes of an upserted table."""
    answer = workload_of(job).outcome(engine.views.table(derived_table(engine)))
    upserts = isinstance(engine.assets[derived_table(engine)].operator.emits, Upsert)
    return answer | ({"changes": engine.views.metrics(derived_table(engine))["changes_out"]} if upserts else {})


def table_paths(engine: Engine) -> dict[str, str]:
    """The paths of the lake's tables by short name."""
    return {
        "ledger": "ledger",
        derived_table(engine): derived_table(engine),
        **{name: source.log for name, source in engine.sources.items()},
    }


def files_by_table(engine: Engine) -> dict[str, int]:
    """The number of data files in the newest version of each table."""
    tables = {name: engine.lake.delta(table) for name, table in table_paths(engine).items()}
    return {name: len(delta.file_uris()) for name, delta in tables.items() if delta is not None}


class Stopwatch:
    """Seconds by name, separately for each lap."""

    def __init__(self) -> None:
        self.laps: list[dict[str, float]] = []

    def lap(self) -> None:
        """Start the next lap."""
        self.laps.append({})

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add the time of a block to a part of the current lap."""
        start = time.perf_counter()
        yield
        self.laps[-1][name] = round(self.laps[-1].get(name, 0.0) + time.perf_counter() - start, 3)


def seconds_of(action: Callable[[], Any]) -> float:
    """The duration of a call in seconds."""
    start = time.perf_counter()
    action()
    return round(time.perf_counter() - start, 3)
