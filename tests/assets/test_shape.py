"""The shape of a table is checked when it is made, and again with the columns of its operator's results."""

from typing import Any

import pytest

from assets.contracts import ContractError, DerivedAsset, Shape, SourceContract
from assets.known_order import with_known_order
from assets.pipeline import Pipeline
from operators import Aggregate, IntervalJoin, TopN, Tumbling, WindowedAggregate
from tests.support.small_sources import source

COUNTS = Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(v)"})
WINDOWS = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
JOIN = IntervalJoin(on="k", lower=0, upper="1 minute")


def pipeline(operator: Any, shape: Shape, *more: DerivedAsset) -> Pipeline:
    inputs = ("l", "r")[: len(operator.inputs)]
    sources: list[SourceContract] = [source("l"), source("r")]
    return Pipeline(sources=sources, tables=[DerivedAsset(name="t", inputs=inputs, operator=operator, shape=shape), *more])


@pytest.mark.parametrize("operator", [COUNTS, WINDOWS], ids=["upserted", "closed ranges"])
def test_a_table_has_the_columns_of_the_operator_and_those_that_are_added(operator: Any):
    plain = pipeline(operator, Shape()).columns_of_tables()["t"]
    shaped = pipeline(operator, Shape(where="n > 1", select="*, n * 2 AS twice, k AS other")).columns_of_tables()["t"]
    assert shaped == [*plain, "twice", "other"]


@pytest.mark.parametrize("select", ["k", "k, n", "n AS x", "* EXCEPT (n)", "* EXCEPT (n), n + 1 AS n", "*, *"])
def test_the_operators_own_columns_stay(select: str):
    with pytest.raises(ContractError, match=r"`select` is .*; legal: \*, and columns to add"):
        Shape(select=select)


def test_an_added_column_may_have_any_name_once():
    assert Shape(select="*, n AS x, k AS X2").added == {"x": "n AS x", "X2": "k AS X2"}
    with pytest.raises(ContractError, match="`select` is 'x'; legal: each column once: rename one of them"):
        Shape(select="*, n AS x, k AS x")


@pytest.mark.parametrize(
    ("operator", "shape", "message"),
    [
        (COUNTS, Shape(where="m > 1"), "`where` is 'm > 1'; legal: 'm' is no column of the results of 't'"),
        (COUNTS, Shape(select="*, v AS w"), "'v' is no column of the results of 't'; the columns of the results of 't' are k, n, total"),
        (COUNTS, Shape(select="*, n + 1 AS N"), "`select` is 'N'; legal: names that are no column of the operator's results: k, n, total"),
        (JOIN, Shape(where="left_v > 1"), "`where` is 'left_v > 1'; legal: None for IntervalJoin: its results account for the rows"),
    ],
)
def test_a_shape_that_does_not_fit_its_operator_is_refused(operator: Any, shape: Shape, message: str):
    with pytest.raises(ContractError, match=message):
        pipeline(operator, shape)


def test_a_function_is_refused_where_new_rows_are_merged():
    with pytest.raises(ContractError, match="legal: a Shape: Aggregate merges new rows into the table's rows"):
        DerivedAsset(name="t", inputs=("l",), operator=COUNTS, shape=lambda rows: rows)


@pytest.mark.parametrize(("shape", "is_known"), [(Shape(select="*, n + 1 AS m"), True), (Shape(where="n < 9"), False)])
def test_rows_of_a_filtered_table_do_not_only_move_up(shape: Shape, is_known: bool):
    """A count never falls, but a row that no longer matches is deleted."""
    top = DerivedAsset(name="top", inputs=("t",), operator=TopN(order_by="n DESC", rank_end=2, unique_key="k", change="kind"))
    made = pipeline(COUNTS, shape, top)
    tables = {table.name: table for table in made.tables}
    assert bool(with_known_order(top, tables, made.sources_by_name).operator.rises) is is_known
