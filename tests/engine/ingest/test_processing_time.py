"""Processing time: every row of a source with processing time has the time of its batch."""

import pytest
from pyspark.sql import functions as F

from assets.contracts import BoundedOutOfOrderness, DerivedAsset
from operators import Select, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.json_rows import json_rows_of
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, Event, join, land, law_violations, replay, rows_of, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
PARTS = ([Event("a", 1, 9 * MINUTE), Event("a", 2, 0)], [Event("a", 3, 0), Event("b", 1, 1)], [Event("a", 2, 5)])


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    """Counts by minute of arrival."""
    return make_engine(
        [source("l", event_time="ingested_at", watermark=BoundedOutOfOrderness("0 ms"), unique_key=("k", "v"))],
        [DerivedAsset(name="counts", inputs=("l",), operator=COUNT)],
    )


def _times(engine: Engine) -> list[tuple[int, int]]:
    return [
        (r[0], r[1]) for r in engine.views.table("events/l").select("seq", F.unix_millis("event_time")).orderBy("seq", "arrival").collect()
    ]


def test_processing_time_windows_use_the_batch_time(engine: Engine, clock: Clock) -> None:
    for part, events in enumerate(PARTS):
        land(engine, "l", f"{part}.jsonl", [event.line for event in events])
        engine.ingest()
        assert [s.rows for s in engine.advance("counts")] == [[0], [1], [2]][part]
        clock.pass_ms(MINUTE)
    times = [batch[0].ingested_at for batch in engine.ledger.batches()]
    assert times == [NOON, NOON + MINUTE, NOON + 2 * MINUTE]
    assert _times(engine) == [(1, times[0]), (1, times[0]), (2, times[1]), (2, times[1])], "the last row is a duplicate"
    assert rows_of(engine.views.table("counts"), "k", "n") == [("a", 1), ("a", 2), ("b", 1)]
    assert engine.views.late("counts", "l").isEmpty()
    assert law_violations(engine, "counts") == set()


def test_selected_rows_are_final_in_the_step_after_their_ingest(make_engine: MakeEngine, clock: Clock) -> None:
    """A control batch moves the clock past the rows of an ingest."""
    engine = make_engine(
        [source("l", event_time="ingested_at", watermark=BoundedOutOfOrderness("0 ms"))],
        [DerivedAsset(name="selected", inputs=("l",), operator=Select())],
    )
    for part, events in enumerate(PARTS[:2]):
        land(engine, "l", f"{part}.jsonl", [event.line for event in events])
        engine.ingest()
        assert [s.rows for s in engine.advance("selected")] == [len(events)]
        assert engine.ingest() == []
        clock.pass_ms(MINUTE)
        assert engine.ingest() == [], "nothing is pending, so the ledger does not grow"
    assert rows_of(engine.views.table("selected"), "v") == [(1,), (1,), (2,), (3,)]
    assert engine.views.late("selected", "l").isEmpty()
    assert law_violations(engine, "selected") == set()


def test_rows_of_a_killed_attempt_are_not_reused_in_processing_time(engine: Engine, clock: Clock) -> None:
    land(engine, "l", "0.jsonl", [Event("a", 1, 0).line])
    run_and_die(engine.ingest, "ingest.before_ledger")
    clock.pass_ms(5 * MINUTE)
    [batch] = engine.ingest()
    assert _times(engine) == [(1, NOON + 5 * MINUTE)] == [(1, batch[0].first_event_time)]


def test_replayed_batches_have_increasing_processing_times(engine: Engine) -> None:
    replay(engine, [{"l": [Event("a", 1, 0)]}, {"l": [Event("a", 2, 0)]}])
    times = {batch[0].seq: batch[0].ingested_at for batch in engine.ledger.batches()}
    assert _times(engine) == [(seq, times[seq]) for seq in (1, 3)]


def test_windows_close_and_joins_keep_unmatched_rows_as_the_clock_goes_on(make_engine: MakeEngine, clock: Clock) -> None:
    """Nothing arrives after the first batch. Advancing after each batch of the clock and advancing once give the same tables."""
    counts = [DerivedAsset(name=name, inputs=("l",), operator=COUNT) for name in ("counts", "counts_at_once")]
    joins = [join(name, ("l", "r"), lower="0 minutes", upper="2 minutes", how="left") for name in ("joined", "joined_at_once")]
    timed = [source(name, event_time="ingested_at", watermark=BoundedOutOfOrderness("0 ms")) for name in ("l", "r")]
    engine = make_engine(timed, [*counts, *joins])
    land(engine, "l", "1.jsonl", [Event("a", 1, 0).line, Event("b", 2, 0).line])
    engine.ingest()
    seen: list[tuple[int, int]] = []
    for passed in (30_000, 30_000, MINUTE, 30_000):
        clock.pass_ms(passed)
        engine.ingest()
        seen.append((sum(s.rows for s in engine.advance("counts")), sum(s.rows for s in engine.advance("joined"))))
    assert seen == [(0, 0), (2, 0), (0, 0), (0, 2)]
    assert rows_of(engine.views.table("counts"), "k", "n") == [("a", 1), ("b", 1)]
    assert rows_of(engine.views.table("joined"), "k", "left_v", "right_v") == [("a", 1, None), ("b", 2, None)]
    clock.pass_ms(60 * MINUTE)
    assert engine.ingest() == [], "no result waits any more"
    land(engine, "r", "1.jsonl", [Event("a", 3, 0).line])
    engine.ingest()
    for name in engine.assets:
        engine.advance(name)
    tables = json_rows_of({name: engine.views.table(name) for name in engine.assets})
    for name in ("counts", "joined"):
        assert tables[name] == tables[f"{name}_at_once"]
        assert law_violations(engine, name) == set()
