"""Tidemark's part of the benchmarks: runs the engine on a workload and times it.

Only this module calls the platform, so that a change of the engine needs a change in this module only.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import workload
from benchmarks.contenders import Job
from benchmarks.data import batches_folder, tables_of
from expectations.validation import validate
from operators.contract import SEQ, TracesInputs, Upsert
from platform_defs.engine import Engine
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.formats.reader import File
from platform_defs.engine.lake.tables import Lake
from platform_defs.resources.spark import session
from platform_defs.settings import Settings


class WrongAnswer(AssertionError):
    """The results are wrong, so their time means nothing."""


def spark_session(job: Job, **more: str) -> SparkSession:
    """The platform's Spark session; all contenders on Spark use it."""
    return session(Settings(spark_master=f"local[{job.cores}]", driver_memory=job.heap), **more)  # pyright: ignore[reportCallIssue]


def make_engine(job: Job, spark: SparkSession, max_step: int) -> Engine:
    """An engine for the workload of a job, with an empty lake in the job's folder."""
    chosen = workload.of(job)
    sources, asset = {s.name: s for s in chosen.sources(job)}, chosen.asset(job)
    folders = {name: str(batches_folder(job.data, job.batches, job.first) / name) for name in sources}
    lake = Lake(str(job.scratch / "lake"))
    return Engine(lake, sources, {asset.name: asset}, lambda: spark, max_step=max_step, folders=folders, max_files=1)


def ingest(engine: Engine, files: Iterable[tuple[str, Path]]) -> int:
    """Ingest files as one micro-batch; returns the number of accepted rows."""
    found = [File(int(p.stat().st_mtime * 1_000), p.absolute().as_uri(), p.stat().st_size, table) for table, p in files]
    entry = engine.ingestion.batches.files(found)
    return sum(source.accepted for source in entry or ())


def whole_files(job: Job) -> list[tuple[str, Path]]:
    """The complete files of the tables, as pairs (table, file)."""
    return [(table, path) for table in tables_of(job.data) for path in sorted((job.data / table).glob("*.parquet"))]


def hold_to_law(engine: Engine, steps: Iterable[Step]) -> int:
    """Check the conservation law for the rows that each step finalized; returns the number of these rows.

    Raises:
        WrongAnswer: the conservation law does not hold.
    """
    accounts = [account for step in steps for account in engine.accounts.step(only(engine), step)]
    broken = [account for account in accounts if not account.holds]
    if broken:
        raise WrongAnswer(f"the conservation law does not hold: {broken}")
    return sum(account.accepted for account in accounts)


def only(engine: Engine) -> str:
    """The name of the only derived table."""
    [name] = engine.assets
    return name


def has_a_law(engine: Engine) -> bool:
    """Whether single steps can be accounted for. Results of windows do not name their rows, so only whole days can."""
    return isinstance(engine.assets[only(engine)].operator, TracesInputs)


def ingested_so_far(engine: Engine) -> int:
    """The number of ingested rows in the ledger, of all sources."""
    return sum(source.accepted for entry in engine.ledger.entries() for source in entry)


def check_batch(engine: Engine, job: Job) -> None:
    """Run the platform's expectation suites on the rows of the newest batch, limited to columns that the logs have.

    Raises:
        WrongAnswer: an expectation is not met.
    """
    for table, suite in workload.of(job).suites.items():
        frame = engine.views.table(engine.sources[table].log).where(F.col(SEQ) == engine.ledger.head)
        fitting = [e for e in suite().expectations if _columns(e.configuration.kwargs) <= set(frame.columns)]
        failed = [name for name, found in validate(frame, fitting).items() if not found.passed]
        if failed:
            raise WrongAnswer(f"{table} does not meet {failed}")


def _columns(kwargs: Mapping[str, Any]) -> set[str]:
    return {kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs} | set(kwargs.get("column_list", ()))


def pass_time(engine: Engine, ms: int = 1) -> None:
    """Raise the watermarks of all sources by a control batch without rows."""
    last = engine.ledger.last()
    engine.ingestion.signals.watermark({name: (last[name].watermark or 0) + ms for name in engine.sources})


def outcome(engine: Engine, job: Job) -> dict[str, Any]:
    """The summary of the derived table, and the number of changes of an upserted table."""
    answer = workload.of(job).outcome(engine.views.table(only(engine)))
    upserts = isinstance(engine.assets[only(engine)].operator.emits, Upsert)
    return answer | ({"changes": engine.views.metrics(only(engine))["changes_out"]} if upserts else {})


def tables(engine: Engine) -> dict[str, str]:
    """The paths of the lake's tables by short name."""
    return {"ledger": "ledger", only(engine): only(engine), **{name: source.log for name, source in engine.sources.items()}}


def files_by_table(engine: Engine) -> dict[str, int]:
    """The number of data files in the newest version of each table."""
    found = {name: engine.lake.delta(table) for name, table in tables(engine).items()}
    return {name: len(delta.file_uris()) for name, delta in found.items() if delta is not None}


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
        began = time.perf_counter()
        yield
        self.laps[-1][name] = round(self.laps[-1].get(name, 0.0) + time.perf_counter() - began, 3)


def seconds_of(act: Callable[[], Any]) -> float:
    """The duration of a call in seconds."""
    began = time.perf_counter()
    act()
    return round(time.perf_counter() - began, 3)


def middle(values: Sequence[float]) -> float:
    """The median."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
