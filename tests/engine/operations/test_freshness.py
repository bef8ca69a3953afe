"""A table is stale while rows of its sources wait for it, not while its sources are silent. No test starts Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from assets.contracts import DerivedAsset
from assets.days import day_of
from operators import TopN, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.advance.plan import plan_step
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.retained import RemovedRows, write_totals
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.operations.freshness import Freshness, Staleness
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import NOON, Clock
from tests.support.small_sources import DAY, HOUR, MINUTE, START, join, source

COUNTS = WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates={"rows": "count(*)"})
TOP = TopN(by="k", order_by="v DESC", rank_end=1)
BEST = TopN(by="k", order_by="v DESC", rank_end=1, change="change")
TABLES = [
    join(),
    join("of_pairs", ("pairs", "other"), left_prefix="pair_", right_prefix="other_"),
    DerivedAsset(name="counts", inputs=("l",), operator=COUNTS),
    DerivedAsset(name="top", inputs=("l",), operator=TOP),
    DerivedAsset(name="best", inputs=("top",), operator=BEST),
]
SILENT = {"kind": "inactive", "idle": True}


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    return bare_engine(tmp_path, clock, [source("l"), source("r"), source("other")], TABLES)


def _waiting(engine: Engine, table: str) -> Staleness | None:
    return engine.snapshot().freshness.waiting(table)


def test_a_table_that_does_not_advance_waits_since_the_first_batch_that_it_could_reflect(engine: Engine, clock: Clock) -> None:
    assert _waiting(engine, "counts") is None, "the ledger has no batch"
    commit_batch(engine, {"l": {"watermark": START}})
    commit_step(engine, "counts", closed_to=START)
    assert _waiting(engine, "counts") is None
    for n in (1, 2):
        clock.pass_ms(MINUTE)
        commit_batch(engine, {"l": {"watermark": START + n * HOUR}})
    clock.pass_ms(HOUR)
    assert _waiting(engine, "counts") == Staleness(NOON + MINUTE, behind="counts")
    commit_step(engine, "counts", closed_to=START + HOUR, seq=2)
    assert _waiting(engine, "counts") == Staleness(NOON + 2 * MINUTE, behind="counts"), "the first batch is reflected"
    commit_step(engine, "counts", closed_to=START + 2 * HOUR)
    clock.pass_ms(24 * HOUR)
    assert _waiting(engine, "counts") is None, "nothing was sent"


def test_rows_of_other_sources_do_not_make_a_table_stale(engine: Engine, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}})
    commit_step(engine, "counts", closed_to=START)
    commit_step(engine, "top")
    clock.pass_ms(HOUR)
    commit_batch(engine, {"other": {"watermark": START + HOUR}})
    assert _waiting(engine, "counts") is None
    assert _waiting(engine, "top") is None


def test_a_table_is_held_back_by_a_silent_source_while_another_one_sends(engine: Engine, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    clock.pass_ms(MINUTE)
    assert _waiting(engine, "pairs") is None, "both are silent"
    commit_batch(engine, {"l": {"watermark": START + HOUR}})
    clock.pass_ms(HOUR)
    assert _waiting(engine, "pairs") == Staleness(NOON + MINUTE, held_back_by="r")
    commit_batch(engine, {"r": SILENT})
    found = _waiting(engine, "pairs")
    assert found == Staleness(NOON + MINUTE + HOUR, behind="pairs"), "it can advance since the source is idle"
    commit_step(engine, "pairs", closed_to=START + HOUR)
    commit_batch(engine, {"l": SILENT})
    clock.pass_ms(24 * HOUR)
    assert _waiting(engine, "pairs") is None


def test_a_source_that_was_never_read_holds_back_the_rows_of_the_other(engine: Engine, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}})
    clock.pass_ms(HOUR)
    assert _waiting(engine, "pairs") == Staleness(NOON, held_back_by="r")


def test_a_table_is_as_stale_as_one_that_it_reads(engine: Engine, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}, "other": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    delay = engine.assets["pairs"].operator.reads.watermark_delay
    commit_step(engine, "of_pairs", closed_to=START - delay, read={"pairs": 1})
    assert _waiting(engine, "of_pairs") is None
    clock.pass_ms(MINUTE)
    commit_batch(engine, {name: {"watermark": START + HOUR} for name in ("l", "r", "other")})
    clock.pass_ms(MINUTE)
    assert _waiting(engine, "of_pairs") == Staleness(NOON + MINUTE, behind="pairs")
    commit_step(engine, "pairs", closed_to=START + HOUR)
    assert _waiting(engine, "of_pairs") == Staleness(NOON + MINUTE, behind="of_pairs")


def test_a_correction_that_was_not_read_makes_a_table_stale(engine: Engine, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}, "other": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    commit_step(engine, "of_pairs", closed_to=START - engine.assets["pairs"].operator.reads.watermark_delay, read={"pairs": 1})
    clock.pass_ms(MINUTE)
    commit_batch(engine, {"l": {"watermark": START}})
    commit_step(engine, "pairs", corrected=((2, START - HOUR, START - HOUR),))
    assert _waiting(engine, "of_pairs") == Staleness(NOON + MINUTE, behind="of_pairs")
    commit_step(engine, "of_pairs", read={"pairs": 2})
    assert _waiting(engine, "of_pairs") is None


def test_an_upserted_table_waits_for_rows_and_for_the_steps_of_a_table(engine: Engine, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}})
    commit_step(engine, "top")
    commit_step(engine, "best", read={"top": 1})
    assert (_waiting(engine, "top"), _waiting(engine, "best")) == (None, None)
    clock.pass_ms(MINUTE)
    commit_batch(engine, {"l": {"watermark": START, "accepted": 0, "rows_read": 0}})
    assert _waiting(engine, "top") is None, "the batch has no rows"
    clock.pass_ms(MINUTE)
    commit_batch(engine, {"l": {"watermark": START}})
    clock.pass_ms(MINUTE)
    assert _waiting(engine, "top") == Staleness(NOON + 2 * MINUTE, behind="top")
    assert _waiting(engine, "best") == Staleness(NOON + 2 * MINUTE, behind="top")
    commit_step(engine, "top")
    commit_batch(engine, {"l": {"watermark": START}})
    commit_step(engine, "top")
    assert _waiting(engine, "best") == Staleness(NOON + 2 * MINUTE, behind="best"), "since the first step that was not read"


def test_the_unhandled_rows_are_those_of_later_batches(engine: Engine) -> None:
    commit_batch(engine, {"l": {"watermark": START}})
    commit_step(engine, "counts", closed_to=START)
    commit_batch(engine, {"l": {"watermark": START + HOUR}, "r": {"watermark": START}})
    freshness = Freshness(engine.freshness.workspace)
    assert {name: freshness.unhandled_rows(name) for name in engine.assets} == {
        "counts": 10,
        "top": 20,
        "pairs": 30,
        "of_pairs": 0,
        "best": 0,
    }


def test_a_table_that_begins_after_the_watermark_has_no_work_until_it_is_reached(tmp_path: Path, clock: Clock) -> None:
    weekly = WindowedAggregate(by="k", window=Tumbling(size="7 days"), aggregates={"rows": "count(*)"})
    log, table = source("l", retention="1 day"), DerivedAsset(name="weekly", inputs=("l",), operator=weekly)
    engine = bare_engine(tmp_path, clock, [log], [table])
    commit_batch(engine, {"l": {"watermark": START + 10 * DAY}})
    written = {"commit_properties": CommitProperties(app_transactions=[Transaction(RETENTION, 1)])}
    write_deltalake(engine.lake.path(log.log), pa.table({"seq": pa.array([], pa.int64())}), **written)
    write_totals(engine.lake, log, RemovedRows(1, START + 9 * DAY, 1))
    starts_after = START + 17 * DAY - 1
    position = position_of(engine.pending.workspace, table, Progress())
    assert (position.starts_after, plan_step(position, max_step=1, row_times=lambda *_: None)) == (starts_after, None)
    assert (engine.pending.days("weekly"), _waiting(engine, "weekly")) == (None, None)
    assert engine.pending.describe_progress("weekly")["lag_ms"] == 0
    commit_batch(engine, {"l": {"watermark": starts_after + 1}})
    later = engine.snapshot()
    assert later.pending.days("weekly") == (day_of(starts_after + 1), day_of(starts_after + 1))
    assert _waiting(later, "weekly") == Staleness(NOON, behind="weekly")
    assert later.pending.describe_progress("weekly")["lag_ms"] == 1
