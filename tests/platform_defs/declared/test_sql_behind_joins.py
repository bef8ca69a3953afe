"""SQL pipelines in which an operator reads the result of another one: which column of that result is the event time."""

import re

import pytest

from assets.contracts import Preparation, Shape
from assets.pipeline import Pipeline
from operators import AsOfJoin, Deduplicate, IntervalJoin, SqlError, TopK, TopN, Tumbling, WindowedAggregate
from platform_defs.declared.sql_pipeline import read_sql

SOURCES = """
CREATE TABLE orders (id STRING, seller STRING, price INT, ordered_at TIMESTAMP(3), WATERMARK FOR ordered_at AS ordered_at)
  WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE TABLE payments (order_id STRING, amount INT, paid_at TIMESTAMP(3), WATERMARK FOR paid_at AS paid_at)
  WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE TABLE prices (id STRING, list_price INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from)
  WITH ('connector' = 'filesystem', 'format' = 'json');
"""
PAID = """
CREATE VIEW paid AS SELECT o.id, seller, amount, ordered_at, paid_at FROM orders o JOIN payments p
ON o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR
"""
PER_HOUR = """
INSERT INTO per_hour SELECT seller, window_start, window_end, SUM(amount) AS amount
FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '1' HOUR)) GROUP BY seller, window_start, window_end
"""
SUM_PER_HOUR = WindowedAggregate(by=("seller",), window=Tumbling(size="1 hour"), aggregates={"amount": "SUM(amount)"})


def pipeline(*statements: str) -> Pipeline:
    return read_sql(SOURCES + ";".join(statements))


def paid(how: str = "JOIN", bounds: str = "o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR", extra_columns: str = "") -> str:
    return f"""
        CREATE VIEW paid AS SELECT o.id, seller, amount, ordered_at, paid_at{extra_columns} FROM orders o {how} payments p
        ON o.id = p.order_id AND p.paid_at BETWEEN {bounds}
    """


def test_windows_of_pairs_are_by_the_later_time():
    pairs, per_hour = pipeline(PAID, PER_HOUR.format("paid", "paid_at")).tables
    assert (pairs.name, per_hour.inputs) == ("paid", ("paid",))
    assert isinstance(pairs.operator, IntervalJoin)
    assert per_hour.operator == SUM_PER_HOUR


BEFORE = "o.ordered_at - INTERVAL '1' HOUR AND o.ordered_at"
AROUND = "o.ordered_at - INTERVAL '1' HOUR AND o.ordered_at + INTERVAL '1' HOUR"


@pytest.mark.parametrize(
    ("how", "bounds", "time"),
    [
        ("JOIN", BEFORE, "ordered_at"),
        ("LEFT JOIN", BEFORE, "ordered_at"),
        ("RIGHT JOIN", "o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR", "paid_at"),
    ],
)
def test_windows_of_a_join_are_by_the_time_that_is_never_the_earlier_one(how: str, bounds: str, time: str):
    assert pipeline(paid(how, bounds), PER_HOUR.format("paid", time)).tables[1].operator == SUM_PER_HOUR


def test_windows_of_pairs_may_be_by_the_greater_of_both_times():
    view = paid("JOIN", AROUND, ", GREATEST(p.paid_at, o.ordered_at) AS `at`")
    _, per_hour = pipeline(view, PER_HOUR.format("paid", "`at`")).tables
    assert per_hour.operator == SUM_PER_HOUR
    assert per_hour.prepare == {"paid": Preparation(select="*, GREATEST(paid_at, ordered_at) AS at")}


