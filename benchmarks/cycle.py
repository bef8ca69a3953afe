"""The cost of one cycle of the shop: ingest a micro-batch of every source, advance every table, account for its rows, run the suites.

A cycle is what a stream does every few seconds, except for the suites, which run only on request. Its cost is mostly that of many small
queries and commits. Seconds depend on the machine; the numbers of Spark jobs and of Delta commits do not. Tables are advanced and accounted
for in parallel, as `tidemark ingest --every` and `tidemark status --recount` do it, and suites are evaluated in parallel, as a run of
Dagster does it; the costs by table are measured with one table after the other.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import dagster as dg
import psutil
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import SparkSession

from assets.factories.partitions import Days
from assets.pipeline import Pipeline
from assets.ports import LogPort
from assets.shop.names import PAYMENT_ORDER_WIDE
from expectations import TableSuite, table_suites
from expectations.checks import Findings, findings, log_findings
from expectations.finding import check_name
from platform_defs.cli.demo import advance_in_dagster, ingest_in_dagster
from platform_defs.configured_engine import make_engine
from platform_defs.dagster_home.instance import prepare
from platform_defs.definitions import build
from platform_defs.engine import Engine
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.operations.in_parallel import advance_in_parallel, compute_in_parallel
from platform_defs.settings import Settings
from platform_defs.shop import shop
from platform_defs.simulator import Shop, ShopDay, drop, simulate
from platform_defs.spark.session import session

T = TypeVar("T")
PHASES = ("ingest", "advance", "account", "checks")
_SAMPLE_ORDERS = 500


@dataclass(frozen=True)
class Cost:
    """The cost of a part of a cycle.

    Args:
        seconds: the wall time.
        jobs: Spark jobs.
        commits: new versions of Delta tables.
        cpu_s: CPU seconds of Python and the JVM.
    """

    seconds: float = 0.0
    jobs: int = 0
    commits: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds + other.seconds, self.jobs + other.jobs, self.commits + other.commits, self.cpu_s + other.cpu_s)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds - other.seconds, self.jobs - other.jobs, self.commits - other.commits, self.cpu_s - other.cpu_s)

    @property
    def summary(self) -> dict[str, Any]:
        """The cost as plain data."""
        return {"seconds": round(self.seconds, 3), "jobs": self.jobs, "commits": self.commits, "cpu_s": round(self.cpu_s, 2)}


@dataclass
class Cycle:
    """The costs of one cycle.

    Args:
        rows: the rows that were landed.
        parts: the cost by phase and by table; `all` for work on several tables at once.
        memory_mb: the resident memory of Python and the JVM after the cycle, in MiB.
    """

    rows: int
    parts: dict[tuple[str, str], Cost] = field(default_factory=dict)
    memory_mb: int = 0

    def phase(self, name: str) -> Cost:
        """The cost of a phase."""
        return sum((cost for (phase, _), cost in self.parts.items() if phase == name), Cost())

    @property
    def summary(self) -> dict[str, Any]:
        """The costs as plain data: the whole cycle, and each phase."""
        phases = [name for name in PHASES if any(phase == name for phase, _ in self.parts)]
        return {
            "rows": self.rows,
            **sum(self.parts.values(), Cost()).summary,
            "memory_mb": self.memory_mb,
            "phases": {name: self.phase(name).summary for name in phases},
        }

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The costs by phase and table as plain data."""
        return {f"{phase} {table}": cost.summary for (phase, table), cost in self.parts.items()}


