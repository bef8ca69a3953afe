"""Ingestion: failing rules, duplicates, watermarks and idle sources."""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from assets.contracts import BatchExpression, BoundedOutOfOrderness, Punctuated, RowRule
from platform_defs.engine import Engine, IngestError, ProgressError
from platform_defs.engine.formats.files import File
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake import small_queries
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import HOUR, MINUTE, ROW, START, Event, iso, join, land, replay, rows_of, source

MARKED = StructType().add("k", "string", nullable=False).add("ts", "timestamp").add("wm", "timestamp")


def _land(engine: Engine, name: str, file: str, events: Sequence[Event], modified: int = NOON) -> None:
    path = land(engine, name, file, [e.line for e in events])
    os.utime(path, ns=(0, modified * 1_000_000))


def _counts_add_up(batch: SourceBatch) -> bool:
    return batch.rows_read == batch.accepted + batch.duplicate + batch.quarantined + batch.markers


@pytest.mark.parametrize("limit", [small_queries.SMALL_INPUT_BYTES, -1], ids=["small batch", "large batch"])
def test_a_rule_that_fails_commits_nothing_and_is_named_with_its_count(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", limit)
    strict = source(
        "b",
        rules=(RowRule("v is positive", "v > 0", "fail"), RowRule("v is small", "v < 10", "fail"), RowRule("k is there", "k is not null")),
    )
    engine = make_engine([source("a"), strict], [])
    _land(engine, "a", "good.jsonl", [Event("x", 1, 0)])
    _land(engine, "b", "bad.jsonl", [Event("x", 0, 0), Event("y", -1, 0), Event("z", 1, 0), Event("z", 99, 0), Event(None, -5, 0)])
    message = r"'b' violates rules whose action is 'fail': v is positive \(2 rows\), v is small \(1 rows\); nothing of the"
    with pytest.raises(IngestError, match=message):
        engine.ingest()
    assert engine.ledger.head == 0
    assert read_log(engine.workspace, "a", engine.ledger.head).isEmpty()
    assert engine.lake.delta(strict.log) is None
    assert engine.lake.delta(strict.quarantine) is None
    lenient = source(
        "b", rules=(RowRule("v is positive", "v > 0", "warn"), RowRule("v is small", "v < 10"), RowRule("k is there", "k is not null"))
    )
    corrected = make_engine([source("a"), lenient], [])
    [batch] = corrected.ingest()
    counts = {s.source: (s.rows_read, s.accepted, s.quarantined, s.warned) for s in batch}
    assert counts == {"a": (1, 1, 0, 0), "b": (5, 3, 2, 2)}
    assert rows_of(read_log(corrected.workspace, "a", 1), "seq", "k") == [(1, "x")]
    assert rows_of(corrected.views.table(lenient.quarantine), "reason") == [("rule: k is there",), ("rule: v is small",)]


@dataclass(frozen=True)
class Repeats:
    """The rows of one key by batch and file, as minutes, and the numbers of the accepted rows."""

    id: str
    batches: tuple[tuple[tuple[float, ...], ...], ...]
    accepted: tuple[int, ...]


TICK = 1 / MINUTE
REPEATS = [
    Repeats("within one file", (((0, 0),),), (0,)),
    Repeats("another time within the horizon", (((0, 3),),), (0,)),
    Repeats("the first to arrive is kept, though its time is later", (((3, 0),),), (0,)),
    Repeats("across files of a batch", (((0,), (1,)),), (0,)),
    Repeats("across batches", (((0,),), ((0,),)), (0,)),
    Repeats("across batches and files", (((0,), (1,)), ((2,), (3,))), (0,)),
    Repeats("exactly at the horizon", (((0, 7),),), (0,)),
    Repeats("a millisecond beyond it", (((0, 7 + TICK),),), (0, 1)),
    Repeats("exactly at the horizon, across batches", (((0,),), ((7,),)), (0,)),
    Repeats("a millisecond beyond it, across batches", (((0,),), ((7 + TICK,),)), (0, 1)),
    Repeats("exactly at the horizon, backwards", (((7,),), ((0,),)), (0,)),
    Repeats("a millisecond beyond it, backwards", (((7 + TICK,),), ((0,),)), (0, 1)),
    Repeats("chain", (((0, 6, 12),),), (0, 2)),
    Repeats("chain across files", (((0,), (6, 12)),), (0, 2)),
    Repeats("chain across batches", (((0, 6),), ((12,),)), (0, 2)),
    Repeats("chain, its first row in an earlier batch", (((0,),), ((6, 12, 13),)), (0, 2)),
    Repeats("long chain", (((0, 4, 8, 12, 16, 20),),), (0, 2, 4)),
    Repeats("between two earlier rows", (((0, 10),), ((5, 18),)), (0, 1, 3)),
]


@pytest.mark.parametrize("limit", [small_queries.SMALL_INPUT_BYTES, -1], ids=["small batch", "large batch"])
def test_a_duplicate_within_the_horizon_is_counted_and_dropped(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", limit)
    contract = source("l", unique_key=("k",), duplicate_horizon="7 minutes", rules=(RowRule("fine", "v != 99"),))
    engine = make_engine([contract], [])
    batches = []
    landed = {case.id: 0 for case in REPEATS}
    for batch in range(2):
        for file in range(2):
            events = []
            for case in REPEATS:
                for minute in case.batches[batch][file] if batch < len(case.batches) and file < len(case.batches[batch]) else ():
                    events.append(Event(case.id, landed[case.id], round(minute * MINUTE)))
                    landed[case.id] += 1
            special = [Event(None, 0, 0), Event(None, 1, 0), Event("refused first", 99 if file + batch == 0 else batch + file, 0)]
            _land(engine, "l", f"{batch}-{file}.jsonl", [*events, *special], NOON + batch * MINUTE)
        batches += engine.ingestion.stream.run()
    accepted = {case.id: [] for case in REPEATS} | {"refused first": [], None: []}
    for k, v in rows_of(read_log(engine.workspace, "l", 2), "k", "v"):
        accepted[k].append(v)
    assert accepted.pop(None) == [0] * 4 + [1] * 4
    assert accepted.pop("refused first") == [1]
    assert accepted == {case.id: list(case.accepted) for case in REPEATS}
    sources = [s for e in batches for s in e]
    assert all(_counts_add_up(s) for s in sources)
    assert sum(s.duplicate for s in sources) == sum(n - len(c.accepted) for n, c in zip(landed.values(), REPEATS, strict=True)) + 2
    assert [s.quarantined for s in sources] == [1, 0]


def test_a_key_with_a_null_column_is_no_key(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", unique_key=("k", "v"))], [])
    lines = [
        json.dumps({"k": k, "v": v, "ts": iso(START)})
        for k, v in [("a", 1), ("a", 2), ("a", 1), ("a", None), ("a", None), (None, 1), (None, 1)]
    ]
    land(engine, "l", "a.jsonl", lines)
    [[ingested]] = engine.ingest()
    assert (ingested.accepted, ingested.duplicate) == (6, 1)


def _marked(k: str, at: int | None, mark: int | None, **changes: Any) -> str:
    return json.dumps({"k": k, "ts": None if at is None else iso(START + at), "wm": None if mark is None else iso(START + mark), **changes})


def test_each_kind_of_watermark_advances_with_the_rows_of_a_batch(make_engine: MakeEngine) -> None:
    skew = {"future_skew": "24 hours"}
    column = source("column", schema=MARKED, watermark=Punctuated("wm"), **skew)
    rows = source("rows", schema=MARKED, watermark=Punctuated("wm", marker="k = 'mark'"), **skew)
    engine = make_engine([source("bound", watermark=BoundedOutOfOrderness("5 seconds"), **skew), column, rows], [])
    _land(engine, "bound", "1.jsonl", [Event("a", 1, HOUR), Event("b", 1, 0), Event("c", 1, 20 * 365 * 24 * HOUR)])
    land(engine, "column", "1.jsonl", [_marked("a", 0, 7), _marked("b", 5, None), _marked("c", 6, 3), _marked("late", None, 99)])
    bad = [_marked("mark", None, None), _marked("mark", None, 0, wm="2099-01-01T00:00:00Z"), _marked("mark", None, 0, wm="soon")]
    land(engine, "rows", "1.jsonl", [_marked("a", 9, None), _marked("mark", None, 8), _marked("mark", 2 * HOUR, -4), *bad])
    ingested = {s.source: s for s in engine.ingest()[0]}
    assert {n: s.watermark for n, s in ingested.items()} == {"bound": START + HOUR - 5_001, "column": START + 7, "rows": START + 8}
    assert [(s.accepted, s.quarantined, s.markers) for s in (ingested["bound"], ingested["column"], ingested["rows"])] == [
        (2, 1, 0),
        (3, 1, 0),
        (1, 3, 2),
    ]
    assert (ingested["bound"].max_event_time, ingested["bound"].first_event_time, ingested["bound"].last_event_time) == (
        START + HOUR,
        START,
        START + HOUR,
    )
    assert ingested["rows"].max_event_time == START + 9
    assert all(map(_counts_add_up, ingested.values()))
    assert rows_of(read_log(engine.workspace, "rows", 1), "k") == [("a",)]
    reasons = ["type: wm is no timestamp", "watermark: a marker row carries none", "watermark: more than 24 hours ahead of the clock"]
    assert rows_of(engine.views.table("quarantine/rows"), "reason") == [(r,) for r in reasons]

    _land(engine, "bound", "2.jsonl", [Event("d", 1, 0)])
    land(engine, "column", "2.jsonl", [_marked("d", 50, 6)])
    land(engine, "rows", "2.jsonl", [_marked("mark", None, 100)])
    ingested = {s.source: s for s in engine.ingest()[0]}
    assert {n: s.watermark for n, s in ingested.items()} == {"bound": START + HOUR - 5_001, "column": START + 7, "rows": START + 100}
    assert (ingested["bound"].max_event_time, ingested["bound"].last_event_time) == (START + HOUR, START)
    assert (ingested["rows"].rows_read, ingested["rows"].markers, ingested["rows"].last_event_time, ingested["rows"].max_event_time) == (
        1,
        1,
        None,
        START + 9,
    )


def test_given_watermarks_and_a_drain_move_the_watermark(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r"), source("never")], [join(lower="-5 minutes", upper="10 minutes")])
    assert engine.drain() is None
    assert engine.ingestion.control_batches.record_idle_sources() is None
    with pytest.raises(IngestError, match=r"no source is named 'x'; the sources: l, r, never"):
        engine.ingestion.control_batches.watermark({"l": 1, "x": 2})
    assert engine.ledger.head == 0
    marks = [
        engine.ingestion.control_batches.watermark(given) for given in ({"l": START}, {"l": START - 1}, {"l": -5, "r": 0}, {"r": START + 3})
    ]
    assert [[(s.source, s.watermark) for s in e] if e else None for e in marks] == [
        [("l", START)],
        None,  # it would not move the watermark
        [("l", START), ("r", 0)],
        [("r", START + 3)],
    ]
    assert {s.kind for e in marks if e for s in e} == {"watermark"}
    assert [e[0].ingested_at for e in marks if e] == [NOON, NOON + 1, NOON + 2]
    assert engine.drain() is None
    replay(engine, [{"l": [Event("a", 1, HOUR)], "r": [Event("a", 2, 0)]}])
    reads = engine.assets["pairs"].operator.reads
    closing = max(reads.lookback) + reads.watermark_delay  # pyright: ignore[reportAttributeAccessIssue]
    drained = engine.drain()
    assert drained is not None
    assert {s.source: (s.kind, s.watermark) for s in drained} == dict.fromkeys(("l", "r", "never"), ("drain", START + HOUR + closing + 1))
    assert engine.pending.describe_progress("pairs")["watermark"] == START + HOUR + closing + 1


TEXT_TIME = {"schema": "k STRING, at STRING", "event_time": "at"}
NO_TIME, NO_MARK = "event time: not a timestamp", "watermark: not a timestamp"


def test_a_text_or_a_number_that_is_no_time_is_quarantined(make_engine: MakeEngine) -> None:
    time = iso(START)
    contracts = {
        "text": ({}, {time: None, "hello": NO_TIME, "10:30": NO_TIME, "2026": NO_TIME, "": NO_TIME, None: "event time: missing"}),
        "computed": ({"event_time": "nullif(concat(at, ''), 'none')"}, {time: None, "hello": NO_TIME, "none": "event time: missing"}),
        "variant": ({"event_time": "parse_json(concat('\"', at, '\"'))"}, {time: None, "hello": NO_TIME, "10:30": NO_TIME}),
        "collated": ({"event_time": "at COLLATE UTF8_LCASE"}, {time: None, "hello": NO_TIME, "10:30": NO_TIME, "1200": NO_TIME}),
        "number": ({"schema": "k STRING, at DOUBLE"}, {1.5: None, 1e30: NO_TIME}),
        "mark": ({"event_time": f"'{time}'", "watermark": Punctuated("at")}, {time: None, None: None, "hello": NO_MARK}),
    }
    engine = make_engine([source(name, **{**TEXT_TIME, **changes}) for name, (changes, _) in contracts.items()], [])
    for name, (_, reasons) in contracts.items():
        land(engine, name, "a.jsonl", [json.dumps({"k": "x", "at": value}) for value in reasons])
    engine.ingest()
    _check_reasons(engine, {name: reasons for name, (_, reasons) in contracts.items()})


def _check_reasons(engine: Engine, reasons: Mapping[str, Mapping[Any, str | None]]) -> None:
    """Each row of a source, given by its `at`, is in the log if its reason is None, and in the quarantine with its reason otherwise."""
    accepted, quarantined = (
        json_rows_of({n: engine.views.table(f"{folder}/{n}").select(*columns) for n in reasons if engine.lake.exists(f"{folder}/{n}")})
        for folder, columns in {"events": ["at"], "quarantine": ["raw", "reason"]}.items()
    )
    for name, expected in reasons.items():
        times = [json.loads(row)["at"] for row in accepted.get(name, [])]
        rejected = [json.loads(row) for row in quarantined.get(name, [])]
        assert {**dict.fromkeys(times), **{json.loads(row["raw"])["at"]: row["reason"] for row in rejected}} == expected, name
        assert len(times) + len(rejected) == len(expected), name


OTHER_EXPRESSIONS = {"never_null", "divided", "element", "of_time"}
"""Expressions that a large batch has in soak only. Others also compute an event time from a column or have a rule."""


@pytest.mark.parametrize(
    ("limit", "left_out"),
    [
        pytest.param(small_queries.SMALL_INPUT_BYTES, (), id="small batch"),
        pytest.param(-1, OTHER_EXPRESSIONS, id="large batch"),
        pytest.param(-1, (), id="large batch with all expressions", marks=pytest.mark.soak),
    ],
)
def test_an_expression_that_raises_an_error_rejects_its_row_only(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, limit: int, left_out: Collection[str]
) -> None:
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", limit)
    time = iso(START)
    at_start, fails = {"event_time": f"timestamp '{time}'"}, "its expression fails"
    of_time = {time: None, "hello": f"event time: {fails}", None: "event time: missing"}
    contracts = {
        "to_time": ({"event_time": "to_timestamp(at)"}, of_time),
        "shared": ({"event_time": "to_timestamp(at)", "rules": (RowRule("late", "to_timestamp(at) > '2020-01-01'", "fail"),)}, of_time),
        "twice": ({"event_time": "least(to_timestamp(at), to_timestamp(at) + interval 1 day)"}, of_time),
        "never_null": ({"event_time": "to_timestamp(coalesce(at, 'none'))"}, {time: None, None: f"event time: {fails}"}),
        "divided": (
            {"event_time": "timestamp_seconds(int(9 / int(at)))"},
            {"3": None, "0": f"event time: {fails}", "x": f"event time: {fails}"},
        ),
        "element": ({"event_time": "timestamp_seconds(array(7)[int(at)])"}, {"0": None, "1": f"event time: {fails}"}),
        "rule": (
            {**at_start, "rules": (RowRule("positive", "int(at) > 0"),)},
            {"1": None, "0": "rule: positive", "x": "rule: positive", None: None},
        ),
        "warned": ({**at_start, "rules": (RowRule("positive", "int(at) > 0", "warn"),)}, {"1": None, "0": None, "x": None, None: None}),
        "watermark": (
            {**at_start, "watermark": Punctuated("to_timestamp(at)")},
            {time: None, None: None, "hello": f"watermark: {fails}"},
        ),
        "marker": (
            {**at_start, "watermark": Punctuated(f"timestamp '{time}'", marker="boolean(at)")},
            {"false": None, None: None, "hello": f"marker: {fails}"},
        ),
        "of_time": (
            {"event_time": "to_timestamp(at)", "rules": (RowRule("recent", "event_time > '2020-01-01' AND arrival >= 0"),)},
            {time: None, "2019-01-01": "rule: recent", "hello": f"event time: {fails}"},
        ),
        "guarded": (
            {**at_start, "watermark": BatchExpression("max(to_timestamp(at))"), "rules": (RowRule("time", "to_timestamp(at) > '2020'"),)},
            {time: None, "hello": "rule: time"},
        ),
        "literal": ({"event_time": "to_timestamp('hello')"}, {"x": f"event time: {fails}"}),
    }
    contracts = {name: of_source for name, of_source in contracts.items() if name not in left_out}
    engine = make_engine([source(name, **{**TEXT_TIME, **changes}) for name, (changes, _) in contracts.items()], [])
    for name, (_, reasons) in contracts.items():
        land(engine, name, "a.jsonl", [json.dumps({"k": "x", "at": value}) for value in reasons])
    [batch] = engine.ingest()
    assert {s.source: s.warned for s in batch if s.warned} == {"warned": 2}
    _check_reasons(engine, {name: reasons for name, (_, reasons) in contracts.items()})


def test_a_rule_that_raises_an_error_is_violated_also_if_it_stops_the_ingest(make_engine: MakeEngine) -> None:
    engine = make_engine([source("a", rules=(RowRule("number", "int(k) > 0", "fail"),))], [])
    _land(engine, "a", "a.jsonl", [Event("1", 1, 0), Event("secret", 1, 0)])
    with pytest.raises(IngestError, match=r"^source 'a' violates rules whose action is 'fail': number \(1 rows\)") as failure:
        engine.ingest()
    assert "secret" not in str(failure.value)


def test_a_watermark_of_a_batch_that_fails_names_its_source_and_quotes_no_row(make_engine: MakeEngine) -> None:
    engine = make_engine([source("a", watermark=BatchExpression("max(to_timestamp(k))")), source("b")], [])
    _land(engine, "a", "a.jsonl", [Event("secret", 1, 0)])
    with pytest.raises(
        IngestError, match=r"^source 'a': its `watermark`, 'max\(to_timestamp\(k\)\)', fails with CAST_INVALID_INPUT for a row; nothing of"
    ) as failure:
        engine.ingest()
    assert "secret" not in str(failure.value)


def test_a_watermark_of_a_batch_that_is_in_no_legal_year_stops_the_ingest(make_engine: MakeEngine) -> None:
    """The watermark never decreases, so all later rows would be late. Its milliseconds are read as seconds."""
    expression = "timestamp_seconds(unix_millis(max(event_time)))"
    engine = make_engine([source("a", watermark=BatchExpression(expression))], [])
    _land(engine, "a", "a.jsonl", [Event("x", 1, 0)])
    why = f"source 'a': its `watermark`, {expression!r}, is {START * 1_000} in epoch ms, which is not in the years 1 to 9999; nothing of"
    with pytest.raises(IngestError, match=re.escape(why)):
        engine.ingest()
    assert engine.ledger.head == 0
    corrected = make_engine([source("a", watermark=BatchExpression("max(event_time)"))], [])
    assert [s.watermark for e in corrected.ingest() for s in e] == [START]


def test_a_silent_source_is_recorded_idle_once_and_is_active_again_with_new_rows(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l"), source("r", idle_timeout="10 minutes"), source("s", idle_timeout="1 hour")], [])
    _land(engine, "l", "1.jsonl", [Event("a", 1, 0)])
    _land(engine, "r", "1.jsonl", [Event("a", 1, 0)])
    assert [s.source for e in engine.ingest() for s in e] == ["l", "r"]
    clock.pass_ms(10 * MINUTE)
    assert engine.ingest() == []
    clock.pass_ms(1)
    [[ingested]] = engine.ingest()
    assert (ingested.source, ingested.kind, ingested.idle, ingested.watermark, ingested.rows_read, ingested.offsets) == (
        "r",
        "inactive",
        True,
        START - MINUTE - 1,
        0,
        (),
    )
    clock.pass_ms(5 * MINUTE)
    assert engine.ingest() == []

    _land(engine, "r", "2.jsonl", [Event("b", 1, 0)])
    [[ingested]] = engine.ingest()
    assert (ingested.source, ingested.kind, ingested.idle) == ("r", "rows", False)

    clock.pass_ms(HOUR)
    _land(engine, "l", "2.jsonl", [Event("b", 1, HOUR)])
    [batch] = engine.ingest()
    assert {s.source: (s.kind, s.idle, s.rows_read) for s in batch} == {
        "l": ("rows", False, 1),
        "r": ("inactive", True, 0),
        "s": ("inactive", True, 0),
    }
    assert engine.ingest() == []


def test_changed_parameters_are_refused_and_the_late_view_contains_late_rows_only(make_engine: MakeEngine) -> None:
    sources = [source("l"), source("r")]
    engine = make_engine(sources, [join()])
    mark = HOUR - MINUTE - 1
    late = [Event("a", 2, mark - 1), Event(None, 3, 0)]
    first = {"l": [Event("a", 1, HOUR)], "r": [Event("a", 1, 2 * HOUR)]}
    then = {"l": [*late, Event("a", 4, mark), Event("a", 5, mark + 1)], "r": [Event("b", 6, mark - 1), Event("b", 7, mark)]}
    replay(engine, [first, then])
    assert rows_of(engine.views.late("pairs", "l"), "v") == [(2,), (3,)]
    assert rows_of(engine.views.late("pairs", "r"), "v") == [(6,)]
    assert engine.views.late("pairs", "l").columns == ["seq", "arrival", "event_time", *ROW.fieldNames()]
    engine.advance("pairs")
    other = make_engine(sources, [join(upper="7 minutes")])
    for read in (lambda: other.advance("pairs"), lambda: other.views.late("pairs", "r"), lambda: other.accounts.days("pairs")):
        with pytest.raises(ProgressError, match=r"pairs was made with other settings than it has now: upper was 600000, and is 420000"):
            read()


KEYS_BY_TYPE: dict[str, tuple[Any, Any]] = {
    "boolean": (True, False),
    "timestamp": (iso(START), iso(START + 1)),
    "double": (0.5, 1.5),
    "date": ("0001-01-01", "9999-12-31"),
}


def test_duplicates_are_found_by_keys_of_every_type(make_engine: MakeEngine) -> None:
    """Delta keeps no statistics of booleans, and Python reads times in its own zone: neither is used for data skipping."""
    sources = [
        source(f"of_{kind}", schema=StructType().add("id", kind).add("ts", "timestamp"), unique_key=("id",)) for kind in KEYS_BY_TYPE
    ]
    engine = make_engine(sources, [])
    for part, counts in enumerate([(1, 0), (1, 2)]):
        for kind, (one, other) in KEYS_BY_TYPE.items():
            ids = [[one], [one, other, other]][part]
            land(engine, f"of_{kind}", f"{part}.jsonl", [json.dumps({"id": i, "ts": iso(START)}) for i in ids])
        [batch] = engine.ingest()
        assert {s.source: (s.accepted, s.duplicate) for s in batch} == {f"of_{kind}": counts for kind in KEYS_BY_TYPE}


def test_small_and_large_batches_are_counted_alike(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files in two sources, of which one is ingested as small batches and the other one as large batches.

    The key has columns of three types, and for each of them there is a row that differs from the first one in this column only.
    """
    schema = StructType().add("k", "string").add("v", "long").add("d", "date").add("ts", "timestamp").add("wm", "timestamp")
    rules = (RowRule("v is small", "v < 9", "warn"), RowRule("v is not huge", "v < 99"), RowRule("v is positive", "v > 0", "fail"))
    watermark = Punctuated("wm", marker="k = 'marker'")
    sizes = {"small": small_queries.SMALL_INPUT_BYTES, "large": -1}
    sources = [source(size, schema=schema, unique_key=("d", "k", "v"), rules=rules, watermark=watermark) for size in sizes]
    engine = make_engine(sources, [])
    first = {"k": '\u00e9\n"', "v": 1, "d": "2026-03-01", "ts": iso(START)}
    others = [{**first, "k": "y"}, {**first, "v": 3}, {**first, "d": "2026-03-04"}]
    lines = [first, {**first, "wm": iso(START + 1)}, {**first, "k": "b", "v": 9, "d": "2026-03-02"}, {**first, "k": "c", "v": 99}, *others]
    marker = {"k": "marker", "wm": iso(START + 2)}
    compared = [f.name for f in fields(SourceBatch) if f.name not in ("seq", "ingested_at", "source", "offsets")]
    duplicates: list[int] = []
    for part, batch in enumerate(([*lines, marker], [marker], [first, {**first, "k": "z", "v": 2, "d": "2026-03-03"}, *others])):
        ingested: dict[str, SourceBatch] = {}
        for size, limit in sizes.items():
            monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", limit)
            land(engine, size, f"{part}.jsonl", [*map(json.dumps, batch), "no JSON"])
            [source_batches] = engine.ingest()
            ingested |= {s.source: s for s in source_batches if s.kind == "rows"}
        small, large = ({name: getattr(ingested[size], name) for name in compared} for size in sizes)
        assert large == small
        duplicates.append(small["duplicate"])
    assert duplicates == [1, 0, 4]
    rows = json_rows_of({(table, size): _rows_of_ingest(engine, f"{table}/{size}") for table in ("events", "quarantine") for size in sizes})
    for table in ("events", "quarantine"):
        assert rows[table, "small"] == rows[table, "large"], table


def _rows_of_ingest(engine: Engine, table: str) -> DataFrame:
    """The rows of a table, without what differs between two ingests."""
    return engine.views.table(table).drop("seq", "path", "ingested_at")


@pytest.mark.parametrize("spelling", ["file:", "file://"])
def test_rows_of_several_files_have_unique_arrival_numbers(make_engine: MakeEngine, spelling: str) -> None:
    engine = make_engine([source("a")], [])
    paths = [land(engine, "a", f"{n}.jsonl", [Event(f"{n}{i}", 1, n).line for i in range(3)]) for n in range(5)]
    engine.ingestion.batches.files([File(NOON, f"{spelling}{path}", path.stat().st_size, "a") for path in paths])
    arrivals = [arrival for (arrival,) in rows_of(read_log(engine.workspace, "a", 1), "arrival")]
    assert len(set(arrivals)) == len(arrivals) == 15
    [prefix] = {offset.split("/", 1)[0] + offset[5:7] for offset in engine.ledger.offsets("a")}
    assert prefix == "file:/" + str(paths[0])[1]
