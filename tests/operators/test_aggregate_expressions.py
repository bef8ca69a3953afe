"""The analysis of an aggregate's SQL: whether partial results merge, and whether every row changes the result."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from operators import Aggregate, CountWindowAggregate, OperatorError, Tumbling, WindowedAggregate
from operators._support.aggregate_expressions import AggregateExpression, Aggregates

TUMBLING = Tumbling(size="1 hour")


@pytest.mark.parametrize(
    ("sql", "merge_function"),
    [
        ("count(*)", "sum"),
        ("COUNT ( v )", "sum"),
        ("sum(price * quantity)", "sum"),
        (" min(greatest(a, b))\n", "min"),
        ("max((v))", "max"),
        ("bool_and(v < 3)", "bool_and"),
        ("sum(all v)", "sum"),
        ("sum(distinct_users)", "sum"),
    ],
)
def test_one_call_of_a_mergeable_function_is_merged(sql: str, merge_function: str) -> None:
    assert AggregateExpression(sql).merge_function == merge_function


@pytest.mark.parametrize(
    "sql",
    [
        "avg(v)",
        "count(DISTINCT v)",
        "count(\n distinct v)",
        "sum(a) + sum(b)",
        "sum(a) + (b)",
        "1 + sum(v)",
        "(sum(v))",
        "sum(v) FILTER (WHERE v > 0)",
        "sum(v) OVER ()",
        "max('(')",
        "max(`a)`)",
        "max(`upper`(k))",
        "sum(`abs`(v))",
        "sum(v) -- all of them",
        "sum(/* all of them */ v)",
        "sum",
        "",
    ],
)
def test_any_other_aggregate_is_computed_from_all_rows(sql: str) -> None:
    assert AggregateExpression(sql).merge_function is None


@pytest.mark.parametrize(("sql", "expected"), [("count(*)", True), ("Count( 1 )", True), ("count(v)", False), ("count(2)", False)])
def test_only_a_count_of_rows_changes_with_every_row(sql: str, expected: bool) -> None:
    assert AggregateExpression(sql).changes_with_every_row is expected


def test_aggregates_merge_only_if_each_of_them_does() -> None:
    assert Aggregates.read({"n": "count(*)", "total": "sum(v)"}).are_mergeable
    assert not Aggregates.read({"n": "count(*)", "mean": "avg(v)"}).are_mergeable


@pytest.mark.parametrize("name", ["a.b", "a`b", ""])
@pytest.mark.parametrize("operator", [Aggregate, partial(WindowedAggregate, window=TUMBLING), partial(CountWindowAggregate, size=2)])
def test_a_name_that_no_expression_can_read_is_refused(operator: Callable[..., object], name: str) -> None:
    expected = f"`aggregates` is {{{name!r}: 'count(*)'}}; legal: names that are not empty and have no dot and no backtick"
    with pytest.raises(OperatorError, match=f"^{re.escape(expected)}"):
        operator(by="k", aggregates={"n": "count(*)", name: "count(*)"})


def test_a_name_of_a_temporary_column_is_refused() -> None:
    with pytest.raises(OperatorError, match="the column '__tm_window' starts with '__tm_', which is reserved"):
        WindowedAggregate(window=TUMBLING, aggregates={"__tm_window": "count(*)"})


@pytest.mark.parametrize(
    "name", ["EXPR$0", "größe", "clicks-per-hour", "n@home", "a:b", "table", "_n", "total sum", "a/b", "a%", "a#", "a,b", "a=b"]
)
def test_any_other_name_is_legal(name: str) -> None:
    assert [*Aggregates.read({name: "count(*)"}).expressions] == [name]
