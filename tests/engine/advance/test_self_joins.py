"""Joins of a source with itself: each row is a row of both sides, with an account of each."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, Preparation
from operators import AsOfJoin, IntervalJoin, Tumbling, WindowJoin
from operators.contract import Operator
from platform_defs.engine.operations.state_size import state_size
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import MINUTE, Event, replay, rows_of, source

OPERATORS: dict[str, Operator] = {
    "pairs": IntervalJoin(on="k", lower="-1 minute", upper="2 minutes", how="full", residual="left_v < right_v"),
    "unanswered": IntervalJoin(on="k", lower=1, upper="1 minute", how="anti"),
    "versions": AsOfJoin(on="k", how="left", max_age="5 minutes"),
    "windows": WindowJoin(on="k", window=Tumbling(size="2 minutes"), how="inner"),
}
BATCHES = [
    [Event("a", 1, 0), Event("b", 2, 1_000), Event("a", 3, 30_000)],
    [Event("a", 4, MINUTE), Event("b", 5, 3 * MINUTE), Event("b", 5, 3 * MINUTE)],
    [Event("a", 9, -5 * MINUTE), Event("a", 6, 9 * MINUTE)],
]


def test_a_source_is_joined_with_itself(make_engine: MakeEngine) -> None:
    """Each join has two tables: one with a step for each of the first two batches and one for the rest, and one with a single step."""
    stepwise = [DerivedAsset(name=name, inputs=("l", "l"), operator=operator) for name, operator in OPERATORS.items()]
    at_once = [replace(table, name=f"{table.name}_at_once") for table in stepwise]
    engine = make_engine([source("l")], [*stepwise, *at_once])
    for batch, tables in zip(BATCHES, (stepwise, stepwise, []), strict=True):
        replay(engine, [{"l": batch}])
        for table in tables:
            engine.advance(table.name)
    engine.drain()
    log = engine.lake.read(engine.connect(), "events/l").where(F.col("v") != 9)  # that row is late
    rows = log.select("k", "v", "ts", "event_time", "seq", "arrival")
    frames: dict[str, DataFrame] = {}
    for table in [*stepwise, *at_once]:
        engine.advance(table.name)
        frames[table.name] = _without_positions(engine.views.table(table.name))
    found = json_rows_of(frames | {f"{name}, all rows": _without_positions(join(rows, rows)) for name, join in OPERATORS.items()})
    for table in stepwise:  # a table with the same rows has the same account
        name = table.name
        assert found[name] == found[f"{name}_at_once"] == found[f"{name}, all rows"], name
        by_day = engine.accounts.days(name)
        assert all(account.holds for account in by_day), name
        assert {account.side for account in by_day} == {"l"}
        assert sum(account.late for account in by_day) == 2, "the row is late on each side"
        assert not engine.accounts.count_differences(name)
        size = state_size(engine.workspace, table)["event_log"]
        assert size.files + size.skipped_files == len(engine.lake.file_sizes("events/l", {})), "each file counts once"


def _without_positions(results: DataFrame) -> DataFrame:
    return results.select(sorted(c for c in results.columns if c.split("_")[-1] not in ("seq", "arrival")))


def test_each_side_of_a_join_of_a_source_with_itself_has_its_own_preparation(make_engine: MakeEngine) -> None:
    """The sides select other columns and rows. A preparation under the name of the source is that of both sides."""
    join = IntervalJoin(on="k", lower="0 ms", upper="2 minutes", how="full")
    sides = {"left": Preparation(where="v < 3"), "right": Preparation(select="k, v AS later", where="v > 2")}
    tables = [
        DerivedAsset(name="sides", inputs=("l", "l"), operator=join, prepare=sides),
        DerivedAsset(name="both", inputs=("l", "l"), operator=join, prepare={"l": Preparation(select="k, v AS w", where="v > 3")}),
    ]
    engine = make_engine([source("l")], tables)
    replay(engine, [{"l": batch} for batch in BATCHES[:2]])
    engine.drain()
    for table in tables:
        engine.advance(table.name)
    by_day = {table.name: engine.accounts.days(table.name) for table in tables}
    assert all(account.holds for of_table in by_day.values() for account in of_table), by_day
    assert sum(account.filtered for account in by_day["sides"]) == 4 + 2
    assert rows_of(engine.views.table("sides"), "k", "v", "later") == [
        ("a", 1, 3),
        ("a", 1, 4),
        ("b", 2, None),
        ("b", None, 5),
        ("b", None, 5),
    ]
    assert rows_of(engine.views.table("both"), "k", "left_w", "right_w") == [("a", 4, 4), *[("b", 5, 5)] * 4]
