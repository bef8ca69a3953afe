"""The options of a table that a SQL statement inserts into: the parameters of the table's operator, and the table's topic."""

import re
from typing import Any

import pytest

from assets.contracts import Alignment, BatchExpression
from assets.pipeline import Pipeline
from operators import (
    Aggregate,
    AsOfJoin,
    Consecutive,
    Deduplicate,
    EveryInterval,
    EveryRows,
    EveryStep,
    IntervalJoin,
    TopN,
    WindowedAggregate,
)
from operators.errors import OperatorError
from operators.sql.plan import plan
from platform_defs.cli.sql import kafka_part
from platform_defs.declared.sql_pipeline import pipeline_of, read_sql, sources_of, targets_of

SOURCES = """
CREATE TABLE orders (id STRING, seller STRING, price INT, ordered_at TIMESTAMP(3), WATERMARK FOR ordered_at AS ordered_at)
WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE TABLE payments (order_id STRING, paid_at TIMESTAMP(3), WATERMARK FOR paid_at AS paid_at)
WITH ('connector' = 'filesystem', 'format' = 'json');
"""
PAID = """SELECT id, price FROM orders LEFT JOIN payments
ON id = order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL '1' HOUR"""
LAST_PAID = "SELECT id, order_id FROM orders LEFT JOIN payments FOR SYSTEM_TIME AS OF ordered_at ON id = order_id"
WINDOWS = """SELECT seller, window_start, COUNT(*) AS n FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)
GROUP BY seller, window_start, window_end"""
BEST = f"""SELECT seller, n FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS place
  FROM ({WINDOWS.replace("window_start, COUNT", "window_start, window_end, COUNT")})
) WHERE place <= 2"""
SOLD = "SELECT seller, COUNT(*) AS n FROM orders GROUP BY seller"
FIRST = "SELECT id, seller FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY ordered_at) AS n FROM orders) WHERE n = 1"
FIRST_OF_HOUR = """SELECT id, seller FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, seller ORDER BY ordered_at) AS n
  FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)
) WHERE n = 1"""
RANKED = """SELECT id, seller, n AS place
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY price DESC) AS n FROM orders) WHERE n <= 3"""
TOP = "SELECT id, seller FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY price DESC) AS n FROM orders) WHERE n <= 3"
COLUMNS = {
    PAID: "id STRING, price INT",
    LAST_PAID: "id STRING, order_id STRING",
    WINDOWS: "seller STRING, window_start TIMESTAMP(3), n BIGINT",
    BEST: "seller STRING, n BIGINT",
    SOLD: "seller STRING, n BIGINT",
    FIRST: "id STRING, seller STRING",
    FIRST_OF_HOUR: "id STRING, seller STRING",
    TOP: "id STRING, seller STRING",
    RANKED: "id STRING, seller STRING, place BIGINT",
}


def text(query: str, options: str, key: str = "") -> str:
    return f"{SOURCES} CREATE TABLE t ({COLUMNS[query]}{key}) WITH ({options}); INSERT INTO t {query}"


def operator_of(pipeline: Pipeline, name: str = "t") -> Any:
    return pipeline.tables_by_name[name].operator


