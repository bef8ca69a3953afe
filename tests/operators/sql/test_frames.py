"""Queries over frames of a few rows, with their results."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession

import operators
from operators import OperatorError
from operators.sql.execution import rows_of
from operators.sql.plan import plan
from tests.operators.frames import frame_of

pytestmark = pytest.mark.spark
START = datetime(2026, 3, 1, 10, tzinfo=UTC)


def minute(number: int | None) -> datetime | None:
    return None if number is None else START + timedelta(minutes=number)


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    orders = [("o1", "eur", 10, 0), ("o2", "eur", 20, 12), ("o3", "usd", 30, 20), ("o4", "usd", 5, None)]
    rates = [("eur", 110, 0), ("eur", 120, 10), ("usd", 100, 15), ("usd", 90, 40)]
    seen = [("k", "second", 2, 0, 5), ("k", "first", 1, 0, 9), ("k", "third", 2, 1, 1)]
    return {
        "orders": frame_of(
            spark, [(i, c, p, minute(t)) for i, c, p, t in orders], "id string, currency string, price int, ordered_at timestamp"
        ),
        "rates": frame_of(spark, [(c, r, minute(t)) for c, r, t in rates], "currency string, rate int, since timestamp"),
        "seen": frame_of(
            spark, [(k, v, s, a, minute(t)) for k, v, s, a, t in seen], "k string, v string, seq bigint, arrival bigint, t timestamp"
        ),
    }


def rows(frames: dict[str, DataFrame], text: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in operators.sql(text, frames).collect()]


def test_each_order_has_the_rate_of_its_time(frames: dict[str, DataFrame]):
    found = rows(
        frames,
        """
        CREATE TABLE rates (currency STRING PRIMARY KEY, rate INT, since TIMESTAMP(3), WATERMARK FOR since AS since);
        SELECT id, price * rate AS cents, since FROM orders AS o
        LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ordered_at AS r ON o.currency = r.currency ORDER BY id
        """,
    )
    assert [(i, cents) for i, cents, _ in found] == [("o1", 1100), ("o2", 2400), ("o3", 3000), ("o4", None)]


def test_the_order_of_arrival_is_that_of_seq_and_arrival(frames: dict[str, DataFrame]):
    text = """
        CREATE TABLE seen (k STRING, v STRING, t TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR t AS t);
        SELECT v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS n FROM seen) WHERE n = 1
    """
    assert [rows(frames, text.format(order)) for order in ("p", "p DESC", "t", "t DESC")] == [
        [("first",)],
        [("third",)],
        [("third",)],
        [("first",)],
    ]


def test_a_row_without_a_time_is_ranked_unless_the_time_is_declared(frames: dict[str, DataFrame]):
    number = "ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ordered_at) AS n"
    ranked = f"SELECT id FROM (SELECT *, {number} FROM orders) WHERE n = 1 ORDER BY id"
    columns = "id STRING, currency STRING, price INT, ordered_at TIMESTAMP(3)"
    declared = f"CREATE TABLE orders ({columns}, WATERMARK FOR ordered_at AS ordered_at);"
    assert rows(frames, ranked) == [("o1",), ("o4",)]
    assert rows(frames, declared + ranked) == [("o1",), ("o3",)]


def test_the_table_of_a_selection_has_no_row_without_a_time(frames: dict[str, DataFrame]):
    script = plan("""
        CREATE TABLE orders (id STRING, price INT, ordered_at TIMESTAMP(3), WATERMARK FOR ordered_at AS ordered_at);
        INSERT INTO cheap SELECT id FROM orders WHERE price < 25; SELECT * FROM cheap
    """)
    assert sorted(row.id for row in rows_of(script.plans[1], frames).collect()) == ["o1", "o2"]


def test_windows_joins_and_aggregates_are_nested(frames: dict[str, DataFrame]):
    text = """
        WITH rated AS (
          SELECT o.id, o.currency, price * rate AS cents, ordered_at FROM orders o JOIN rates r
          ON o.currency = r.currency AND r.since BETWEEN o.ordered_at - INTERVAL '10' MINUTE AND o.ordered_at)
        SELECT window_start, COUNT(*) AS pairs, SUM(cents) AS cents
        FROM TUMBLE(TABLE rated, DESCRIPTOR(ordered_at), INTERVAL '15' MINUTES) GROUP BY window_start, window_end ORDER BY window_start
    """
    found = [(window.minute, pairs, cents) for window, pairs, cents in rows(frames, text)]  # pyright: ignore[reportAttributeAccessIssue]
    assert found == [(0, 2, 3500), (15, 1, 3000)]


def test_the_first_row_of_a_window_is_by_the_time_that_the_query_names(frames: dict[str, DataFrame]):
    """The orders of both currencies have several rates in the window. The first rate is not that of the first order."""
    pairs = """CREATE VIEW pairs AS SELECT o.id, o.currency, rate, ordered_at, since FROM orders o JOIN rates r
        ON o.currency = r.currency AND r.since BETWEEN o.ordered_at - INTERVAL '20' MINUTE AND o.ordered_at + INTERVAL '20' MINUTE;"""
    windows = "TUMBLE(TABLE pairs, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)"
    number = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end, currency ORDER BY {}) AS n"
    text = f"{pairs} SELECT id, rate FROM (SELECT *, {number} FROM {windows}) WHERE n = 1 ORDER BY id"
    assert rows(frames, text.format("since DESC")) == [("o1", 120), ("o3", 90)]
    assert rows(frames, text.format("since")) == [("o1", 110), ("o3", 100)]


TOTALS = (
    """WITH totals AS (SELECT currency, SUM(price) AS total, {start}, {end} FROM {windows} GROUP BY currency, window_start, window_end)"""
)


def test_results_of_cumulative_windows_are_grouped_by_their_windows(frames: dict[str, DataFrame]):
    windows = "CUMULATE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '15' MINUTE, INTERVAL '1' HOUR)"
    totals = TOTALS.format(start="window_start", end="window_end", windows=windows)
    columns = "DATE_FORMAT(window_start, 'HH:mm') AS s, DATE_FORMAT(window_end, 'HH:mm') AS e, SUM(total) AS n"
    found = rows(frames, f"{totals} SELECT {columns} FROM totals GROUP BY window_start, window_end ORDER BY e")
    assert found == [("10:00", "10:15", 30), ("10:00", "10:30", 60), ("10:00", "10:45", 60), ("10:00", "11:00", 60)]


def test_rows_are_joined_with_the_results_of_their_windows_by_the_bounds(frames: dict[str, DataFrame]):
    windows = "HOP(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '10' MINUTE, INTERVAL '20' MINUTE)"
    totals = TOTALS.format(start="window_start AS s", end="window_end AS e", windows=windows)
    within = "o.currency = w.currency AND o.ordered_at >= w.s AND o.ordered_at < w.e"
    found = rows(
        frames, f"{totals} SELECT o.id, DATE_FORMAT(w.s, 'HH:mm') AS s, w.total FROM orders o JOIN totals w ON {within} ORDER BY id, s"
    )
    assert found == [
        ("o1", "09:50", 10),
        ("o1", "10:00", 30),
        ("o2", "10:00", 30),
        ("o2", "10:10", 20),
        ("o3", "10:10", 30),
        ("o3", "10:20", 30),
    ]


def test_a_top_n_of_windows_results_has_the_time_of_the_window(frames: dict[str, DataFrame]):
    totals = """SELECT window_start, window_end, window_time, currency, SUM(price) AS total
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '15' MINUTES) GROUP BY window_start, window_end, window_time, currency"""
    number = "ROW_NUMBER() OVER (PARTITION BY currency ORDER BY total DESC) AS n"
    ranked = f"SELECT * FROM (SELECT {number}, currency, window_time FROM ({totals})) WHERE n <= 1"
    time = "CAST(w AS STRING) AS w"
    found = rows(frames, f"WITH ranked (place, currency, w) AS ({ranked}) SELECT currency, {time}, place FROM ranked ORDER BY currency")
    assert found == [("eur", "2026-03-01 10:14:59.999", 1), ("usd", "2026-03-01 10:29:59.999", 1)]


def test_grouping_sets_are_those_of_spark(spark: SparkSession, frames: dict[str, DataFrame]):
    """A null key is an ordinary key: only `grouping_id` tells it from a key that a set leaves out."""
    orders = frames["orders"].selectExpr("nullif(currency, 'usd') AS currency", "price % 20 AS kind", "price", "ordered_at")
    values = "currency, kind, GROUPING(currency) AS g, GROUPING_ID({}) AS id, SUM(price) AS total, COUNT(*) AS n"
    clauses = ["GROUPING SETS ((currency), ())", "ROLLUP (currency, kind)", "CUBE (currency, kind)"]
    windowed = "FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '15' MINUTES) GROUP BY window_start, window_end"
    orders.createOrReplaceTempView("orders_of_sets")
    for clause in clauses:
        has_kind = "kind" in clause
        listed = values.format("currency, kind") if has_kind else values.format("currency").replace("kind, ", "")
        found = rows({"orders": orders}, f"SELECT window_start, {listed} {windowed}, {clause}")
        of_spark = "FROM (SELECT *, window(ordered_at, '15 minutes').start AS w FROM orders_of_sets) WHERE w IS NOT NULL"
        of_all = re.sub(r"GROUPING_ID\(.*?\)", "GROUPING_ID()", listed)  # Spark's is of every grouping column; that of `w` is 0
        wanted = spark.sql(f"SELECT w, {of_all} {of_spark} GROUP BY w, {clause}").collect()
        assert sorted(map(str, found)) == sorted(str(tuple(row)) for row in wanted), clause
    spark.catalog.dropTempView("orders_of_sets")


def test_columns_are_those_of_the_query(frames: dict[str, DataFrame]):
    assert operators.sql("SELECT v AS `a b`, t FROM seen WHERE arrival = 0", frames).columns == ["a b", "t"]
    assert operators.sql("SELECT * FROM seen", frames).columns == frames["seen"].columns


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("REGEXP_EXTRACT(s, '(a+)(b)', 2)", "b"),
        ("REGEXP_EXTRACT(s, '(a+)b')", "aab"),
        ("REGEXP_EXTRACT(s, 'x')", None),
        ("CONCAT_WS('-', s, missing, 'z')", "aabc-z"),
        ("STR_TO_MAP('k=1,l=2')['l']", "2"),
        ("LOG10(thousand)", 3.0),
        ("numbers[1]", 7),
        ("numbers[one + 1]", 8),
        ("numbers[3]", None),
        ("map_of_numbers[2]", "two"),
        ("map_of_numbers[3]", None),
        ("CAST(s AS VARCHAR(3))", "aab"),
        ("CAST(thousand AS CHAR(6))", "1000  "),
        ("TO_TIMESTAMP_LTZ(times[1], 0)", datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    ],
)
def test_functions_have_the_values_of_flink(spark: SparkSession, expression: str, value: object):
    """Also behind a view, whose expressions are read again as Spark SQL."""
    frame = spark.sql("""
        SELECT 'aabc' AS s, CAST(NULL AS STRING) AS missing, 1000 AS thousand, array(7, 8) AS numbers, 1 AS one,
        map(2, 'two') AS map_of_numbers, array(5L) AS times""")
    text = f"CREATE VIEW v AS SELECT {expression} AS x FROM f; SELECT x, COALESCE(x, x) AS y FROM v"
    [(found, again)] = rows({"f": frame}, text)
    assert found == again
    assert (found.astimezone(UTC) if isinstance(found, datetime) else found) == value


def test_explain_is_a_frame_with_the_plan(frames: dict[str, DataFrame]):
    [(text,)] = rows(frames, "EXPLAIN SELECT currency, COUNT(*) AS n FROM orders GROUP BY currency")
    assert str(text).startswith("Aggregate(by=('currency',), aggregates={'n': 'COUNT(*)'})\n  strategy: merges the new rows")


def test_an_operator_refuses_a_frame_by_its_own_error(frames: dict[str, DataFrame]):
    text = "SELECT o.id FROM orders o JOIN rates r ON o.currency = r.rate AND o.ordered_at = r.since"
    with pytest.raises(OperatorError, match="`on` names the column 'currency', which is string on the left and int on the right"):
        operators.sql(text, frames)
