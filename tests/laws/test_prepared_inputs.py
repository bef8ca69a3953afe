"""A table that prepares its inputs equals the same table over rows that were prepared before they landed, and accounts for every row."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, Preparation, SourceContract
from operators import Aggregate, Deduplicate, IntervalJoin, Session, TopK, Tumbling, WindowedAggregate
from operators.contract import ARRIVAL, SEQ
from operators.errors import OperatorError
from platform_defs.engine import Engine, ProgressError
from platform_defs.engine.inputs.identity import identity_of
from tests.conftest import MakeEngine
from tests.support.small_sources import HOUR, MINUTE, START, Event, iso, law_violations, replay, rows_of, source, totals

STREAM = [
    {"l": [Event("a", 1, 0), Event("a", -2, MINUTE), Event("b", 3, 2 * MINUTE)], "r": [Event("a", 4, MINUTE), Event("b", -5, 2 * MINUTE)]},
    {"l": [Event("b", -6, 20 * MINUTE), Event("b", 7, 30 * MINUTE)], "r": [Event("b", 8, 31 * MINUTE), Event(None, 9, 31 * MINUTE)]},
    {"l": [Event("a", -10, 0), Event("a", 11, MINUTE), Event("c", 12, 2 * HOUR)], "r": [Event("c", 13, 2 * HOUR)]},
    {"l": [Event("c", 14, 2 * HOUR - 30_000), Event("c", 15, 3 * HOUR)], "r": [Event("c", -16, 2 * HOUR), Event("c", 17, 3 * HOUR)]},
]
"""Rows with a negative value are to be filtered. The newest row of a batch is never one: the watermark is that of all rows."""
KEPT = [{name: [event for event in events if event.v > 0] for name, events in batch.items()} for batch in STREAM]
POSITIVE = Preparation(where="v > 0", select="k AS id, v * 10 AS tens, ts")
SAME_COLUMNS = Preparation(select="k AS id, v * 10 AS tens, ts")
LENIENT = {"aggregates": {"n": "count(*)", "tens": "sum(tens)"}, "allowed_lateness": "2 minutes"}


def tables(prepared: Preparation) -> list[DerivedAsset]:
    """One table of each way to advance, and two that read another table."""
    both, left = {"l": prepared, "r": prepared}, {"l": prepared}
    in_minutes = WindowedAggregate(by="id", window=Tumbling(size="1 minute"), **LENIENT)
    several = Preparation(where="n > 0 AND tens > 10", select="* EXCEPT (n), n + 1 AS more")
    return [
        DerivedAsset(name="pairs", inputs=("l", "r"), operator=_join("full"), prepare=both),
        DerivedAsset(name="inner_pairs", inputs=("l", "r"), operator=_join("inner"), prepare=both),
        DerivedAsset(name="counts", inputs=("l",), operator=in_minutes, prepare=left),
        DerivedAsset(
            name="visits", inputs=("l",), operator=WindowedAggregate(by="id", window=Session(gap="30 seconds"), **LENIENT), prepare=left
        ),
        DerivedAsset(name="first", inputs=("l",), operator=Deduplicate(by="id"), prepare=left),
        DerivedAsset(name="total", inputs=("r",), operator=Aggregate(by="id", aggregates={"n": "count(*)"}), prepare={"r": prepared}),
        DerivedAsset(
            name="busiest",
            inputs=("counts",),
            operator=TopK(k=1, order_by="more DESC"),
            prepare={"counts": several},
        ),
    ]


def _join(how: str) -> IntervalJoin:
    return IntervalJoin(on="id", lower="-5 minutes", upper="10 minutes", how=how)  # pyright: ignore[reportArgumentType]


def _content(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    """The rows of each table, without the numbers of batches and rows, which differ if rows are left out before they land."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for name in engine.assets:
        frame = engine.views.table(name)
        found[name] = rows_of(frame, *[c for c in frame.columns if not c.endswith((SEQ, ARRIVAL))])
    return found


SOURCES: Sequence[SourceContract] = [source("l"), source("r")]


@pytest.fixture(scope="module")
def engine(make_module_engine: MakeEngine) -> Engine:
    """An engine that has advanced after each batch and after the drain, with the law checked at each step."""
    engine = make_module_engine(SOURCES, tables(POSITIVE))
    for batch in [*STREAM, None]:
        replay(engine, [batch]) if batch else engine.drain()
        for name in engine.assets:
            steps = [*engine.advance(name)]
            assert law_violations(engine, name) == set()
            if name in ("pairs", "inner_pairs"):
                assert all(a.holds for step in steps for a in engine.accounts.step(name, step))
    return engine


def test_tables_equal_those_over_rows_that_were_prepared_before(engine: Engine, make_engine: MakeEngine) -> None:
    other = make_engine(SOURCES, tables(SAME_COLUMNS))
    for batch in [*KEPT, None]:
        replay(other, [batch]) if batch else other.drain()
        for name in other.assets:
            [*other.advance(name)]
    found = _content(engine)
    assert found == _content(other)
    assert all(found.values()), "no table is empty"


