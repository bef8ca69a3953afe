"""Values read by Arrow become the same plain data as by Spark's `to_json`."""

import re
from datetime import date
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import FloatType, StructType

from assets.ddl import schema_of
from platform_defs.engine.formats.json_values import from_json, has_json_value, json_value, to_json

VALUES = [
    "'ü'",
    "CAST(NULL AS STRING)",
    "7Y",
    "9000000000000000000L",
    "true",
    "CAST('1.1' AS FLOAT)",
    "CAST('9999999' AS FLOAT)",
    "CAST('-1.2e-38' AS FLOAT)",
    "CAST('1.4901161e-8' AS FLOAT)",
    "CAST('7.450582e-9' AS FLOAT)",
    "0.1D",
    "1e-300D",
    "-0.0D",
    "CAST('NaN' AS DOUBLE)",
    "CAST('-Infinity' AS FLOAT)",
    "1.50BD",
    "CAST(12 AS DECIMAL(38, 0))",
    "CAST('0.0000000001' AS DECIMAL(20, 10))",
    "CAST('-1234567890123456789.0123456789012345678' AS DECIMAL(38, 19))",
    "array(CAST('1234567.1234567890123456789' AS DECIMAL(38, 19)), 0.1BD)",
    "X'00FF'",
    "DATE'0001-01-02'",
    "TIMESTAMP'2026-03-01 12:00:00.123999'",
    "TIMESTAMP'1969-12-31 23:59:59.999999'",
    "TIMESTAMP_NTZ'0099-03-01 12:00:00'",
    "named_struct('a', 1, 'b', CAST(NULL AS DATE))",
    "array(named_struct('t', TIMESTAMP'2026-03-01 12:00:00'))",
    "array(1, NULL)",
    "map('k', CAST(1 AS DECIMAL(5, 2)), 'l', NULL)",
    "map(1, array(X'01'))",
    "CAST(array() AS ARRAY<INT>)",
]


def test_a_value_equals_that_of_spark(spark: SparkSession) -> None:
    rows = spark.sql(f"SELECT {', '.join(f'{sql} AS c{n}' for n, sql in enumerate(VALUES))}")
    [(text,)] = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    assert has_json_value(rows.schema)
    [row] = rows.toArrow().to_pylist()
    found, expected = json_value(row, rows.schema), from_json(text)
    assert {sql: repr(found[f"c{n}"]) for n, sql in enumerate(VALUES)} == {sql: repr(expected[f"c{n}"]) for n, sql in enumerate(VALUES)}


def test_json_has_all_digits_of_a_decimal() -> None:
    digits = "-1234567890123456789.0123456789012345678"
    value = json_value({"n": Decimal(digits)}, StructType().add("n", "decimal(38,19)"))
    assert to_json({"rows": [value | {"text": "1.5", "none": None, "at": date(2026, 3, 1)}]}, indent=None) == (
        f'{{"rows": [{{"n": {digits}, "text": "1.5", "none": null, "at": "2026-03-01"}}]}}'
    )
    assert to_json(from_json(f'{{"n": {digits}, "m": [1E-10, 2.50, 3]}}')) == f'{{"n": {digits}, "m": [1e-10, 2.5, 3]}}'


@pytest.mark.parametrize("kind", ["map<date,int>", "array<map<struct<a:int>,int>>", "struct<v:variant>"])
def test_types_that_only_spark_converts(kind: str) -> None:
    assert not has_json_value(schema_of(f"c {kind}") or StructType())


@pytest.mark.parametrize("value", [1e7, -115805232.0, 3.4028234663852886e38, 1.401298464324817e-45, 2.0**-27, -(2.0**-96)])
def test_floats_whose_digits_depend_on_the_version_of_java_are_left_to_spark(value: float) -> None:
    """Java 17 writes the float 115805232 as 1.15805232E8, and 2**-27 as 7.4505806E-9; later versions write one digit less."""
    with pytest.raises(ValueError, match=re.escape(str(value))):
        json_value(value, FloatType())