@pytest.mark.parametrize(
    ("query", "options", "kind", "expected"),
    [
        (
            PAID,
            {"allowed-lateness": "2 hours", "late-rows": "join"},
            IntervalJoin,
            {"allowed_lateness": "2 hours", "late_rows": "join"},
        ),
        (PAID, {"early": "every step"}, IntervalJoin, {"early": EveryStep()}),
        (
            WINDOWS,
            {"allowed-lateness": "1 min", "early": "every 5 rows"},
            WindowedAggregate,
            {"allowed_lateness": "1 min", "early": EveryRows(5)},
        ),
        (WINDOWS, {"purging": "every 10 minutes"}, WindowedAggregate, {"purging": EveryInterval("10 minutes")}),
        (
            SOLD,
            {"ttl": "1 day", "ttl-by": "processing", "after-ttl": "retract"},
            Aggregate,
            {"ttl": "1 day", "ttl_by": "processing", "after_ttl": "retract"},
        ),
        (FIRST, {"ttl": "1 day"}, Deduplicate, {"ttl": "1 day"}),
        (TOP, {"ttl": "1 day"}, TopN, {"ttl": "1 day"}),
        (LAST_PAID, {"max-age": "1 day"}, AsOfJoin, {"max_age": "1 day"}),
    ],
)
def test_an_option_is_a_parameter_of_the_tables_operator(query: str, options: dict[str, str], kind: type, expected: dict[str, Any]):
    declared = ", ".join(f"'tidemark.{name}' = '{value}'" for name, value in options.items())
    operator = operator_of(read_sql(text(query, declared)))
    assert isinstance(operator, kind)
    assert {name: getattr(operator, name) for name in expected} == expected


def test_a_time_to_live_of_a_view_of_a_join_is_in_event_time():
    view = f"CREATE VIEW paid AS {PAID.replace('id, price', 'seller, price').replace('LEFT ', '')}"
    query = "SELECT seller, SUM(price) AS n FROM paid GROUP BY seller"
    options = "'tidemark.ttl' = '30 days', 'tidemark.after-ttl' = 'retract'"
    statements = f"{view}; CREATE TABLE t (seller STRING, n BIGINT) WITH ({options}); INSERT INTO t {query}"
    pipeline = read_sql(f"{SOURCES} {statements}")
    operator, [joined] = operator_of(pipeline), pipeline.tables_by_name["t"].inputs
    assert (operator.ttl, operator.after_ttl) == ("30 days", "retract")
    assert isinstance(operator_of(pipeline, joined), IntervalJoin)
    by_clock = statements.replace(options, f"{options}, 'tidemark.ttl-by' = 'processing'")
    with pytest.raises(OperatorError, match="`ttl_by` is 'processing'; legal: event, for 't': rows of the table"):
        read_sql(f"{SOURCES} {by_clock}")
    sold = f"CREATE TABLE s (seller STRING, n BIGINT); INSERT INTO s {SOLD}"
    over_sold = statements.replace("FROM paid", "FROM s").replace("SUM(price)", "SUM(n)")
    with pytest.raises(OperatorError, match="Aggregate has a `ttl`, and rows of the upserted table 's' are replaced and deleted"):
        read_sql(f"{SOURCES} {sold}; {over_sold}")


