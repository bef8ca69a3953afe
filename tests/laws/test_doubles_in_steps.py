"""Tables of sums and statistics of doubles: their account holds after each correction, and a correction changes affected windows only."""

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Sliding, Tumbling, WindowedAggregate
from operators.contract import Operator
from platform_defs.engine import Engine, StepError
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import MINUTE, Event, replay, rows_of, source

LATENESS = "10 minutes"
X = "(cast(v AS DOUBLE) / 10)"
"""A tenth is no double, so that a rounded sum depends on the order of its rows."""
SUMS = {"total": f"sum({X})", "mean": f"avg({X})"}
OPERATORS: dict[str, Operator] = {
    "tumbling": WindowedAggregate(
        by="k", window=Tumbling(size="3 minutes"), aggregates={**SUMS, "spread": f"stddev({X})"}, allowed_lateness=LATENESS
    ),
    "sliding": WindowedAggregate(
        by="k", window=Sliding(size="4 minutes", slide="2 minutes"), aggregates={"total": f"sum({X})"}, allowed_lateness=LATENESS
    ),
    "by_key": Aggregate(by="k", aggregates={**SUMS, "total": f"0 + sum({X})", "spread": f"stddev({X})", "first": f"min_by({X}, v % 2)"}),
}


def _batches(parts: int) -> list[Mapping[str, list[Event]]]:
    """Rows of three keys and nine minutes, split at random: some batches have rows of windows that are closed."""
    rng = random.Random(11)
    rows = [Event(rng.choice(["a", "b", None]), rng.choice([1, 2, 3, 7, 10**9, -(10**9)]), n * 2_000) for n in range(270)]
    ends = sorted(rng.sample(range(1, len(rows)), parts - 1))
    batches = [rows[a:b] for a, b in zip([0, *ends], [*ends, len(rows)], strict=True)]
    for batch, following in pairwise(batches):
        following += [batch.pop(rng.randrange(len(batch))) for _ in range(3)]
    return [{"l": batch} for batch in batches if batch]


def _accounts(engine: Engine) -> dict[str, bool]:
    return {name: all(account.holds for account in engine.accounts.days(name)) for name in OPERATORS}


@pytest.mark.parametrize("parts", [2, pytest.param(3, marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
def test_the_account_of_doubles_holds_after_each_correction_and_a_run_equals_the_backfill(make_engine: MakeEngine, parts: int) -> None:
    assets = [DerivedAsset(name=f"{name}{suffix}", inputs=("l",), operator=o) for name, o in OPERATORS.items() for suffix in ("", "_again")]
    engine, batches, corrections = make_engine([source("l")], assets), _batches(parts), 0
    partitions = engine.spark.conf.get("spark.sql.shuffle.partitions")
    try:
        for number, batch in enumerate(batches):
            replay(engine, [batch])
            if number == len(batches) - 1:
                engine.drain()
            for name in OPERATORS:
                corrections += sum(step.after.corrected != step.before.corrected for step in engine.advance(name))
            engine.spark.conf.set("spark.sql.shuffle.partitions", "3" if number % 2 else "1")  # another order of the rows
            if number >= len(batches) - 2:  # with open windows, and after the drain
                assert _accounts(engine) == dict.fromkeys(OPERATORS, True), number
    finally:
        engine.spark.conf.set("spark.sql.shuffle.partitions", partitions)
    for name in OPERATORS:
        engine.advance(f"{name}_again")
    found = json_rows_of({name: engine.views.table(name) for name in engine.assets})
    for name in OPERATORS:
        assert found[name] == found[f"{name}_again"] != [], name
    for name in ("tumbling", "by_key"):  # final results and an upserted table
        assert engine.rebuild_days(name).missing == 0, name
    assert corrections >= 2


def test_a_late_row_corrects_the_results_of_its_windows_only(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name="tumbling", inputs=("l",), operator=OPERATORS["tumbling"])])
    rows = [Event(k, v, n * 1_000) for n in range(160) for k, v in (("a", 1), ("b", 10**9 - n), ("c", n))]
    replay(engine, [{"l": [*rows, Event("z", 0, 9 * MINUTE)]}])
    engine.advance("tumbling")
    replay(engine, [{"l": [Event("a", 2, 90_000)]}])
    [step] = engine.advance("tumbling")
    assert step.rows == 2  # the row of `a` before and after, though the windows of `b` and `c` were computed again


def test_a_value_that_is_too_large_stops_the_step_with_the_way_out(make_engine: MakeEngine) -> None:
    operator = Aggregate(by="k", aggregates={"total": "0 + sum(v * 1e37)"})
    engine = make_engine([source("l")], [DerivedAsset(name="totals", inputs=("l",), operator=operator)])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    engine.advance("totals")
    replay(engine, [{"l": [Event("a", 3, 0)]}])
    with pytest.raises(StepError, match=r"^totals: a sum of doubles has a value of 2e37 or more.*if\(abs\(v\) < 1e37.*rebuild totals"):
        engine.advance("totals")
    assert rows_of(engine.views.table("totals"), "k", "total") == [("a", 1e37)]
