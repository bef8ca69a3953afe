"""A table that prepares its inputs equals the same table over rows that were prepared before they landed, and accounts for every row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, Preparation, SourceContract
from operators import Aggregate, Deduplicate, IntervalJoin, Session, TopK, Tumbling, WindowedAggregate
from operators.contract import Operator
from operators.engine_columns import ARRIVAL, SEQ
from operators.errors import OperatorError
from platform_defs.engine import Engine, ProgressError
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.lake.tables import Lake
from tests.conftest import CopyEngine, MakeEngine
from tests.support.clock import Clock
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import HOUR, MINUTE, START, Event, iso, law_violations, replay, rows_of, source, totals_of

STREAM = [
    {
        "l": [Event("a", 1, 0), Event("a", -2, MINUTE), Event("b", 3, 2 * MINUTE), Event("b", -6, 20 * MINUTE), Event("b", 7, 30 * MINUTE)],
        "r": [Event("a", 4, MINUTE), Event("b", -5, 2 * MINUTE), Event("b", 8, 31 * MINUTE), Event(None, 9, 31 * MINUTE)],
    },
    {"l": [Event("a", -10, 0), Event("a", 11, MINUTE), Event("c", 12, 2 * HOUR)], "r": [Event("c", 13, 2 * HOUR)]},
    {"l": [Event("c", 14, 2 * HOUR - 30_000), Event("c", 15, 3 * HOUR)], "r": [Event("c", -16, 2 * HOUR), Event("c", 17, 3 * HOUR)]},
]
"""Rows to prepare: those with a negative value are filtered. The newest row of a batch is not, so the watermarks of `KEPT` are the same."""
KEPT = [{name: [event for event in events if event.v > 0] for name, events in batch.items()} for batch in STREAM]
POSITIVE = Preparation(where="v > 0", select="k AS id, v * 10 AS tens, ts")
SAME_COLUMNS = Preparation(select="k AS id, v * 10 AS tens, ts")
LENIENT = {"aggregates": {"n": "count(*)", "tens": "sum(tens)"}, "allowed_lateness": "2 minutes"}


def tables(prepared: Preparation) -> list[DerivedAsset]:
    """Tables that read closed ranges, new rows and all rows of keys, and one that reads another table."""
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
        DerivedAsset(name="different", inputs=("l",), operator=Aggregate(by="id", aggregates={"n": "count(DISTINCT tens)"}), prepare=left),
        DerivedAsset(
            name="busiest",
            inputs=("counts",),
            operator=TopK(k=1, order_by="more DESC"),
            prepare={"counts": several},
        ),
    ]


def _join(how: str) -> IntervalJoin:
    return IntervalJoin(on="id", lower="-5 minutes", upper="10 minutes", how=how)  # pyright: ignore[reportArgumentType]


def _content(engine: Engine) -> dict[str, list[str]]:
    """The rows of each table, without the numbers of batches and rows, which differ if rows are left out before they land."""
    frames = {name: engine.views.table(name) for name in engine.assets}
    return json_rows_of({name: rows.drop(*[c for c in rows.columns if c.endswith((SEQ, ARRIVAL))]) for name, rows in frames.items()})


SOURCES: Sequence[SourceContract] = [source("l"), source("r")]


@pytest.fixture(scope="module")
def engine(make_module_engine: MakeEngine) -> Engine:
    """An engine whose tables have advanced after the second and after the last batch, and `pairs` also after the first one.

    The law is checked for each step of the joins, and for every table after the second batch, when some rows are still pending.
    """
    engine = make_module_engine(SOURCES, tables(POSITIVE))

    def advance(name: str) -> None:
        for step in engine.advance(name):
            if name in ("pairs", "inner_pairs"):
                assert all(account.holds for account in engine.accounts.step(name, step))

    replay(engine, STREAM[:1])
    advance("pairs")  # so that its next step reads late rows
    replay(engine, STREAM[1:2])
    for name in engine.assets:
        advance(name)
    assert [name for name in engine.assets if law_violations(engine, name)] == []
    replay(engine, STREAM[2:])
    engine.drain()
    for name in engine.assets:
        advance(name)
    return engine


def test_tables_equal_those_over_rows_that_were_prepared_before(engine: Engine, make_engine: MakeEngine) -> None:
    other = make_engine(SOURCES, tables(SAME_COLUMNS))
    replay(other, KEPT)
    other.drain()
    for name in other.assets:
        other.advance(name)
    found = _content(engine)
    assert found == _content(other)
    assert all(found.values()), "no table is empty"


def test_filtered_rows_are_counted_and_are_never_late(engine: Engine) -> None:
    days = engine.accounts.days("pairs")
    found = totals_of(days)
    filtered = {side: sum(a.filtered for a in days if a.side == side) for side in ("l", "r")}
    assert filtered == {"l": 3, "r": 2}
    assert {side: found[side, "accepted"] for side in filtered} == {"l": 10, "r": 7}
    assert found["l", "late"] == 1, "Event 11 is late; event -10, which is older, is filtered"
    accounts = {"pairs": days} | {name: engine.accounts.days(name) for name in ("counts", "total", "visits", "busiest")}
    assert [a.filtered for a in accounts["total"]] == [2]
    assert [name for name, of_table in accounts.items() if not all(a.holds for a in of_table)] == [], "after the drain"
    assert [row["v"] for row in engine.views.late("pairs", "l").select((F.col("tens") / 10).alias("v")).collect()] == [11]


def test_a_result_with_a_filtered_row_breaks_the_law(engine: Engine, copy_engine: CopyEngine) -> None:
    other = copy_engine(engine)
    [filtered] = other.lake.read(other.spark, "events/l").where("v = -2").select(SEQ, ARRIVAL).collect()
    row = {f"left_{column}": str(value) for column, value in zip((SEQ, ARRIVAL), filtered, strict=True)}
    DeltaTable(other.lake.path("pairs")).update(updates=row, predicate="left_tens = 10")
    assert ("l", "2026-03-01") in law_violations(other, "pairs")


def test_an_empty_preparation_does_not_change_the_identity() -> None:
    plain = DerivedAsset(name="total", inputs=("r",), operator=TOTAL)
    assert identity_of(replace(plain, prepare={"r": Preparation()})) == identity_of(plain)


def test_a_changed_preparation_is_refused_with_both_conditions(engine: Engine, copy_engine: CopyEngine, make_engine: MakeEngine) -> None:
    same = copy_engine(engine)
    assert same.advance("pairs") == []
    changed = make_engine(SOURCES, tables(Preparation(where="v > 1", select=POSITIVE.select))[:1])
    with pytest.raises(ProgressError, match=r'prepare.l.where was "v > 0", and is "v > 1"'):
        changed.advance("pairs")


TOTAL, FIRST = Aggregate(by="k", aggregates={"n": "count(*)"}), Deduplicate(by="k")
ONE_ROW_EACH = "expressions over one row, that give one"
ACCEPTED_SQL = "SQL that Spark accepts for the columns of 'one'"


@dataclass(frozen=True)
class Refused:
    """A preparation that Spark refuses.

    Args:
        operator: the operator that would read the rows.
        fields: the fields of the preparation.
        legal: a pattern of the legal value in the error.
    """

    operator: Operator
    fields: Mapping[str, str]
    legal: str


REFUSED = {
    "no_boolean": Refused(TOTAL, {"where": "k"}, f"{ACCEPTED_SQL}.*DATATYPE_MISMATCH"),
    "no_function": Refused(TOTAL, {"select": "*, no_function(v) AS x"}, f"{ACCEPTED_SQL}.*UNRESOLVED_ROUTINE"),
    "random_values": Refused(FIRST, {"select": "*, dice() AS x"}, ONE_ROW_EACH),
    "several_rows": Refused(FIRST, {"select": "*, json_tuple('{}', 'a') AS x"}, ONE_ROW_EACH),
}
"""By the name of a table. The check of the SQL text refuses `several_rows` before Spark does, but it does not know all generators."""
NULL_FOR_A_ROW = {"where": f"k <> 'a' AND event_time < '{iso(START + HOUR)}'"}


@pytest.fixture(scope="module")
def one_batch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """An engine with a source of one batch, a table for each refused preparation, and `total`, whose condition is null for a row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assets.expressions._ROWS", set())  # generators pass the check of the SQL text, so that Spark has to refuse them
        assets = {name: _table_of_one(name, refused.operator, refused.fields) for name, refused in REFUSED.items()}
    assets["total"] = _table_of_one("total", TOTAL, NULL_FOR_A_ROW)
    engine = Engine(Lake(str(tmp_path_factory.mktemp("one"))), {"one": source("one")}, assets, lambda: spark, Clock())
    spark.udf.register("dice", F.udf(lambda: 4, "int").asNondeterministic())
    replay(engine, [{"one": [Event("a", 1, 0), Event(None, 2, 1), Event("b", 3, 2), Event("b", 4, HOUR)]}])
    return engine


def _table_of_one(name: str, operator: Operator, preparation: Mapping[str, str]) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=("one",), operator=operator, prepare={"one": Preparation(**preparation)})


@pytest.mark.parametrize("name", REFUSED)
def test_a_preparation_that_spark_refuses_is_described_with_the_table(one_batch: Engine, name: str) -> None:
    with pytest.raises(OperatorError, match=rf"`prepare` is .* of .*{name}.*legal: {REFUSED[name].legal}"):
        one_batch.advance(name)


def test_a_null_condition_filters_the_row(one_batch: Engine) -> None:
    one_batch.advance("total")
    assert rows_of(one_batch.views.table("total"), "k", "n") == [("b", 1)]
    assert [(a.accepted, a.matched, a.filtered) for a in one_batch.accounts.days("total")] == [(4, 1, 3)]