@pytest.mark.parametrize(
    ("how", "bounds", "time", "way_out"),
    [
        ("FULL JOIN", AROUND, "ordered_at", "use an inner join, and ordered_at or paid_at"),
        ("LEFT JOIN", AROUND, "paid_at", "use ordered_at"),
        ("RIGHT JOIN", "o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR", "ordered_at", "use paid_at"),
    ],
)
def test_another_time_of_a_join_is_refused(how: str, bounds: str, time: str, way_out: str):
    why = f"the event time of a join's result is the later one of its rows' times, and {time} is not always that"
    with pytest.raises(SqlError, match=f"^{re.escape(f'{time} as the event time of per_hour is refused: {why}; {way_out}')}$"):
        pipeline(paid(how, bounds), PER_HOUR.format("paid", time))


@pytest.mark.parametrize(
    ("how", "bounds", "time", "result_time"),
    [
        ("JOIN", BEFORE, "ordered_at", "later"),
        ("JOIN", BEFORE, "paid_at", "right"),
        ("JOIN", AROUND, "paid_at", "right"),
        ("LEFT JOIN", AROUND, "ordered_at", "left"),
    ],
)
def test_a_join_has_the_time_that_its_reader_uses(how: str, bounds: str, time: str, result_time: str):
    join, per_hour = pipeline(paid(how, bounds), PER_HOUR.format("paid", time)).tables
    assert (join.operator.result_time, per_hour.operator) == (result_time, SUM_PER_HOUR)


def test_a_join_of_three_tables_may_be_by_the_times_of_the_first():
    pairs, wide = pipeline("""
        INSERT INTO wide SELECT o.id, amount, list_price FROM orders o
        LEFT JOIN payments p ON o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR
        LEFT JOIN prices v ON o.id = v.id AND v.valid_from BETWEEN o.ordered_at - INTERVAL '1' DAY AND o.ordered_at
    """).tables
    assert (pairs.operator.result_time, wide.operator.result_time) == ("left", "later")
    assert wide.inputs == (pairs.name, "prices")


def test_a_table_has_one_time_for_all_of_its_readers():
    declared = "CREATE TABLE paid (id STRING, seller STRING, amount INT, ordered_at TIMESTAMP(3), paid_at TIMESTAMP(3)) WITH ({})"
    insert = PAID.replace("CREATE VIEW paid AS", "INSERT INTO paid")
    by_left, by_right = PER_HOUR.format("paid", "ordered_at"), PER_HOUR.format("paid", "paid_at").replace("per_hour", "other")
    tables = pipeline(declared.format("'tidemark.result-time' = 'left'"), insert, by_left).tables
    assert tables[0].operator.result_time == "left"
    for statements in (
        [PAID, by_left, by_right],
        [insert, by_left],
        [declared.format("'tidemark.result-time' = 'left'"), insert, by_right],
    ):
        with pytest.raises(SqlError, match=r"declare the join's table with 'tidemark.result-time' = '\w+' in WITH"):
            pipeline(*statements)


def test_a_join_has_one_event_time_for_its_readers_and_for_their_readers():
    """Rows that a Top-N or a deduplication keeps have the event time of the join. GREATEST of both times works only as the later time."""
    declared = """CREATE TABLE paid (id STRING, seller STRING, amount INT, ordered_at TIMESTAMP(3), paid_at TIMESTAMP(3))
        WITH ('tidemark.result-time' = 'left')"""
    insert = PAID.replace("CREATE VIEW paid AS", "INSERT INTO paid")
    first = "CREATE VIEW best AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY {}) AS n FROM paid) WHERE n <= {}"
    for join, order, last in (([declared, insert], "amount", 2), ([PAID], "ordered_at", 1)):
        tables = pipeline(*join, first.format(order, last), PER_HOUR.format("best", "ordered_at")).tables
        assert tables[0].operator.result_time == "left"
        with pytest.raises(SqlError, match="paid_at as the event time of x"):
            pipeline(
                *join,
                first.format(order, last),
                PER_HOUR.format("best", "ordered_at"),
                PER_HOUR.format("best", "paid_at").replace("per_hour", "x"),
            )
    view = paid("JOIN", AROUND, ", GREATEST(p.paid_at, o.ordered_at) AS `at`")
    with pytest.raises(SqlError, match="at as the event time of other"):
        pipeline(view, PER_HOUR.format("paid", "ordered_at"), PER_HOUR.format("paid", "`at`").replace("per_hour", "other"))