def test_an_option_of_a_window_top_n_is_a_parameter_of_its_windows():
    operator = operator_of(read_sql(text(BEST, "'tidemark.allowed-lateness' = '1 min'")))
    assert isinstance(operator, Consecutive)
    assert operator.of.allowed_lateness == "1 min"


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (SOLD, "'tidemark.early' = 'every step'", "its operator Aggregate has no early; legal: tidemark.ttl, tidemark.ttl-by"),
        (WINDOWS, "'tidemark.early' = 'often'", "the option 'tidemark.early' of table 't' is 'often'"),
        (WINDOWS, "'tidemark.early' = 'every foo'", "`trigger` is 'every foo'; legal: 'every step', 'every 100 rows', 'every 10 minutes'"),
        (WINDOWS, "'tidemark.alowed-lateness' = '1 min'", "did you mean 'tidemark.allowed-lateness'"),
        (WINDOWS, "'format' = 'json'", "the option 'format' of table 't' is 'json'"),
        (
            SOLD,
            "'connector' = 'kafka', 'topic' = 'a', 'format' = 'json'",
            "its rows are updated and deleted; write 'connector' = 'upsert-kafka'",
        ),
        (PAID, "'connector' = 'upsert-kafka', 'topic' = 'a', 'format' = 'json'", "write 'connector' = 'kafka'"),
        (PAID, "'connector' = 'kafka', 'format' = 'json'", "legal: the name of a topic"),
        (PAID, "'connector' = 'kafka', 'topic' = 'a', 'format' = 'avro-confluent'", "legal: one URL with avro-confluent"),
        (PAID, "'connector' = 'kafka', 'topic' = 'a', 'format' = 'json', 'key.fields' = 'no'", "there is no column 'no'; legal: id, price"),
        (SOLD, "'connector' = 'upsert-kafka', 'topic' = 'a', 'format' = 'json', 'key.fields' = 'n'", "an upserted table has its own key"),
        (PAID, "'connector' = 'kafak'", "tables are Delta tables in the lake; legal: delta, kafka, upsert-kafka; did you mean 'kafka'?"),
        (
            SOLD,
            "'connector' = 'upsert-kafka', 'topic' = 'a', 'format' = 'json', 'value.avro-confluent.ulr' = 'x'",
            "mean 'value.avro-confluent.url'?",
        ),
        (SOLD, "'tidemark.ttl' = 'soon'", "the options tidemark.ttl of table 't': `ttl` is 'soon'"),
        (BEST, "'tidemark.early' = 'every step'", "insert the windows into a table"),
        (PAID, "'connector' = 'kafka', 'topic' = 'a', 'format' = 'csv'", "legal: json, avro-confluent"),
        (PAID, "'connector' = 'kafka', 'topic' = 'a', 'format' = 'json', 'properties.ssl.key.password' = 'x'", "it may be a secret"),
    ],
)
def test_an_option_that_the_table_cannot_have_is_refused(query: str, options: str, message: str):
    with pytest.raises(OperatorError, match=re.escape(message)):
        read_sql(text(query, options))


def test_a_table_of_kafka_is_a_sink_of_the_connections():
    formats = "'key.format' = 'json', 'value.format' = 'json'"
    options = f"'connector' = 'upsert-kafka', 'topic' = 'sold', {formats}, 'properties.bootstrap.servers' = 'k:9'"
    upserted = text(SOLD, options, ", PRIMARY KEY (seller) NOT ENFORCED")
    appended = f"""CREATE TABLE paid (id STRING, price INT) WITH ('connector' = 'kafka', 'topic' = 'paid', 'format' = 'avro-confluent',
        'avro-confluent.url' = 'http://r', 'key.fields' = 'id', 'properties.bootstrap.servers' = 'k:9'); INSERT INTO paid {PAID}"""
    script = plan(f"{upserted}; {appended}")
    assert kafka_part(sources_of(script), targets_of(script)) == {
        "kafka": {
            "options": {"kafka.bootstrap.servers": "k:9"},
            "sinks": {
                "t": {"topic": "sold"},
                "paid": {"topic": "paid", "format": "avro", "registry": {"url": "http://r"}, "key": ["id"]},
            },
        }
    }
    assert [table.name for table in read_sql(f"{upserted}; {appended}").tables] == ["t", "paid"]


def test_the_watermark_of_a_source_can_be_aligned_and_computed():
    options = (
        "'scan.watermark.alignment.group' = 'shop', 'scan.watermark.alignment.max-drift' = '1 min', 'scan.watermark.idle-timeout' = '1 min'"
    )
    generated = "'tidemark.watermark' = 'max(event_time) - INTERVAL 1 MINUTE'"
    declared = SOURCES.replace("'json')", f"'json', {options}, {generated})", 1)
    orders, payments = read_sql(f"{declared} INSERT INTO t {PAID}").sources
    assert orders.alignment == Alignment("shop", "1 min")
    assert orders.watermark == BatchExpression("max(event_time) - INTERVAL 1 MINUTE")
    assert payments.alignment is None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("'scan.watermark.alignment.group' = 'shop'", "with scan.watermark.alignment.max-drift, or neither"),
        ("'scan.watermark.alignment.update-interval' = '1 s'", "sources are compared at each ingest"),
        ("'scan.watermark.emit.strategy' = 'on-event'", "the watermark is raised with each batch"),
    ],
)
def test_an_option_of_the_watermark_without_a_counterpart_is_refused(option: str, message: str):
    declared = SOURCES.replace("'json')", f"'json', {option})", 1)
    with pytest.raises(OperatorError, match=re.escape(message)):
        read_sql(f"{declared} INSERT INTO t {PAID}")


