"""Processing time as a clock: every batch moves the watermark of such a source, also without rows. No test needs Spark."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, Punctuated, SourceContract
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.ingest.clock import MOST_STEPS, Wait, clock_rows, waiting_sources, waits_of, watermark_at
from platform_defs.engine.ingest.control_batches import ControlBatches
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.ledger.ledger import Ledger, SourceBatch, next_row
from tests.support.bare_lake import bare_engine, commit_batch
from tests.support.clock import NOON, Clock
from tests.support.example_counts import example_count
from tests.support.memory_ledger import MemoryLedgerStore
from tests.support.small_sources import HOUR, MINUTE, START, join, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
TABLES = [
    DerivedAsset(name="counts", inputs=("c",), operator=COUNT),
    join("clicked", ("c", "s"), lower="-10 minutes", upper="0 minutes"),
    join("others", ("l", "r")),
]


def _contract(name: str = "c", **changes: Any) -> SourceContract:
    return source(name, **{"event_time": "ingested_at", "watermark": BoundedOutOfOrderness("0 ms"), **changes})


SOURCES = [_contract(), source("s"), source("l"), source("r")]


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    """An engine without a session: `c` has processing time, and is counted by minute, and joined with `s`."""
    return bare_engine(tmp_path, clock, SOURCES, TABLES)


def _control_batches(engine: Engine) -> ControlBatches:
    no_session: Any = None
    waits = waits_of(engine.sources, engine.assets)
    return ControlBatches(no_session, engine.lake, engine.ledger, engine.sources, waits=waits)


def _watermark(engine: Engine, name: str = "c") -> int | None:
    row = engine.ledger.newest_rows().get(name)
    return None if row is None else row.watermark


def _rows_of_clock(engine: Engine) -> int:
    """Commit a batch with a row of `c`; returns its event time, which is the batch's."""
    now = engine.ledger.now()
    times = {"max_event_time": now, "first_event_time": now, "last_event_time": now, "ingested_at": now}
    commit_batch(engine, {"c": {"watermark": now - 1, **times}})
    return now


def test_every_batch_moves_the_clock(engine: Engine, clock: Clock) -> None:
    batches = _control_batches(engine)
    assert batches.watermark({"s": START}) is not None
    [seen, *_] = engine.ledger.batches()
    assert [(row.source, row.kind, row.watermark) for row in seen] == [("c", "clock", NOON - 1), ("s", "watermark", START)]
    clock.pass_ms(HOUR)
    batches.watermark({"l": START})
    assert _watermark(engine) == NOON + HOUR - 1


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        (_contract(), 999),
        (_contract(watermark=BoundedOutOfOrderness("100 ms")), 899),
        (source("c"), None),
        (_contract(watermark=Punctuated("ts")), None),
    ],
)
def test_the_watermark_is_the_time_of_the_batch_less_the_bound(contract: SourceContract, expected: int | None) -> None:
    [*found] = clock_rows({}, {"c": contract}, 7, 1_000)
    assert [(row.seq, row.kind, row.ingested_at, row.watermark, row.idle) for row in found] == (
        [] if expected is None else [(7, "clock", 1_000, expected, False)]
    )


def test_a_watermark_that_was_set_ahead_of_the_clock_never_goes_back() -> None:
    row = SourceBatch(seq=1, kind="watermark", ingested_at=5, source="c", watermark=2_000, idle=True)
    assert [(row.watermark, row.idle) for row in clock_rows({"c": row}, {"c": _contract()}, 2, 1_000)] == [(2_000, False)]


def test_a_source_that_has_a_row_in_the_batch_gets_no_second_one() -> None:
    assert clock_rows({}, {"c": _contract()}, 1, 1_000, {"c"}) == ()


