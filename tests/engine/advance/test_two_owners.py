"""Two processes that both own a table, because their locks failed: no row is lost or duplicated.

One process is paused at every point that it passes, the other performs a complete action, and the first resumes. Each of its later
commits is refused, or is harmless.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from assets.days import day_of
from operators import Session, Tumbling, WindowedAggregate
from platform_defs.engine import Engine, LedgerError, faults
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.first_rows import first_rows
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.lake.waits import Purpose
from platform_defs.engine.operations.rebuild import empty_table
from tests.support.clock import Clock
from tests.support.example_operators import RunningTotal
from tests.support.file_walk import landed_files
from tests.support.small_sources import DAY, MINUTE, START, Event, join, land, source

SOURCES = [source("l", unique_key=("k", "v")), source("r")]
LENIENT = {"by": "k", "aggregates": {"n": "count(*)"}, "allowed_lateness": "2 minutes"}
ASSETS = [
    join(),
    DerivedAsset(name="counts", inputs=("l",), operator=WindowedAggregate(window=Tumbling(size="1 minute"), **LENIENT)),
    DerivedAsset(name="visits", inputs=("l",), operator=WindowedAggregate(window=Session(gap="30 seconds"), **LENIENT)),
    DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
]
TABLES = [asset.name for asset in ASSETS]
LANDED = [
    {"l": [Event("a", 1, 0), Event("b", 2, MINUTE), Event("a", 3, 4 * MINUTE)], "r": [Event("a", 1, 0), Event("b", 1, 4 * MINUTE)]},
    {"l": [Event("b", 4, 2 * MINUTE), Event("a", 5, DAY), Event("a", 1, 1)], "r": [Event("a", 9, DAY)]},
    {"l": [Event("c", 6, DAY + 1)]},
]


@dataclass(frozen=True)
class UnlockedLake(Lake):
    """A lake whose locks have failed."""

    @contextmanager
    def writer(self, name: str, purpose: Purpose = "write", patience_s: float | None = None) -> Iterator[None]:
        yield


def _advance(engine: Engine) -> None:
    for name in engine.assets:
        engine.advance(name)


def _ingest(engine: Engine) -> None:
    for part in (1, 2):
        engine.ingestion.batches.files(
            [f for name, folder in engine.folders.items() for f in landed_files(folder, name) if f"{part}.jsonl" in f.path]
        )


def _rebuild_tables(engine: Engine) -> None:
    for name in engine.assets:
        empty_table(engine._advance(name))


ACTIONS: dict[str, Callable[[Engine], object]] = {
    "ingest": _ingest,
    "advance": _advance,
    "ingest and advance": lambda engine: (_ingest(engine), _advance(engine)),
    "rebuild_days": lambda engine: [engine.rebuild_days(name, day_of(START), day_of(START + DAY)) for name in engine.assets],
    "rebuild_tables": _rebuild_tables,
    "maintain": lambda engine: engine.maintain(small_files=1),
}


@dataclass(frozen=True)
class Template:
    """A lake with one handled micro-batch, one ingested but unhandled, and one that has only landed."""

    folder: Path
    spark: SparkSession

    def engine(self, lake: Path, kind: type[Lake], tables: Sequence[str] = TABLES) -> Engine:
        folders = {s.name: str(self.folder / "landing" / s.name) for s in SOURCES}
        named = {s.name: s for s in SOURCES}, {a.name: a for a in ASSETS if a.name in tables}
        return Engine(kind(str(lake)), *named, lambda: self.spark, Clock(), folders=folders)

    def copy(self, where: Path) -> Path:
        return Path(shutil.copytree(self.folder / "lake", where))


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Template:
    template = Template(tmp_path_factory.mktemp("owners"), spark)
    engine = template.engine(template.folder / "lake", Lake)
    for part, by_source in enumerate(LANDED):
        for name, events in by_source.items():
            land(engine, name, f"{part}.jsonl", [e.line for e in events])
    files = [f for name, folder in engine.folders.items() for f in landed_files(folder, name)]
    engine.ingestion.batches.files([f for f in files if "0.jsonl" in f.path])
    _advance(engine)
    engine.ingestion.batches.files([f for f in files if "1.jsonl" in f.path])
    DeltaTable(engine.lake.path("counts")).delete("k = 'b'")  # the row that a rebuild repairs
    return template


def _complete(engine: Engine, *, accounted: bool = True) -> dict[str, list[str]]:
    """Complete all work by one owner, and return the content of the lake; `accounted`: also check the law by a recount."""
    _ingest(engine)
    engine.drain()
    _advance(engine)
    engine.rebuild_days("counts", day_of(START), day_of(START + DAY))
    assert not [name for name in engine.assets if engine.accounts.count_differences(name)]
    assert not accounted or not [a for name in engine.assets for a in engine.accounts.days(name) if not a.holds]
    return {table: _stored_rows(engine.lake, table) for table in (*(s.log for s in SOURCES), *engine.assets)}


def _stored_rows(lake: Lake, table: str) -> list[str]:
    """The rows of a table, for comparison with those of a copy; without a query of Spark."""
    found = first_rows(lake, table, 1_000)
    assert found is not None
    count, rows = found
    assert count == len(rows)
    return sorted(map(json.dumps, rows))


@pytest.fixture(scope="module")
def expected(template: Template, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The content of the lake after one owner did all the work."""
    return _complete(template.engine(template.copy(tmp_path_factory.mktemp("undisturbed") / "lake"), Lake))