@pytest.mark.parametrize(
    ("query", "wrong", "own", "way_out"),
    [
        (SOLD, "n", "seller", "write PRIMARY KEY (seller) NOT ENFORCED, or leave it out"),
        (FIRST, "id", "seller", "write PRIMARY KEY (seller) NOT ENFORCED, or leave it out"),
        (RANKED, "id", "seller, place", "write PRIMARY KEY (seller, place) NOT ENFORCED, or leave it out"),
        (TOP, "id", "seq, arrival", "leave it out"),
    ],
    ids=["aggregate", "first rows", "ranks", "without ranks"],
)
def test_the_primary_key_of_a_topic_is_that_of_the_table(query: str, wrong: str, own: str, way_out: str):
    options = "'connector' = 'upsert-kafka', 'topic' = 'sold', 'format' = 'json'"
    with pytest.raises(OperatorError, match=re.escape(f"the key of its records is ({own}); {way_out}")):
        read_sql(text(query, options, f", PRIMARY KEY ({wrong}) NOT ENFORCED"))
    if query != TOP:
        read_sql(text(query, options, f", PRIMARY KEY ({own}) NOT ENFORCED"))


@pytest.mark.parametrize("key", ["a", "b"])
def test_a_primary_key_can_have_any_name_of_a_column_that_is_selected_twice(key: str):
    declared = f"CREATE TABLE t (a STRING, b STRING, n BIGINT, PRIMARY KEY ({key}) NOT ENFORCED)"
    query = "SELECT seller AS a, seller AS b, COUNT(*) AS n FROM orders GROUP BY seller"
    options = "'connector' = 'upsert-kafka', 'topic' = 'sold', 'format' = 'json'"
    [table] = read_sql(f"{SOURCES} {declared} WITH ({options}); INSERT INTO t {query}").tables
    assert table.operator.emits.key == ("a",)


def test_the_fields_of_a_key_have_the_names_of_the_columns():
    script = plan(text(PAID, "'connector' = 'kafka', 'topic' = 'a', 'format' = 'json', 'key.fields' = 'ID'"))
    assert kafka_part(sources_of(script), targets_of(script))["kafka"]["sinks"] == {"t": {"topic": "a", "key": ["id"]}}


@pytest.mark.parametrize("query", [PAID, FIRST_OF_HOUR], ids=["join", "first rows of windows"])
def test_the_primary_key_of_appended_rows_is_that_of_their_records(query: str):
    script = plan(text(query, "'connector' = 'kafka', 'topic' = 'a', 'format' = 'json'", ", PRIMARY KEY (id) NOT ENFORCED"))
    assert not operator_of(pipeline_of(script)).emits.upserts
    assert kafka_part(sources_of(script), targets_of(script))["kafka"]["sinks"] == {"t": {"topic": "a", "key": ["id"]}}


def test_windows_and_joins_read_no_table_that_adds_several_results_of_a_window():
    """The time of each result is that of its firing, not that of its window."""
    purging = text(WINDOWS, "'tidemark.purging' = 'every 2 rows'").replace("seller, window_start, C", "seller, window_start, window_end, C")
    purging = purging.replace("window_start TIMESTAMP(3), n", "window_start TIMESTAMP(3), window_end TIMESTAMP(3), n")
    by_window = "INSERT INTO u SELECT window_start, SUM(n) AS n FROM t GROUP BY window_start, window_end"
    with pytest.raises(OperatorError, match="'t' adds several results of a window"):
        read_sql(f"{purging}; {by_window}")