def test_the_clock_goes_on_until_the_last_result_is_final_and_then_stands_still(engine: Engine, clock: Clock) -> None:
    """A row waits at most 10 minutes in the join, and less than a minute in the count."""
    engine.__dict__["ledger"] = Ledger(engine.lake, clock, MemoryLedgerStore())
    batches = _control_batches(engine)
    assert batches.record_idle_sources() is None, "there is no row yet"
    last = _rows_of_clock(engine)
    written = 0
    for _ in range(15 * MINUTE // 5_000):
        clock.pass_ms(5_000)
        is_due = bool(engine.pending.sources_for_control_batch())
        assert is_due is (batches.record_idle_sources() is not None)
        written = engine.ledger.head - 1
    watermark = _watermark(engine)
    assert watermark is not None
    assert last + 10 * MINUTE <= watermark <= last + 11 * MINUTE
    assert 10 <= written <= 2 * MOST_STEPS


def test_the_clock_goes_on_until_a_key_has_expired(tmp_path: Path, clock: Clock) -> None:
    """A key expires when its newest row is older than the TTL, so not yet when it is as old as the TTL."""
    totals = Aggregate(by="k", aggregates={"n": "count(*)"}, ttl="1 minute", after_ttl="retract")
    engine = bare_engine(tmp_path, clock, SOURCES, [DerivedAsset(name="totals", inputs=("c",), operator=totals)])
    batches, last = _control_batches(engine), _rows_of_clock(engine)
    clock.pass_ms(MINUTE + 1)
    assert batches.record_idle_sources() is not None
    assert _watermark(engine) == last + MINUTE
    clock.pass_ms(1)
    assert batches.record_idle_sources() is not None
    assert _watermark(engine) == last + MINUTE + 1
    clock.pass_ms(HOUR)
    assert batches.record_idle_sources() is None, "the key has expired"


@pytest.mark.parametrize("examples", [250, pytest.param(1_000, marks=pytest.mark.soak)])
def test_the_clock_moves_by_steps_until_every_result_is_final(examples: int) -> None:
    """In random cases, results of some tables are pending, for a row of another source that may be ahead of the clock."""
    rng, seen = random.Random(9), Counter[str]()
    for case in range(example_count(examples)):
        contract = _contract(watermark=BoundedOutOfOrderness(rng.choice(["0 ms", "10 s", "5 minutes"])))
        waits = [Wait(frozenset("cs"), rng.randrange(rng.choice([MINUTE, HOUR, 48 * HOUR]))) for _ in range(rng.randint(1, 3))]
        newest, now = NOON + rng.randrange(-HOUR, 3 * HOUR), NOON
        seen.update([f"{len(waits)} tables", "ahead of the clock" if newest > NOON + HOUR else "near the clock"])
        last = {"s": SourceBatch(seq=1, kind="rows", ingested_at=now, source="s", watermark=now, max_event_time=newest)}
        ledger: Any = SimpleNamespace(newest_rows=lambda last=last: last)
        final_at = [newest + wait.longest for wait in waits]
        passed = max(6 * MINUTE, max(final_at) + 6 * MINUTE - now) // 50
        watermark: int | None = None
        for _ in range(55):
            now += passed
            before, target = watermark, watermark_at(contract, now)
            steps = [HOUR if newest > now + HOUR else min(wait.longest // MOST_STEPS, HOUR) for wait in waits]
            if waiting_sources(ledger, {"c": contract}, {"c": waits}, now):
                last |= {row.source: row for row in clock_rows(last, {"c": contract}, 2, now)}
                watermark = last["c"].watermark
                assert watermark == target, case
                assert before is None or target - before > min(steps) or any(before < at <= target for at in final_at), case
            assert watermark is not None, case
            assert all(watermark >= min(target - step, at) for step, at in zip(steps, final_at, strict=True)), case
            assert all(watermark >= at for at in final_at if target >= at), case
        assert watermark is not None
        assert watermark >= max(final_at), case
    assert len(seen) == 5
    assert min(seen.values()) >= example_count(examples) // 5


def test_a_sensor_sees_that_results_wait_for_the_clock(engine: Engine, clock: Clock) -> None:
    _rows_of_clock(engine)
    assert engine.pending.sources_for_control_batch() == []
    clock.pass_ms(2_000)
    assert engine.pending.sources_for_control_batch() == ["c"]
    assert _control_batches(engine).record_idle_sources() is not None
    assert engine.pending.sources_for_control_batch() == []


def test_a_result_waits_for_the_sum_of_the_waits_on_its_way() -> None:
    hourly = WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"})
    tables = {t.name: t for t in [TABLES[0], DerivedAsset(name="hourly", inputs=("counts",), operator=hourly)]}
    found = waits_of({"c": _contract()}, tables)
    assert found == {"c": [Wait(frozenset({"c"}), MINUTE), Wait(frozenset({"c"}), MINUTE + HOUR)]}
    assert waits_of({"c": source("c")}, tables) == {}


def test_rows_of_a_joined_source_wait_for_the_clock_too(engine: Engine) -> None:
    commit_batch(engine, {"s": {"watermark": NOON, "max_event_time": NOON}})
    assert engine.pending.sources_for_control_batch() == ["c"], "the clock has not been recorded yet"
    assert _control_batches(engine).record_idle_sources() is not None
    assert _watermark(engine) is not None


def test_a_source_with_processing_time_is_never_idle(tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, [_contract(idle_timeout="1 minute"), source("s", idle_timeout="1 minute")], TABLES[:2])
    _rows_of_clock(engine)
    clock.pass_ms(HOUR)
    assert [*idle_sources(engine.ledger, engine.sources, engine.ledger.now())] == ["s"]
    assert [(row.source, row.kind, row.idle) for row in _control_batches(engine).record_idle_sources() or ()] == [
        ("s", "inactive", True),
        ("c", "clock", False),
    ]


def test_a_drain_raises_processing_time_to_the_clock_only(engine: Engine, clock: Clock) -> None:
    last = _rows_of_clock(engine)
    commit_batch(engine, {"s": {"watermark": NOON, "max_event_time": NOON + HOUR}})
    batches = _control_batches(engine)
    drained = {row.source: (row.kind, row.watermark) for row in batches.drain(10 * MINUTE) or ()}
    end = NOON + HOUR + 10 * MINUTE + 1
    assert drained == {"c": ("drain", engine.ledger.newest_rows()["c"].ingested_at - 1)} | dict.fromkeys(("s", "l", "r"), ("drain", end))
    clock.pass_ms(2 * HOUR)
    assert batches.record_idle_sources() is not None, "the clock finalizes the rows that the drain did not"
    watermark = _watermark(engine)
    assert watermark is not None
    assert watermark > last + 10 * MINUTE


def test_a_repeated_drain_writes_a_batch_only_while_a_result_may_be_pending(engine: Engine, clock: Clock) -> None:
    last, batches = _rows_of_clock(engine), _control_batches(engine)
    assert batches.drain(_LOOKBACK) is not None
    clock.pass_ms(MINUTE)
    assert batches.drain(_LOOKBACK) is not None, "the join's row waits for 10 minutes"
    assert _watermark(engine) == engine.ledger.newest_rows()["c"].ingested_at - 1
    clock.pass_ms(10 * MINUTE)
    assert batches.drain(_LOOKBACK) is not None
    assert (_watermark(engine) or 0) >= last + 10 * MINUTE
    for _ in range(2):
        clock.pass_ms(1_000)
        assert batches.drain(_LOOKBACK) is None
    _rows_of_clock(engine)
    assert batches.drain(_LOOKBACK) is not None


def test_a_drain_of_tables_raises_their_own_sources_only(engine: Engine) -> None:
    commit_batch(engine, {name: {"watermark": START, "max_event_time": START + at} for name, at in {"s": HOUR, "l": 1, "r": 2}.items()})
    drained = {row.source: row.watermark for row in _drain(engine, ["others"]) or () if row.kind == "drain"}
    assert drained == dict.fromkeys(("l", "r"), START + 2 + _LOOKBACK + 1), "past the newest event of these sources"
    assert _watermark(engine, "s") == START
    assert _drain(engine, ["others"]) is None
    assert {row.source for row in _drain(engine, None) or () if row.kind == "drain"} == {"c", "s", "l", "r"}


_LOOKBACK = sum(t.operator.reads.longest_lookback + t.operator.reads.watermark_delay for t in TABLES)


def _drain(engine: Engine, tables: list[str] | None) -> Any:
    """`Engine.drain` with control batches that need no session."""
    engine.ingestion.__dict__["control_batches"] = _control_batches(engine)
    return engine.drain(tables)


ACTIONS = ("rows", "drain", "idle", "other")


def test_no_row_of_processing_time_is_ever_late(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In random histories, in which each action follows each other one, with and without time between them."""
    rng, seen = random.Random(4), set[tuple[str, str, bool]]()
    for _ in range(25):
        actions = [(rng.choice(ACTIONS), rng.choice([0, rng.randrange(90_000)])) for _ in range(10)]
        seen |= {(before, action, passed > 0) for (before, _), (action, passed) in pairwise(actions)}
        _check_actions(tmp_path_factory.mktemp("clock"), actions)
    assert len(seen) == 2 * len(ACTIONS) ** 2


@pytest.mark.soak
@settings(max_examples=1_000)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 90_000)), max_size=12))
def test_in_many_examples_no_row_of_processing_time_is_late(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]
) -> None:
    _check_actions(tmp_path_factory.mktemp("clock"), actions)


def _check_actions(folder: Path, actions: list[tuple[str, int]]) -> None:
    clock = Clock()
    engine = bare_engine(folder, clock, SOURCES, TABLES)
    engine.__dict__["ledger"] = Ledger(engine.lake, clock, MemoryLedgerStore())
    watermarks = [-1]
    for action, passed in actions:
        clock.pass_ms(passed)
        if action == "rows":
            before = _watermark(engine)
            assert before is None or _rows_of_clock(engine) > before
        elif action == "other":
            newest = max(clock.now, _watermark(engine, "s") or 0)
            commit_batch(engine, {"s": {"watermark": newest, "max_event_time": newest + HOUR}})
        else:
            _ = _control_batches(engine).drain(_LOOKBACK) if action == "drain" else _control_batches(engine).record_idle_sources()
        watermarks.append(_watermark(engine) or -1)
    assert watermarks == sorted(watermarks)


def test_a_row_of_the_clock_carries_state_over() -> None:
    """It keeps the newest event time and the partitions of the source."""
    row = SourceBatch(seq=1, kind="rows", ingested_at=5, source="c", watermark=4, max_event_time=5, partitions=("kafka://t/0|5|5",))
    [found] = clock_rows({"c": row}, {"c": _contract()}, 2, 9)
    assert found == next_row(row, seq=2, kind="clock", ingested_at=9, watermark=8)