def _points(template: Template, lake: Path, act: Callable[[Engine], object]) -> list[str]:
    """The points that an action passes in an undisturbed run."""
    passed: list[str] = []
    faults.install(passed.append)
    try:
        act(template.engine(template.copy(lake), UnlockedLake))
    finally:
        faults.install(None)
    return passed


CASES = [
    ("ingest", "ingest and advance", "ingest.before_ledger", TABLES),
    ("advance", "ingest and advance", "advance.before_changelog", ["counts", "total"]),
    ("advance", "rebuild_tables", "advance.before_apply", ["counts", "total"]),
    ("rebuild_days", "ingest and advance", "advance.before_commit", ["counts", "visits"]),
]
"""Two actions, the point at which the first one is paused, and the tables of both owners: one that passes the point, and others."""


@pytest.mark.parametrize(("first", "second", "point", "tables"), CASES, ids=[f"{c[0]} and {c[1]} at {c[2]}" for c in CASES])
def test_a_commit_of_a_paused_owner_is_refused_or_harmless(
    template: Template, expected: dict[str, list[str]], tmp_path: Path, first: str, second: str, point: str, tables: list[str]
) -> None:
    """The law holds for the expected content, so it need not be checked again for equal content."""
    found = _interleaved(template, tmp_path / "disturbed", first, second, point, 0, tables, accounted=False)
    assert found == {name: expected[name] for name in (*(s.log for s in SOURCES), *tables)}


@pytest.mark.soak
@pytest.mark.parametrize(("first", "second"), [*product(ACTIONS, ACTIONS)])
def test_every_pair_of_actions_is_safe_at_every_point(
    template: Template, expected: dict[str, list[str]], tmp_path: Path, first: str, second: str
) -> None:
    passed = _points(template, tmp_path / "points", ACTIONS[first])
    for n, point in enumerate(passed):
        found = _interleaved(template, tmp_path / str(n), first, second, point, passed[:n].count(point))
        assert found == expected, (first, second, point, n)


def _interleaved(
    template: Template,
    lake: Path,
    first: str,
    second: str,
    point: str,
    number: int,
    tables: Sequence[str] = TABLES,
    *,
    accounted: bool = True,
) -> dict[str, list[str]]:
    """Pause one action at its `number`th point, run the other action there, resume the first one, and return the final content."""
    template.copy(lake)
    owner, other = (template.engine(lake, UnlockedLake, tables) for _ in range(2))
    remaining = [number]

    def stop(name: str) -> None:
        if name == point:
            remaining[0] -= 1
            if remaining[0] == -1:
                with suppress(LakeError, LedgerError):
                    ACTIONS[second](other)

    faults.install(stop)
    try:
        with suppress(LakeError, LedgerError):
            ACTIONS[first](owner)
    finally:
        faults.install(None)
    assert remaining[0] < 0, f"{first} does not pass {point}"
    return _complete(template.engine(lake, Lake, tables), accounted=accounted)
