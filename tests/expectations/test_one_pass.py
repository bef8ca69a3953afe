"""The one query of a suite finds what Great Expectations finds, on random frames and suites."""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import ExpectColumnPairValuesAToBeGreaterThanB
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_be_unique import ExpectColumnValuesToBeUnique
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.expect_compound_columns_to_be_unique import ExpectCompoundColumnsToBeUnique
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column, NullityCondition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from expectations import one_pass
from expectations import shop as suites
from expectations.finding import Finding, check_name
from expectations.validation import batch_of, run, validate
from tests.support.spark_jobs import jobs_of

pytestmark = pytest.mark.usefixtures("interpreted_plans")  # each expectation of Great Expectations is several small queries
NAN, LARGE, NOON = float("nan"), 2**40, datetime(2026, 3, 1, 12, tzinfo=UTC)
VALUES: dict[str, tuple[str, list[Any]]] = {
    "n": ("int", [0, 1, 2, 3, -1]),
    "l": ("bigint", [0, 1, 2, 3, LARGE]),
    "d": ("decimal(10,2)", [Decimal("-0.01"), Decimal("0.00"), Decimal("1.00"), Decimal("2.50")]),
    "x": ("double", [-0.0, 0.0, NAN, NAN, 1.5, 2.0, float("inf"), float("-inf")]),
    "y": ("double", [-0.0, 0.0, NAN, 1.5, -3.0]),
    "s": ("string", ["a", "b", "", "c d", "x%_"]),
    "u": ("string", ["a", "b", "Ä"]),
    "t": ("timestamp", [NOON, NOON + timedelta(milliseconds=1), NOON - timedelta(days=9)]),
    "v": ("timestamp", [NOON, NOON + timedelta(milliseconds=1)]),
    "b": ("boolean", [True, False]),
}
NUMBERS, TEXTS, TIMES = "nldxy", "su", "tv"
SUITES_A_FRAME = 5
"""A frame has the columns of five suites, each under names of its own, so that one query evaluates five random frames."""


def random_rows(rng: random.Random, rows: int, prefix: str) -> list[dict[str, Any]]:
    nulls = rng.choice([0.0, 0.1, 0.5])
    distinct = {name: rng.randint(1, len(values)) for name, (_, values) in VALUES.items()}
    columns = {
        prefix + name: [None if rng.random() < nulls else rng.choice(values[: distinct[name]]) for _ in range(rows)]
        for name, (_, values) in VALUES.items()
    }
    if rng.random() < 0.5:
        columns[f"{prefix}l"] = [*range(rows)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def random_expectation(rng: random.Random, prefix: str, name: str, condition: NullityCondition) -> Expectation:
    common: dict[str, Any] = {"meta": {"check": prefix + name}, "severity": rng.choice([suites.CRITICAL, suites.WARNING])}
    if rng.random() < 0.4:
        common["mostly"] = rng.choice([0.0, 0.3, 0.5, 2 / 3, 0.9, 1.0])
    if rng.random() < 0.3:
        common["row_condition"] = condition
    return rng.choices(KINDS, weights=[2, 2, 2, 2, 3, 3])[0](rng, prefix, common)


def random_not_null(rng: random.Random, prefix: str, common: dict[str, Any]) -> Expectation:
    return ExpectColumnValuesToNotBeNull(column=prefix + rng.choice([*VALUES]), **common)


def random_between(rng: random.Random, prefix: str, common: dict[str, Any]) -> Expectation:
    low, high = sorted(rng.choice([-1, 0, 0.5, 1, 2.5, 1e20, -1e-7]) for _ in range(2))
    bounds = rng.choice([{"min_value": low}, {"max_value": high}, {"min_value": low, "max_value": high}])
    strict = {"strict_min": rng.random() < 0.3, "strict_max": rng.random() < 0.3}
    return ExpectColumnValuesToBeBetween(column=prefix + rng.choice(NUMBERS), **bounds, **strict, **common)


def random_in_set(rng: random.Random, prefix: str, common: dict[str, Any]) -> Expectation:
    name = rng.choice("nlsu")
    values = [v for v in VALUES[name][1] if v != LARGE]
    return ExpectColumnValuesToBeInSet(column=prefix + name, value_set=rng.sample(values, rng.randint(1, len(values))), **common)


def random_greater(rng: random.Random, prefix: str, common: dict[str, Any]) -> Expectation:
    names = rng.choice([NUMBERS, TEXTS, TIMES])
    return ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=prefix + rng.choice(names),
        column_B=prefix + rng.choice(names),
        or_equal=rng.choice([None, False, True]),
        ignore_row_if=rng.choice(["both_values_are_missing", "either_value_is_missing", "neither"]),
        **common,
    )