def test_semi_and_anti_joins_keep_the_time_of_the_left_row():
    paid_orders = """
        CREATE VIEW paid_orders AS SELECT id, seller, price AS amount, ordered_at FROM orders o
        WHERE {} (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.paid_at BETWEEN {})
    """
    _, per_hour = pipeline(paid_orders.format("EXISTS", BEFORE), PER_HOUR.format("paid_orders", "ordered_at")).tables
    assert per_hour.operator == SUM_PER_HOUR
    later = "o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR"
    unpaid, _ = pipeline(paid_orders.format("NOT EXISTS", later), PER_HOUR.format("paid_orders", "ordered_at")).tables
    assert (unpaid.operator.how, unpaid.operator.result_time) == ("anti", "left")


def test_joins_of_joins_windows_of_versions_and_first_rows_of_joins():
    view = """
        CREATE VIEW priced AS SELECT p.id, seller, list_price AS amount, paid_at
        FROM paid p JOIN prices FOR SYSTEM_TIME AS OF p.paid_at AS v ON p.id = v.id
    """
    first = """
        INSERT INTO firsts SELECT id, seller, amount, paid_at FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY paid_at) AS n FROM paid) WHERE n = 1
    """
    pairs, priced, per_hour, firsts = pipeline(PAID, view, PER_HOUR.format("priced", "paid_at"), first).tables
    assert isinstance(priced.operator, AsOfJoin)
    assert (pairs.name, priced.inputs, per_hour.inputs) == ("paid", ("paid", "prices"), ("priced",))
    assert per_hour.operator == SUM_PER_HOUR
    assert isinstance(firsts.operator, Deduplicate)
    twice = """
        INSERT INTO twice SELECT p.id, p.amount, q.amount AS other FROM paid p JOIN payments q
        ON p.id = q.order_id AND q.paid_at BETWEEN p.paid_at - INTERVAL '1' HOUR AND p.paid_at
    """
    assert isinstance(pipeline(PAID, twice).tables[1].operator, IntervalJoin)


def test_results_of_windows_are_aggregated_by_their_own_windows():
    tables = pipeline("""
        INSERT INTO totals SELECT window_start, window_end, SUM(n) AS n FROM (
          SELECT seller, window_start, window_end, COUNT(*) AS n
          FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)) GROUP BY seller, window_start, window_end)
        GROUP BY window_start, window_end
    """).tables
    assert [(t.name, t.inputs) for t in tables] == [("totals_rows", ("orders",)), ("totals", ("totals_rows",))]
    assert tables[1].operator == WindowedAggregate(window=Tumbling(size="1 hour"), aggregates={"n": "SUM(n)"})


def test_windows_of_a_leaderboard_with_renamed_columns_are_by_its_event_time():
    view = """
        CREATE VIEW top AS SELECT id, seller, price AS amount, ordered_at, r FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY price DESC) AS r FROM orders) WHERE r <= 3
    """
    top, per_hour = pipeline(view, PER_HOUR.format("top", "ordered_at")).tables
    assert isinstance(top.operator, TopN)
    assert per_hour.operator == SUM_PER_HOUR
    [prepared] = per_hour.prepare.values()
    assert prepared == Preparation(select="id, seller, price AS amount, ordered_at, rank AS r")


def test_a_computed_event_time_can_be_aggregated():
    text = """
        CREATE TABLE clicks (k STRING, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
          WITH ('connector' = 'filesystem', 'format' = 'json');
        INSERT INTO newest SELECT k, MAX(ts) AS newest FROM clicks GROUP BY k
    """
    [newest] = read_sql(text).tables
    assert newest.prepare == {"clicks": Preparation(select="*, event_time AS ts")}


