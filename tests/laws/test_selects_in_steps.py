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
from tests.support.change_feed import check_change_feed
from tests.support.small_sources import MINUTE, Event, correct_totals, replay, rows_of, source
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


def _batches(seed: int) -> list[Mapping[str, list[Event]]]:
    """Rows behind the newest row of the batches before. The watermark is 60,001 ms behind that row, so a row at the watermark is late."""
    rng, batches, newest = random.Random(seed), [], 0
    for _ in range(4):
        behind = [rng.choice([0, 59_999, 60_000, 60_001, 130_000, 240_000, 240_001, 540_000]) for _ in range(12)]
        rows = [Event(rng.choice(["a", "b", None]), rng.randrange(-3, 9), newest - b) for b in behind]
        newest += rng.randrange(0, 4 * MINUTE)
        batches.append({"l": [*rows, Event("a", 1, newest)]})
    return batches


@pytest.mark.parametrize("seed", [3, pytest.param(7, marks=pytest.mark.soak)])
def test_a_table_has_the_matching_rows_that_are_not_late(make_engine: MakeEngine, seed: int) -> None:
    engine = make_engine([source("l")], _tables())
    live = [name for name in engine.assets if not name.endswith("_again")]
    for batch in _batches(seed):
        replay(engine, [batch])
        for name in live:
            engine.advance(name)
        assert correct_totals(engine, "on_time")["l", "unmatched"] == 0
    engine.drain()
    for name in engine.assets:
        engine.advance(name)
    for name, lateness in LATENESS.items():
        matching = [(r.k, r.v * 10, r.t, r.watermark) for r in rows_with_watermark(engine, name) if r.v is not None and r.v > 0]
        late = [mark is not None and t + lateness <= mark for _, _, t, mark in matching]
        wanted = sorted([row[:3] for row, is_late in zip(matching, late, strict=True) if not is_late], key=repr)
        assert _content(engine, name) == _content(engine, f"{name}_again") == wanted
        assert engine.views.late(name, "l").count() == sum(late) > 0
        account = correct_totals(engine, name)
        assert (account["l", "matched"], account["l", "pending"], account["l", "late"]) == (len(wanted), 0, sum(late))
        assert account["l", "accepted"] - sum(account["l", term] for term in ("matched", "late")) == sum(
            a.filtered for a in engine.accounts.days(name)
        )
    kept = _content(engine, "lenient")
    assert check_change_feed(engine, "lenient") == (0, 0), "a late row only adds"
    assert rows_of(engine.views.table("large"), "id", "more") == sorted([(k, tens + 1) for k, tens, _ in kept if tens > 30], key=repr)
    assert sum(n for (n,) in rows_of(engine.views.table("minutes"), "n")) == len(kept)
    totals = {k: sum(tens for other, tens, _ in kept if other == k) for k, _, _ in kept}
    assert dict(rows_of(engine.views.table("totals"), "id", "tens")) == totals
    for name in ("large", "minutes", "totals"):
        correct_totals(engine, name)


def _content(engine: Engine, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table of selected rows: key, value and time in epoch ms."""
    rows = engine.views.table(table)
    assert {*rows.columns} == {"event_time", "seq", "arrival", "id", "tens", "result_time", "final_at"}
    assert rows.where("event_time <> result_time OR event_time <> final_at").count() == 0
    return rows_of(rows.select("id", "tens", F.unix_millis("result_time")))
