"""A pipeline in SQL: sources of CREATE TABLE, tables of INSERT INTO, and what is refused."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from assets.contracts import BoundedOutOfOrderness, Preparation, RowRule, Shape
from assets.pipeline import Pipeline
from operators import Aggregate, AsOfJoin, IntervalJoin, Select, SqlError, TopK, TopN, Tumbling, WindowedAggregate
from operators.errors import OperatorError, TidemarkError
from operators.sql.plan import plan
from platform_defs.cli.new import TEMPLATE
from platform_defs.cli.sql import kafka_part
from platform_defs.declared.pipeline import DeclaredError
from platform_defs.declared.sql_pipeline import read_sql, sources_of
from platform_defs.definitions import build
from platform_defs.pipelines import load
from platform_defs.settings import Settings

ORDERS = """
CREATE TABLE orders (
  id STRING NOT NULL COMMENT 'it''s unique', seller STRING, price DECIMAL(10, 2), ms BIGINT,
  ordered_at AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '5' SECOND,
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('connector' = 'filesystem', 'format' = 'json', 'scan.watermark.idle-timeout' = '1 min', 'tidemark.future-skew' = '2 hours');
"""
PAYMENTS = """
CREATE TABLE payments (
  order_id STRING, amount INT, paid_at TIMESTAMP(3), WATERMARK FOR paid_at AS paid_at
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'csv.field-delimiter' = ';', 'tidemark.rule.positive' = 'amount > 0');
"""


def pipeline(*statements: str) -> Pipeline:
    return read_sql(ORDERS + PAYMENTS + ";".join(statements))


def test_a_table_is_a_source_with_its_watermark():
    orders, payments = pipeline("INSERT INTO n SELECT seller, COUNT(*) AS n FROM orders GROUP BY seller").sources
    assert orders.schema == "id STRING NOT NULL COMMENT 'it\\'s unique', seller STRING, price DECIMAL(10, 2), ms BIGINT"
    assert (orders.event_time, orders.unique_key) == ("TIMESTAMP_MILLIS(ms)", ("id",))
    assert orders.struct["id"].metadata == {"comment": "it's unique"}
    assert (orders.idle_timeout, orders.future_skew) == ("1 min", "2 hours")
    assert orders.watermark.bound_ms == 4_999  # Flink's watermark is max - 5 s; that of a bound is max - bound - 1 ms
    assert (payments.event_time, payments.watermark.bound_ms) == ("paid_at", 0)
    assert payments.options == {"header": "false", "sep": ";"}
    assert payments.rules == (RowRule("positive", "amount > 0"),)


def test_a_table_without_a_watermark_has_processing_time():
    text = "CREATE TABLE clicks (k STRING) WITH ('connector' = 'filesystem', 'format' = 'parquet');"
    [source] = read_sql(f"{text} INSERT INTO n SELECT k, COUNT(*) AS n FROM clicks GROUP BY k").sources
    assert source.by_ingest_time
    view = "CREATE VIEW seen AS SELECT *, PROCTIME() AS p FROM clicks;"
    windows = "FROM TUMBLE(TABLE seen, DESCRIPTOR(p), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end"
    [table] = read_sql(f"{text} {view} INSERT INTO n SELECT k, COUNT(*) AS n {windows}").tables
    assert table.operator == WindowedAggregate(by=("k",), window=Tumbling(size="1 hour"), aggregates={"n": "COUNT(*)"})


def test_the_results_of_windows_are_read_from_the_table_that_has_them():
    hops = "HOP(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '2' MINUTE, INTERVAL '4' MINUTE)"
    counts = f"SELECT seller, COUNT(*) AS n, window_start AS s, window_end AS e FROM {hops} GROUP BY seller, window_start, window_end"
    most = "INSERT INTO m SELECT s, e, MAX(n) AS most FROM w GROUP BY s, e;"
    joined = "INSERT INTO j SELECT seller FROM w JOIN m ON w.s = m.s AND w.e = m.e AND n = most"
    tables = {table.name: table for table in read_sql(f"{ORDERS} INSERT INTO w {counts}; {most} {joined}").tables}
    assert tables["m"].inputs == ("w",)
    assert tables["m"].operator == WindowedAggregate(by=("s",), window=Tumbling(size="2 minutes"), aggregates={"most": "MAX(n)"})
    assert tables["j"].inputs == ("w", "m")


NESTED = """
CREATE TABLE mixed (kind INT, bid ROW<item STRING, price INT>, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'format' = 'json');
"""


@pytest.mark.parametrize(
    ("query", "preparation"),
    [
        ("SELECT * FROM payments", None),
        ("SELECT order_id AS id, amount * 2 AS doubled FROM payments", Preparation(select="order_id AS id, amount * 2 AS doubled")),
        ("SELECT *, amount + 1 AS more FROM payments WHERE amount > 1", Preparation(where="amount > 1", select="*, amount + 1 AS more")),
        ("SELECT paid_at, UPPER(order_id) FROM payments", Preparation(select="paid_at, UPPER(order_id) AS `EXPR$1`")),
        ("SELECT bid.price AS price, ts FROM mixed WHERE kind = 2", Preparation(where="kind = 2", select="(bid).price AS price, ts")),
        ("SELECT * FROM orders", Preparation(select="*, event_time AS ordered_at")),
        (
            "SELECT ordered_at AS at, HOUR(ordered_at) AS h FROM orders WHERE ordered_at > TIMESTAMP '2026-03-01 00:00:00'",
            Preparation(where="event_time > CAST('2026-03-01 00:00:00' AS TIMESTAMP)", select="event_time AS at, HOUR(event_time) AS h"),
        ),
        (
            "WITH c AS (SELECT order_id, amount FROM payments WHERE amount > 1) SELECT amount FROM (SELECT * FROM c WHERE amount < 9)",
            Preparation(where="(amount > 1) AND (amount < 9)", select="amount"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_query_that_only_selects_is_a_table_of_its_rows(query: str, preparation: Preparation | None):
    for statements in (f"INSERT INTO t {query}", f"CREATE VIEW v AS {query}; INSERT INTO t SELECT * FROM v"):
        [table] = pipeline(NESTED, statements).tables
        assert table.operator == Select()
        assert [table.preparation(0)] == [preparation]


def test_selected_rows_have_the_parameters_of_their_table_and_are_read_with_their_event_time():
    tables = pipeline("""
        CREATE TABLE large (no STRING, cents INT, at TIMESTAMP(3))
        WITH ('connector' = 'kafka', 'topic' = 'large', 'format' = 'json', 'key.fields' = 'no', 'tidemark.allowed-lateness' = '5 minutes');
        INSERT INTO large SELECT id, price * 100, ordered_at FROM orders WHERE price > 1;
        CREATE VIEW larger AS SELECT no, cents, at FROM large WHERE cents > 1000;
        INSERT INTO hours SELECT no, window_start, window_end, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE larger, DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY no, window_start, window_end;
        INSERT INTO busy SELECT no, window_time FROM (SELECT no, window_start, window_end, window_time, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE larger, DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY no, window_start, window_end, window_time) WHERE n > 1;
        INSERT INTO paid SELECT no, amount FROM larger JOIN payments p
        ON no = p.order_id AND p.paid_at BETWEEN larger.at AND larger.at + INTERVAL '1' HOUR
    """).tables
    made = {table.name: table for table in tables}
    assert made["large"].operator == Select(allowed_lateness="5 minutes")
    assert made["large"].prepare == {"orders": Preparation(where="price > 1", select="id AS no, price * 100 AS cents, event_time AS at")}
    assert [*made] == ["large", "hours", "busy", "paid"]
    assert made["hours"].operator == WindowedAggregate(by=("no",), window=Tumbling(size="1 hour"), aggregates={"n": "COUNT(*)"})
    assert (made["paid"].inputs, type(made["paid"].operator)) == (("large", "payments"), IntervalJoin)


@pytest.mark.parametrize(
    "query",
    ["SELECT * FROM payments", "WITH c AS (SELECT * FROM payments) SELECT * FROM c", "SELECT order_id, amount, paid_at FROM payments"],
)
def test_selected_columns_get_the_names_of_the_declared_table(query: str):
    [table] = pipeline(f"CREATE TABLE t (a STRING, b INT, c TIMESTAMP(3)); INSERT INTO t {query}").tables
    assert table.prepare == {"payments": Preparation(select="order_id AS a, amount AS b, paid_at AS c")}


def test_a_condition_in_several_brackets_keeps_its_text():
    """The text is a part of the identity of stored tables."""
    condition = "((price > 1 AND seller = 'x'))"
    [table] = pipeline(f"INSERT INTO n SELECT seller, COUNT(*) AS n FROM orders WHERE {condition} GROUP BY seller").tables
    assert table.prepare["orders"].where == condition


def test_an_interval_join_prepares_both_sides():
    [table] = pipeline("""
        INSERT INTO paid SELECT o.id AS order_number, seller, amount FROM orders o JOIN payments p
        ON o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR AND amount > 10 AND amount < price
    """).tables
    assert table.operator == IntervalJoin(on=("order_number",), lower="0 ms", upper="1 hour", residual="amount < price")
    assert table.prepare == {
        "orders": Preparation(select="id AS order_number, seller, price"),
        "payments": Preparation(select="order_id AS order_number, amount", where="amount > 10"),
    }


def test_a_join_of_a_source_with_itself_prepares_each_side():
    [table] = pipeline("""
        INSERT INTO cheaper SELECT a.seller, a.id, b.id AS cheaper_id FROM orders a JOIN orders b
        ON a.seller = b.seller AND b.ordered_at BETWEEN a.ordered_at AND a.ordered_at + INTERVAL '1' HOUR WHERE a.price > 10 AND b.price < 5
    """).tables
    assert table.inputs == ("orders", "orders")
    assert table.prepare == {
        "left": Preparation(select="seller, id", where="price > 10"),
        "right": Preparation(select="seller, id AS cheaper_id", where="price < 5"),
    }


def test_a_version_can_be_that_of_a_time_which_the_query_does_not_select():
    joined, table = pipeline("""
        CREATE TABLE rates (currency STRING, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at, PRIMARY KEY (currency) NOT ENFORCED)
        WITH ('connector' = 'filesystem', 'format' = 'json');
        INSERT INTO rated SELECT o.id, amount, rate FROM orders o
        JOIN payments p ON o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR
        LEFT JOIN rates FOR SYSTEM_TIME AS OF p.paid_at r ON o.seller = r.currency
    """).tables
    assert isinstance(joined.operator, IntervalJoin)
    assert table.operator == AsOfJoin(on=("seller",), how="left")
    assert table.inputs == (joined.name, "rates")


def test_a_condition_on_a_version_is_an_expression_of_the_result_or_a_condition_of_its_reader():
    """Such a condition is refused in ON and in WHERE of an outer join with versions; the error says what a pipeline accepts."""
    rates = """CREATE TABLE rates (currency STRING, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at, PRIMARY KEY (currency) NOT ENFORCED)
        WITH ('connector' = 'filesystem', 'format' = 'json')"""
    rated = "INSERT INTO rated SELECT id, {} FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ordered_at r ON o.seller = r.currency {}"
    message = (
        "the condition rate > 4 is refused: an outer join with a version has equalities only; select CASE WHEN rate > 4 THEN ... END for "
        "a column of the version, or filter in a query that reads the result"
    )
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        pipeline(rates, rated.format("rate", "AND rate > 4"))
    with pytest.raises(OperatorError, match=r"a query that reads the table can filter by the version$"):
        pipeline(rates, rated.format("rate", "WHERE rate > 4"))
    [table] = pipeline(rates, rated.format("CASE WHEN rate > 4 THEN rate END AS high_rate", "")).tables
    assert table.shape == Shape(select="*, CASE WHEN rate > 4 THEN rate END AS high_rate")
    reader = "INSERT INTO high SELECT id, COUNT(*) AS n FROM rated WHERE rate > 4 GROUP BY id"
    _, filtered = pipeline(rates, rated.format("rate", ""), reader).tables
    assert filtered.prepare == {"rated": Preparation(where="rate > 4")}


def test_a_versioned_view_is_read_from_its_source():
    rates = """CREATE TABLE rates (currency STRING, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at, PRIMARY KEY (currency) NOT ENFORCED)
        WITH ('connector' = 'filesystem', 'format' = 'json')"""
    newest = """CREATE VIEW newest AS SELECT currency AS c, rate * 2 AS twice, at FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY at DESC) AS n FROM rates) WHERE n = 1"""
    rated = "INSERT INTO rated SELECT id, twice FROM orders o LEFT JOIN newest FOR SYSTEM_TIME AS OF o.ordered_at ON o.seller = newest.c"
    [table] = pipeline(rates, newest, rated).tables
    assert table.inputs == ("orders", "rates")
    assert table.prepare["rates"] == Preparation(select="currency AS seller, rate * 2 AS twice")
    assert table.operator == AsOfJoin(on=("seller",), how="left")


def test_the_key_of_a_source_stays_if_it_is_not_that_of_its_versions():
    """Rows with the same key are then duplicates, not versions. A declared table with options is no substitute for the view."""
    rates = """CREATE TABLE rates (rate_id STRING, currency STRING, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at,
        PRIMARY KEY ({}) NOT ENFORCED) WITH ('connector' = 'filesystem', 'format' = 'json')"""
    newest = (
        "SELECT currency, rate, at FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY at DESC) AS n FROM rates) WHERE n = 1"
    )
    rated = (
        "INSERT INTO rated SELECT id, rate FROM orders o LEFT JOIN newest FOR SYSTEM_TIME AS OF o.ordered_at ON o.seller = newest.currency"
    )
    keys = [
        {source.name: source.unique_key for source in pipeline(rates.format(key), f"CREATE VIEW newest AS {newest}", rated).sources}[
            "rates"
        ]
        for key in ("rate_id", "currency")
    ]
    assert keys == [("rate_id",), ()]
    declared = "CREATE TABLE newest (currency STRING, rate INT, at TIMESTAMP(3)) WITH ('tidemark.ttl' = '1 day')"
    with pytest.raises(OperatorError, match=r"declared with options, which may leave out versions; read a view with the same query$"):
        pipeline(rates.format("currency"), declared, f"INSERT INTO newest {newest}", rated)


def test_a_computed_event_time_is_read_from_the_column_event_time():
    [table] = pipeline("""
        INSERT INTO paid SELECT o.id, o.ordered_at, p.amount FROM orders o JOIN payments p
        ON o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR
    """).tables
    assert table.prepare["orders"] == Preparation(select="id, event_time AS ordered_at")


def test_a_window_top_n_is_two_operators_in_one_or_two_tables():
    counts = """
        SELECT seller, window_start, window_end, COUNT(*) AS orders
        FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)) GROUP BY seller, window_start, window_end
    """
    rank = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY orders DESC) AS `rank`"
    top = f"SELECT * FROM (SELECT *, {rank} FROM {{}}) WHERE `rank` <= 3"
    [one] = pipeline(f"INSERT INTO best SELECT window_start, window_end, seller, orders, `rank` FROM ({top.format(f'({counts})')})").tables
    count = WindowedAggregate(by=("seller",), window=Tumbling(size="1 hour"), aggregates={"orders": "COUNT(*)"})
    assert (one.name, one.inputs, one.operator.of) == ("best", ("orders",), count)
    assert one.operator.then == TopK(k=3, order_by=("orders DESC",))
    made = pipeline(f"INSERT INTO per_hour {counts}", f"INSERT INTO best {top.format('per_hour')}").tables
    assert [(t.name, t.inputs, t.operator) for t in made] == [
        ("per_hour", ("orders",), count),
        ("best", ("per_hour",), TopK(k=3, order_by=("orders DESC",))),
    ]
    by_view = pipeline(f"CREATE VIEW per_hour AS {counts}", f"INSERT INTO best {top.format('per_hour')}").tables
    assert by_view == made


def test_a_top_n_of_an_aggregate_reads_its_changes():
    tables = pipeline("""
        INSERT INTO best SELECT seller, revenue, `rank` FROM (
          SELECT *, ROW_NUMBER() OVER (ORDER BY revenue DESC) AS `rank`
          FROM (SELECT seller, SUM(price) AS revenue FROM orders GROUP BY seller)) WHERE `rank` <= 10
    """).tables
    assert [(t.name, t.inputs) for t in tables] == [("best_rows", ("orders",)), ("best", ("best_rows",))]
    assert tables[0].operator == Aggregate(by=("seller",), aggregates={"revenue": "SUM(price)"})
    assert tables[1].operator == TopN(order_by=("revenue DESC",), rank_end=10, unique_key=("seller",), change="change")


def test_a_view_without_an_operator_is_a_preparation():
    [table] = pipeline(
        "CREATE VIEW large AS SELECT id, seller, price * 2 AS doubled, ordered_at FROM orders WHERE price > 100",
        "INSERT INTO sums SELECT seller, SUM(doubled) AS total FROM large WHERE seller <> 'x' GROUP BY seller",
    ).tables
    select = "id, seller, price * 2 AS doubled, event_time AS ordered_at"
    assert table.prepare == {"orders": Preparation(select=select, where="(price > 100) AND (seller <> 'x')")}


def test_windows_of_windows_read_the_table_of_the_first():
    tables = pipeline(
        """
        INSERT INTO per_minute SELECT seller, window_start, window_end, window_time, COUNT(*) AS n
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE) GROUP BY seller, window_start, window_end, window_time
    """,
        """
        INSERT INTO per_hour SELECT window_start, window_end, SUM(n) AS total
        FROM TUMBLE(TABLE per_minute, DESCRIPTOR(window_time), INTERVAL '1' HOUR) GROUP BY window_start, window_end
    """,
    ).tables
    assert [t.inputs for t in tables] == [("orders",), ("per_minute",)]
    assert tables[1].operator == WindowedAggregate(window=Tumbling(size="1 hour"), aggregates={"total": "SUM(n)"})


def test_a_reader_finds_the_columns_of_a_view_under_the_names_of_the_view():
    tables = pipeline(
        """
        CREATE VIEW per_minute AS SELECT seller AS who, window_time AS at, COUNT(*) + 1 AS n
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE) GROUP BY seller, window_start, window_end, window_time
        """,
        """
        INSERT INTO per_hour SELECT who, window_start, window_end, SUM(n) AS total, MAX(at) AS newest
        FROM TUMBLE(TABLE per_minute, DESCRIPTOR(at), INTERVAL '1' HOUR) WHERE n > 2 GROUP BY who, window_start, window_end
        """,
    ).tables
    assert [(t.name, t.inputs) for t in tables] == [("per_minute", ("orders",)), ("per_hour", ("per_minute",))]
    assert tables[0].operator.by == ("who",)
    assert tables[1].operator.aggregates == {"total": "SUM(n)", "newest": "MAX(at)"}
    assert tables[1].prepare == {"per_minute": Preparation(select="who, event_time AS at, n", where="n > 2")}


def test_a_window_of_deduplicated_rows_reads_their_table():
    tables = pipeline(
        """
        CREATE VIEW newest AS SELECT id, seller, ordered_at FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ordered_at DESC) AS n FROM orders) WHERE n = 1
        """,
        """
        INSERT INTO per_hour SELECT window_start, window_end, COUNT(*) AS n
        FROM TUMBLE(TABLE newest, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR) GROUP BY window_start, window_end
        """,
    ).tables
    assert [(t.name, type(t.operator).__name__) for t in tables] == [("newest", "Deduplicate"), ("per_hour", "WindowedAggregate")]


def test_a_temporal_join_reads_versions_of_a_key():
    made = pipeline("""
        CREATE TABLE rates (seller STRING, rate DECIMAL(5, 2), since TIMESTAMP(3), WATERMARK FOR since AS since,
          PRIMARY KEY (seller) NOT ENFORCED) WITH ('connector' = 'filesystem', 'format' = 'json');
        INSERT INTO rated SELECT id, o.seller, price, rate
        FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ordered_at AS r ON o.seller = r.seller
    """)
    assert made.tables[0].operator == AsOfJoin(on=("seller",), how="left")
    assert made.tables[0].prepare == {
        "orders": Preparation(select="seller, id, price"),
        "rates": Preparation(select="seller, rate"),
    }
    assert made.sources_by_name["rates"].unique_key == ()  # a second row of a key is its next version, not a duplicate
    assert made.sources_by_name["orders"].unique_key == ("id",)


def test_versions_in_the_table_of_a_selection_are_those_of_its_source():
    rates = "CREATE TABLE rates (cur STRING, rate INT, since TIMESTAMP(3), WATERMARK FOR since AS since, PRIMARY KEY (cur) NOT ENFORCED) "
    rates += "WITH ('connector' = 'filesystem', 'format' = 'json'); CREATE VIEW named AS SELECT cur AS code, rate, since FROM rates;"
    inserted = "INSERT INTO positive SELECT code AS currency, rate, since FROM named WHERE rate > 0;"
    join = "INSERT INTO rated SELECT id, rate FROM orders o JOIN positive FOR SYSTEM_TIME AS OF o.ordered_at ON seller = currency"
    keys = [pipeline(rates, inserted, other).sources_by_name["rates"].unique_key for other in (join, "")]
    assert keys == [(), ("cur",)]


def test_the_template_in_sql_is_the_pipeline_in_yaml():
    in_sql, in_yaml = load(str(TEMPLATE / "pipeline.sql")), load(str(TEMPLATE / "pipeline.yaml"))
    for one, other in zip(in_sql.sources, in_yaml.sources, strict=True):
        assert isinstance(one.watermark, BoundedOutOfOrderness)
        bound = BoundedOutOfOrderness("10 minutes")
        assert one.watermark.bound_ms == bound.bound_ms - 1
        assert (one.struct, one.event_time, one.unique_key, one.rules) == (other.struct, other.event_time, other.unique_key, other.rules)
        assert replace(other, watermark=bound) == other
    columns = {name: set(columns) for name, columns in in_yaml.columns_of_tables().items()}
    columns["ride_fares"] -= {"started_at", "paid_at"}  # the SQL selects other columns
    assert {name: set(found) for name, found in in_sql.columns_of_tables().items()} == columns


def test_dagster_defines_the_assets_of_a_pipeline_in_sql():
    repository = build(Settings(), load(str(TEMPLATE / "pipeline.sql"))).get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert keys == {"events/rides", "events/fares", "ride_fares", "rides_per_hour", "busy_zones"}


KAFKA = """
CREATE TABLE clicks (k STRING, sent_at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR sent_at AS sent_at - INTERVAL '1' SECOND)
WITH ('connector' = 'kafka', 'topic' = 'a;b', 'properties.bootstrap.servers' = 'localhost:9092', 'properties.group.id' = 'x',
  'scan.startup.mode' = 'latest-offset', 'format' = 'json'{});