class Meter:
    """Measures calls on a lake.

    Args:
        spark: the session.
        root: the lake's folder.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root

    @contextmanager
    def part(self, cycle: Cycle, phase: str, table: str) -> Iterator[None]:
        """Record the cost of a block as a part of a cycle."""
        before, began = self._now(), time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        cycle.parts[phase, table] = replace(self._now() - before, seconds=seconds)
        cycle.memory_mb = sum(_of_processes(lambda p: p.memory_info().rss)) // 2**20

    def _now(self) -> Cost:
        """All costs since the session began, except the time."""
        return Cost(0, self._jobs(), self._commits(), sum(t.user + t.system for t in _of_processes(psutil.Process.cpu_times)))

    def _jobs(self) -> int:
        """The number of jobs that the session has started; Spark numbers them from 0."""
        return int(cast(Any, self._spark)._jsc.sc().dagScheduler().numTotalJobs())

    def _commits(self) -> int:
        return sum(1 for _ in self._root.rglob("_delta_log/*.json"))


def _of_processes(measure: Callable[[psutil.Process], T]) -> Iterator[T]:
    """A measure of this process and its child processes, without those that end meanwhile."""
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            yield measure(process)


class _Jobs:
    """Dagster's jobs, which are run in this process on an instance of their own.

    Args:
        work: the folder of the benchmark.
        values: the settings.
        pipeline: the pipeline.
        engine: the engine.
    """

    def __init__(self, work: Path, values: Settings, pipeline: Pipeline, engine: Engine) -> None:
        self._definitions, self._engine = build(values, pipeline), engine
        self._instance = dg.DagsterInstance.from_config(str(prepare(str(work / "dagster"))))

    def run_cycle(self, meter: Meter, cycle: Cycle) -> None:
        """Run the job that ingests, and the one that advances, accounts and checks."""
        with meter.part(cycle, "ingest", "all"):
            ingest_in_dagster(self._definitions, self._instance)
        with meter.part(cycle, "advance", "all"):
            advance_in_dagster(self._definitions, self._engine, self._instance)


def run(
    work: Path,
    rows: int,
    cycles: int,
    *,
    join: bool,
    checks: bool,
    by_table: bool,
    dagster: bool,
    cores: int,
    heap: str,
    note: Callable[[str], object],
) -> tuple[Cycle, Cycle]:
    """Run cycles on a new lake, and then a cycle for which nothing has landed; returns the last cycle with rows, and the empty one.

    Args:
        work: an empty folder.
        rows: rows that land in each cycle, in all sources of the pipeline together, about.
        cycles: how many cycles.
        join: whether the pipeline is only the join of orders and payments, in place of the whole shop.
        checks: whether to run the suites of Great Expectations too.
        by_table: whether to work on one table after the other, and so measure each.
        dagster: whether to run Dagster's jobs in this process; the job `advance` accounts and checks too.
        cores: the cores of the Spark session.
        heap: the heap of its JVM.
        note: called with one line for each cycle.
    """
    values = Settings(lake=str(work / "lake"), landing=str(work / "landing"), spark_master=f"local[{cores}]", driver_memory=heap)
    pipeline = _join_alone(shop(values)) if join else shop(values)
    day = _day(rows, cycles, pipeline.sources_by_name)
    spark = session(values)
    engine = make_engine(values, pipeline, lambda: spark)
    suites = {suite.table: suite for suite in table_suites(pipeline)} if checks else {}
    meter, done, checked_upto = Meter(spark, work / "lake"), list[Cycle](), dict[str, int]()
    jobs = _Jobs(work, values, pipeline, engine) if dagster else None
    for part in range(cycles + 1):
        landed = drop(day, Path(values.landing_root), part, cycles).items() if part < cycles else ()
        cycle = Cycle(sum(count for source, count in landed if source in pipeline.sources_by_name))
        if jobs:
            jobs.run_cycle(meter, cycle)
        else:
            _run_cycle(engine, meter, cycle, suites, checked_upto, by_table=by_table)
        note(f"cycle {part + 1}: {cycle.summary}")
        done.append(cycle)
    return done[-2], done[-1]


def _run_cycle(
    engine: Engine, meter: Meter, cycle: Cycle, suites: Mapping[str, TableSuite], checked_upto: dict[str, int], *, by_table: bool
) -> None:
    """Run a cycle. If nothing has landed and no table makes a step, there is nothing to account for or to check, as in a stream.

    Args:
        engine: the engine.
        meter: measures each part.
        cycle: gets the costs.
        suites: the suites to run, by table.
        checked_upto: for each event log the batch up to which its rows were checked, which is updated.
        by_table: whether to work on one table after the other.
    """
    steps: list[Step] = []
    with meter.part(cycle, "ingest", "all"):
        batches = engine.ingest()
    days = engine.pending.all_days()
    parts = {name: [name] for name in engine.assets} if by_table else {"all": [*engine.assets]}
    reads = {name: asset.inputs for name, asset in engine.assets.items()}
    for part, names in parts.items():
        with meter.part(cycle, "advance", part):
            advance_in_parallel(reads, names, partial(_recorded_steps, engine, steps))
    if not batches and not steps:
        return
    for part, names in parts.items():
        with meter.part(cycle, "account", part):
            for name, is_right in compute_in_parallel(names, partial(_is_accounted, engine)).items():
                _require(is_right, f"the account of {name} does not hold")
    parts = {name: [name] for name in suites} if by_table else {"all": [*suites]}
    for part, names in parts.items() if suites else ():
        with meter.part(cycle, "checks", part):
            evaluated = compute_in_parallel(names, partial(_evaluate, engine, suites, days, checked_upto))
        for name, found in evaluated.items():
            could_evaluate = found is None or not any(f.error for f in found.by_check.values())
            _require(could_evaluate, f"an expectation for {name} could not be evaluated")
            checked_upto |= {found.log.id: found.log.head} if found and found.log else {}


def _evaluate(
    engine: Engine, suites: Mapping[str, TableSuite], days: Days | None, checked_upto: Mapping[str, int], table: str
) -> Findings | None:
    """The findings of a table's suite; None if the table does not exist yet."""
    suite = suites[table]
    if suite.source is None:
        return findings(
            engine,
            suite.table,
            suite.suite.expectations,
            day_column=suite.day_column,
            result_delay_ms=suite.result_delay_ms,
            days=days,
        )
    return log_findings(engine, suite.source, suite.suite.expectations, partial(_checked_upto, checked_upto))


