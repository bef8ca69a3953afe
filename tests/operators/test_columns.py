"""Columns that the operators and the engine share: a day that Python can represent, and the hash of a row."""

from datetime import date

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from operators.columns import day_column, row_hash
from tests.operators.frames import by_tag, tagged

PAIRS = {
    "columns": ("1 AS a, int(null) AS b", "int(null) AS a, 1 AS b"),
    "nulls in a struct": ("struct(1 AS x, int(null) AS y) AS s", "struct(int(null) AS x, 1 AS y) AS s"),
    "a null struct": ("named_struct('x', int(null)) AS s", "if(true, null, named_struct('x', 1)) AS s"),
    "nulls in an array": ("array(1, null) AS a", "array(null, 1) AS a"),
    "ends of arrays": ("array(1) AS a, array(2, 3) AS b", "array(1, 2) AS a, array(3) AS b"),
    "ends of nested arrays": ("array(array('a'), array('b')) AS a", "array(array('a', 'b'), array()) AS a"),
    "the text null": ("array('null', null) AS a", "array(null, 'null') AS a"),
    "brackets in texts": ("array('a\",\"b') AS a", "array('a', 'b') AS a"),
    "microseconds in a struct": (
        "struct(timestamp'2026-03-01 00:00:00.000001Z' AS t) AS s",
        "struct(timestamp'2026-03-01 00:00:00.000002Z' AS t) AS s",
    ),
    "nulls in a map": ("map('a', 1, 'b', null) AS m", "map('a', null, 'b', 1) AS m"),
    "ends of maps": ("map('a', 1) AS m, map('b', 2) AS `col1`", "map('a', 1, 'b', 2) AS m, map() AS `col1`"),
    "variants": ("parse_json('[1, null]') AS v", "parse_json('[null, 1]') AS v"),
    "variants in arrays": ("array(parse_json('1'), parse_json('\"1\"')) AS v", "array(parse_json('\"1\"'), parse_json('1')) AS v"),
    "a null and a null of JSON": ("parse_json('null') AS v", "parse_json(string(null)) AS v"),
}
EQUAL = {
    "order of a map": ("map('a', 1, 'b', null) AS m", "map('b', null, 'a', 1) AS m"),
    "order of a variant": ("""parse_json('{"a": 1, "b": 2}') AS v""", """parse_json('{"b": 2, "a": 1}') AS v"""),
    "zeros in an array": ("array(0.0D, -0.0D) AS a", "array(-0.0D, 0.0D) AS a"),
    "zeros in a struct": ("struct(0.0D AS x, float('-0.0') AS y) AS s", "struct(-0.0D AS x, float('0.0') AS y) AS s"),
    "far years": ("struct(timestamp'+290000-01-01' AS t, date'-0001-01-01' AS d) AS s",) * 2,
}


def test_a_day_is_one_that_python_can_represent(spark: SparkSession) -> None:
    """`final_at` of a result of the last millisecond of 9999 is in the year 10000."""
    days = {"+10000-01-01": date.max, "9999-12-31": date.max, "2026-03-01": date(2026, 3, 1), "-0001-12-31": date.min}
    times = ", ".join(f"timestamp'{day} 00:00:00Z'" for day in days)
    found = spark.sql(f"SELECT explode(array({times})) AS t").select(day_column(F.col("t"))).collect()
    assert [day for (day,) in found] == [*days.values()]


def test_rows_have_one_hash_if_they_are_equal_in_nulls_and_in_how_they_are_nested(spark: SparkSession) -> None:
    frames = {
        f"{name}, {n}": frame.select(row_hash(frame.schema))
        for name, rows in (PAIRS | EQUAL).items()
        for n, frame in enumerate(spark.sql(f"SELECT {row}") for row in rows)
    }
    hashes = {tag: next(iter(rows)) for tag, rows in by_tag(tagged(frames)).items()}
    assert [name for name in PAIRS if hashes[f"{name}, 0"] == hashes[f"{name}, 1"]] == []
    assert [name for name in EQUAL if hashes[f"{name}, 0"] != hashes[f"{name}, 1"]] == []


def test_a_row_without_nested_values_has_the_hash_of_one_expression(spark: SparkSession) -> None:
    """Accounts hash each result."""
    row = spark.sql("SELECT 1 AS a, 'x' AS `b.c`, CAST(null AS double) AS d")
    [(found, wanted)] = row.select(row_hash(row.schema), F.expr("xxhash64(a, `b.c`, d, isnull(a), isnull(`b.c`), isnull(d))")).collect()
    assert found == wanted
