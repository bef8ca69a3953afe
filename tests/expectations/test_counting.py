"""Which expectations are counted in the single query of a suite, and which are left to Great Expectations."""

from datetime import UTC, datetime
from typing import Any

import pytest
from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import ExpectColumnPairValuesAToBeGreaterThanB
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.expect_compound_columns_to_be_unique import ExpectCompoundColumnsToBeUnique
from great_expectations.expectations.core.expect_table_row_count_to_be_between import ExpectTableRowCountToBeBetween
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column
from pyspark.sql.types import DoubleType, IntegerType, MapType, StringType, StructField, StructType, TimestampType

from expectations import table_suites
from expectations.counting import CountConditions, column_types, counting
from platform_defs.settings import Settings
from platform_defs.shop import shop

INT, TEXT = IntegerType(), StringType()
SCHEMA = StructType(
    [
        *[StructField("n", INT), StructField("x", DoubleType()), StructField("s", TEXT), StructField("t", TimestampType())],
        *[StructField("m", MapType(TEXT, INT)), StructField("a b", INT), StructField("c", INT), StructField("C", INT)],
    ]
)
TYPES = column_types(SCHEMA)
BETWEEN, IN_SET, NOT_NULL = ExpectColumnValuesToBeBetween, ExpectColumnValuesToBeInSet, ExpectColumnValuesToNotBeNull
GREATER, COMPOUND = ExpectColumnPairValuesAToBeGreaterThanB, ExpectCompoundColumnsToBeUnique


class OwnNotNull(ExpectColumnValuesToNotBeNull):
    """A subclass, which may validate in another way."""


def test_only_plain_columns_are_named_in_conditions() -> None:
    assert set(TYPES) == {"n", "x", "s", "t"}


def test_an_expectation_is_counted_by_three_conditions() -> None:
    between = BETWEEN(column="n", min_value=1, max_value=3, strict_max=True, mostly=0.5, row_condition=Column("s").is_null())
    rows, base = "`s` IS NULL", "`s` IS NULL AND `n` IS NOT NULL"
    assert counting(between, TYPES) == CountConditions(rows, base, f"{base} AND NOT (`n` >= 1.0D AND `n` < 3.0D)", mostly=0.5)
    compound = COMPOUND(column_list=["t", "n"], ignore_row_if="any_value_is_missing")
    assert counting(compound, TYPES) == CountConditions("true", *["NOT (`n` IS NULL OR `t` IS NULL)"] * 2, key=("n", "t"))


def test_every_expectation_of_the_shop_is_counted() -> None:
    for suite in table_suites(shop(Settings())):
        for expectation in suite.suite.expectations:
            types = dict.fromkeys(_columns(expectation), TEXT if isinstance(expectation, IN_SET) else INT)
            assert counting(expectation, types), expectation


def _columns(expectation: Any) -> set[str]:
    named = [getattr(expectation, key, None) for key in ("column", "column_A", "column_B")]
    condition = [expectation.row_condition.column.name] if expectation.row_condition else []
    return {*filter(None, named), *condition, *getattr(expectation, "column_list", [])}


@pytest.mark.parametrize(
    "expectation",
    [
        ExpectTableRowCountToBeBetween(min_value=1),
        OwnNotNull(column="n"),
        NOT_NULL(column="absent"),
        NOT_NULL(column="N"),
        NOT_NULL(column="m"),
        NOT_NULL(column="a b"),
        NOT_NULL(column="c"),
        NOT_NULL(column="n", mostly={"$PARAMETER": "share"}),
        NOT_NULL(column="n", row_condition=Column("n") > 0),
        NOT_NULL(column="n", row_condition=Column("absent").is_null()),
        BETWEEN(column="s", min_value=1),
        BETWEEN(column="n", min_value=3, max_value=1),
        BETWEEN(column="n", min_value=float("nan")),
        BETWEEN(column="t", min_value=datetime(2026, 3, 1, tzinfo=UTC)),
        BETWEEN(column="n", min_value={"$PARAMETER": "least"}),
        IN_SET(column="s", value_set=[]),
        IN_SET(column="s", value_set=["it's"]),
        IN_SET(column="s", value_set=["a\\"]),
        IN_SET(column="s", value_set=["a", None]),
        IN_SET(column="n", value_set=[1, 2.5]),
        IN_SET(column="n", value_set=["1"]),
        IN_SET(column="x", value_set=[1]),
        GREATER(column_A="n", column_B="s"),
        GREATER(column_A="t", column_B="m"),
        COMPOUND(column_list=["n", "m"]),
        COMPOUND(column_list=["n", "n"]),
    ],
    ids=str,
)
def test_unsupported_expectations_are_left_to_great_expectations(expectation: Expectation) -> None:
    assert counting(expectation, TYPES) is None
