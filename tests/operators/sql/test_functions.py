"""Flink's functions have the values that Flink 2.3.0 gave, recorded in `flink_values.yaml`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest
import yaml
from pyspark.errors import SparkRuntimeException
from pyspark.sql import Row, SparkSession

import operators
from operators.sql import templates
from operators.sql.dialect import parse_query, spark_sql
from operators.sql.plan import plan
from operators.sql.relations import Input, Relation, Select

RECORDED = cast("dict[str, object]", yaml.safe_load(Path(__file__).with_name("flink_values.yaml").read_text(encoding="utf-8")))
COLUMNS = {
    "s": "'Hello World'",
    "e": "''",
    "n": "CAST(NULL AS STRING)",
    "p": r"'a.b$c\\d_e%f'",
    "i": "7",
    "m": "-7",
    "z": "0",
    "ni": "CAST(NULL AS INT)",
    "b": "5000000000",
    "d": "2.5D",
    "md": "-2.5D",
    "nd": "CAST(NULL AS DOUBLE)",
    "c": "CAST(123.456 AS DECIMAL(10, 3))",
    "mc": "CAST(-123.455 AS DECIMAL(10, 3))",
    "t": "TRUE",
    "nt": "CAST(NULL AS BOOLEAN)",
    "ts": "TIMESTAMP '2026-03-01 10:20:30.456'",
    "ots": "TIMESTAMP '1969-12-31 23:59:58.500'",
    "nts": "CAST(NULL AS TIMESTAMP)",
    "dt": "DATE '2026-03-31'",
    "odt": "DATE '1960-02-29'",
    "arr": "ARRAY(3, 1, CAST(NULL AS INT), 2, 1)",
    "sarr": "ARRAY('b', 'a', 'c')",
    "narr": "CAST(NULL AS ARRAY<INT>)",
    "mp": "MAP('x', 1, 'y', 2)",
    "js": """'{"a": {"b": [1, 2.5, "x"]}, "c": null, "d": true, "s": "t"}'""",
    "bin": "ENCODE('abc', 'UTF-8')",
}
"""The columns of the recorded expressions, of one row, in Spark SQL."""


def named(expressions: Iterable[str]) -> str:
    """The items of a query that selects expressions."""
    return ", ".join(f"{expression} AS x{number}" for number, expression in enumerate(expressions))


def in_calls(number: int) -> str:
    """The items of a query that selects a number of named expressions, each in a call, for which it is read again as Spark SQL."""
    return named(f"COALESCE(x{n}, x{n})" for n in range(number))


NAMED, ITEMS = named(RECORDED), in_calls(len(RECORDED))


def plain(value: object) -> object:
    """A value as it is recorded: numbers as they are, those with a fraction as floats, and all others as text."""
    if isinstance(value, Decimal):
        return float(value)
    return value if value is None or isinstance(value, bool | int | float | str) else as_text(value)


def as_text(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bytes() | bytearray():
            return f"x{value.hex()}"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        case date():
            return value.isoformat()
        case Row():
            return f"({', '.join(as_text(item) for item in value)})"
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            return f"{{{', '.join(sorted(f'{as_text(key)}: {as_text(item)}' for key, item in items))}}}"
        case Sequence() if not isinstance(value, str):
            return f"[{', '.join(as_text(item) for item in cast('Sequence[object]', value))}]"
        case _:
            return str(value)


@pytest.mark.spark
@pytest.mark.parametrize("longest", [templates.LONGEST, 1], ids=["arguments are repeated", "arguments are written once"])
def test_functions_have_the_values_that_flink_recorded(
    spark: SparkSession, interpreted_plans: None, monkeypatch: pytest.MonkeyPatch, longest: int
):
    """Behind a view, so that the expressions are also read again as Spark SQL.

    If arguments are written once, only the expressions that then have another text in Spark SQL are computed.
    """
    expressions = [*RECORDED]
    if longest != templates.LONGEST:
        usual = _texts()
        monkeypatch.setattr(templates, "LONGEST", longest)
        expressions = [expression for expression, text, other in zip(RECORDED, usual, _texts(), strict=True) if text != other]
    assert len(expressions) > 100
    frame = spark.sql(f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in COLUMNS.items())}").localCheckpoint()
    view = f"CREATE VIEW v AS SELECT {named(expressions)} FROM f"
    [row] = operators.sql(f"{view}; SELECT {in_calls(len(expressions))} FROM v", {"f": frame}).collect()
    found = {expression: plain(value) for expression, value in zip(expressions, row, strict=True)}
    differences = {expression: (value, RECORDED[expression]) for expression, value in found.items() if value != RECORDED[expression]}
    assert not differences


def _texts() -> list[str]:
    """The recorded expressions in Spark SQL, each in a call."""
    text = f"SELECT {named(f'COALESCE({expression}, {expression})' for expression in RECORDED)}"
    return [spark_sql(expression) for expression in parse_query(text).expressions]


DOCUMENTED: dict[str, object] = {
    "ELEMENT(ARRAY[i])": 7,
    "ELEMENT(ARRAY_REMOVE(ARRAY[i], i))": None,
    "ELEMENT(narr)": None,
    "MAP_UNION(mp)['x']": 1,
    "MAP_UNION(mp, MAP['x', 5, 'z', 6])": {"x": 5, "y": 2, "z": 6},
    "MAP_UNION(MAP['x', 5], mp, MAP['y', CAST(NULL AS INT)])": {"x": 1, "y": None},
    "MAP_UNION(mp, CAST(NULL AS MAP<STRING, INT>))": None,
    "MAP['a', 1, 'b', 2, 'a', 3]": {"a": 3, "b": 2},
    "MAP[s, 1, 'Hello World', i, 'x', 2.5]": {"Hello World": Decimal("7.0"), "x": Decimal("2.5")},
    "MAP['a', 1, s, MAP[s, 2, s, CAST(NULL AS INT)][s]]": {"a": 1, "Hello World": None},
    "MAP['a', MAP[1, i, 2, m, 1, z]]": {"a": {1: 0, 2: -7}},
    "CASE i WHEN 1, 7 THEN 'a' ELSE 'b' END": "a",
    "CASE m WHEN 1, 7 THEN 'a' WHEN -7 THEN 'c' ELSE 'b' END": "c",
    "CASE ni WHEN 1, 7 THEN 'a' ELSE 'b' END": "b",
    "x'616263' = bin": True,
}
"""By expression, the value that Flink's documentation gives it."""


