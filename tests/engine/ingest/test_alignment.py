"""Watermark alignment: a source that is ahead of its group waits, and no source waits for ever. One test needs Spark."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets.contracts import Alignment, BoundedOutOfOrderness, SourceContract
from platform_defs.cli.monitored import of_source
from platform_defs.engine import Engine
from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest.alignment import SourceAhead, next_files, sources_ahead
from platform_defs.engine.ingest.control_batches import ControlBatches
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.ledger.ledger import Ledger, SourceBatch, next_row
from platform_defs.engine.ledger.new_rows import IDLE as PRESENT_RULE
from platform_defs.orchestration.waiting_input import waiting_input
from tests.conftest import MakeEngine
from tests.support.bare_lake import bare_engine, commit_batch
from tests.support.clock import NOON, Clock
from tests.support.example_counts import example_count
from tests.support.memory_ledger import MemoryLedgerStore
from tests.support.small_sources import DAY, HOUR, MINUTE, START, Event, join, land, law_violations, rows_of, source

IDLE = {"kind": "inactive", "idle": True}


def _aligned(name: str, group: str = "g", max_drift: Any = "1 hour", **changes: Any) -> SourceContract:
    return source(name, **{"alignment": Alignment(group, max_drift), "idle_timeout": "1 hour", **changes})


SOURCES = [_aligned("a"), _aligned("b"), _aligned("c", max_drift="3 hours"), _aligned("other", "h"), source("free")]


@dataclass(frozen=True)
class Case:
    id: str
    watermarks: Mapping[str, Mapping[str, Any]]
    expected: Mapping[str, SourceAhead]


def _at(hours: float, **changes: Any) -> dict[str, Any]:
    return {"watermark": START + int(hours * HOUR), **changes}


CASES = [
    Case("before the first batch nobody waits", {}, {}),
    Case("at the drift a source is read, 1 ms past it is not", {"a": _at(0), "b": _at(1), "c": _at(0)}, {}),
    Case("1 ms past the drift", {"a": _at(0), "b": {"watermark": START + HOUR + 1}, "c": _at(0)}, {"b": SourceAhead("a", HOUR + 1)}),
    Case("each source has its own drift", {"a": _at(0), "b": _at(2), "c": _at(2)}, {"b": SourceAhead("a", 2 * HOUR)}),
    Case(
        "a source without a watermark is behind all others",
        {"a": _at(0), "b": _at(0)},
        {"a": SourceAhead("c", None), "b": SourceAhead("c", None)},
    ),
    Case("an idle source holds back nobody", {"a": _at(0, **IDLE), "b": _at(5), "c": _at(4.5)}, {}),
    Case("an idle source without rows holds back nobody", {"a": {**IDLE}, "b": _at(5), "c": _at(4.5)}, {}),
    Case("an idle source that is ahead waits too", {"a": _at(0), "b": _at(5, **IDLE), "c": _at(0)}, {"b": SourceAhead("a", 5 * HOUR)}),
    Case("all are idle", {"a": _at(0, **IDLE), "b": _at(5, **IDLE), "c": _at(9, **IDLE)}, {}),
    Case(
        "other groups, and sources without a group, do not count",
        {"a": _at(9), "b": _at(9), "c": _at(9), "other": _at(0), "free": _at(1)},
        {},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_sources_that_wait_for_their_group(tmp_path: Path, clock: Clock, case: Case) -> None:
    engine = bare_engine(tmp_path, clock, SOURCES, [])
    if case.watermarks:
        commit_batch(engine, case.watermarks)
    assert sources_ahead(engine.ledger, engine.sources) == case.expected
    assert engine.ingestion.ahead == case.expected


def test_a_source_of_a_group_is_read_file_by_file_and_others_are_not() -> None:
    files = [File(n, f"/landing/{name}/{n}.jsonl", 1, name) for name in ("free", "a", "b") for n in (3, 1, 2)]
    files = [f for f in files if f.source != "b" or f.modified == 2]
    kept, left = next_files(files, {of.name: of for of in SOURCES})
    assert [(f.source, f.modified) for f in kept] == [("free", 1), ("free", 2), ("free", 3), ("a", 1), ("b", 2)]
    assert left == {"a"}


def test_a_source_that_waits_does_not_become_idle_and_the_one_that_it_waits_for_does(tmp_path: Path, clock: Clock) -> None:
    """Otherwise the rows that wait would be late when they are read."""
    engine = bare_engine(tmp_path, clock, SOURCES[:2], [])
    commit_batch(engine, {"a": _at(0), "b": _at(5)})
    clock.pass_ms(2 * HOUR)
    assert [*idle_sources(engine.ledger, engine.sources, engine.ledger.now())] == ["a"]
    commit_batch(engine, {"a": {**IDLE}})
    assert sources_ahead(engine.ledger, engine.sources) == {}
    assert [*idle_sources(engine.ledger, engine.sources, engine.ledger.now())] == ["b"], "it has no reason to wait any more"


def test_a_sensor_requests_nothing_for_files_that_wait(tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, SOURCES[:2], [])
    object.__setattr__(engine, "folders", {name: str(tmp_path / name) for name in "ab"})
    land(engine, "b", "1.jsonl", [Event("k", 1, 6 * HOUR).line])
    assert waiting_input(engine).subject is not None
    commit_batch(engine, {"a": _at(0), "b": _at(5)})
    assert (waiting_input(engine).subject, waiting_input(engine).reason) == (None, "b waits for a of its alignment group")
    assert of_source(engine, "b") == {"waits_for": "a", "ahead_seconds": 5 * 3600}
    assert of_source(engine, "a") == {"waits_for": None, "ahead_seconds": None}
    commit_batch(engine, {"a": _at(4.5)})
    assert waiting_input(engine).subject is not None


@dataclass(frozen=True)
class Group:
    """A random alignment group.

    Args:
        files: for each of its sources, the hours of its files, in the order in which they are read.
        drift: the largest drift of its sources, in hours.
    """

    files: Sequence[Sequence[int]]
    drift: int


@dataclass
class NewestRows:
    """The newest row of each source, in place of a ledger: a ledger needs 1 ms for each row."""

    clock: Clock
    rows: dict[str, SourceBatch] = field(default_factory=dict)
    active_at: dict[str, int] = field(default_factory=dict)

    def newest_rows(self) -> dict[str, SourceBatch]:
        return self.rows

    def wall_clock(self) -> int:
        return self.clock.now

    def first_batch_at(self) -> int:
        return NOON

    def last_active_at(self, name: str) -> int | None:
        return self.active_at.get(name)

    def source(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(idle_rule=PRESENT_RULE)


@dataclass
class Stream:
    """The sources of some groups, whose rows are recorded in a ledger, or by `NewestRows`."""

    contracts: Mapping[str, SourceContract]
    clock: Clock
    ledger: Any
    engine: Engine | None = None

    def read(self, times: Mapping[str, tuple[int, int]]) -> None:
        """Record the newest time of the rows of each source, and that of all of its rows."""
        changes = {name: {"watermark": top, "max_event_time": newest, "idle": False} for name, (newest, top) in times.items()}
        if self.engine:
            commit_batch(self.engine, changes)
            return
        for name, changed in changes.items():
            self.ledger.rows[name] = SourceBatch(seq=1, kind="rows", ingested_at=self.clock.now, source=name, **changed)
            self.ledger.active_at[name] = self.clock.now

    def record_idle(self) -> None:
        """Record the sources that have become idle."""
        if self.engine:
            no_session: Any = None
            ControlBatches(no_session, self.engine.lake, self.ledger, self.contracts).record_idle_sources()
            return
        for name, row in idle_sources(self.ledger, self.contracts, self.clock.now).items():
            self.ledger.rows[name] = next_row(row, seq=1, kind="inactive", ingested_at=self.clock.now, idle=True)


def _contracts(groups: Sequence[Group]) -> dict[str, SourceContract]:
    """The sources `g0_0`, `g0_1` and `g0_2` of the first group, and so on."""
    bound, drifts = BoundedOutOfOrderness("0 ms"), [group.drift * HOUR for group in groups]
    found = [_aligned(f"g{n}_{which}", f"g{n}", drift, watermark=bound) for n, drift in enumerate(drifts) for which in range(3)]
    return {contract.name: contract for contract in found}


def _random_group(rng: random.Random) -> Group:
    return Group([[rng.randrange(21) for _ in range(rng.randrange(9))] for _ in range(3)], rng.randrange(9))


@pytest.mark.parametrize("examples", [300, pytest.param(1_000, marks=pytest.mark.soak)])
def test_sources_keep_within_their_drift_and_every_file_is_read(clock: Clock, examples: int) -> None:
    rng = random.Random(21)
    groups = [_random_group(rng) for _ in range(example_count(examples))]
    assert _count_waits(Stream(_contracts(groups), clock, NewestRows(clock)), groups) > len(groups)


FILES = st.lists(st.integers(0, 20), max_size=8)


def test_sources_of_a_ledger_keep_within_their_drift(tmp_path: Path) -> None:
    rng = random.Random(22)
    groups = [_random_group(rng) for _ in range(8)]
    waits = [(group.drift, _count_waits_of_ledger(tmp_path, group)) for group in groups]
    assert min(count for drift, count in waits if drift < 3) > 0


@pytest.mark.soak
@settings(max_examples=1_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(FILES, FILES, FILES), st.integers(0, 8))
def test_in_many_examples_sources_of_a_ledger_keep_within_their_drift(tmp_path: Path, files: tuple[list[int], ...], drift: int) -> None:
    _count_waits_of_ledger(tmp_path, Group(files, drift))


def _count_waits_of_ledger(folder: Path, group: Group) -> int:
    """Check a stream whose rows are recorded in a ledger; see `_count_waits`."""
    clock, contracts = Clock(), _contracts([group])
    engine = bare_engine(folder, clock, [*contracts.values()], [])
    engine.__dict__["ledger"] = Ledger(engine.lake, clock, MemoryLedgerStore())
    return _count_waits(Stream(contracts, clock, engine.ledger, engine), [group])


def _count_waits(stream: Stream, groups: Sequence[Group]) -> int:
    """Check a stream: each look reads one file of each source that does not wait; a look without a file records idle sources.

    Returns:
        how often a source with files had to wait.
    """
    files = {f"g{n}_{which}": hours for n, group in enumerate(groups) for which, hours in enumerate(group.files)}
    waiting = {name: [START + hour * HOUR for hour in hours] for name, hours in files.items()}
    read: dict[str, list[int]] = {name: [] for name in files}
    waits = 0
    for look in range(200):
        ahead = sources_ahead(stream.ledger, stream.contracts)
        ready = {name for name, times in waiting.items() if times and name not in ahead}
        waits += sum(name in ahead for name, times in waiting.items() if times)
        if not ready:
            stream.clock.pass_ms(30 * MINUTE)
            stream.record_idle()
        last = stream.ledger.newest_rows()
        for n, group in enumerate(groups):
            _check_look({name: last.get(name) for name in (f"g{n}_{which}" for which in range(3))}, ready, group.drift * HOUR)
        for name in ready:
            read[name].append(waiting[name].pop(0))
        if ready:
            stream.read({name: (read[name][-1], max(read[name])) for name in ready})
        if not any(waiting.values()):
            break
        assert look < 199, "a source waits for ever"
    assert {name: [(t - START) // HOUR for t in times] for name, times in read.items()} == {n: [*hours] for n, hours in files.items()}
    return waits


def _check_look(last: Mapping[str, SourceBatch | None], ready: Collection[str], drift: int) -> None:
    """The sources of a group that are read are within their drift of each one that is not idle."""
    active = [row and row.watermark for row in last.values() if row is None or not row.idle]
    for name in ready & last.keys():
        row = last[name]
        if row is not None and row.watermark is not None:
            own = row.watermark
            assert all(watermark is not None and own - watermark <= drift for watermark in active), name


def test_a_backlog_of_one_source_is_read_no_faster_than_the_other(make_engine: MakeEngine, clock: Clock) -> None:
    """`l` has five days of files, and `r` sends a day at a time. The result equals that of sources that are not aligned."""
    aligned = [source(n, alignment=Alignment("orders", "1 day"), idle_timeout="1 hour") for n in ("l", "r")]
    engine = make_engine(aligned, [join()])
    for day in range(5):
        land(engine, "l", f"{day:02}.jsonl", [Event("a", day, day * DAY).line])
    newest: list[tuple[int | None, int | None]] = []
    for day in range(2):
        land(engine, "r", f"{day:02}.jsonl", [Event("a", 100 + day, day * DAY + 1).line])
        engine.ingest()
        engine.advance("pairs")
        newest.append((_newest_day(engine, "l"), _newest_day(engine, "r")))
    assert newest == [(2, 0), (3, 1)], "one file more than the drift"
    assert waiting_input(engine).subject is None
    assert engine.ingest() == []
    clock.pass_ms(2 * HOUR)
    [idle] = engine.ingest()
    assert [(row.source, row.idle) for row in idle] == [("r", True)]
    engine.ingest()
    assert _newest_day(engine, "l") == 4, "an idle source holds back nobody"
    engine.drain()
    engine.advance("pairs")
    pairs = [(v, w) for v, w in rows_of(engine.views.table("pairs"), "left_v", "right_v") if v is not None and w is not None]
    assert pairs == [(day, 100 + day) for day in range(2)]
    assert law_violations(engine) == set()


def _newest_day(engine: Engine, name: str) -> int | None:
    row = engine.ledger.newest_rows().get(name)
    return None if row is None or row.max_event_time is None else (row.max_event_time - START) // DAY
