"""Selected rows in several steps: the table has the accepted rows that match and are not late, equals a backfill, and accounts for each."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, Preparation
from operators import Aggregate, Select, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.change_feed import check_change_feeds
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, Event, correct_totals, replay, source, totals_of
from tests.support.windows_in_engine import rows_with_watermark

POSITIVE = Preparation(where="v > 0", select="k AS id, v * 10 AS tens")
LATENESS = {"on_time": 0, "lenient": 3 * MINUTE}


def _tables() -> list[DerivedAsset]:
    """The selections, each twice: to advance after each batch, and once at the end; a selection from a table, and other readers."""
    selections = [
        DerivedAsset(name=f"{name}{again}", inputs=("l",), prepare={"l": POSITIVE}, operator=Select(allowed_lateness=lateness))
        for name, lateness in LATENESS.items()
        for again in ("", "_again")
    ]
    large = Preparation(where="tens > 30", select="*, tens + 1 AS more")
    by_minute = WindowedAggregate(by="id", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
    return [
        *selections,
        DerivedAsset(name="large", inputs=("lenient",), prepare={"lenient": large}, operator=Select()),
        DerivedAsset(name="minutes", inputs=("lenient",), operator=by_minute),
        DerivedAsset(name="totals", inputs=("lenient",), operator=Aggregate(by="id", aggregates={"tens": "sum(tens)"})),
    ]


def _batches(seed: int, count: int) -> list[Mapping[str, list[Event]]]:
    """Rows behind the newest row of the batches before. The watermark is 60,001 ms behind that row, so a row at the watermark is late."""
    rng, batches, newest = random.Random(seed), [], 0
    for _ in range(count):
        behind = [rng.choice([0, 59_999, 60_000, 60_001, 130_000, 240_000, 240_001, 540_000]) for _ in range(18)]
        rows = [Event(rng.choice(["a", "b", None]), rng.randrange(-3, 9), newest - b) for b in behind]
        newest += rng.randrange(0, 4 * MINUTE)
        batches.append({"l": [*rows, Event("a", 1, newest)]})
    return batches


@pytest.mark.parametrize(("seed", "count"), [(4, 2), pytest.param(7, 4, marks=pytest.mark.soak)])
def test_a_table_has_the_matching_rows_that_are_not_late(make_engine: MakeEngine, seed: int, count: int) -> None:
    engine = make_engine([source("l")], _tables())
    live = [name for name in engine.assets if not name.endswith("_again")]
    *batches, last = _batches(seed, count)
    for batch in batches:
        replay(engine, [batch])
        for name in live:
            engine.advance(name)
    assert correct_totals(engine, "on_time")["l", "unmatched"] == 0
    replay(engine, [last])
    engine.drain()
    for name in engine.assets:
        engine.advance(name)
    found = _contents(engine)
    rows = rows_with_watermark(engine, "on_time")  # all selections read one source, so they have the same watermark
    matching = [(r.k, r.v * 10, r.t, r.watermark) for r in rows if r.v is not None and r.v > 0]
    for name, lateness in LATENESS.items():
        late = [mark is not None and t + lateness <= mark for _, _, t, mark in matching]
        wanted = sorted([row[:3] for row, is_late in zip(matching, late, strict=True) if not is_late], key=repr)
        assert found[name] == found[f"{name}_again"] == wanted
        assert len(found[f"late {name}"]) == sum(late) > 0
        days = engine.accounts.days(name)
        assert all(a.holds for a in days)
        account = totals_of(days)
        assert {term: account["l", term] for term in ("matched", "unmatched", "pending", "late")} == {
            "matched": len(wanted),
            "unmatched": 0,
            "pending": 0,
            "late": sum(late),
        }
        assert account["l", "accepted"] - sum(account["l", term] for term in ("matched", "late")) == sum(a.filtered for a in days)
    kept = found["lenient"]
    assert check_change_feeds(engine, ["lenient"], by_spark=[]) == {"lenient": (0, 0)}, "a late row only adds"
    assert found["large"] == sorted([(k, tens + 1) for k, tens, _ in kept if tens > 30], key=repr)
    assert sum(n for (n,) in found["minutes"]) == len(kept)
    totals = {k: sum(tens for other, tens, _ in kept if other == k) for k, _, _ in kept}
    assert dict(found["totals"]) == totals
    for name in ("large", "minutes", "totals"):
        correct_totals(engine, name)


def _contents(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables, read by one query; of a selection, key, value and time in epoch ms. Its late rows are `late SELECTION`."""
    readers = {"large": ("id", "more"), "minutes": ("n",), "totals": ("id", "tens")}
    frames = {name: engine.views.table(name).select(*columns) for name, columns in readers.items()}
    for name in (of + again for of in LATENESS for again in ("", "_again")):
        rows = engine.views.table(name)
        assert {*rows.columns} == {"event_time", "seq", "arrival", "id", "tens", "result_time", "final_at"}
        has_one_time = F.expr("event_time = result_time AND event_time = final_at").alias("has_one_time")
        frames[name] = rows.select("id", "tens", F.unix_millis("result_time").alias("time"), has_one_time)
    found = values_of(frames | {f"late {name}": engine.views.late(name, "l").select("seq") for name in LATENESS})
    for name in frames.keys() - readers.keys():
        assert all(has_one_time for *_, has_one_time in found[name]), name
        found[name] = [row[:3] for row in found[name]]
    return found
