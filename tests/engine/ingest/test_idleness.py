"""Idle sources: how they become active again, how long they stay idle, and when a table of idle sources holds back its readers.

Most tests need no Spark.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets.contracts import DerivedAsset
from assets.factories.closed_range_table import progress_metadata
from operators import Deduplicate, Sliding, WindowJoin
from platform_defs.engine import Engine
from platform_defs.engine.ingest.control_batches import ControlBatches
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Kind, SourceBatch, next_row
from platform_defs.engine.ledger.watermarks import table_idleness
from tests.conftest import MakeEngine
from tests.support.bare_lake import bare_engine, bare_engine_on, commit_step
from tests.support.clock import Clock
from tests.support.json_rows import dicts_of
from tests.support.small_sources import DAY, HOUR, MINUTE, START, Event, join, land, law_violations, rows_of, source

NO_SESSION: Any = None
WIDE = [join("pairs", ("l", "r")), join("pay", ("p", "pairs"), left_prefix="pay_", right_prefix="wide_")]


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    """An engine without a Spark session: `pairs` of `l` and `r`, and `pay` of `p` and `pairs`."""
    return bare_engine(tmp_path, clock, [source(n, idle_timeout="1 hour") for n in ("l", "r", "p")], WIDE)


def _new_engine(engine: Engine) -> Engine:
    """An engine on the same lake, which computes every watermark again."""
    return bare_engine_on(Lake(engine.lake.root), engine.clock, [*engine.sources.values()], [*engine.assets.values()])


def _control_batches(engine: Engine) -> ControlBatches:
    return ControlBatches(NO_SESSION, engine.lake, engine.ledger, engine.sources)


def _commit_rows(engine: Engine, times: Mapping[str, int], idle: Sequence[str] = (), idle_kind: Kind = "inactive") -> None:
    """Commit a batch with one row of each source at a time after START, and other sources recorded as idle, with a kind."""
    seq, now, last = engine.ledger.head + 1, engine.ledger.now(), engine.ledger.newest_rows()
    active = [
        SourceBatch(
            seq=seq,
            kind="rows",
            ingested_at=now,
            source=name,
            watermark=START + at - MINUTE - 1,
            max_event_time=START + at,
            first_event_time=START + at,
            last_event_time=START + at,
            rows_read=1,
            accepted=1,
        )
        for name, at in times.items()
    ]
    silent = [next_row(last[name], seq=seq, kind=idle_kind, ingested_at=now, idle=True) for name in idle]
    engine.ledger.commit([(*active, *silent)])


def _watermark(engine: Engine, asset: str) -> int | None:
    """The watermark that decides which rows of the next batch are late, relative to START."""
    return _watermarks(engine, asset)[-1]


def _watermarks(engine: Engine, asset: str) -> list[int | None]:
    """The watermark after batch n, relative to START, at index n; index 0 is before any batch."""
    return [None if w is None else w - START for w in operator_timeline(engine.pending.workspace, engine.assets[asset]).after]


def test_a_drain_closes_the_input_of_idle_sources_and_a_second_one_writes_nothing(engine: Engine, clock: Clock) -> None:
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    clock.pass_ms(2 * HOUR)
    control = _control_batches(engine)
    assert {s.source: (s.kind, s.idle) for s in control.record_idle_sources() or ()} == dict.fromkeys(("l", "p", "r"), ("inactive", True))
    assert _watermark(engine, "pairs") == HOUR - MINUTE - 1
    drained = control.drain(15 * MINUTE)
    assert {(s.kind, s.idle, s.watermark) for s in drained or ()} == {("drain", False, START + HOUR + 15 * MINUTE + 1)}
    assert _watermark(engine, "pairs") == HOUR + 15 * MINUTE + 1
    assert control.drain(15 * MINUTE) is None
    assert control.record_idle_sources() is None, "a drained source is not idle"


def test_a_drain_includes_rows_that_were_ingested_while_it_waited_for_the_ledger(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    _commit_rows(engine, {"l": HOUR, "r": HOUR})
    writer = Lake.writer

    def writer_after_another(lake: Lake, table: str) -> AbstractContextManager[None]:
        monkeypatch.undo()
        _commit_rows(engine, {"l": 3 * HOUR})
        return writer(lake, table)

    monkeypatch.setattr(Lake, "writer", writer_after_another)
    _control_batches(engine).drain(15 * MINUTE)
    assert _watermark(engine, "pairs") == 3 * HOUR + 15 * MINUTE + 1


def test_a_drain_ignores_sources_that_the_pipeline_no_longer_has(engine: Engine) -> None:
    _commit_rows(engine, {"removed": 90 * DAY})
    assert _control_batches(engine).drain(15 * MINUTE) is None
    _commit_rows(engine, {"l": HOUR, "r": HOUR})
    _control_batches(engine).drain(15 * MINUTE)
    assert _watermark(engine, "pairs") == HOUR + 15 * MINUTE + 1


def test_a_drain_of_an_earlier_version_is_completed_by_the_next_one(engine: Engine) -> None:
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    drained = START + HOUR + 15 * MINUTE + 1
    for kind, watermark in (("idle", START + HOUR - MINUTE - 1), ("drain", drained)):
        seq, now = engine.ledger.head + 1, engine.ledger.now()
        batch = [
            next_row(s, seq=seq, kind=kind, ingested_at=now, idle=True, watermark=watermark) for s in engine.ledger.newest_rows().values()
        ]
        engine.ledger.commit([tuple(batch)])
    assert _watermark(engine, "pairs") == HOUR - MINUTE - 1, "that version left the sources idle, so their watermark did not count"
    assert _control_batches(engine).drain(15 * MINUTE) is not None
    assert _watermark(engine, "pairs") == drained - START
    assert _watermarks(_new_engine(engine), "pairs")[3] == HOUR - MINUTE - 1, "the earlier batches keep their lateness decisions"


def test_a_given_watermark_makes_only_its_own_source_active(engine: Engine, clock: Clock) -> None:
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    clock.pass_ms(2 * HOUR)
    control = _control_batches(engine)
    control.record_idle_sources()
    [recorded] = [*(control.watermark({"l": START}) or ())]
    assert (recorded.idle, recorded.watermark) == (False, START + HOUR - MINUTE - 1), "a watermark never goes back"
    assert control.watermark({"l": START}) is None
    assert {name: s.idle for name, s in engine.ledger.newest_rows().items()} == {"l": False, "r": True, "p": True}
    control.watermark({"l": START + 3 * HOUR})
    assert _watermark(engine, "pairs") == 3 * HOUR


def test_watermarks_keep_a_source_without_new_rows_active_until_they_stop(engine: Engine, clock: Clock) -> None:
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    control = _control_batches(engine)
    for hour in range(2, 5):
        clock.pass_ms(HOUR)
        control.watermark({"l": START + hour * HOUR})
        assert "l" not in idle_sources(engine.ledger, engine.sources, clock())
    clock.pass_ms(HOUR + 1)
    assert "l" in idle_sources(engine.ledger, engine.sources, clock())


def test_a_table_whose_sources_are_all_idle_does_not_hold_back_its_reader(engine: Engine) -> None:
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    _commit_rows(engine, {"p": 2 * HOUR}, idle=("l",))
    delay = 1  # the output watermark delay of the join
    assert _watermark(engine, "pay") == HOUR - MINUTE - 1 - delay, "one active source is enough to hold it back"
    _commit_rows(engine, {"p": 2 * HOUR}, idle=("r",))
    assert _watermark(engine, "pay") == 2 * HOUR - MINUTE - 1
    _commit_rows(engine, {"p": DAY})
    assert _watermark(engine, "pay") == DAY - MINUTE - 1
    assert _watermark(engine, "pairs") == HOUR - MINUTE - 1, "the watermark of an operator whose sources are all idle does not advance"
    _commit_rows(engine, {"l": 2 * HOUR})
    assert _watermark(engine, "pairs") == 2 * HOUR - MINUTE - 1
    assert _watermark(engine, "pay") == DAY - MINUTE - 1, "a watermark never goes back"


def test_batches_of_kind_silent_keep_their_lateness_decisions(engine: Engine, clock: Clock) -> None:
    """The version that wrote `silent` batches let an idle table hold back its readers."""
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    _commit_rows(engine, {"p": 2 * HOUR}, idle=("l", "r"), idle_kind="silent")
    _commit_rows(engine, {"p": DAY})
    assert _watermark(engine, "pay") == HOUR - MINUTE - 2
    before = _watermarks(engine, "pay")
    clock.pass_ms(2 * HOUR)
    assert {s.source: (s.kind, s.idle) for s in _control_batches(engine).record_idle_sources() or ()} == dict.fromkeys(
        ("l", "p", "r"), ("inactive", True)
    )
    _commit_rows(engine, {"p": DAY + HOUR})
    assert _watermark(engine, "pay") == DAY + HOUR - MINUTE - 1, "later batches follow the present rule"
    assert before == [None, *[HOUR - MINUTE - 2] * 3]
    assert _watermarks(_new_engine(engine), "pay") == [*before, HOUR - MINUTE - 2, DAY + HOUR - MINUTE - 1]


def test_the_lag_of_a_reader_is_its_distance_to_the_watermark_of_the_ledger(engine: Engine) -> None:
    """`waits_for` names an input table that must be advanced first; not one that is up to date because its sources are idle."""
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    commit_step(engine, "pairs", closed_to=START + HOUR - MINUTE - 1)
    commit_step(engine, "pay", closed_to=START + HOUR - MINUTE - 2)
    assert _lag(engine) == (0, [])
    _commit_rows(engine, {"p": DAY}, idle=("l", "r"))
    assert _lag(engine) == (DAY - HOUR + 1, []), "pairs has all of its results: pay can be advanced"
    _commit_rows(engine, {"l": DAY, "r": DAY})
    commit_step(engine, "pay", closed_to=START + DAY - MINUTE - 1)
    _commit_rows(engine, {"l": DAY + HOUR, "r": DAY + HOUR, "p": DAY + HOUR})
    assert _lag(engine) == (HOUR - 1, ["pairs"]), "results of pairs that are not late are missing"
    shown = progress_metadata(engine.pending.describe_progress("pay"))
    assert (shown["lag_seconds"], shown["waits_for"]) == (3599.999, "an advance of pairs")
    commit_step(engine, "pairs", closed_to=START + DAY + HOUR - MINUTE - 1)
    assert _lag(engine) == (HOUR - 1, [])
    assert "waits_for" not in progress_metadata(engine.pending.describe_progress("pay"))


def _lag(engine: Engine) -> tuple[int, list[str]]:
    described = engine.pending.describe_progress("pay")
    return described["lag_ms"], described["waits_for"]


def test_the_metadata_of_a_table_names_the_source_that_holds_it_back(engine: Engine) -> None:
    _commit_rows(engine, {"l": HOUR, "r": 3 * HOUR, "p": 4 * HOUR})
    for name in ("pairs", "pay"):
        shown = progress_metadata(engine.pending.describe_progress(name))
        assert (shown["held_back_by"], shown["held_back_seconds"]) == ("l", 2 * 3600)
    _commit_rows(engine, {"p": DAY}, idle=("l", "r"))
    assert "held_back_by" not in progress_metadata(engine.pending.describe_progress("pay"))


@pytest.mark.parametrize("kind", ["idle", "rows"])
def test_old_batches_of_an_earlier_version_keep_their_lateness_decisions(engine: Engine, clock: Clock, kind: Kind) -> None:
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    _commit_rows(engine, {"p": 2 * HOUR}, idle=("l",), idle_kind=kind)
    assert _watermark(engine, "pay") == HOUR - MINUTE - 2
    _commit_rows(engine, {"p": 3 * HOUR}, idle=("r",), idle_kind=kind)
    assert _watermark(engine, "pay") == 3 * HOUR - MINUTE - 1
    _commit_rows(engine, {"p": 4 * HOUR})
    assert _watermark(engine, "pay") == 4 * HOUR - MINUTE - 1
    before = _watermarks(engine, "pay")
    clock.pass_ms(2 * HOUR)
    [*batches] = _control_batches(engine).record_idle_sources() or ()
    assert {s.source: (s.kind, s.idle) for s in batches} == dict.fromkeys(("l", "p", "r"), ("inactive", True)), "recorded once more"
    assert _control_batches(engine).record_idle_sources() is None
    _commit_rows(engine, {"p": 9 * HOUR})
    assert _watermark(engine, "pay") == 9 * HOUR - MINUTE - 1
    assert before == [None, *[HOUR - MINUTE - 2] * 2, 3 * HOUR - MINUTE - 1, 4 * HOUR - MINUTE - 1]
    assert _watermarks(_new_engine(engine), "pay") == [*before, before[-1], 9 * HOUR - MINUTE - 1]


SLIDING = WindowJoin(
    on="k",
    window=Sliding(size="1 hour", slide="30 minutes"),
    how="full",
    left_prefix="wide_",
    right_prefix="pay_",
    allowed_lateness="1 hour",
)
IN_STEPS = ("pay", "windows", "joins_late")
"""The readers that are advanced after each batch."""
READERS = {
    name: DerivedAsset(name=name, inputs=inputs, operator=operator)
    for suffix in ("", "_at_once")
    for name, inputs, operator in [
        (f"pay{suffix}", ("p", "pairs"), replace(WIDE[1].operator, how="full")),
        (f"windows{suffix}", ("pairs", "p"), SLIDING),
        (f"joins_late{suffix}", ("p", "pairs"), replace(WIDE[1].operator, how="full", late_rows="join")),
    ]
}


@pytest.mark.parametrize("batches", [[(1, 2)], pytest.param([(1,), (2,)], marks=pytest.mark.soak)], ids=["one batch", "two batches"])
def test_a_reader_advances_while_an_upstream_table_is_idle_and_later_results_of_that_table_are_late(
    make_engine: MakeEngine, clock: Clock, batches: list[tuple[int, ...]]
) -> None:
    """`pairs` gets no rows while `p` gets rows for two hours of event time, in batches of these hours.

    Advancing after each batch and advancing once give the same tables.
    """
    engine = make_engine([source(n, idle_timeout="1 hour") for n in ("l", "r", "p")], [WIDE[0], *READERS.values()])
    for name in ("l", "r", "p"):
        land(engine, name, "1.jsonl", [Event("a", 1, 0).line, Event("b", 2, 5 * MINUTE).line])
    _ingest_and_advance(engine, "pairs", *IN_STEPS)
    for hours in batches:
        clock.pass_ms(2 * HOUR)
        events = [[Event("b", hour, hour * HOUR), Event("c", hour, hour * HOUR + 1)] for hour in hours]
        land(engine, "p", f"{hours[-1] + 1}.jsonl", [event.line for of_hour in events for event in of_hour])
        _ingest_and_advance(engine, "pairs", *IN_STEPS)
        described = engine.pending.describe_progress("pay")
        assert described["closed_to"] == described["watermark"] == START + hours[-1] * HOUR - MINUTE, "nothing is held back"
    for hour in (1, 2):  # the pairs of 01:00 are behind the readers' watermark, those of 02:00 and later are not
        for name in ("l", "r"):
            land(engine, name, f"{hour + 1}.jsonl", [Event("c", hour, hour * HOUR + 2).line, Event("b", 9, hour * HOUR + 2 * MINUTE).line])
    _ingest_and_advance(engine, "pairs", *IN_STEPS)
    engine.drain()
    for name in ("pairs", *READERS):
        engine.advance(name)
    rows = dicts_of({name: engine.views.table(name) for name in ("pairs", *READERS)} | {"late": engine.views.late("pay", "pairs")})
    late_pairs = sorted((row["k"], row["left_v"]) for row in rows["late"])
    assert late_pairs == [("b", 2), ("b", 9), ("c", 1)]
    for name in IN_STEPS:
        assert rows[name] == rows[f"{name}_at_once"]
        account = engine.accounts.days(name)
        assert all(day.holds for day in account), "a run equals the backfill over its log"
        assert sum(day.accepted for day in account if day.side == "pairs") == len(rows["pairs"])
        assert sum(day.pending for day in account) == 0
    joined, joined_with_late = (Counter((row["k"], row["v"], row["left_v"]) for row in rows[name]) for name in ("pay", "joins_late"))
    assert sorted((k, v) for k, v, left_v in joined if v and left_v) == [("a", 1), ("b", 2), ("c", 2)]
    assert joined_with_late == joined, "late results of an idle table are in no result, also if late rows of sources are joined"


def _ingest_and_advance(engine: Engine, *tables: str) -> None:
    engine.ingest()
    for name in tables:
        engine.advance(name)


def test_a_reader_of_an_idle_upserted_table_advances_and_is_corrected(make_engine: MakeEngine, clock: Clock) -> None:
    """`last` has the last row of each key of `r`, which gets no more rows while `l` gets rows that are one and two hours later."""
    last = DerivedAsset(name="last", inputs=("r",), operator=Deduplicate(by="k", keep="last"))
    near = join("near", ("last", "l"), left_prefix="last_", right_prefix="own_")
    engine = make_engine([source(n, idle_timeout="1 hour") for n in ("l", "r")], [last, near])
    for name, value in (("l", 1), ("r", 5)):
        land(engine, name, "1.jsonl", [Event("a", value, 0).line])
    _ingest_and_advance(engine, "last", "near")
    clock.pass_ms(2 * HOUR)
    land(engine, "l", "2.jsonl", [Event("a", 2, HOUR).line, Event("a", 3, 2 * HOUR).line])
    _ingest_and_advance(engine, "last", "near")
    described = engine.pending.describe_progress("near")
    assert (described["closed_to"], described["waits_for"]) == (START + 2 * HOUR - MINUTE - 1, [])
    assert rows_of(engine.views.table("near"), "k", "last_v", "own_v") == [("a", 5, 1), ("a", None, 2)]
    land(engine, "r", "2.jsonl", [Event("a", 6, HOUR).line])
    _ingest_and_advance(engine, "last", "near")
    assert rows_of(engine.views.table("near"), "k", "last_v", "own_v") == [("a", 6, 2), ("a", None, 1)], "the row of 00:00 was replaced"
    assert law_violations(engine, "near") == set()


def test_a_reader_advances_before_the_first_row_of_its_upstream_table(make_engine: MakeEngine, clock: Clock) -> None:
    """`l` and `r` have never had a row."""
    engine = make_engine([source(n, idle_timeout="1 hour") for n in ("l", "r", "p")], [*WIDE])
    land(engine, "p", "1.jsonl", [Event("a", 1, 0).line])
    engine.ingest()
    assert engine.advance("pay") == []
    clock.pass_ms(2 * HOUR)
    land(engine, "p", "2.jsonl", [Event("b", 2, HOUR).line])
    engine.ingest()
    assert [engine.advance(name) != [] for name in ("pairs", "pay")] == [False, True]
    land(engine, "l", "1.jsonl", [Event("b", 3, HOUR).line])
    land(engine, "r", "1.jsonl", [Event("b", 4, HOUR).line])
    engine.ingest()
    engine.drain()
    for name in ("pairs", "pay"):
        engine.advance(name)
    assert rows_of(engine.views.table("pay"), "k", "v", "left_v", "right_v") == [("a", 1, None, None), ("b", 2, 3, 4)]
    assert law_violations(engine, "pay") == set()


@pytest.mark.parametrize("kind", ["inactive", "silent", "idle", "rows"])
def test_a_retry_request_changes_neither_which_sources_are_idle_nor_the_rule_for_them(engine: Engine, clock: Clock, kind: Kind) -> None:
    """Earlier versions recorded idle sources as `silent`, `idle` or `rows`; their decisions hold, even after a retry."""
    _commit_rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    clock.pass_ms(2 * HOUR)
    _commit_rows(engine, {"p": 3 * HOUR}, idle=["l", "r"], idle_kind=kind)
    before, to_record = _table_idleness(engine), {*idle_sources(engine.ledger, engine.sources, engine.ledger.now())}
    for source_ in ("l", "l", "r"):
        request = next_row(
            engine.ledger.newest_rows()[source_],
            seq=engine.ledger.head + 1,
            kind="retry",
            ingested_at=engine.ledger.now(),
            offsets=("a|1|2|retry|1",),
        )
        engine.ledger.commit([(request,)])
    assert _table_idleness(engine) == [*before, *[before[-1]] * 3]
    assert before[-1] is (kind != "silent")  # see `table_idleness`
    assert {*idle_sources(engine.ledger, engine.sources, engine.ledger.now())} == to_record
    assert to_record == (set() if kind == "inactive" else {"l", "r"}), "recorded once more, by the present rule"
    assert engine.ledger.newest_rows()["l"].idle
    _control_batches(engine).record_idle_sources()
    assert idle_sources(engine.ledger, engine.sources, engine.ledger.now()) == {}


def _table_idleness(engine: Engine) -> list[bool]:
    ledger = engine.ledger
    return list(table_idleness([ledger.source("l"), ledger.source("r")], ledger.head))