def test_filtered_rows_are_counted_and_are_never_late(engine: Engine) -> None:
    found = totals(engine, "pairs")
    filtered = {side: sum(a.filtered for a in engine.accounts.days("pairs") if a.side == side) for side in ("l", "r")}
    assert filtered == {"l": 3, "r": 2}
    assert {side: found[side, "accepted"] for side in filtered} == {"l": 10, "r": 7}
    assert found["l", "late"] == 1, "Event 11 is late; event -10, as old as that, is filtered"
    assert [a.filtered for a in engine.accounts.days("total")] == [2]
    assert [row["v"] for row in engine.views.late("pairs", "l").select((F.col("tens") / 10).alias("v")).collect()] == [11]


def test_a_result_with_a_filtered_row_breaks_the_law(engine: Engine, make_engine: MakeEngine) -> None:
    other = make_engine(SOURCES, tables(POSITIVE)[:1])
    replay(other, STREAM)
    other.drain()
    [*other.advance("pairs")]
    [filtered] = other.lake.frame(other.spark, "events/l").where("v = -2").select(SEQ, ARRIVAL).collect()
    table = DeltaTable.forPath(other.spark, other.lake.path("pairs"))
    table.update("left_tens = 10", {f"left_{SEQ}": F.lit(filtered[0]), f"left_{ARRIVAL}": F.lit(filtered[1])})
    assert ("l", "2026-03-01") in law_violations(other, "pairs")


def test_another_preparation_makes_another_table_and_is_described(engine: Engine, make_engine: MakeEngine) -> None:
    first = make_engine(SOURCES, tables(POSITIVE)[:1])
    replay(first, STREAM)
    [*first.advance("pairs")]
    again = make_engine(SOURCES, tables(POSITIVE)[:1])
    plain = DerivedAsset(name="total", inputs=("r",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))
    assert identity_of(replace(plain, prepare={"r": Preparation()})) == identity_of(plain)
    assert not [*again.advance("pairs")]
    changed = make_engine(SOURCES, tables(Preparation(where="v > 1", select=POSITIVE.select))[:1])
    with pytest.raises(ProgressError, match=r'prepare.l.where was "v > 0", and is "v > 1"'):
        [*changed.advance("pairs")]


@pytest.mark.parametrize(
    ("preparation", "message"),
    [
        (Preparation(where="k"), "DATATYPE_MISMATCH"),
        (Preparation(select="*, no_function(v) AS x"), "UNRESOLVED_ROUTINE"),
    ],
)
def test_sql_that_spark_refuses_is_described_with_the_table(make_engine: MakeEngine, preparation: Preparation, message: str) -> None:
    total = DerivedAsset(name="total", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}), prepare={"l": preparation})
    engine = make_engine(SOURCES[:1], [total])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    with pytest.raises(OperatorError, match=rf"`prepare` is .*'total'.*legal: SQL that Spark accepts for the columns of 'l'.*{message}"):
        [*engine.advance("total")]


@pytest.mark.parametrize("select", ["*, dice() AS x", "*, json_tuple('{}', 'a') AS x"])
def test_what_only_spark_knows_to_give_several_rows_or_other_values_is_refused(
    monkeypatch: pytest.MonkeyPatch, make_engine: MakeEngine, select: str
) -> None:
    monkeypatch.setattr("assets.preparation._GENERATORS", set())
    prepared = {"l": Preparation(select=select)}
    engine = make_engine(SOURCES[:1], [DerivedAsset(name="first", inputs=("l",), operator=Deduplicate(by="k"), prepare=prepared)])
    engine.spark.udf.register("dice", F.udf(lambda: 4, "int").asNondeterministic())
    replay(engine, [{"l": [Event("a", 1, 0), Event("b", 1, HOUR)]}])
    with pytest.raises(OperatorError, match=r"`prepare` is .*first.*legal: expressions over one row, that give one"):
        [*engine.advance("first")]


def test_a_null_condition_filters_the_row(make_engine: MakeEngine) -> None:
    total = DerivedAsset(
        name="total",
        inputs=("l",),
        operator=Aggregate(by="k", aggregates={"n": "count(*)"}),
        prepare={"l": Preparation(where=f"k <> 'a' AND event_time < '{iso(START + HOUR)}'")},
    )
    engine = make_engine(SOURCES[:1], [total])
    replay(engine, [{"l": [Event("a", 1, 0), Event(None, 2, 1), Event("b", 3, 2), Event("b", 4, HOUR)]}])
    [*engine.advance("total")]
    assert rows_of(engine.views.table("total"), "k", "n") == [("b", 1)]
    assert [(a.accepted, a.matched, a.filtered) for a in engine.accounts.days("total")] == [(4, 1, 3)]