@pytest.mark.spark
def test_functions_have_the_values_that_flink_documents(spark: SparkSession, interpreted_plans: None):
    frame = spark.sql(f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in COLUMNS.items())}")
    named = ", ".join(f"{expression} AS x{number}" for number, expression in enumerate(DOCUMENTED))
    [row] = operators.sql(f"SELECT * FROM (SELECT {named} FROM f)", {"f": frame}).collect()
    assert dict(zip(DOCUMENTED, row, strict=True)) == DOCUMENTED
    with pytest.raises(SparkRuntimeException, match="ELEMENT of an array with several elements"):
        operators.sql("SELECT ELEMENT(arr) AS x FROM f", {"f": frame}).collect()


@pytest.mark.parametrize(
    ("call", "innermost"),
    [
        ("OVERLAY({} PLACING 'x' FROM i)", "s"),
        ("OVERLAY(s PLACING {} FROM i)", "s"),
        ("OVERLAY(s PLACING 'x' FROM i FOR CHAR_LENGTH({}))", "s"),
        ("ARRAY_SLICE({}, i, m)", "arr"),
        ("ARRAY_SLICE({}, i)", "arr"),
        ("ARRAY_REMOVE({}, i)", "arr"),
        ("ELEMENT(SPLIT({}, p))", "s"),
        ("GREATEST({}, i)", "m"),
        ("LEAST(i, {}, b)", "m"),
        ("TRUNCATE({})", "d"),
        ("SPLIT_INDEX({}, p, i)", "s"),
        ("SUBSTRING({}, i, m)", "s"),
        ("LOCATE(p, s, {})", "i"),
        ("REGEXP_EXTRACT({}, p, 1)", "s"),
    ],
)
def test_the_text_of_calls_within_calls_grows_linearly(call: str, innermost: str):
    lengths: list[int] = []
    expression = innermost
    for _ in range(6):
        expression = call.format(expression)
        lengths.append(len(spark_sql(parse_query(f"SELECT {expression}").expressions[0])))
    assert lengths[5] - lengths[4] == lengths[4] - lengths[3]


def test_greatest_of_many_values_is_null_if_one_of_them_is():
    sql = spark_sql(parse_query(f"SELECT GREATEST({', '.join(f'i + {number}' for number in range(30))})").expressions[0])
    assert sql.count(" IS NULL") == 31  # a call of the first 20 is the first of 11 values


def test_expressions_are_the_same_behind_a_view():
    tables: dict[str, Relation] = {"f": Input("f", tuple(COLUMNS))}
    texts = f"SELECT {NAMED} FROM f", f"SELECT {ITEMS} FROM (SELECT {NAMED} FROM f)"
    direct, behind_view = (plan(text, tables).plans[0].relation for text in texts)
    assert isinstance(direct, Select)
    assert isinstance(behind_view, Select)
    for inner, outer in zip(direct.items, behind_view.items, strict=True):
        sql = inner.sql.replace("TIMESTAMPADD(", "DATE_ADD(").replace("', 1), NULL)", "'), NULL)")  # sqlglot's words for the same
        assert outer.sql in (f"COALESCE({sql}, {sql})", f"COALESCE(({sql}), ({sql}))")