INSERT INTO n SELECT k, COUNT(*) AS n FROM clicks GROUP BY k;
"""


def test_kafka_options_are_a_part_of_the_connections():
    [source] = read_sql(KAFKA.format("")).sources
    assert (source.name, source.event_time) == ("clicks", "sent_at")
    assert kafka_part(sources_of(plan(KAFKA.format(""))), {}) == {
        "kafka": {
            "options": {"kafka.bootstrap.servers": "localhost:9092"},
            "sources": {"clicks": {"options": {"subscribe": "a,b", "startingOffsets": "latest"}, "columns": {"sent_at": "timestamp"}}},
        }
    }


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("'format' = 'json', 'properties.auto.offset.reset' = 'latest'", "'kafka.auto.offset.reset' is set or refused by Spark"),
        ("'format' = 'json', 'properties.key.deserializer' = 'x'", "'kafka.key.deserializer' is set or refused by Spark"),
        ("'format' = 'json', 'properties.' = 'x'", "the options 'properties.*' of the Kafka tables: 'kafka.' is no option"),
        ("'format' = 'avro-confluent'", "table 't': avro.registry: there is no url"),
    ],
)
def test_connections_that_could_not_be_loaded_are_not_printed(options: str, error: str):
    script = plan(f"CREATE TABLE t (a STRING) WITH ('connector' = 'kafka', 'topic' = 'x', {options})")
    with pytest.raises(SqlError, match=re.escape(error)):
        kafka_part(sources_of(script), {})


def test_an_option_of_a_keystore_that_is_no_secret_is_a_part_of_the_connections():
    option = "'properties.ssl.keystore.location' = '/k.jks'"
    script = plan(f"CREATE TABLE t (a STRING) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = 'json', {option})")
    assert kafka_part(sources_of(script), {})["kafka"]["options"] == {"kafka.ssl.keystore.location": "/k.jks"}


GROUPED = "SELECT seller, COUNT(*) AS n FROM orders GROUP BY seller"


def test_having_and_computed_columns_are_the_shape_of_a_table():
    [table] = pipeline("""
        INSERT INTO busy SELECT seller AS who, window_end AS until, SUM(price) AS revenue, CONCAT(seller, ':', COUNT(*)) AS label
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)
        GROUP BY seller, window_start, window_end HAVING COUNT(*) > 2 AND window_start > '2026-01-01'
    """).tables
    assert table.operator.aggregates == {"revenue": "SUM(price)", "value_1": "COUNT(*)"}
    assert table.shape == Shape(
        where="`value_1` > 2 AND window_start > '2026-01-01'",
        select="*, window_end AS until, CONCAT(who, ':', `value_1`) AS label",
    )


def test_a_rank_and_the_columns_of_a_join_can_have_any_name_and_expression():
    [best] = pipeline(f"INSERT INTO t SELECT id, n AS place FROM ({RANKED}) WHERE n BETWEEN 1 AND 2 AND price > 5").tables
    assert (best.operator.rank_end, best.shape) == (2, Shape(where="price > 5", select="*, rank AS place"))
    [joined] = pipeline(f"INSERT INTO t {LEFT.replace('id, amount', 'id AS order_number, seller, amount * price AS product')}").tables
    assert joined.prepare["payments"].select == "order_id AS order_number, amount"
    assert joined.shape == Shape(select="*, amount * price AS product")


@pytest.mark.parametrize("view", ["CREATE VIEW big AS {}", "INSERT INTO big {}", ""])
def test_a_top_n_reads_the_table_of_a_filtered_aggregate(view: str):
    """A row that no longer matches is deleted from the table, and so from the ranking."""
    having = f"{GROUPED} HAVING COUNT(*) < 9"
    rank = f"SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC, seller) AS place FROM {'big' if view else f'({having})'}"
    big, best = pipeline(*filter(None, [view.format(having), f"INSERT INTO best SELECT seller, n FROM ({rank}) WHERE place <= 3"])).tables
    assert (big.name, big.shape) == ("big" if view else "best_rows", Shape(where="`n` < 9"))
    assert (best.inputs, best.operator.change, best.operator.rises, best.prepare) == ((big.name,), "change", "", {})


def test_a_reader_finds_the_columns_under_the_names_of_the_table():
    per_minute, per_hour = pipeline(
        """
        INSERT INTO per_minute SELECT seller AS who, window_time AS at, CONCAT(seller, COUNT(*)) AS label, COUNT(*) AS n
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE) GROUP BY seller, window_start, window_end, window_time
        """,
        """
        INSERT INTO per_hour SELECT label, window_start, window_end, SUM(n) AS total, MAX(at) AS newest
        FROM TUMBLE(TABLE per_minute, DESCRIPTOR(at), INTERVAL '1' HOUR) GROUP BY label, window_start, window_end
        """,
    ).tables
    assert per_minute.shape == Shape(select="*, result_time AS at, CONCAT(who, `n`) AS label")
    assert per_hour.operator.aggregates == {"total": "SUM(n)", "newest": "MAX(at)"}
    assert per_hour.prepare == {}


LEFT = """SELECT id, amount FROM orders LEFT JOIN payments
ON id = order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL '1' HOUR"""
RANKED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY price DESC) AS n FROM orders"


CORPUS = yaml.safe_load(Path("tests/operators/sql/flink_statements.yaml").read_text("utf-8"))
FILES = "WITH ('connector' = 'filesystem', 'format' = 'json')"


@pytest.mark.parametrize("case", [case for case in CORPUS["cases"] if "plan" in case], ids=lambda case: case["name"])
def test_a_statement_of_flinks_documentation_is_a_table(case: dict[str, str]):
    """A pipeline has one table per operator of the recorded plan, or a `Select` if that is empty. A case with `pipeline` is refused."""
    text = ";".join([*CORPUS["tables"].split(";"), *case["sql"].split(";")])
    statements = [one.strip() for one in text.split(";") if one.strip()]
    sources = [f"{one} {FILES}" if one.startswith("CREATE TABLE") else one for one in statements[:-1]]
    last = statements[-1] if statements[-1].startswith("INSERT") else f"INSERT INTO made {statements[-1]}"
    if "pipeline" in case:
        with pytest.raises(SqlError, match=case["pipeline"]):
            read_sql(";".join([*sources, last]))
        return
    made = read_sql(";".join([*sources, last]))
    wanted = Counter(one.partition("(")[0] for one in case["plan"] or ["Select"])
    assert Counter(type(table.operator).__name__ for table in made.tables) == wanted


WINDOWS = (
    "SELECT seller, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)) "
    "GROUP BY seller, window_start, window_end"
)
LARGEST = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY price DESC) AS n FROM orders) WHERE n <= 3"


@pytest.mark.parametrize("query", [GROUPED, f"{GROUPED} HAVING COUNT(*) > 1", WINDOWS, LARGEST, LEFT], ids=lambda q: q[:30])
def test_a_selection_from_results_of_a_table_or_a_view_is_refused(query: str):
    """The statement that the message proposes gives a table."""
    message = (
        "INSERT INTO t of a selection from w is refused: w has results of an operator, and only rows of a source are selected "
        "into a table; write the query of w in brackets in place of its name"
    )
    view, table, copied = f"CREATE VIEW w AS {query};", f"INSERT INTO w {query};", "INSERT INTO t SELECT * FROM w"
    for text in (f"{view} {copied}", f"{table} {copied}", f"{table} CREATE VIEW v AS SELECT * FROM w; INSERT INTO t SELECT * FROM v"):
        with pytest.raises(SqlError, match=re.escape(message)):
            pipeline(text)
    [written] = pipeline(f"INSERT INTO t SELECT * FROM ({query})").tables
    assert replace(pipeline(f"INSERT INTO t {query}").tables[0], name="t") == written


def test_a_selection_from_the_table_of_a_selection_is_refused():
    """The statements that the message proposes give both tables."""
    query, copied = "SELECT id, price FROM orders WHERE price > 1", "INSERT INTO t SELECT id FROM {} WHERE price < 9"
    message = "write the query of w as a view, and insert into both tables from the view"
    for view, name in (("", "w"), ("CREATE VIEW v AS SELECT * FROM w;", "v")):
        with pytest.raises(SqlError, match=message):
            pipeline(f"INSERT INTO w {query}; {view} {copied.format(name)}")
    tables = pipeline(f"CREATE VIEW v AS {query}; INSERT INTO w SELECT * FROM v; {copied.format('v')}").tables
    assert [(table.name, table.inputs, table.operator) for table in tables] == [(name, ("orders",), Select()) for name in ("w", "t")]
    assert tables[1].prepare == {"orders": Preparation(where="(price > 1) AND (price < 9)", select="id")}


@pytest.mark.parametrize("order", [0, 1], ids=["the inner query first", "the inner query last"])
@pytest.mark.parametrize("other", ["INSERT INTO t_rows {}", "CREATE VIEW t_rows AS {}; INSERT INTO u {}"], ids=["a table", "a view"])
def test_the_table_of_an_inner_query_has_the_name_of_no_other_table(other: str, order: int):
    """The pipeline had only the first of the two tables, and the readers of both read it."""
    best = "SELECT seller, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS place FROM {}) WHERE place <= 3"
    inner, few = f"INSERT INTO t {best.format(f'({GROUPED})')}", GROUPED.replace("orders", "orders WHERE price > 1")
    with pytest.raises(SqlError, match=r"a second table 't_rows' is refused: .* rename one, or write the inner query as a view"):
        pipeline(*[inner, other.format(few, best.format("t_rows"))][:: -1 if order else 1])
    first, second = pipeline(f"CREATE VIEW t_rows AS {few}", inner).tables  # no table reads the view
    assert (first.name, first.prepare, second.inputs) == ("t_rows", {}, ("t_rows",))


def test_a_view_that_was_read_is_not_inserted_into():
    best = "SELECT seller, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS place FROM v) WHERE place <= 3"
    with pytest.raises(SqlError, match="INSERT INTO v is refused: it is a view"):
        pipeline(f"CREATE VIEW v AS {GROUPED}", f"INSERT INTO t {best}", f"INSERT INTO v {GROUPED}")


def test_a_table_of_which_an_insert_is_only_explained_is_no_source():
    """EXPLAIN has no effect on a pipeline, also if the declared table can only be written."""
    for options in ("", "WITH ('connector' = 'upsert-kafka', 'topic' = 'x', 'format' = 'json')"):
        explained = f"CREATE TABLE e (seller STRING, n BIGINT) {options}; EXPLAIN INSERT INTO e {GROUPED}"
        assert pipeline(explained, f"INSERT INTO t {GROUPED}") == pipeline(f"INSERT INTO t {GROUPED}")
    read = "CREATE TABLE e (id STRING) WITH ('connector' = 'filesystem', 'format' = 'json'); EXPLAIN INSERT INTO e SELECT id FROM orders"
    assert [source.name for source in pipeline(read, "INSERT INTO t SELECT id FROM e").sources] == ["orders", "payments", "e"]


CLICKS = "CREATE TABLE clicks (k STRING, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'format' = 'json');"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a pipeline without a table is refused"),
        ("INSERT INTO t SELECT DISTINCT seller FROM orders", "SELECT DISTINCT without a window is refused"),
        ("INSERT INTO t SELECT RAND() AS r FROM orders", "RAND in an expression is refused"),
        *(
            (f"{CLICKS} {declared} INSERT INTO t SELECT {columns} FROM clicks", "p in INSERT INTO t is refused: PROCTIME() is no column")
            for declared, columns in [
                ("", "k, PROCTIME() AS p"),
                ("CREATE TABLE t (k STRING, p TIMESTAMP(3));", "k, p"),
                ("", "PROCTIME() AS p"),
                ("", "*"),
            ]
        ),
        ("CREATE TABLE t (a STRING); INSERT INTO t SELECT * FROM payments", "columns are a, and the query's are order_id, amount, paid_at"),
        ("INSERT INTO t SELECT id, UPPER(id) AS final_at FROM orders", "the result would have final_at twice; rename one of them"),
        (
            "CREATE TABLE t (a STRING) WITH ('tidemark.ttl' = '1 day'); INSERT INTO t SELECT id FROM orders",
            "its operator Select has no ttl",
        ),
        (
            "CREATE TABLE t (a STRING) WITH ('connector' = 'upsert-kafka', 'topic' = 'x', 'format' = 'json'); "
            "INSERT INTO t SELECT id FROM orders",
            "it has no key by which rows are updated; write 'connector' = 'kafka'",
        ),
        (
            f"INSERT INTO t {LEFT} WHERE amount IS NULL",
            "the results of a join account for each of its input rows, and amount IS NULL removes some",
        ),
        (
            f"INSERT INTO t {LEFT.replace('amount', 'amount + 1 AS amount')}",
            "the operator's result has a column amount, which the table keeps",
        ),
        (
            f"INSERT INTO t {GROUPED.replace('seller, COUNT', 'SELLER, COUNT')}",
            "the operator's result has a column seller, which the table keeps; write seller, also in CREATE TABLE: Spark ignores case",
        ),
        (f"CREATE TABLE t (seller STRING, N BIGINT); INSERT INTO t SELECT * FROM ({GROUPED})", "declare the names in the same case"),
        (f"INSERT INTO t {GROUPED}; INSERT INTO t {GROUPED}", "a second INSERT INTO t is refused"),
        (
            "INSERT INTO t SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rank ORDER BY price DESC) AS n FROM ("
            "SELECT id, price, seller AS rank FROM orders)) WHERE n <= 3",
            "a column rank in rows that are ranked is refused",
        ),
        (f"CREATE TABLE t (seller STRING); INSERT INTO t {GROUPED}", "columns are seller, and the query's are seller, n"),
        (f"CREATE TABLE t (n BIGINT, seller STRING); INSERT INTO t {GROUPED}", "select them in the order of the table: n, seller"),
        (f"CREATE TABLE t (seller STRING, n BIGINT) WITH ('connector' = 'x'); INSERT INTO t {GROUPED}", "tables are Delta tables"),
        (f"INSERT INTO t {GROUPED.replace('orders', 'order')}", "there is no table 'order'"),
    ],
)
def test_what_a_pipeline_cannot_have_is_refused(text: str, message: str):
    with pytest.raises(OperatorError, match=re.escape(message)):
        pipeline(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'connector' = 'jdbc'", "the connector 'jdbc' of table 't' is refused"),
        ("'connector' = 'filesystm', 'format' = 'csv'", "did you mean 'filesystem'"),
        ("'connector' = 'filesystem'", "the option 'format' of table 't' is ''; legal: csv, json, parquet"),
        ("'connector' = 'filesystem', 'format' = 'csv', 'csv.field-delimeter' = ';'", "did you mean 'csv.field-delimiter'"),
        ("'connector' = 'filesystem', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true'", "are quarantined with the reason"),
        ("'connector' = 'filesystem', 'format' = 'csv', 'path' = '/data/other'", "name the folder t, or leave out 'path'"),
        ("'connector' = 'kafka', 'format' = 'json'", "legal: one of topic"),
        ("'connector' = 'kafka', 'format' = 'json', 'topic' = 'a', 'scan.startup.mode' = 'group-offsets'", "there is no consumer group"),
        ("'connector' = 'kafka', 'format' = 'json', 'topic' = 'a', 'properties.sasl.jaas.config' = 'x'", "{env: NAME}"),
        ("'connector' = 'kafka', 'format' = 'raw', 'topic' = 'a'", "legal: json, avro-confluent"),
        (
            "'connector' = 'kafka', 'format' = 'json', 'value.format' = 'avro-confluent', 'topic' = 'a'",
            "'value.format' of table 't' is 'avro-confluent'; legal: 'json', the value of format, or only one of the two options",
        ),
        ("'connector' = 'delta', 'path' = 'a', 'table-path' = 'b'", "'table-path' of table 't' is 'b'; legal: 'a', the value of path"),
        ("'connector' = 'kafka', 'format' = 'json', 'topic' = 'a', 'scan.startup.mod' = 'x'", "did you mean 'scan.startup.mode'"),
        ("'connector' = 'kafka', 'format' = 'json', 'topic' = 'a', 'path' = '/data/t'", "is '/data/t'; legal: connector, topic"),
        ("'connector' = 'kafka', 'format' = 'json', 'topic' = 'a', 'avro-confluent.url' = 'u'", "is 'u'; legal: none with json"),
        (
            "'connector' = 'kafka', 'format' = 'json', 'topic' = 'a', 'scan.startup.timestamp-millis' = '1'",
            "is '1'; legal: none, since scan.startup.mode is earliest-offset",
        ),
        (
            "'connector' = 'kafka', 'format' = 'json', 'topic' = 'a', 'scan.startup.mode' = 'timestamp'",
            "'scan.startup.timestamp-millis' of table 't' is ''; legal: epoch milliseconds, since scan.startup.mode is timestamp",
        ),
        ("'connector' = 'delta', 'format' = 'csv'", "'format' of table 't' is 'csv'; legal: connector, path, table-path, scan.watermark"),
        ("'connector' = 'filesystem', 'format' = 'json', 'csv.field-delimiter' = ';'", "'csv.field-delimiter' of table 't' is ';'"),
    ],
)
def test_options_without_a_counterpart_are_refused(options: str, message: str):
    with pytest.raises(SqlError, match=re.escape(message)):
        read_sql(f"CREATE TABLE t (a STRING) WITH ({options}); INSERT INTO n SELECT a, COUNT(*) AS n FROM t GROUP BY a")


def test_an_error_names_the_file(tmp_path: Path):
    file = tmp_path / "pipeline.sql"
    file.write_text(f"{ORDERS} INSERT INTO t SELECT DISTINCT id FROM orders")
    with pytest.raises(DeclaredError, match=r"pipeline\.sql: SELECT DISTINCT without a window is refused"):
        load(str(file))
    with pytest.raises(TidemarkError, match=r"missing\.sql': the file cannot be read: No such file"):
        load(str(tmp_path / "missing.sql"))
