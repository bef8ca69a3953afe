"""The lake that commit 3c97b7b8 wrote (2026-11-30): the operators and states that came after bd14abf."""

from assets.contracts import DerivedAsset, Shape
from operators import (
    Aggregate,
    AsOfJoin,
    CountWindowAggregate,
    Deduplicate,
    DeltaEvictor,
    EveryInterval,
    EveryRows,
    EveryStep,
    IntervalJoin,
    ProcessCountWindow,
    ProcessWindow,
    Session,
    TopN,
    Tumbling,
    WindowedAggregate,
)
from operators.contract import Operator
from platform_defs.declared.sql_pipeline import read_sql
from tests.lakes.archive import Archive
from tests.support.small_sources import MINUTE, Event, source

_SQL = """
CREATE TABLE l (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'format' = 'json');
INSERT INTO selected SELECT k, v * 2 AS twice, ts FROM l WHERE v > 1;
INSERT INTO means SELECT k, window_start, window_end, SUM(v) AS total, SUM(v) / COUNT(*) AS mean
FROM TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '2' MINUTES) WHERE v <> 3 GROUP BY k, window_start, window_end HAVING SUM(v) > 2;
"""
_TWO_MINUTES, _COUNT = Tumbling(size="2 minutes"), {"n": "count(*)"}


def _table(source_name: str, name: str, operator: Operator) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=(source_name,), operator=operator)


AT_3C97B7B8 = Archive(
    sources=[source("l", unique_key=("k", "v")), source("r")],
    tables=[
        *read_sql(_SQL).tables,
        DerivedAsset(name="versioned", inputs=("l", "r"), operator=AsOfJoin(on="k", how="left", allowed_lateness="2 minutes")),
        DerivedAsset(name="arrived", inputs=("l", "r"), operator=AsOfJoin(on="k", how="left", as_of="arrival")),
        DerivedAsset(
            name="early_pairs",
            inputs=("l", "r"),
            operator=IntervalJoin(on="k", lower="-1 minute", upper="2 minutes", how="left", late_rows="join", early=EveryStep()),
        ),
        _table(
            "l",
            "paths",
            ProcessWindow(
                by="k",
                window=Session(gap="2 minutes"),
                rows="transform(elements, (e, i) -> named_struct('step', i, 'v', e.v))",
                allowed_lateness="2 minutes",
            ),
        ),
        _table("l", "couples", CountWindowAggregate(by="k", size=2, aggregates={"total": "sum(v)"})),
        _table("l", "endings", ProcessCountWindow(by="k", ends_with="v % 3 = 0")),
        _table("l", "fired", WindowedAggregate(by="k", window=_TWO_MINUTES, aggregates=_COUNT, purging=EveryRows(2))),
        DerivedAsset(
            name="cubed",
            inputs=("l",),
            operator=WindowedAggregate(by="k", window=_TWO_MINUTES, aggregates=_COUNT, grouping_sets=(("k",), ())),
            shape=Shape(select="*, n * 2 AS twice"),
        ),
        _table(
            "l",
            "near",
            WindowedAggregate(
                by="k",
                window=Tumbling(size="4 minutes"),
                aggregates=_COUNT,
                evictor=DeltaEvictor("v", 2),
                early=EveryInterval("1 minute", by="processing"),
            ),
        ),
        _table("l", "living", Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(v)"}, ttl="5 minutes", after_ttl="retract")),
        _table("r", "lasts", Deduplicate(by="k", keep="last", ttl="15 minutes", ttl_by="processing", after_ttl="retract")),
        _table("r", "newest", TopN(by="k", order_by="ts DESC", unique_key="v", rank_end=2)),
    ],
    batches=[
        {
            "l": [Event("a", 1, 0), Event("a", 2, MINUTE // 2), Event("b", 3, MINUTE), Event("b", 4, 3 * MINUTE), Event(None, 5, 0)],
            "r": [Event("a", 1, 10_000), Event("b", 2, 2 * MINUTE), Event("e", 3, MINUTE)],
        },
        {
            "l": [Event("b", 6, MINUTE + 50_000), Event("a", 7, 4 * MINUTE), Event("a", 7, 4 * MINUTE), Event("a", 8, 4 * MINUTE + 1)],
            "r": [Event("a", 4, 4 * MINUTE - 10_000), Event("b", 1, 5 * MINUTE)],
        },
        {
            "l": [Event("b", 8, MINUTE // 2), Event("a", 9, 10 * MINUTE), Event("a", 10, 10 * MINUTE + 5_000), Event("c", 11, 11 * MINUTE)],
            "r": [Event("a", 6, 9 * MINUTE), Event("a", 2, 10 * MINUTE), Event("b", 8, 10 * MINUTE + 5_000)],
        },
    ],
    later={
        "l": [
            Event("a", 12, 9 * MINUTE),
            Event("c", 13, 11 * MINUTE + 30_000),
            Event("a", 14, MINUTE),
            Event("b", 15, 21 * MINUTE),
            Event("d", 16, 21 * MINUTE + 20_000),
        ],
        "r": [Event("a", 9, 8 * MINUTE + 30_000), Event("b", 2, 2 * MINUTE), Event("d", 3, 20 * MINUTE), Event("d", 6, 21 * MINUTE)],
    },
    pause=10 * MINUTE,
)
