"""Dagster materializes in one run a chain of tables in which those with and without daily partitions alternate."""

import dagster as dg
import pytest

from assets.contracts import DerivedAsset
from assets.factories.closed_range_table import closed_range_asset
from assets.factories.upserted_table import upserted_asset
from operators import Aggregate, TopN, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.orchestration.parallel_work import ParallelWork
from tests.conftest import MakeEngine
from tests.support.small_sources import DAY, MINUTE, Event, replay, rows_of, source

pytestmark = pytest.mark.usefixtures("interpreted_plans")
WINDOW = Tumbling(size="2 minutes")
COUNTED = WindowedAggregate(by="k", window=WINDOW, aggregates={"n": "count(*)"}, allowed_lateness="10 minutes")
CHAIN = [
    DerivedAsset(name="windows", inputs=("l",), operator=COUNTED),
    DerivedAsset(name="top", inputs=("windows",), operator=TopN(by="k", order_by="n DESC", rank_end=1)),
    DerivedAsset(name="of_top", inputs=("top",), operator=WindowedAggregate(window=WINDOW, aggregates={"most": "max(n)"})),
    DerivedAsset(name="ever", inputs=("of_top",), operator=Aggregate(by="most", aggregates={"windows": "count(*)"})),
]


def _run(engine: Engine) -> dict[str, int]:
    """Materialize the chain for two days; returns the number of materializations of each table."""
    worker, days = ParallelWork(), dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-03-03")
    assets = [
        closed_range_asset(table, sources=["l"], days=days, worker=worker)
        if table.operator.reads.closes_ranges
        else upserted_asset(table, sources=["l"], worker=worker)
        for table in CHAIN
    ]
    range_of = {"dagster/asset_partition_range_start": "2026-03-01", "dagster/asset_partition_range_end": "2026-03-02"}
    run = dg.materialize(assets, tags=range_of, resources={"engine": engine})
    assert run.success
    assert all(check.passed for check in run.get_asset_check_evaluations() if check.check_name == "conservation_law")
    found = [event.asset_key.to_user_string() for event in run.get_asset_materialization_events() if event.asset_key]
    return {name: found.count(name) for name in found}


def test_a_chain_of_tables_is_materialized_in_one_run(make_engine: MakeEngine) -> None:
    """The run corrects the tables, which had final results before."""
    engine = make_engine([source("l")], CHAIN)
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, MINUTE), Event("b", 1, 5 * MINUTE), Event("a", 1, 8 * MINUTE)]}])
    for table in CHAIN:
        engine.advance(table.name)
    assert rows_of(engine.views.table("ever")) == [(1, 1), (2, 1)]
    late = [Event("b", 2, 4 * MINUTE), Event("b", 2, 4 * MINUTE)]
    replay(engine, [{"l": [*late, Event("a", 2, DAY)]}])
    assert _run(engine) == {"windows": 2, "top": 1, "of_top": 2, "ever": 1}
    assert rows_of(engine.views.table("top"), "k", "n") == [("a", 2), ("b", 3)]
    assert rows_of(engine.views.table("ever")) == [(2, 1), (3, 1)]
