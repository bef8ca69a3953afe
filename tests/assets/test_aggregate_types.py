"""A sum of doubles that would have to be merged is refused when the pipeline is made, by the types that the contract declares."""

import pytest

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, Preparation, SourceContract
from assets.pipeline import Pipeline
from operators import Aggregate, Tumbling, WindowedAggregate
from operators.contract import Operator

SALES = SourceContract(
    name="sales", schema="k STRING, price DOUBLE, weight FLOAT, amount DECIMAL(9,2), n INT, at TIMESTAMP", event_time="at"
)


def _made(operator: Operator, **how: Preparation) -> Pipeline:
    return Pipeline(sources=[SALES], tables=[DerivedAsset(name="totals", inputs=("sales",), operator=operator, prepare=how)])


@pytest.mark.parametrize("sql", ["sum(price)", "SUM(weight * n)", "sum(n + Price)", "sum(amount / weight)"])
def test_a_merged_sum_of_doubles_is_refused(sql: str) -> None:
    with pytest.raises(ContractError, match=r"table 'totals': `aggregates` is .*; legal: sums of exact numbers.*round\(sum\(v\), 4\)"):
        _made(Aggregate(by="k", aggregates={"total": sql}))


@pytest.mark.parametrize(
    "sql",
    [
        "sum(amount * n)",
        "sum(CAST(price AS DECIMAL(18, 4)))",
        "round(sum(price), 2)",
        "avg(price)",
        "max(price)",
        "sum(if(price > 1, n, 0))",  # a function: its type is known only to Spark
    ],
)
def test_other_aggregates_are_accepted(sql: str) -> None:
    _made(Aggregate(by="k", aggregates={"total": sql}))


def test_windows_sum_doubles_and_prepared_columns_may_have_other_types() -> None:
    _made(WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates={"total": "sum(price)"}))
    _made(Aggregate(by="k", aggregates={"total": "sum(price)"}), sales=Preparation(select="k, CAST(price AS DECIMAL(9, 2)) AS price"))
