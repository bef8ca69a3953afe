"""Joins whose results have the time of their left or right row: their readers wait for later rows of the other side, and miss nothing."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset, Preparation
from operators import IntervalJoin, OperatorError, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, START, Event, law_violations, replay, rows_of, source

Rows = list[tuple[str, int, int]]
CASES = 250
SIZE = 10 * MINUTE
LATENESS: dict[str, Any] = {"allowed_lateness": "1 hour"}
"""No row is late: a row behind closed results corrects them, and the results of their readers."""


def _tables(suffix: str) -> list[DerivedAsset]:
    """Two chained joins with the left time, an inner join with the right time, and windows over the first and over the inner join."""
    paid, sent = Preparation(select="k, v AS paid"), Preparation(select="k, v AS sent")
    first = IntervalJoin(on="k", lower="-2 minutes", upper="8 minutes", how="left", result_time="left", **LATENESS)
    second = IntervalJoin(on="k", lower="1 minute", upper="12 minutes", how="left", result_time="left", **LATENESS)
    backward = IntervalJoin(on="k", lower="-2 minutes", upper="8 minutes", how="inner", result_time="right", **LATENESS)
    counts = WindowedAggregate(by="k", window=Tumbling(size=SIZE), aggregates={"n": "count(*)", "paid": "count(paid)"}, **LATENESS)
    wide, back, read = f"wide{suffix}", f"back{suffix}", Preparation(select="k, v, paid")
    return [
        DerivedAsset(name=wide, inputs=("l", "r"), operator=first, prepare={"r": paid}),
        DerivedAsset(name=f"wider{suffix}", inputs=(wide, "s"), operator=second, prepare={wide: read, "s": sent}),
        DerivedAsset(name=f"counts{suffix}", inputs=(wide,), operator=counts),
        DerivedAsset(name=back, inputs=("l", "r"), operator=backward, prepare={"r": paid}),
        DerivedAsset(name=f"back_counts{suffix}", inputs=(back,), operator=counts),
    ]


def _batches(seed: int, count: int) -> list[Mapping[str, list[Event]]]:
    """One left row and two rows of each other source for each case in each batch, up to half an hour behind the newest."""
    rng, batches, newest = random.Random(seed), list[Mapping[str, list[Event]]](), 40 * MINUTE
    for _ in range(count):
        newest += 5 * MINUTE
        batches.append({name: list(_events(rng, newest, rows)) for name, rows in (("l", 1), ("r", 2), ("s", 2))})
    return batches


def _events(rng: random.Random, newest: int, rows: int) -> Iterable[Event]:
    for case in range(CASES):
        for _ in range(rows):
            yield Event(f"{case}", rng.randrange(100), newest - rng.choice([0, 1, 2, 5, 10, 20, 30]) * MINUTE)


def _rows_of(batches: list[Mapping[str, list[Event]]], name: str) -> Rows:
    return [(event.k or "", event.v, event.at) for batch in batches for event in batch[name]]


def _matches(rows: Rows, key: str, at: int, lower: int, upper: int) -> list[tuple[int, int]]:
    """The values and times of the rows of a key whose time is from `lower` to `upper` minutes after `at`."""
    return [(value, time) for k, value, time in rows if k == key and lower * MINUTE <= time - at <= upper * MINUTE]


def _expected(batches: list[Mapping[str, list[Event]]]) -> dict[str, Counter[tuple[Any, ...]]]:
    by_key: dict[str, dict[str, Rows]] = {name: {} for name in "lrs"}
    for name, rows in by_key.items():
        for row in _rows_of(batches, name):
            rows.setdefault(row[0], []).append(row)
    wide, wider, counts, back, back_counts = (Counter[tuple[Any, ...]]() for _ in range(5))
    for key, lefts in by_key["l"].items():
        for _, v, at in lefts:
            paid = _matches(by_key["r"][key], key, at, -2, 8)
            sent = _matches(by_key["s"][key], key, at, 1, 12)
            for value in [value for value, _ in paid] or [None]:
                wide[key, v, value, START + at] += 1
                counts[key, at // SIZE * SIZE, "n"] += 1
                counts[key, at // SIZE * SIZE, "paid"] += value is not None
                wider.update((key, v, value, other, START + at) for other in [other for other, _ in sent] or [None])
            for value, time in paid:
                back[key, v, value, START + time] += 1
                back_counts[key, time // SIZE * SIZE, "n"] += 1
    return {"wide": wide, "wider": wider, "counts": counts, "back": back, "back_counts": back_counts}


def _stored(engine: Engine) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of all tables, read by one query; of windows, each aggregate that is not zero."""
    frames = dict[str, DataFrame]()
    for name in engine.assets:
        table = engine.views.table(name)
        if "counts" in name:
            frames[name] = table.selectExpr("k", f"unix_millis(window_start) - {START} AS start", "n", "paid")
        else:
            columns = [c for c in ("k", "v", "paid", "sent") if c in table.columns]
            frames[name] = table.selectExpr(*columns, "unix_millis(result_time) AS at")
    found = {name: Counter(rows) for name, rows in values_of(frames).items()}
    for name in [name for name in found if "counts" in name]:
        terms = ("n",) if name.startswith("back") else ("n", "paid")
        counts = [(k, start, {"n": n, "paid": paid}) for k, start, n, paid in found[name]]
        found[name] = Counter({(k, start, term): of[term] for k, start, of in counts for term in terms if of[term]})
    return found


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
def test_readers_of_a_join_with_the_time_of_a_row_equal_a_naive_model(make_engine: MakeEngine, count: int) -> None:
    """In steps with corrections, and in one step."""
    engine, batches = make_engine([source(name) for name in "lrs"], [*_tables(""), *_tables("_at_once")[:3]]), _batches(11, count)
    corrections = Counter[str]()
    for n, batch in enumerate(batches, 1):
        replay(engine, [batch])
        if n == count:
            engine.drain()
        for name in [table.name for table in _tables("")]:
            corrections[name] += sum(step.after.step in [number for number, *_ in step.after.corrected] for step in engine.advance(name))
    expected = _expected(batches)
    for name in engine.assets:
        engine.advance(name)
    for name, rows in _stored(engine).items():
        assert rows == +expected[name.removesuffix("_at_once")], name
    assert [table.name for table in _tables("") if law_violations(engine, table.name)] == []
    assert [table.name for table in _tables("") if not corrections[table.name]] == []
    assert sum(1 for row in expected["wider"] if row[2] is not None and row[3] is not None) > CASES // 2