COMPUTED = """
CREATE TABLE clicks (k STRING, v INT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE VIEW top AS SELECT k, v, ts, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM clicks) WHERE n <= 3;
"""


def test_a_computed_event_time_of_kept_rows_is_read_as_their_event_time():
    sums = """
        INSERT INTO sums SELECT k, window_start, window_end, SUM(v) AS v, MAX(ts) AS newest
        FROM TUMBLE(TABLE top, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end
    """
    top, table = read_sql(COMPUTED + sums).tables
    assert top.prepare == {}, "the identity of a table does not depend on what reads it"
    assert table.prepare == {"top": Preparation(select="k, v, event_time AS ts, rank AS n")}
    firsts = """
        INSERT INTO last SELECT k, v, ms FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM clicks) WHERE n = 1;
        INSERT INTO newest SELECT COUNT(*) AS n, MAX(ts) AS newest, k FROM last GROUP BY k
    """
    with pytest.raises(SqlError, match="there is no column 'ts'"):
        read_sql(COMPUTED + firsts)
    last, newest = read_sql(COMPUTED + firsts.replace("k, v, ms FROM", "k, v, ms, ts FROM")).tables
    assert (last.prepare, newest.prepare) == ({"clicks": Preparation(select="*, event_time AS ts")}, {})


RANKED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) AS n FROM {}"
WITH_TIME = {"clicks": Preparation(select="*, event_time AS ts")}
WINDOWS = "TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)"


@pytest.mark.parametrize(
    ("ranked", "kind"),
    [
        (RANKED.format("k", "v", "clicks"), TopN),
        (RANKED.format("k", "ts", "clicks"), Deduplicate),
        (RANKED.format("window_start, window_end, k", "v", WINDOWS), TopK),
        (RANKED.format("window_start, window_end, k", "ts", WINDOWS), Deduplicate),
    ],
)
def test_a_table_of_kept_rows_has_a_computed_event_time_under_the_names_of_its_query(ranked: str, kind: type):
    by_name, renamed = read_sql(f"""{COMPUTED}
        INSERT INTO by_name SELECT k, v, ts FROM ({ranked}) WHERE n = 1;
        INSERT INTO renamed SELECT k, ts AS at_time FROM ({ranked}) WHERE n = 1 AND ts > TIMESTAMP '2026-01-01 00:00:00';
    """).tables
    assert isinstance(by_name.operator, kind)
    assert by_name.prepare == renamed.prepare == WITH_TIME
    assert isinstance(renamed.shape, Shape)
    assert by_name.shape is None
    assert "ts AS at_time" in renamed.shape.select


@pytest.mark.parametrize(("order", "kind"), [("v", TopK), ("ts", Deduplicate)])
def test_a_computed_event_time_of_rows_that_windows_keep_is_a_column_of_a_view_or_inner_query_that_selects_it(order: str, kind: type):
    """The event time of rows that windows keep is the time of their window, so the computed event time is a column of its own."""
    ranked = f"SELECT {{}} FROM ({RANKED.format('window_start, window_end, k', order, WINDOWS)}) WHERE n = 1"
    for columns, read, prepare in (
        ("*", "MAX(ts)", WITH_TIME),
        ("k, ts", "MAX(ts)", WITH_TIME),
        ("k, v, ts AS at_time", "MAX(at_time)", WITH_TIME),
        ("k, ts", "COUNT(*)", WITH_TIME),
        ("k, v", "MAX(v)", {}),
    ):
        query, insert = ranked.format(columns), f"INSERT INTO newest SELECT k, {read} AS newest FROM {{}} GROUP BY k"
        for text in (f"CREATE VIEW kept AS {query}; {insert.format('kept')}", insert.format(f"({query})")):
            kept, _ = read_sql(COMPUTED + text).tables
            assert isinstance(kept.operator, kind)
            assert kept.prepare == prepare, text