def random_unique(rng: random.Random, prefix: str, common: dict[str, Any]) -> Expectation:
    return ExpectColumnValuesToBeUnique(column=prefix + rng.choice([*VALUES]), **common)


def random_compound(rng: random.Random, prefix: str, common: dict[str, Any]) -> Expectation:
    return ExpectCompoundColumnsToBeUnique(
        column_list=[prefix + name for name in rng.sample([*VALUES], rng.randint(2, 4))],
        ignore_row_if=rng.choice(["all_values_are_missing", "any_value_is_missing", "never"]),
        **common,
    )


KINDS = [random_not_null, random_between, random_in_set, random_greater, random_unique, random_compound]


def random_case(spark: SparkSession, seed: int) -> tuple[DataFrame, list[Expectation]]:
    rng = random.Random(seed)
    rows = 0 if seed < 2 else rng.randint(1, 12)
    prefixes = [f"f{i}_" for i in range(SUITES_A_FRAME)]
    parts = [random_rows(rng, rows, prefix) for prefix in prefixes]
    schema = StructType.fromDDL(", ".join(f"{prefix}{name} {kind}" for prefix in prefixes for name, (kind, _) in VALUES.items()))
    table = [{column: value for part in row for column, value in part.items()} for row in zip(*parts, strict=True)]
    column = Column(rng.choice(prefixes) + rng.choice([*VALUES]))
    condition = rng.choice([column.is_null(), column.is_not_null()])  # one for a frame: each costs Great Expectations more queries
    expectations = [random_expectation(rng, prefix, str(i), condition) for prefix in prefixes for i in range(rng.randint(1, 2))]
    return spark.createDataFrame(pa.Table.from_pylist(table, to_arrow_schema(schema)), schema), expectations


FEW_SEEDS = (1, 7, 53)
"""Seeds of an empty frame and of two others, with which each kind of expectation passes and fails."""


@pytest.mark.parametrize("seeds", [FEW_SEEDS, pytest.param(range(100), marks=pytest.mark.soak)], ids=["short", "long"])
def test_random_suites_have_the_findings_of_great_expectations(spark: SparkSession, seeds: Sequence[int]) -> None:
    outcomes, options = Counter[tuple[str, bool]](), Counter[tuple[bool, bool]]()
    for seed in seeds:
        frame, expectations = random_case(spark, seed)
        found = one_pass.evaluate(frame, expectations)
        assert found == run(batch_of(frame), expectations, {"partial_unexpected_count": 0})
        outcomes.update((e.expectation_type, found[check_name(e)].passed) for e in expectations)
        options.update((e.row_condition is None, e.mostly == 1) for e in expectations)
    assert len(outcomes) == 2 * len(KINDS)
    assert len(options) == 4, "with and without a condition, and with and without `mostly`"
    assert min(outcomes.values()) >= max(1, len(seeds) // 6), outcomes


def test_two_keys_are_one_query(spark: SparkSession) -> None:
    expectations = [
        ExpectCompoundColumnsToBeUnique(column_list=["a", "b"], meta={"check": "pairs"}),
        ExpectCompoundColumnsToBeUnique(column_list=["b", "c"], meta={"check": "others"}),
        ExpectColumnValuesToNotBeNull(column="a", meta={"check": "a"}),
    ]
    frame = spark.createDataFrame(pa.table({"a": [1, 2, 2, None], "b": [1, 1, 2, 3], "c": [1, 1, 1, 3]}))
    with jobs_of(spark) as jobs:
        found = one_pass.evaluate(frame, expectations)
    assert len(jobs) == 1
    assert {name: (f.passed, f.evaluated, f.unexpected) for name, f in found.items()} == {
        "pairs": (True, 4, 0),
        "others": (False, 4, 2),
        "a": (False, 4, 1),
    }


def test_a_query_that_fails_leaves_the_suite_to_great_expectations(spark: SparkSession) -> None:
    frame = spark.range(1, 2).selectExpr("id AS n", "id / (id - 1) AS x")
    known, unknown = (ExpectColumnValuesToNotBeNull(column=column, meta={"check": column}) for column in "nx")
    assert one_pass.evaluate(frame, [known, unknown]) == {}
    found = validate(frame, [known, unknown])
    assert found["n"] == Finding(passed=True, evaluated=1)
    assert "DIVIDE_BY_ZERO" in str(found["x"].error)
