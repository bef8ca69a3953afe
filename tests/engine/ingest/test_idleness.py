"""Idle sources: how they become active again, how long they stay idle, and how they hold back upstream tables. Most tests need no Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.ingest.control_batches import Signals
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Entry, Kind, SourceEntry, moved
from platform_defs.engine.ledger.watermarks import passed_on
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.small_sources import DAY, HOUR, MINUTE, START, Event, join, land, source

NO_SESSION: Any = None
WIDE = [join("pairs", ("l", "r")), join("pay", ("p", "pairs"), left_prefix="pay_", right_prefix="wide_")]


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    """An engine without a Spark session: `pairs` of `l` and `r`, and `pay` of `p` and `pairs`."""
    contracts = {n: source(n, idle_timeout="1 hour") for n in ("l", "r", "p")}
    return Engine(Lake(str(tmp_path / "lake")), contracts, {a.name: a for a in WIDE}, lambda: NO_SESSION, clock)


def _signals(engine: Engine) -> Signals:
    return Signals(NO_SESSION, engine.lake, engine.ledger, engine.sources)


def _rows(engine: Engine, times: Mapping[str, int], idle: Sequence[str] = (), kind: Kind = "silent") -> Entry:
    """Commit a batch with one row of each source at a time after START, and other sources recorded as idle."""
    seq, now, last = engine.ledger.head + 1, engine.ledger.now(), engine.ledger.last()
    active = [
        SourceEntry(
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
    silent = [moved(last[name], seq=seq, kind=kind, ingested_at=now, idle=True) for name in idle]
    entry = (*active, *silent)
    engine.ledger.commit([entry])
    return entry


def _mark(engine: Engine, asset: str) -> int | None:
    """The watermark that decides which rows of the next batch are late, relative to START."""
    mark = engine.reading.operator_timeline(engine.assets[asset]).after[-1]
    return None if mark is None else mark - START


def test_a_drain_closes_the_input_of_idle_sources_and_a_second_one_writes_nothing(engine: Engine, clock: Clock) -> None:
    _rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    clock.pass_ms(2 * HOUR)
    signals = _signals(engine)
    assert {s.source: (s.kind, s.idle) for s in signals.idle() or ()} == dict.fromkeys(("l", "p", "r"), ("silent", True))
    assert _mark(engine, "pairs") == HOUR - MINUTE - 1
    drained = signals.drain(15 * MINUTE)
    assert {(s.kind, s.idle, s.watermark) for s in drained or ()} == {("drain", False, START + HOUR + 15 * MINUTE + 1)}
    assert _mark(engine, "pairs") == HOUR + 15 * MINUTE + 1
    assert signals.drain(15 * MINUTE) is None
    assert signals.idle() is None, "a drained source is not idle"


def test_a_drain_of_an_earlier_version_is_completed_by_the_next_one(engine: Engine) -> None:
    _rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    mark = START + HOUR + 15 * MINUTE + 1
    for kind, watermark in (("idle", START + HOUR - MINUTE - 1), ("drain", mark)):
        seq, now = engine.ledger.head + 1, engine.ledger.now()
        entry = [moved(s, seq=seq, kind=kind, ingested_at=now, idle=True, watermark=watermark) for s in engine.ledger.last().values()]
        engine.ledger.commit([tuple(entry)])
    assert _mark(engine, "pairs") == HOUR - MINUTE - 1, "as that version decided"
    assert _signals(engine).drain(15 * MINUTE) is not None
    assert _mark(engine, "pairs") == mark - START
    assert engine.reading.operator_timeline(engine.assets["pairs"]).after[3] == START + HOUR - MINUTE - 1, (
        "the earlier batches keep their lateness decisions"
    )


def test_a_given_watermark_makes_only_its_own_source_active(engine: Engine, clock: Clock) -> None:
    _rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    clock.pass_ms(2 * HOUR)
    signals = _signals(engine)
    signals.idle()
    [recorded] = [*(signals.watermark({"l": START}) or ())]
    assert (recorded.idle, recorded.watermark) == (False, START + HOUR - MINUTE - 1), "a watermark never goes back"
    assert signals.watermark({"l": START}) is None
    assert {name: s.idle for name, s in engine.ledger.last().items()} == {"l": False, "r": True, "p": True}
    signals.watermark({"l": START + 3 * HOUR})
    assert _mark(engine, "pairs") == 3 * HOUR


def test_a_source_of_watermarks_only_becomes_idle_when_they_stop(engine: Engine, clock: Clock) -> None:
    _rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    signals = _signals(engine)
    for hour in range(2, 5):
        clock.pass_ms(HOUR)
        signals.watermark({"l": START + hour * HOUR})
        assert "l" not in idle_sources(engine.ledger, engine.sources, clock())
    clock.pass_ms(HOUR + 1)
    assert "l" in idle_sources(engine.ledger, engine.sources, clock())


def test_idle_sources_of_an_upstream_table_hold_back_its_reader(engine: Engine) -> None:
    _rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    _rows(engine, {"p": 2 * HOUR}, idle=("l", "r"))
    delay = 1  # the output watermark delay of the join
    assert _mark(engine, "pay") == HOUR - MINUTE - 1 - delay
    _rows(engine, {"p": DAY})
    assert _mark(engine, "pay") == HOUR - MINUTE - 1 - delay
    assert _mark(engine, "pairs") == HOUR - MINUTE - 1, "the watermark of an operator whose sources are all idle does not advance"
    assert {name: engine.pending.described(name)["waits_for"] for name in engine.assets} == {"pairs": [], "pay": ["pairs"]}
    _rows(engine, {"l": DAY})
    assert (_mark(engine, "pairs"), _mark(engine, "pay")) == (DAY - MINUTE - 1, DAY - MINUTE - 1 - delay), "one active source is enough"
    assert engine.pending.described("pay")["waits_for"] == []


@pytest.mark.parametrize("kind", ["idle", "rows"])
def test_batches_of_an_earlier_version_keep_their_lateness_decisions(engine: Engine, clock: Clock, kind: Kind) -> None:
    _rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    _rows(engine, {"p": 2 * HOUR}, idle=("l",), kind=kind)
    assert _mark(engine, "pay") == HOUR - MINUTE - 2
    _rows(engine, {"p": 3 * HOUR}, idle=("r",), kind=kind)
    assert _mark(engine, "pay") == 3 * HOUR - MINUTE - 1
    _rows(engine, {"p": 4 * HOUR})
    assert _mark(engine, "pay") == 4 * HOUR - MINUTE - 1
    clock.pass_ms(2 * HOUR)
    [*entries] = _signals(engine).idle() or ()
    assert {s.source: (s.kind, s.idle) for s in entries} == dict.fromkeys(("l", "p", "r"), ("silent", True)), "recorded once more"
    assert _signals(engine).idle() is None
    _rows(engine, {"p": 9 * HOUR})
    assert _mark(engine, "pay") == 4 * HOUR - MINUTE - 1, "from here on by the present rule; a watermark never goes back"
    after = engine.reading.operator_timeline(engine.assets["pay"]).after
    assert [None if w is None else (w - START) // HOUR for w in after] == [None, 0, 0, 2, 3, 3, 3]


def test_no_row_is_late_for_a_range_that_an_idle_upstream_table_keeps_open(make_engine: MakeEngine, clock: Clock) -> None:
    """The orders are silent while payments arrive for a day: the downstream table waits, and then loses and duplicates nothing."""
    sources: list[SourceContract] = [source(n, idle_timeout="1 hour") for n in ("l", "r", "p")]
    assets: list[DerivedAsset] = WIDE
    engine = make_engine(sources, assets)
    for name in ("l", "r", "p"):
        land(engine, name, "1.jsonl", [Event("a", 1, 0).line, Event("b", 2, 5 * MINUTE).line])
    engine.ingest()
    for at in (2, 24):
        clock.pass_ms(2 * HOUR)
        land(engine, "p", f"{at}.jsonl", [Event("b", at, 6 * MINUTE).line, Event("c", at, at * HOUR).line])
        engine.ingest()
        for name in ("pairs", "pay"):
            engine.advance(name)
        assert engine.pending.described("pay")["watermark"] == engine.pending.progress("pay").closed_to
        account = engine.accounts.days("pay")
        assert all(day.holds for day in account)
        assert sum(day.late for day in account if day.side == "p") == 0
    land(engine, "l", "2.jsonl", [Event("b", 3, 6 * MINUTE).line, Event("c", 1, 24 * HOUR).line])
    engine.ingest()
    clock.pass_ms(2 * HOUR)
    engine.ingest()
    assert engine.drain() is not None
    for name in ("pairs", "pay"):
        engine.advance(name)
    accounts = {name: engine.accounts.days(name) for name in ("pairs", "pay")}
    assert all(day.holds for account in accounts.values() for day in account)
    assert engine.pending.progress("pay").closed_to == engine.reading.operator_timeline(engine.assets["pay"]).after[-1]
    assert sum(day.pending + day.late for day in accounts["pay"] if day.side == "p") == 0
    assert clock() > NOON


@pytest.mark.parametrize("kind", ["silent", "idle", "rows"])
def test_a_retry_request_does_not_change_when_a_source_becomes_idle(engine: Engine, clock: Clock, kind: Kind) -> None:
    """An earlier version recorded idle sources as `idle` or `rows`; its decisions hold, even after a retry."""
    _rows(engine, {"l": HOUR, "r": HOUR, "p": HOUR})
    clock.pass_ms(2 * HOUR)
    _rows(engine, {"p": 3 * HOUR}, idle=["l", "r"], kind=kind)
    before, recorded = _passed_on(engine), {*idle_sources(engine.ledger, engine.sources, engine.ledger.now())}
    for source_ in ("l", "l", "r"):
        request = moved(
            engine.ledger.last()[source_],
            seq=engine.ledger.head + 1,
            kind="retry",
            ingested_at=engine.ledger.now(),
            offsets=("a|1|2|retry|1",),
        )
        engine.ledger.commit([(request,)])
    assert _passed_on(engine) == [*before, *[before[-1]] * 3]
    assert before[-1] is (kind != "silent")
    assert {*idle_sources(engine.ledger, engine.sources, engine.ledger.now())} == recorded
    assert recorded == (set() if kind == "silent" else {"l", "r"})
    assert engine.ledger.last()["l"].idle
    _signals(engine).idle()
    assert idle_sources(engine.ledger, engine.sources, engine.ledger.now()) == {}


def _passed_on(engine: Engine) -> list[bool]:
    ledger = engine.ledger
    return passed_on([ledger.source("l"), ledger.source("r")], ledger.head).to_pylist()