def test_the_watermark_of_readers_waits_for_the_interval(make_engine: MakeEngine) -> None:
    """A window of left rows closes when no pair with one of its rows can come any more."""
    engine = make_engine([source(name) for name in "lrs"], _tables(""))
    replay(engine, [{name: [Event("a", 1, 5 * MINUTE), Event("a", 2, 15 * MINUTE)] for name in "lrs"}])
    for name in ("wide", "counts"):
        engine.advance(name)
    assert rows_of(engine.views.table("counts"), "k", "n") == [], "the watermark is at 14 minutes, and pairs may come until 8 minutes after"
    replay(engine, [{name: [Event("b", 3, 20 * MINUTE)] for name in "lrs"}])
    for name in ("wide", "counts"):
        engine.advance(name)
    assert rows_of(engine.views.table("counts"), "k", "n") == [("a", 1)]


@pytest.mark.parametrize(
    ("how", "result_time", "legal"),
    [
        ("full", "left", "'later'"),
        ("right", "left", "'later', 'right'"),
        ("left", "right", "'later', 'left'"),
        ("semi", "right", "'later', 'left'"),
        ("anti", "right", "'later', 'left'"),
        ("inner", "both", "'later', 'left', 'right'"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"late_rows": "join", "time_buckets": True}], ids=["alone", "late rows join"])
def test_a_time_that_a_result_may_lack_is_refused(how: Any, result_time: Any, legal: str, more: dict[str, Any]) -> None:
    message = f"`result_time` is '{result_time}'; legal: for how='{how}', the time of a row that every result has: {legal}"
    with pytest.raises(OperatorError, match=f"^{message}$"):
        IntervalJoin(on="k", lower=0, upper=1, how=how, result_time=result_time, **more)
