"""The cost of one cycle of the whole shop: ingest a micro-batch of every source, advance every table, account, and run all checks.

A cycle is what a stream does every few seconds, so its cost is mostly that of many small Spark jobs. Seconds depend on the machine;
the numbers of Spark jobs and of Delta commits do not.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from expectations import shop_suites
from expectations.checks import findings
from platform_defs.engine import Engine
from platform_defs.resources.engine import make_engine
from platform_defs.resources.spark import SparkResource, session
from platform_defs.settings import Settings
from platform_defs.simulator import Shop, ShopDay, drop, simulate

PHASES = ("ingest", "advance", "account", "checks")
_SAMPLE_ORDERS = 500


@dataclass(frozen=True)
class Cost:
    """The cost of a part of a cycle.

    Args:
        seconds: the wall time.
        jobs: Spark jobs.
        commits: new versions of Delta tables.
    """

    seconds: float = 0.0
    jobs: int = 0
    commits: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds + other.seconds, self.jobs + other.jobs, self.commits + other.commits)

    @property
    def summary(self) -> dict[str, Any]:
        """The cost as plain data."""
        return {"seconds": round(self.seconds, 3), "jobs": self.jobs, "commits": self.commits}


@dataclass
class Cycle:
    """The costs of one cycle.

    Args:
        rows: the rows that were landed.
        parts: the cost by phase and by table; the ingest of all sources is one part, `all`.
    """

    rows: int
    parts: dict[tuple[str, str], Cost] = field(default_factory=dict)

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
        jobs, commits, began = self._jobs(), self._commits(), time.perf_counter()
        yield
        cycle.parts[phase, table] = Cost(time.perf_counter() - began, self._jobs() - jobs, self._commits() - commits)

    def _jobs(self) -> int:
        """The number of jobs that the session has started; Spark numbers them from 0."""
        return int(cast(Any, self._spark)._jsc.sc().dagScheduler().numTotalJobs())

    def _commits(self) -> int:
        return sum(1 for _ in self._root.rglob("_delta_log/*.json"))


def run(work: Path, rows: int, cycles: int, *, checks: bool, cores: int, heap: str, note: Callable[[str], object]) -> list[Cycle]:
    """Run cycles on a new lake; the last ones are warm.

    Args:
        work: an empty folder.
        rows: rows that land in each cycle, in all sources together, about.
        cycles: how many cycles.
        checks: whether to run the suites of Great Expectations too.
        cores: the cores of the Spark session.
        heap: the heap of its JVM.
        note: called with one line for each cycle.
    """
    day = _day(rows, cycles)
    values = Settings(lake=str(work / "lake"), landing=str(work / "landing"), spark_master=f"local[{cores}]", driver_memory=heap)
    spark = session(values)
    engine = replace(make_engine(values, SparkResource()), connect=lambda: spark)
    meter, done = Meter(spark, work / "lake"), list[Cycle]()
    for part in range(cycles):
        cycle = Cycle(sum(drop(day, Path(values.landing_root), part, cycles).values()))
        _run_cycle(engine, meter, cycle, values if checks else None)
        note(f"cycle {part + 1}: {cycle.summary}")
        done.append(cycle)
    return done


def _run_cycle(engine: Engine, meter: Meter, cycle: Cycle, checked: Settings | None) -> None:
    with meter.part(cycle, "ingest", "all"):
        engine.ingest()
    days = engine.pending.all_days()
    for name in engine.assets:
        with meter.part(cycle, "advance", name):
            engine.advance(name)
    for name in engine.assets:
        with meter.part(cycle, "account", name):
            is_right = all(a.holds for a in engine.accounts.days(name)) and not engine.accounts.count_differences(name)
            _require(is_right, f"the account of {name}")
    for suite in shop_suites(checked.hot_items, checked.category_hot_items) if checked else ():
        with meter.part(cycle, "checks", suite.table):
            found = findings(engine, suite.table, suite.suite.expectations, day_column=suite.day_column, days=days)
            _require(found is None or not any(f.error for f in found.by_check.values()), f"the suite of {suite.table}")


def _require(holds: bool, claim: str) -> None:
    if not holds:
        raise AssertionError(f"{claim} does not hold, so the cost is meaningless")


def _day(rows: int, cycles: int) -> ShopDay:
    """A simulated day with about this many rows in each of the cycles."""
    sample = simulate(Shop(orders=_SAMPLE_ORDERS))
    rows_per_order = sum(len(sample.lines(source, 0, 1)) for source in sample.arrivals) / _SAMPLE_ORDERS
    return simulate(Shop(orders=max(1, round(rows * cycles / rows_per_order)), parts=cycles))