def _checked_upto(batches: Mapping[str, int], expectations: Sequence[Expectation], log: LogPort) -> dict[str, int]:
    """The batch up to which a log's rows were checked in an earlier cycle, by check name, as the checks in Dagster have it."""
    return dict.fromkeys(map(check_name, expectations), batches.get(log.id, 0))


def _recorded_steps(engine: Engine, steps: list[Step], name: str) -> Generator[Step]:
    for step in engine.steps(name):
        steps.append(step)
        yield step


def _is_accounted(engine: Engine, name: str) -> bool:
    """Whether the conservation law holds for an asset, and its logs have the rows that the ledger counts."""
    return all(a.holds for a in engine.accounts.days(name)) and not engine.accounts.count_differences(name)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise AssertionError(f"{problem}, so the cost is meaningless")


def _join_alone(whole: Pipeline) -> Pipeline:
    """The join of orders and payments, with their sources and suites."""
    table = whole.tables_by_name[PAYMENT_ORDER_WIDE]
    suites = whole.suites_by_name()
    names = {*table.inputs, table.name} & {*suites}
    sources = [whole.sources_by_name[name] for name in table.inputs]
    return replace(whole, sources=sources, tables=[table], suites={name: suites[name] for name in names})


def _day(rows: int, cycles: int, sources: Collection[str]) -> ShopDay:
    """A simulated day with about this many rows of the sources in each of the cycles."""
    sample = simulate(Shop(orders=_SAMPLE_ORDERS))
    rows_per_order = sum(len(sample.lines(source, 0, 1)) for source in sample.arrivals if source in sources) / _SAMPLE_ORDERS
    return simulate(Shop(orders=max(1, round(rows * cycles / rows_per_order)), parts=cycles))