def test_a_join_of_all_columns_has_the_computed_event_times_of_its_inputs():
    text = (
        COMPUTED
        + """
        CREATE TABLE views (k2 STRING, ms2 BIGINT, ts2 AS TO_TIMESTAMP_LTZ(ms2, 3), WATERMARK FOR ts2 AS ts2)
          WITH ('connector' = 'filesystem', 'format' = 'json');
        CREATE VIEW seen AS SELECT * FROM clicks c JOIN views v ON c.k = v.k2 AND v.ts2 BETWEEN c.ts AND c.ts + INTERVAL '1' HOUR;
        INSERT INTO newest SELECT k, MAX(ts) AS newest, MAX(ts2) AS seen FROM {} GROUP BY k
    """
    )
    for seen in ("seen", "(SELECT * FROM clicks c JOIN views v ON c.k = v.k2 AND v.ts2 BETWEEN c.ts AND c.ts + INTERVAL '1' HOUR)"):
        join, _ = read_sql(text.format(seen)).tables
        assert join.prepare == WITH_TIME | {"views": Preparation(select="k2 AS k, ms2, event_time AS ts2")}


def test_a_computed_event_time_by_which_rows_are_ranked_is_a_column_of_the_ranking():
    text = f"""{COMPUTED.replace("ORDER BY v", "ORDER BY v, ts")}
        INSERT INTO newest SELECT k, MAX(ts) AS newest FROM top GROUP BY k"""
    top, newest = read_sql(text).tables
    assert (top.prepare, newest.prepare) == (
        {"clicks": Preparation(select="*, event_time AS ts")},
        {"top": Preparation(select="k, v, ts, rank AS n")},
    )


def test_an_extra_condition_may_read_the_times_of_both_sides():
    [late] = pipeline("""
        INSERT INTO late SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id
        AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '1' HOUR AND TIMESTAMPDIFF(MINUTE, ordered_at, paid_at) > amount
    """).tables
    assert isinstance(late.operator, IntervalJoin)
    assert late.operator.residual == "TIMESTAMPDIFF(MINUTE, ordered_at, paid_at) > amount"
    assert late.prepare["orders"].select == "id, ordered_at"
    assert late.prepare["payments"].select == "order_id AS id, amount, paid_at"


def test_of_two_equal_times_either_is_the_event_time():
    at_once = "o.ordered_at AND o.ordered_at"
    for time in ("ordered_at", "paid_at"):
        assert pipeline(paid("JOIN", at_once), PER_HOUR.format("paid", time)).tables[1].operator == SUM_PER_HOUR


def test_windows_and_joins_by_processing_time():
    text = """
        CREATE TABLE clicks (k STRING, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'format' = 'json');
        CREATE TABLE views (k STRING, q AS PROCTIME()) WITH ('connector' = 'filesystem', 'format' = 'json');
        CREATE VIEW seen AS SELECT k, p FROM clicks WHERE k <> 'x';
        INSERT INTO per_hour SELECT k, window_start, window_end, COUNT(*) AS n
          FROM TUMBLE(TABLE seen, DESCRIPTOR(p), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end;
        INSERT INTO both_seen SELECT c.k FROM clicks c JOIN views v ON c.k = v.k AND v.q BETWEEN c.p - INTERVAL '1' HOUR AND c.p;
        INSERT INTO newest SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) AS n FROM clicks) WHERE n = 1;
    """
    per_hour, both_seen, newest = read_sql(text).tables
    assert per_hour.operator == WindowedAggregate(by=("k",), window=Tumbling(size="1 hour"), aggregates={"n": "COUNT(*)"})
    assert per_hour.prepare == {"clicks": Preparation(where="k <> 'x'")}
    assert both_seen.operator == IntervalJoin(on=("k",), lower="-1 hour", upper="0 ms")
    assert isinstance(newest.operator, Deduplicate)
