"""Leaderboards of a table that is upserted: whatever steps they follow it in, the table is the operators over the log."""

import random
import re
from collections.abc import Mapping

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, OperatorError, TopN, Tumbling, WindowedAggregate, fold
from operators.contract import Operator
from tests.conftest import MakeEngine
from tests.support.kills import run_and_die
from tests.support.shopkeeping import MINUTE, Event, replay, rows_of, source
from tests.support.toys import RunningTotal

COUNTS = Aggregate(by=("k", "v"), aggregates={"n": "count(*)"})
KEYED = {"change": "how", "unique_key": ("k", "v")}
TOPS: dict[str, tuple[Operator, str]] = {
    "most": (TopN(by="k", order_by="n DESC", rank_end=2, improving=True, **KEYED), "counts"),
    "most_without_rank": (TopN(by="k", order_by="n DESC", rank_end=2, with_rank=False, **KEYED), "counts"),
    "fewest": (TopN(order_by="n", rank_end=3, rank_start=2, **KEYED), "counts"),
    "second_of_the_first": (TopN(order_by="n DESC", rank_end=1, change="told", unique_key=("k", "v")), "most_without_rank"),
}


def _batches(seed: int, parts: int) -> list[Mapping[str, list[Event]]]:
    seeded = random.Random(seed)
    return [
        {"l": [Event(seeded.choice(["a", "b", None]), seeded.randrange(4), (9 * batch + n) * MINUTE) for n in range(7)]}
        for batch in range(parts)
    ]


def test_each_step_of_a_leaderboard_leads_to_that_of_the_table_it_follows(make_engine: MakeEngine) -> None:
    """`most` folds changes, the others recompute what they touch; one follows each step, and all catch up by several at once."""
    made = {"counts": DerivedAsset(name="counts", inputs=("l",), operator=COUNTS)}
    made |= {name: DerivedAsset(name=name, inputs=(of,), operator=o) for name, (o, of) in TOPS.items()}
    assert [made[n].operator.strategy_used for n in TOPS] == ["update", "retract", "retract", "retract"]
    engine = make_engine([source("l")], [*made.values()])
    points = ["advance.before_changelog", "advance.after_changelog", "advance.before_fold", None]
    for part, (batch, point) in enumerate(zip(_batches(4, 4), points, strict=True)):
        replay(engine, [batch])
        engine.advance("counts")
        live = ["most"] if part in (0, 2) else [*TOPS]
        for name in live:
            if point and name == "most":
                run_and_die(lambda name=name: engine.advance(name), point)
            engine.advance(name)
    log = engine.reading.log("l", engine.ledger.head).drop("event_time_raw")
    tables = {"counts": COUNTS(log)}
    assert rows_of(engine.table("counts")) == rows_of(tables["counts"])
    for name, (top, of) in TOPS.items():
        tables[name] = top(tables[of].selectExpr("*", f"'+I' AS {top.change}"))
        assert rows_of(engine.table(name)) == rows_of(tables[name])
        changelog = engine.table(f"changelog/{name}")
        assert rows_of(fold(changelog, key=top.emits.key, order="step")) == rows_of(engine.table(name))
        assert engine.advance(name) == []
    assert [engine.progress(n).step for n in TOPS] == [4, 2, 2, 2]


def test_what_cannot_be_followed_is_refused(make_engine: MakeEngine) -> None:
    windowed = WindowedAggregate(by="k", window=Tumbling(size="3 minutes"), aggregates={"n": "count(*)"})
    top = TopN(order_by="k", rank_end=1)
    wrong = {
        "unsaid": (top, "total", "unsaid reads 'total', whose rows change and go; give TopN `change`, the column to tell it in"),
        "final": (top, "windows", "final reads new ledger entries, and the rows of 'windows' are of none; let it read the sources"),
    }
    assets = [
        DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
        DerivedAsset(name="windows", inputs=("l",), operator=windowed),
    ]
    engine = make_engine([source("l")], [*assets, *(DerivedAsset(name=n, inputs=(of,), operator=o) for n, (o, of, _) in wrong.items())])
    for name, (_, _, said) in wrong.items():
        with pytest.raises(OperatorError, match=re.escape(said)):
            engine.advance(name)
