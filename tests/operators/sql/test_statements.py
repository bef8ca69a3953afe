"""Statements one by one: how a text is split, what is declared, how names are found, and what an error says."""

import re
from dataclasses import replace

import pytest

import operators
from operators import Aggregate, AsOfJoin, Deduplicate, IntervalJoin, OperatorError, SqlError, TopK, TopN, WindowedAggregate, WindowJoin
from operators.contract import Operator
from operators.sql.dialect import Flink
from operators.sql.explain import describe_parameters, explain
from operators.sql.plan import Order, plan
from operators.sql.relations import Apply, Input, Item, Relation, Select, applied_operator, walk
from operators.sql.tables import Column, CreateTable
from operators.windows import Tumbling

A = Input("a", ("id", "k", "v", "ts"), ("ts",))
B = Input("b", ("id", "k", "w", "at_time"), ("at_time",))
TABLES: dict[str, Relation] = {"a": A, "b": B}
UNION_OF_THREE = (
    "MAP_ZIP_WITH(MAP_ZIP_WITH(k, TRANSFORM_VALUES(v, (k, v) -> ARRAY(v)), (k, v, w) -> IF(ISNULL(w), v, GET(w, 0))), "
    "TRANSFORM_VALUES(k, (k, v) -> ARRAY(v)), (k, v, w) -> IF(ISNULL(w), v, GET(w, 0)))"
)
WITHIN = "a.k = b.k AND at_time BETWEEN ts AND ts + INTERVAL '1' HOUR"


def relation(text: str) -> Relation:
    return plan(text, TABLES).plans[-1].relation


def declared(text: str) -> CreateTable:
    [table] = plan(text).declared.values()
    return table


@pytest.mark.parametrize(
    ("expression", "sql", "name"),
    [
        ("r.x", "(r).x", "x"),
        ("t.r.x", "(r).x", "x"),
        ("T.R.y.`c-d`", "(r).y.`c-d`", "c-d"),
        ("r.y.z AS q", "(r).y.z", "q"),
        ("arr[1].x AS q", "TRY_ELEMENT_AT(arr, 1).x", "q"),
    ],
)
def test_a_field_of_a_row_is_a_column(expression: str, sql: str, name: str):
    rows = Input("t", ("id", "r", "arr"))
    for text in (f"SELECT {expression} FROM t", f"SELECT {expression} FROM (SELECT * FROM t) AS t"):
        assert plan(text, {"t": rows}).plans[0].relation == Select(rows, (Item(name, sql),))
    of_computed = plan("SELECT r.x, c.x AS y FROM (SELECT r, COALESCE(r, r) AS c FROM t)", {"t": rows}).plans[0].relation
    assert of_computed == Select(rows, (Item("x", "(r).x"), Item("y", "(COALESCE(r, r)).x")))


def test_a_join_reads_the_rows_whose_fields_it_needs():
    tables = {"a": Input("a", ("id", "r", "ts"), ("ts",)), "b": B}
    text = "SELECT a.r.x, b.w FROM a JOIN b ON a.r.k = b.k AND at_time BETWEEN ts AND ts + INTERVAL '1' HOUR"
    found = plan(text, tables).plans[0].relation
    assert isinstance(found, Select)
    assert found.items == (Item("x", "(r).x"), Item.of_column("w"))
    apply = applied_operator(found)
    assert apply is not None
    assert [i.sql for i in apply.inputs[0].items] == ["(r).k", "r", "ts"]  # pyright: ignore[reportAttributeAccessIssue]


def test_an_alias_of_a_join_has_any_case():
    lower, upper = (relation(f"SELECT {x}.v, w FROM a AS x JOIN b AS y ON {x}.k = {y}.k AND {y}.at_time = {x}.ts") for x, y in ("xy", "XY"))
    assert lower == upper


def test_semicolons_and_comments_separate_statements():
    script = plan("-- first;\nSELECT id FROM a; /* ; */ SELECT k AS `x;y` FROM a WHERE k = ';' ;;", TABLES)
    assert [one.relation.columns for one in script.plans] == [("id",), ("x;y",)]
    assert script.plans[1].relation.where == "k = ';'"  # pyright: ignore[reportAttributeAccessIssue]


def test_comments_are_not_nested():
    script = plan("SELECT id FROM a;\n/* one\n/* two */ \nSELECT k FROM a", TABLES)
    assert [one.relation.columns for one in script.plans] == [("id",), ("k",)]


def test_a_table_is_read_part_by_part():
    table = declared("""
        CREATE TEMPORARY TABLE IF NOT EXISTS cat.db.t (
          `my id` BIGINT NOT NULL COMMENT 'a, b (c)', m MAP<STRING, ARRAY<INT>>, r ROW<x INT, y TIMESTAMP(3)> NULL, d DECIMAL(10, 2),
          c AS d * 2 COMMENT 'twice', p AS PROCTIME(), o BIGINT METADATA FROM 'offset' VIRTUAL, ts TIMESTAMP_LTZ(3),
          CONSTRAINT pk PRIMARY KEY (`my id`, d) NOT ENFORCED, WATERMARK FOR ts AS ts - INTERVAL '1:30' MINUTE TO SECOND
        ) COMMENT 'what it is' WITH ('connector' = 'x', 'a.b' = 'c=d')
    """)
    assert table.columns == (
        Column("my id", "BIGINT", True, "a, b (c)"),
        Column("m", "MAP<STRING, ARRAY<INT>>"),
        Column("r", "STRUCT<x: INT, y: TIMESTAMP>"),
        Column("d", "DECIMAL(10, 2)"),
        Column("c", comment="twice", expression="d * 2"),
        Column("o", "BIGINT", metadata="offset"),
        Column("ts", "TIMESTAMP"),
    )
    assert (table.name, table.time, table.delay, table.key, table.arrivals) == ("t", "ts", 90_000, ("my id", "d"), ("p",))
    assert (table.options, table.comment) == ({"connector": "x", "a.b": "c=d"}, "what it is")


def test_columns_and_tables_are_found_in_any_case():
    assert relation("SELECT ID AS x FROM A WHERE K = 'q'") == Select(A, (Item("x", "id", "id"),), "k = 'q'")


@pytest.mark.parametrize("name", ["minus", "IF", "refresh", "declare", "connect_by_root", "zone"])
def test_a_column_can_have_the_name_of_a_keyword_of_spark(name: str):
    rows = Input("t", (name, "v"))
    found = plan(f"SELECT `{name}` || 'x' AS y FROM (SELECT `{name}` FROM t WHERE `{name}` > 'a')", {"t": rows}).plans[0].relation
    assert isinstance(found, Select)
    assert (found.where or "").replace("`", "") == f"{name} > 'a'"
    assert [item.sql.replace("`", "") for item in found.items] == [f"{name} || 'x'"]


def test_selections_of_selections_are_one():
    nested = "SELECT y + 1 AS z FROM (SELECT x * 2 AS y, k FROM (SELECT v AS x, k FROM a WHERE v > 1) WHERE k <> 'q') WHERE y < 9"
    assert relation(nested) == Select(A, (Item("z", "(v * 2) + 1"),), "((v > 1) AND (k <> 'q')) AND ((v * 2) < 9)")


@pytest.mark.parametrize(
    ("value", "condition", "where"),
    [
        ("v > 3 OR id > 2", "NOT hot", "NOT (v > 3 OR id > 2)"),
        ("v > 3 OR id > 2", "hot AND k = 'x'", "((v > 3 OR id > 2)) AND (k = 'x')"),
        ("v > 3 AND id > 2", "hot IS NULL", "(v > 3 AND id > 2) IS NULL"),
        ("v > 3 AND id > 2", "hot = (k = 'x')", "(v > 3 AND id > 2) = (k = 'x')"),
        ("REGEXP_LIKE(k, 'x')", "hot IS NOT NULL", "NOT (k RLIKE 'x') IS NULL"),
        ("UPPER(k)", "hot = 'X'", "UPPER(k) = 'X'"),
    ],
)
def test_a_column_of_an_inner_query_keeps_its_brackets(value: str, condition: str, where: str):
    assert relation(f"SELECT id FROM (SELECT id, k, {value} AS hot FROM a) WHERE {condition}") == Select(
        A, (Item("id", "id", "id"),), where
    )


def test_views_and_with_have_names_and_columns():
    text = "CREATE VIEW w (one, two) AS SELECT id, v FROM a; WITH c AS (SELECT two FROM w WHERE one > 1) SELECT two AS x FROM c"
    assert relation(text) == Select(A, (Item("x", "v", "v"),), "id > 1")


def test_comments_of_a_view_have_no_effect():
    columns = "(one COMMENT 'the id, (first)', comment, `)` COMMENT 'x')"
    text = f"CREATE VIEW w {columns} COMMENT 'SELECT' AS SELECT id, v, k FROM a; SELECT one, comment AS c, `)` AS b FROM w"
    assert relation(text) == relation("SELECT id AS one, v AS c, k AS b FROM a")


@pytest.mark.parametrize(
    "text",
    [
        "WITH c (v, id) AS (SELECT id, v FROM a) SELECT v, id FROM c",
        "SELECT v, id FROM (SELECT id, v FROM a) AS c (v, id)",
        "SELECT v, id FROM a AS c (v, k, id, ts)",
    ],
)
def test_a_column_list_of_a_table_renames_its_columns(text: str):
    assert relation(text) == Select(A, (Item("v", "id", "id"), Item("id", "v", "v")))


def test_a_column_list_of_a_joined_table_renames_its_columns():
    joined = "SELECT v, z FROM a JOIN (SELECT k, w, at_time FROM b) c (x, y, z) ON a.k = x AND z BETWEEN ts AND ts + INTERVAL '1' HOUR"
    assert relation(joined) == relation("SELECT v, at_time AS z FROM a JOIN b ON " + WITHIN)


def test_a_column_without_a_name_has_that_of_flink():
    assert relation("SELECT id, v + 1, UPPER(k) FROM a").columns == ("id", "EXPR$1", "EXPR$2")


def test_columns_of_one_name_are_numbered_as_in_flink():
    assert relation(f"SELECT a.id, b.id, v FROM a JOIN b ON {WITHIN}").columns == ("id", "id0", "v")
    assert relation(f"SELECT * FROM a JOIN b ON {WITHIN}").columns == ("id", "k", "v", "ts", "id0", "k0", "w", "at_time")
    assert relation("SELECT id, id FROM a").columns == ("id", "id0")


@pytest.mark.parametrize(
    ("plain", "bracketed"),
    [
        (f"EXISTS (SELECT 1 FROM b WHERE {WITHIN})", f"(EXISTS (SELECT 1 FROM b WHERE {WITHIN}))"),
        (f"NOT EXISTS (SELECT 1 FROM b WHERE {WITHIN})", f"((NOT (EXISTS (SELECT 1 FROM b WHERE {WITHIN}))))"),
        (f"v > 1 AND EXISTS (SELECT 1 FROM b WHERE {WITHIN})", f"((v > 1 AND (EXISTS (SELECT 1 FROM b WHERE (({WITHIN}))))))"),
        (f"a.k IN (SELECT b.k FROM b WHERE {WITHIN})", f"(a.k IN (SELECT (k) FROM b WHERE {WITHIN}))"),
        (f"a.k IN (SELECT UPPER(b.k) FROM b WHERE {WITHIN})", f"k IN (SELECT UPPER(k) FROM b WHERE {WITHIN})"),
    ],
)
def test_brackets_and_names_without_their_table_do_not_change_a_semi_join(plain: str, bracketed: str):
    assert relation(f"SELECT id FROM a WHERE {bracketed}") == relation(f"SELECT id FROM a WHERE {plain}")


def test_using_is_an_equality():
    found = applied_operator(relation("SELECT v, w FROM a JOIN b USING (k) WHERE at_time BETWEEN ts AND ts + INTERVAL '1' HOUR"))
    assert found is not None
    assert found.operator == IntervalJoin(on=("k",), lower="0 ms", upper="1 hour", left_time="ts", right_time="at_time")


@pytest.mark.parametrize(("column", "name"), [("left_exists", "left_exists"), ("Left_Exists", "Left_Exists"), ("v", "left_exists")])
def test_a_column_beside_the_bounds_of_an_outer_window_join_may_have_any_name(column: str, name: str):
    """The join adds a column to each side, by which the bounds of a window are null in a result without a row of that side."""
    tables = {"a": Input("a", ("k", column, "ts"), ("ts",)), "b": B}
    windows = [f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '1' HOUR))" for table, time in (("a", "ts"), ("b", "at_time"))]
    on = "a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end"
    text = f"SELECT a.{column} AS {name}, a.window_start AS s, b.window_end AS e FROM {windows[0]} AS a FULL JOIN {windows[1]} AS b ON {on}"
    found = plan(text, tables).plans[0].relation
    join = applied_operator(found)
    assert join is not None
    left = [(item.name, item.sql) for item in join.inputs[0].items]  # pyright: ignore[reportAttributeAccessIssue]
    assert left == [("k", "k"), (name, column), ("left_exists0", "TRUE"), ("ts", "ts")]
    assert found.items == (  # pyright: ignore[reportAttributeAccessIssue]
        Item.of_column(name),
        Item("s", "CASE WHEN left_exists0 THEN window_start END"),
        Item("e", "CASE WHEN right_exists THEN window_end END"),
    )


def test_the_narrower_of_two_bounds_counts():
    found = applied_operator(relation(f"SELECT v FROM a JOIN b ON {WITHIN} AND at_time < ts + INTERVAL '30' MINUTE AND at_time >= ts"))
    assert found is not None
    assert found.operator == IntervalJoin(
        on=("k",), lower="0 ms", upper="30 minutes", upper_exclusive=True, left_time="ts", right_time="at_time"
    )


def test_a_condition_of_one_side_filters_it_only_where_no_unmatched_row_is_lost():
    inner, left = (applied_operator(relation(f"SELECT v FROM a {how} JOIN b ON {WITHIN} AND v > 1 AND w > 2")) for how in ("INNER", "LEFT"))
    assert inner is not None
    assert left is not None
    assert [getattr(one, "where", None) for one in (*inner.inputs, *left.inputs)] == ["v > 1", "w > 2", None, "w > 2"]
    assert (inner.operator.residual, left.operator.residual) == (None, "v > 1")  # pyright: ignore[reportAttributeAccessIssue]


def test_a_third_table_joins_the_result_of_the_first_two():
    tables = {**TABLES, "c": Input("c", ("k", "u", "t3"), ("t3",))}
    text = f"SELECT v, w, u FROM a JOIN b ON {WITHIN} JOIN c ON a.k = c.k AND t3 BETWEEN at_time AND at_time + INTERVAL '1' MINUTE"
    outer = applied_operator(plan(text, tables).plans[0].relation)
    assert outer is not None
    assert isinstance(outer.operator, IntervalJoin)
    assert (outer.operator.left_time, outer.operator.right_time) == ("at_time", "t3")
    inner = applied_operator(outer.inputs[0])
    assert inner is not None
    assert isinstance(inner.operator, IntervalJoin)


@pytest.mark.parametrize("how", ["RIGHT", "FULL", "LEFT"])
def test_where_removes_the_rows_that_a_later_outer_join_adds(how: str):
    """A condition of WHERE filters a table before an inner join only if no later join adds rows without that table."""
    tables = {**TABLES, "c": Input("c", ("k", "u", "t3"), ("t3",))}
    within = "c.k = a.k AND t3 BETWEEN at_time AND at_time + INTERVAL '1' MINUTE"
    rows = plan(f"SELECT v, u FROM a JOIN b ON {WITHIN} {how} JOIN c ON {within} WHERE a.v > 3", tables).plans[0].relation
    conditions = [below.where for below in walk(rows) if isinstance(below, Select) and below.where]
    assert conditions == ["v > 3"]
    assert isinstance(rows, Select)
    assert (rows.where is None) == (how == "LEFT")


def test_the_order_of_arrival_is_declared():
    table = "CREATE TABLE a (id INT, k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)"
    query = "SELECT id, k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) AS n FROM a) WHERE n = 1"
    found = applied_operator(plan(f"{table}; {query}", TABLES).plans[0].relation)
    assert found is not None
    assert found.operator == Deduplicate(by=("k",), keep="last", order="arrival", time="ts")
    assert "p" not in found.columns


def test_a_computed_column_of_a_frame_can_be_its_event_time():
    table = "CREATE TABLE c (k STRING, ms BIGINT, at_time AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR at_time AS at_time)"
    query = "SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE c, DESCRIPTOR(at_time), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end"
    found = applied_operator(plan(f"{table}; {query}", {"c": Input("c", ("k", "ms"), is_declared=False)}).plans[0].relation)
    assert found is not None
    [rows] = found.inputs
    assert isinstance(rows, Select)
    assert rows.items[2] == Item("at_time", "TIMESTAMP_MILLIS(ms)", is_time=True)


def test_the_outermost_order_is_that_of_the_rows():
    text = "SELECT k, v FROM a ORDER BY v DESC, k NULLS LAST LIMIT 5"
    assert plan(text, TABLES).plans[0].order == Order(("`v` DESC NULLS LAST", "`k` ASC NULLS LAST"), 5)


@pytest.mark.parametrize(
    ("query", "by"),
    [
        (f"SELECT b.id AS x, a.id FROM a JOIN b ON {WITHIN} ORDER BY b.id", "x"),
        (f"SELECT * FROM a JOIN b ON {WITHIN} ORDER BY B.id", "id0"),
        (f"SELECT b.*, a.id FROM a JOIN b ON {WITHIN} ORDER BY a.id", "id0"),
        ("SELECT v AS k, k AS v FROM a ORDER BY a.k", "v"),
        ("SELECT v AS k, k AS v FROM a ORDER BY k", "k"),
        ("SELECT COUNT(*) AS n, k AS key FROM a GROUP BY k ORDER BY a.k", "key"),
        ("WITH c AS (SELECT id AS i FROM a) SELECT i AS x FROM c ORDER BY c.i", "x"),
        ("SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) r WHERE n <= 3 ORDER BY r.n", "n"),
    ],
)
def test_a_column_of_order_by_with_its_table_is_the_one_that_is_selected(query: str, by: str):
    assert plan(query, TABLES).plans[0].order == Order((f"`{by}` ASC NULLS FIRST",))


@pytest.mark.parametrize(("clause", "count"), [("FETCH FIRST 3 ROWS ONLY", 3), ("FETCH NEXT ROW ONLY", 1), ("LIMIT 3", 3)])
def test_the_number_of_rows_may_be_that_of_fetch(clause: str, count: int):
    assert plan(f"SELECT k FROM a ORDER BY k {clause}", TABLES).plans[0].order.limit == count


def test_having_without_group_by_is_a_condition_on_the_total():
    rows = relation("SELECT 'x' AS y FROM a HAVING COUNT(*) > 1")
    assert isinstance(rows, Select)
    assert isinstance(rows.child, Apply)
    assert rows.child.operator == Aggregate(by=("all_rows",), aggregates={"value_0": "COUNT(*)"})
    assert rows.where == "`value_0` > 1"


def test_a_symmetric_between_is_a_condition_of_the_join_but_no_bound():
    found = applied_operator(relation(f"SELECT v FROM a JOIN b ON {WITHIN} AND v BETWEEN SYMMETRIC w AND 3"))
    assert found is not None
    assert isinstance(found.operator, IntervalJoin)
    assert found.operator.residual == "(v BETWEEN w AND 3 OR v BETWEEN 3 AND w)"


def test_a_text_with_the_name_of_a_window_column_is_no_window_column():
    rows = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
    inner = f"SELECT *, 'window_time' AS note FROM {rows} WHERE k <> 'window_time'"
    found = applied_operator(
        relation(f"SELECT note, COUNT(*) AS n FROM ({inner}) WHERE k <> 'window_end' GROUP BY note, window_start, window_end")
    )
    assert found is not None
    assert isinstance(found.operator, WindowedAggregate)


def test_explain_names_the_table_that_is_inserted_into():
    query = (
        "SELECT k, window_start, COUNT(*) AS n FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end"
    )
    script = plan(f"EXPLAIN PLAN FOR INSERT INTO t {query}; EXPLAIN {query}", TABLES)
    assert [(one.target, one.is_explained) for one in script.plans] == [("t", True), ("", True)]
    assert script.targets == ()
    named = plan("CREATE TABLE t (x STRING, y BIGINT); EXPLAIN INSERT INTO t SELECT k, COUNT(*) FROM a GROUP BY k", TABLES).plans[0]
    assert named.relation.columns == ("x", "y")  # as for INSERT INTO
    found = script.plans[0].relation
    assert isinstance(found, Select)
    assert isinstance(found.child, Apply)
    count = WindowedAggregate(by=("k",), window=Tumbling(size="1 hour"), aggregates={"n": "COUNT(*)"}, time="ts")
    assert found.child.operator == count
    assert explain(found).splitlines()[0].startswith("WindowedAggregate(by=('k',), window=Tumbling(size='1 hour')")


def test_explain_can_name_details_and_a_view_can_have_a_comment_and_brackets():
    text = "CREATE VIEW w COMMENT 'rows of a' AS (SELECT k FROM a); EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT k FROM w"
    assert plan(text, TABLES).plans[0].relation.columns == ("k",)


def test_the_order_of_an_explained_query_has_no_effect_on_its_plan():
    text = "EXPLAIN SELECT k FROM a ORDER BY k LIMIT 3; SELECT k FROM a ORDER BY k; SELECT k FROM a"
    [explained, query, without_order] = plan(text, TABLES).plans
    assert explained.is_explained
    assert explain(explained.relation) == explain(query.relation) == explain(without_order.relation)
    with pytest.raises(SqlError, match="ORDER BY z is refused"):
        plan("EXPLAIN SELECT k FROM a ORDER BY z", TABLES)


def test_comments_that_begin_with_plus_are_no_hints():
    text = "-- +----+\nSELECT /* + fees */ id, '/*+ x */' AS note FROM a -- + late ones\n"
    assert relation(text).columns == ("id", "note")


def test_a_compiled_parser_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch):
    """The package `sqlglotc` replaces sqlglot's parser by a compiled class, which Python classes cannot extend."""
    message = "interpreted classes cannot inherit from compiled"

    def refuse(**_: object) -> None:
        raise TypeError(message)

    monkeypatch.setattr(Flink, "parser_class", staticmethod(refuse))
    for text in ("SELECT v FROM a", "CREATE TABLE t (v INT)"):
        with pytest.raises(SqlError, match=r"the package `sqlglotc` is installed .* Uninstall it: pip uninstall sqlglotc$"):
            plan(text, TABLES)
    message = "another error"
    with pytest.raises(TypeError, match="another error"):
        plan("SELECT v FROM a", TABLES)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT l.k FROM l JOIN r ON l.k = r.k AND r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL '1' HOUR",
        "CREATE TABLE r (k STRING, event_time TIMESTAMP(3), WATERMARK FOR event_time AS event_time, PRIMARY KEY (k) NOT ENFORCED); "
        "SELECT l.k FROM l JOIN r FOR SYSTEM_TIME AS OF l.event_time ON l.k = r.k",
        "SELECT l.k FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(event_time), INTERVAL '1' HOUR)) AS l "
        "JOIN TABLE(TUMBLE(TABLE r, DESCRIPTOR(event_time), INTERVAL '1' HOUR)) AS r "
        "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end",
    ],
)
def test_a_join_of_frames_reads_their_column_event_time(text: str):
    tables: dict[str, Relation] = {name: Input(name, ("k", "event_time"), ("event_time",), is_declared=False) for name in ("l", "r")}
    apply = applied_operator(plan(text, tables).plans[-1].relation)
    assert apply is not None
    join = apply.operator
    assert isinstance(join, IntervalJoin | AsOfJoin | WindowJoin)
    for below, time in zip(apply.inputs, (join.left_time, join.right_time), strict=True):
        assert isinstance(below, Select)
        assert Item.of_column("event_time", time) in below.items


COUNTS = "SELECT k, COUNT(*) AS n, {start}, {end} FROM {windows} GROUP BY k, window_start, window_end"
"""Counts of each window, with its bounds under any names."""
HOUR = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
HOPS = "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '2' MINUTE, INTERVAL '5' MINUTE)"
SESSIONS = "SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
BOUNDS = ("window_start", "window_end")
DAY = "CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)"


def counts(windows: str = HOUR, start: str = "window_start AS s", end: str = "window_end AS e") -> str:
    return f"({COUNTS.format(windows=windows, start=start, end=end)})"


@pytest.mark.parametrize(
    ("text", "outermost"),
    [
        (
            f"SELECT x.k, y.n FROM {counts()} x JOIN {counts()} y ON x.k = y.k AND x.s = y.s AND x.e = y.e",
            "IntervalJoin(on=('k', 's', 'e'), lower='0 ms', upper='0 ms', left_time='result_time0', right_time='result_time1')",
        ),
        (
            f"SELECT x.k, y.n FROM {counts()} x JOIN {counts(HOUR, *BOUNDS)} y ON s = window_start AND e = window_end",
            "IntervalJoin(on=('s', 'e'), lower='0 ms', upper='0 ms', left_time='result_time0', right_time='result_time1')",
        ),
        (
            f"SELECT x.k, y.n FROM {counts(HOPS)} x JOIN {counts()} y ON x.k = y.k AND x.e = y.e",
            "IntervalJoin(on=('k', 'e'), lower='0 ms', upper='0 ms', left_time='result_time0', right_time='result_time1')",
        ),
        (
            f"SELECT id, n FROM a JOIN {counts()} x ON a.k = x.k AND ts >= s AND ts < e",
            "IntervalJoin(on=('k',), lower='-1 ms', upper='3599999 ms', lower_exclusive=True, left_time='ts', right_time='result_time0')",
        ),
        (
            f"SELECT id, n FROM a JOIN {counts(HOPS)} x ON a.k = x.k AND ts BETWEEN s + INTERVAL '1' MINUTE AND e",
            "IntervalJoin(on=('k',), lower='-1 ms', upper='239999 ms', left_time='ts', right_time='result_time0')",
        ),
        (
            f"SELECT id, n FROM a JOIN {counts()} x ON a.k = x.k AND ts = e",
            "IntervalJoin(on=('k',), lower='-1 ms', upper='-1 ms', left_time='ts', right_time='result_time0')",
        ),
        (
            f"SELECT id, n FROM {counts(HOPS)} x JOIN a ON a.k = x.k AND s + INTERVAL '1' MINUTE = ts AND ts < e",
            "IntervalJoin(on=('k',), lower='-239999 ms', upper='-239999 ms', left_time='result_time0', right_time='ts')",
        ),
        (
            f"SELECT x.k, y.n FROM {counts()} x JOIN {counts()} y ON x.k = y.k AND x.e = y.s",
            "IntervalJoin(on=('k',), lower='1 hour', upper='1 hour', left_time='result_time0', right_time='result_time1')",
        ),
        (
            f"SELECT id, n FROM a JOIN {counts(SESSIONS)} x ON a.k = x.k AND ts = s AND ts BETWEEN e - INTERVAL '1' DAY AND e",
            "IntervalJoin(on=('k', 'ts'), lower='-1 ms', upper='86399999 ms', left_time='ts', right_time='result_time0')",
        ),
        (
            f"SELECT e, MAX(n) AS m FROM {counts()} GROUP BY s, e",
            "WindowedAggregate(window=Tumbling(size='1 hour'), aggregates={'m': 'MAX(n)'}, time='result_time')",
        ),
        (
            f"SELECT s, MAX(n) AS m FROM {counts(HOPS)} GROUP BY s, e",
            "WindowedAggregate(by=('s',), window=Tumbling(size='2 minutes', offset=60000), aggregates={'m': 'MAX(n)'}, time='result_time')",
        ),
        (
            f"SELECT window_start, MAX(n) AS m FROM {counts(DAY, *BOUNDS)} GROUP BY window_start, window_end",
            "WindowedAggregate(by=('window_start0',), window=Tumbling(size='1 hour'), aggregates={'m': 'MAX(n)'}, time='result_time')",
        ),
        (
            f"SELECT s, e, MAX(n) AS m FROM {counts(SESSIONS)} GROUP BY s, e",
            "Aggregate(by=('s', 'e'), aggregates={'m': 'MAX(n)'})",
        ),
        (f"SELECT e, MAX(n) AS m FROM {counts()} GROUP BY e", "Aggregate(by=('e',), aggregates={'m': 'MAX(n)'})"),
        (
            f"SELECT window_end, MAX(n) AS m FROM {counts(HOUR, *BOUNDS)} GROUP BY window_end",
            "Aggregate(by=('window_end',), aggregates={'m': 'MAX(n)'})",
        ),
        (
            "SELECT window_end, COUNT(*) AS m FROM (SELECT k AS window_end FROM a) GROUP BY window_end",
            "Aggregate(by=('window_end',), aggregates={'m': 'COUNT(*)'})",
        ),
        (
            f"SELECT v AS window_time, COUNT(*) AS m FROM {HOUR} GROUP BY v, window_start, window_end",
            "WindowedAggregate(by=('window_time',), window=Tumbling(size='1 hour'), aggregates={'m': 'COUNT(*)'}, time='ts')",
        ),
        (
            "SELECT n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n) AS r FROM "
            f"{counts(HOUR, 'window_end AS window_start', 'window_start AS window_end')}) WHERE r <= 2",
            "TopN(order_by=('n',), rank_end=2, by=('window_start', 'window_end'))",
        ),
        (
            "SELECT n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n) AS r FROM "
            f"(SELECT s, e, n, k AS window_start, n AS window_end FROM {counts()})) WHERE r <= 2",
            "TopN(order_by=('n',), rank_end=2, by=('window_start', 'window_end'))",
        ),
        (
            f"SELECT x.k FROM {counts(HOPS)} x JOIN {counts()} y ON x.k = y.k AND x.e = y.e AND x.s >= y.s",
            "IntervalJoin(on=('k', 'e'), lower='0 ms', upper='0 ms', residual='s >= s0', left_time='result_time0', "
            "right_time='result_time1')",
        ),
        (
            f"SELECT id FROM a JOIN {counts(HOUR, 'window_start AS s', 'window_time AS t')} x "
            "ON a.k = x.k AND ts BETWEEN t - INTERVAL '2' HOUR AND t AND ts >= s",
            "IntervalJoin(on=('k',), lower='0 ms', upper='2 hours', residual='ts >= s', left_time='ts', right_time='t')",
        ),
    ],
)
def test_the_bounds_of_windows_are_known_by_any_name(text: str, outermost: str):
    found = applied_operator(relation(text))
    assert found is not None
    assert describe_parameters(found.operator) == outermost


@pytest.mark.parametrize("windows", [HOPS, DAY, HOUR])
@pytest.mark.parametrize("clause", ["e, ROLLUP (s, k)", "s, GROUPING SETS ((e, k), (k))", "CUBE (s, e)"])
def test_each_grouping_set_has_both_bounds_of_the_window(windows: str, clause: str):
    text = f"SELECT e, MAX(n) AS m FROM {counts(windows)} GROUP BY "
    with pytest.raises(SqlError, match="each set needs the bounds of the window"):
        relation(f"{text}{clause}")
    found = applied_operator(relation(f"{text}s, e, ROLLUP (k)"))
    assert found is not None
    starts = () if windows == HOUR else ("s",)  # ends of some windows of a kind that overlaps are equal
    assert found.operator.grouping_sets == ((*starts, "k"), starts)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("listed", "equal"),
    [
        ("GROUP BY ()", ""),
        ("GROUP BY k, ()", "GROUP BY k"),
        ("GROUP BY (k, v)", "GROUP BY k, v"),
        ("GROUP BY (1), v", "GROUP BY k, v"),
        ("GROUP BY (1, (v))", "GROUP BY k, v"),
        ("GROUP BY (window_start, window_end)", "GROUP BY window_start, window_end"),
        ("GROUP BY window_start, window_end, (k, v), ()", "GROUP BY window_start, window_end, k, v"),
        ("GROUP BY window_start, window_end, ROLLUP (1)", "GROUP BY window_start, window_end, ROLLUP (k)"),
        ("GROUP BY GROUPING SETS ((window_start, window_end, 1))", "GROUP BY GROUPING SETS ((window_start, window_end, k))"),
    ],
)
def test_group_by_has_lists_in_brackets_and_positions_in_its_sets(listed: str, equal: str):
    text = f"SELECT {'k, ' if 'k' in equal else ''}COUNT(*) AS n FROM {HOUR if 'window' in listed else 'a'} "
    assert relation(text + listed) == relation(text + equal)


def test_a_declared_table_names_the_columns_of_its_query_by_position():
    table = "CREATE TABLE t (x STRING, `my n` BIGINT); INSERT INTO t"
    assert relation(f"{table} SELECT k, v * 2 FROM a").inputs == (Select(A, (Item("x", "k", "k"), Item("my n", "v * 2"))),)
    assert relation(f"{table} SELECT k AS q, COUNT(*) FROM a GROUP BY k").columns == ("x", "my n")
    cast_key = "CREATE TABLE t (k STRING, n BIGINT); INSERT INTO t SELECT CAST(k AS STRING), COUNT(*) FROM a GROUP BY CAST(k AS STRING)"
    assert relation(cast_key).columns == ("k", "n")
    assert relation(f"{table} WITH c AS (SELECT k, id FROM a) SELECT k AS x, id `my n` FROM c").columns == ("x", "my n")
    joined = applied_operator(relation(f"{table} SELECT b.k, a.v FROM a JOIN b ON {WITHIN}"))
    assert joined is not None
    assert {"x", "my n"} < {*joined.columns}  # of the operator's own result, so that the table has no column twice


def test_a_key_with_the_name_of_a_literal_is_a_column():
    keys = Input("t", ("true", "NULL", "date"))
    text = "SELECT NOT `true` AS x, `null` || 'x' AS y, `date` || 'x' AS z, COUNT(*) AS n FROM t GROUP BY `true`, `null`, `date`"
    found = plan(text, {"t": keys}).plans[0].relation
    assert isinstance(found, Select)
    assert [item.sql for item in found.items] == ["NOT `true`", "`NULL` || 'x'", "date || 'x'", "n"]


@pytest.mark.parametrize("name", ["result_time", "final_at"])
def test_a_key_may_have_the_name_of_a_column_of_windows_results(name: str):
    found = relation(f"SELECT k AS {name}, COUNT(*) AS n FROM {HOUR} GROUP BY k, window_start, window_end")
    assert isinstance(found, Select)
    assert found.items == (Item.of_column(f"{name}0", name), Item.of_column("n"))
    assert {f"{name}0", name} < {*found.child.columns}


def test_results_without_a_key_are_kept_by_their_rank():
    rows = f"SELECT a.id, b.w, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.w) AS n FROM a JOIN b ON {WITHIN}"
    found = applied_operator(relation(f"SELECT id, w FROM ({rows}) WHERE n <= 1"))
    assert found is not None
    assert found.operator == TopN(by=("id",), order_by=("w",), rank_end=1)
    assert found.operator.emits.key == ("id", "rank")


def test_the_greatest_of_both_times_may_be_a_key():
    [total] = plan(
        f"SELECT GREATEST(ts, at_time) AS t, COUNT(*) AS n FROM a JOIN b ON {WITHIN} GROUP BY GREATEST(ts, at_time)", TABLES
    ).plans
    assert total.relation.columns == ("t", "n")


def test_the_versions_of_a_lookup_join_are_the_last_rows_by_arrival():
    table = "CREATE TABLE a (id INT, k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)"
    newest = "CREATE VIEW newest AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {} DESC) AS n FROM a) WHERE n = 1"
    lookup = "SELECT a.id, newest.v AS last_v FROM a LEFT JOIN newest FOR SYSTEM_TIME AS OF a.p ON a.k = newest.k"
    found = applied_operator(plan(f"{table}; {newest.format('p')}; {lookup}", TABLES).plans[-1].relation)
    assert found is not None
    assert found.operator == AsOfJoin(on=("k",), how="left", as_of="arrival", left_time="ts")
    with pytest.raises(SqlError, match="read the source of the versions, or a view with the last row by arrival of each key of the join"):
        plan(f"{table}; {newest.format('ts')}; {lookup}", TABLES)


@pytest.mark.parametrize("how", ["", "LEFT "])
@pytest.mark.parametrize("either", ["COALESCE(a.k, b.k)", "COALESCE(b.k, a.k)"])
def test_coalesce_of_both_keys_is_the_key_of_an_as_of_join(how: str, either: str):
    rows = f"FROM a {how}JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k"
    found = relation(f"SELECT {either} AS either, a.v, w {rows}")
    assert isinstance(found, Select)
    assert found.items == tuple(Item.of_column(column) for column in ("either", "v", "w"))
    assert isinstance(found.child, Apply)
    join = AsOfJoin(on=("either",), how="left" if how else "inner", left_time="ts", right_time="at_time")
    assert found.child.operator == join
    assert relation(f"SELECT {either} AS k, COUNT(*) AS n {rows} GROUP BY {either}").columns == ("k", "n")


RANKS = "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC) AS place FROM"
PAIRS = f"SELECT a.k, ts, at_time, w FROM a JOIN b ON {WITHIN}"


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (f"{RANKS} (SELECT k, COUNT(*) AS n FROM b GROUP BY k)", "ROW_NUMBER() AS place without a last rank is refused"),
        (f"{RANKS} (SELECT k, w AS n, at_time FROM b)", "ROW_NUMBER() AS place without a last rank is refused"),
        (PAIRS, "over c is refused: its versions have 2 event times; read a view that selects only one of ts, at_time"),
        ("SELECT k, w FROM b", "over c is refused: its versions have no event time; select an event time of its rows in the view: "),
        (
            "SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(at_time), INTERVAL '1' HOUR)",
            "with windows is refused: versions have no windows; join in a view, and apply the windowing function to that view",
        ),
    ],
)
def test_an_as_of_join_with_rows_that_are_no_versions_is_refused_with_the_way_out(view: str, message: str):
    with pytest.raises(SqlError, match=re.escape(message)):
        plan(f"CREATE VIEW c AS {view}; SELECT v FROM a JOIN c FOR SYSTEM_TIME AS OF a.ts ON a.k = c.k", TABLES)


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE VIEW c AS SELECT k, at_time, w FROM ({PAIRS}); SELECT v, w FROM a JOIN c FOR SYSTEM_TIME AS OF a.ts ON a.k = c.k",
        "CREATE VIEW c AS SELECT a.k, a.ts, w FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k; "
        "SELECT COUNT(*) AS n FROM TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end",
    ],
)
def test_the_way_out_of_a_refused_as_of_join_is_planned(text: str):
    assert applied_operator(relation(text)) is not None


@pytest.mark.parametrize(
    ("join", "again"),
    [
        (IntervalJoin(on="k", lower=0, upper="1 h", late_rows="join"), "at most 1 hour before the watermark or its oldest late row again"),
        (IntervalJoin(on="k", lower=0, upper="1 h", allowed_lateness="5 min"), "at most 65 minutes before the watermark again"),
    ],
)
def test_explain_says_how_far_back_late_rows_are_read(join: IntervalJoin, again: str):
    assert f"state: none is kept; a step reads {again}, however many keys there are" in explain(Apply(join, (A, B), ("k",)))


def test_explain_says_what_is_kept_beside_a_table():
    ranks = "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM {}) WHERE n <= 3"
    with_versions = "SELECT a.id, w FROM a JOIN {} FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k"
    text = explain(relation(with_versions.format("b")))
    assert "reads: the rows of each closed range, and before it, by input: left 0 ms, right the newest version of each key" in text
    assert "state: the newest version of each key of right, in a table of its own, which grows with the number of keys\n" in text
    counts = "CREATE VIEW c AS SELECT k, MAX(w) AS w, window_time FROM TUMBLE(TABLE b, DESCRIPTOR(at_time), INTERVAL '1' HOUR) "
    counts += "GROUP BY k, window_start, window_end, window_time; "
    of_table = explain(relation(counts + with_versions.format("c")))
    assert "right all of it" in of_table
    assert "state: none is kept; a step reads all of right: what it reads grows with the number of versions" in of_table
    newest = "(SELECT k, id, MAX(v) AS v FROM a GROUP BY k, id)"
    plain, of_changes = explain(relation(ranks.format("a"))), explain(relation(ranks.format(newest)))
    assert "state: the first 3 rows of each k in the table itself" in plain
    assert "reads: every row of the same k as a new row" in of_changes
    kept = "SELECT id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) WHERE n <= v"
    assert "reads: the new rows, and the kept rows of the same k" in explain(relation(kept))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("a_time", TopK(k=1, order_by=("a_time",), by=("k",), window=Tumbling(size="1 hour"), time="b_time")),
        ("a_time DESC", TopK(k=1, order_by=("a_time DESC",), by=("k",), window=Tumbling(size="1 hour"), time="b_time")),
        ("b_time", Deduplicate(by=("k",), window=Tumbling(size="1 hour"), time="b_time")),
    ],
)
def test_the_first_row_of_a_window_by_another_time_than_that_of_the_window_is_a_top_k(order: str, expected: Operator):
    rows = f"CREATE VIEW j AS SELECT a.k, ts AS a_time, at_time AS b_time FROM a JOIN b ON {WITHIN};"
    rank = f"ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY {order}) AS n"
    windows = "TUMBLE(TABLE j, DESCRIPTOR(b_time), INTERVAL '1' HOUR)"
    found = applied_operator(relation(f"{rows} SELECT k, a_time FROM (SELECT *, {rank} FROM {windows}) WHERE n = 1"))
    assert found is not None
    assert found.operator == expected


def test_the_rank_of_a_first_row_is_1_even_if_the_rows_have_a_column_rank():
    tables: dict[str, Relation] = {"r": Input("r", ("id", "rank", "ts"), ("ts",))}
    number = "ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts) AS n"
    rows = plan(f"SELECT * FROM (SELECT *, {number} FROM r) WHERE n = 1", tables).plans[0].relation
    assert isinstance(rows, Select)
    assert rows.items[-1] == Item("n", "1")


def test_a_top_n_of_windows_results_keeps_the_time_that_they_select():
    windows = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, window_time, k"
    totals = f"SELECT window_start, window_end, window_time, k, SUM(v) AS total FROM {windows}"
    rows = relation(f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY total DESC) AS n FROM ({totals})) WHERE n <= 3")
    assert isinstance(rows, Select)
    assert rows.items[2] == Item("window_time", "window_time", "window_time")


def test_a_column_window_time_of_the_rows_is_no_time_of_a_window():
    times: dict[str, Relation] = {"r": Input("r", ("id", "window_time", "result_time", "ts"), ("ts",))}
    number = "ROW_NUMBER() OVER (PARTITION BY id ORDER BY window_time) AS n"
    rows = plan(f"SELECT * FROM (SELECT *, {number} FROM r) WHERE n <= 2", times).plans[0].relation
    assert isinstance(rows, Select)
    assert rows.items[1:3] == (Item.of_column("window_time"), Item.of_column("result_time"))
    newest = f"SELECT window_start, window_end, k, MAX(v) AS window_time FROM {HOUR} GROUP BY window_start, window_end, k"
    number = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY k) AS n"
    results = relation(f"SELECT * FROM (SELECT *, {number} FROM ({newest})) WHERE n <= 2")
    assert isinstance(results, Select)
    assert results.items[3] == Item.of_column("window_time")
    assert "window_time" in results.child.columns


@pytest.mark.parametrize(
    ("listed", "rank", "columns"),
    [
        ("{} AS n, v, k", "n", ("rank", "v", "k")),
        ("v, {} AS n, k", "n", ("v", "rank", "k")),
        ("v, k, {} AS V", "V0", ("v", "k", "rank")),
        ("{} AS v, v, k", "v", ("rank", "v0", "k")),
    ],
)
def test_a_rank_is_a_column_at_its_position_in_the_select_list(listed: str, rank: str, columns: tuple[str, ...]):
    ranked = f"SELECT {listed.format('ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts)')} FROM a"
    rows = relation(f"CREATE VIEW w (x, y, z) AS SELECT * FROM ({ranked}) WHERE {rank} <= 3; SELECT x, y, z FROM w")
    assert isinstance(rows, Select)
    assert rows.items == tuple(Item.of_column(column, name) for column, name in zip(columns, "xyz", strict=True))


def test_the_precision_of_an_interval_is_left_out_in_an_expression():
    rows = relation("SELECT ts + INTERVAL '1 00:00:00.004' DAY TO SECOND(3) AS x, ts - INTERVAL '5' DAY(3) AS y, HOUR(ts) AS z FROM a")
    assert isinstance(rows, Select)
    assert [item.sql for item in rows.items] == ["ts + INTERVAL '1 00:00:00.004' DAY TO SECOND", "ts - INTERVAL '5' DAY", "HOUR(ts)"]


def test_the_sides_of_a_condition_on_a_rank_can_be_swapped():
    ranked = "SELECT id FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY id) AS n FROM a)"
    for condition, swapped, last in [("n <= v", "v >= n", "v"), ("n < 4", "4 > n", 3), ("(n) <= 3", "3 >= (n)", 3)]:
        found = relation(f"{ranked} WHERE {swapped}")
        assert found == relation(f"{ranked} WHERE {condition}")
        assert applied_operator(found).operator.rank_end == last  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def test_the_smaller_of_two_last_ranks_counts():
    ranks = "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) WHERE n <= 3 AND n <= 5"
    found = applied_operator(relation(ranks))
    assert found is not None
    assert found.operator == TopN(by=("k",), order_by=("v",), rank_end=3, with_rank=False)


@pytest.mark.parametrize(
    ("operator", "row"),
    [
        (Aggregate(by="k", aggregates={"n": "count(*)"}, ttl="1 day"), "one row of each k in the table itself"),
        (Deduplicate(by="k", ttl="1 day"), "one row of each k in the table itself"),
        (TopN(by="k", order_by="v", rank_end=3, ttl="1 day"), "the first 3 rows of each k in the table itself"),
    ],
)
def test_explain_says_when_the_rows_of_an_expired_key_are_removed(operator: Aggregate | Deduplicate | TopN, row: str):
    kept, removed = (explain(Apply(replace(operator, after_ttl=after), (A,), ("k",))) for after in ("keep", "retract"))
    assert f"state: {row}, until 1 day after the newest row of the " in removed
    assert "kept for ever" not in removed
    assert "until" not in kept


def test_explain_says_from_which_rows_an_aggregate_is_computed():
    with_ttl = Aggregate(by="k", aggregates={"n": "count(*)"}, ttl="1 day")
    table = Apply(Aggregate(by=("id", "k"), aggregates={"v": "max(v)"}), (A,), ("id", "k", "v"))
    of_source, of_table = (explain(Apply(with_ttl, (rows,), ("k", "n"))) for rows in (A, table))
    assert "strategy: computes the keys of new rows from these and the kept rows" in of_source
    assert "strategy: computes the keys of new rows from all of their rows" in of_table


@pytest.mark.parametrize(
    ("query", "strategy", "reads"),
    [
        (
            "SELECT k, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM a) WHERE n <= 3 AND v > 1",
            "strategy: computes the partitions of new rows from all of their rows, since the condition leaves results out of the table",
            "reads: every row of the same k as a new row",
        ),
        (
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM a) WHERE n = 2 AND v > 1",
            "strategy: retract: a step reads its new rows and the first rows of their partitions, which the engine keeps",
            "reads: the new rows, and the kept rows of the same k",
        ),
        (
            "SELECT k, COUNT(*) AS n FROM a GROUP BY k HAVING COUNT(*) > 1",
            "strategy: computes the keys of new rows from all of their rows, since the condition leaves results out of the table",
            "reads: every row of the same k as a new row",
        ),
        (
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM a) WHERE n = 1 AND v > 1",
            "strategy: computes the keys of new rows from all of their rows, since the condition leaves results out of the table",
            "reads: every row of the same k as a new row",
        ),
    ],
    ids=["top", "top with kept rows", "having", "first rows"],
)
def test_explain_says_how_a_condition_on_results_changes_what_a_step_reads(query: str, strategy: str, reads: str):
    """The text is that of the engine's strategy for a table with a condition in its shape."""
    lines = [line.strip() for line in explain(relation(query)).splitlines()]
    assert strategy in lines
    assert reads in lines
    assert [line for line in lines if line.startswith("where ")] in (["where v > 1"], ["where `n` > 1"])
    [state] = [line for line in lines if line.startswith("state: ")]
    assert "in the table itself, if the condition holds for" in state
    assert not any(line.startswith(("strategy: append", "strategy: merges")) for line in lines)


def test_columns_of_the_window_have_no_effect_on_the_order_of_its_rows():
    ranked = "SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY {}) AS n"
    windows = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
    for order, same_order in [("window_start, v DESC", "v DESC"), ("v, window_time DESC, id", "v, id"), ("window_end, ts DESC", "ts DESC")]:
        query, same_query = (f"SELECT id FROM ({ranked.format(text)} FROM {windows}) WHERE n = 1" for text in (order, same_order))
        assert relation(query) == relation(same_query)


@pytest.mark.parametrize(
    ("expression", "spark_sql"),
    [
        ("REGEXP_EXTRACT(k, '(a)(b)', 2)", "IF(k RLIKE '(a)(b)', REGEXP_EXTRACT(k, '(a)(b)', 2), NULL)"),
        ("REGEXP_EXTRACT(k, '(a)(b)')", "IF(k RLIKE '(a)(b)', REGEXP_EXTRACT(k, '(a)(b)', 0), NULL)"),
        ("CONCAT_WS('-', id, k)", "CONCAT_WS('-', id, k)"),
        ("STR_TO_MAP(k, ';')", "STR_TO_MAP(k, ';', '=')"),
        ("LOG10(v)", "LOG10(v)"),
        ("v[1]", "TRY_ELEMENT_AT(v, 1)"),
        ("v['k']", "v['k']"),
        ("v['k'][1]", "TRY_ELEMENT_AT(v['k'], 1)"),
        ("CAST(v AS VARCHAR(3))", "LEFT(CAST(v AS STRING), 3)"),
        ("TRY_CAST(v AS CHAR(3))", "RPAD(TRY_CAST(v AS STRING), 3, ' ')"),
        ("CAST(v AS VARCHAR)", "CAST(v AS STRING)"),
        ("TO_TIMESTAMP_LTZ(v[1], 3)", "TIMESTAMP_MILLIS(TRY_ELEMENT_AT(v, 1))"),
        ("TO_TIMESTAMP_LTZ(v / 1000, 3)", "TIMESTAMP_MILLIS(CAST(v / 1000 AS BIGINT))"),
        ("TO_TIMESTAMP_LTZ(v, 6)", "TIMESTAMP_MICROS(v)"),
        ("TO_TIMESTAMP_LTZ()", "TO_TIMESTAMP_LTZ()"),
        ("ELT()", "ELT()"),
        ("TRUNCATE()", "TRUNCATE()"),
        ("ARRAY_SORT(v, TRUE, TRUE, FALSE)", "ARRAY_SORT(v, TRUE, TRUE, FALSE)"),
        ("ARRAY_SORT(v, FALSE, TRUE)", "(REVERSE(ARRAY_SORT(v)))"),
        ("TO_TIMESTAMP_LTZ(v, 3, 'UTC')", "TO_TIMESTAMP_LTZ(v, 3, 'UTC')"),
        ("TO_TIMESTAMP_LTZ(k, id, 'UTC')", "TO_UTC_TIMESTAMP(CAST(TRY_TO_TIMESTAMP(k, id) AS TIMESTAMP), 'UTC')"),
        ("TO_TIMESTAMP_LTZ(k, 'yyyy', 'UTC')", "TO_UTC_TIMESTAMP(CAST(TRY_TO_TIMESTAMP(k, 'yyyy') AS TIMESTAMP), 'UTC')"),
        ("ARRAY_CONTAINS(v, NULL)", "(SIZE(v) > SIZE(ARRAY_COMPACT(v)))"),
        ("ARRAY_REMOVE(v, NULL)", "(ARRAY_COMPACT(v))"),
        ("CEILING(ts TO DAY)", "DATE_TRUNC('DAY', ts + INTERVAL '1' DAY - INTERVAL '0.000001' SECOND)"),
        ("CEILING(v)", "CEIL(v)"),
        ("10 - TRUNCATE(v)", "10 - (v - v % 1)"),
        ("TRUNCATE(v) * 2", "(v - v % 1) * 2"),
        ("-TRUNCATE(v)", "-(v - v % 1)"),
        (
            "ts - FLOOR(ts TO WEEK)",
            "ts - (DATE_TRUNC('WEEK', ts + INTERVAL '1' DAY) - INTERVAL '1' DAY)",
        ),
        ("ARRAY_SORT()", "ARRAY_SORT()"),
        ("INSTR(k)", "INSTR(k)"),
        ("TO_TIMESTAMP(k, 'dd/MM/yyyy HH')", "TRY_TO_TIMESTAMP(k, 'dd/MM/yyyy HH')"),
        ("TO_DATE(k, 'dd/MM/yyyy')", "TRY_TO_DATE(k, 'd/M/yyyy')"),
        ("TO_DATE(k, 'yyyyMMdd')", "TRY_TO_DATE(k, 'yyyyMMdd')"),
        ("k LIKE '%x_'", "k LIKE '%x_'"),
        ("k LIKE ANY ('%x', 'y%')", "k LIKE ANY ('%x', 'y%')"),
        (r"k LIKE '\d'", r"k LIKE '\\\\d'"),
        (r"k NOT LIKE '!%\d' ESCAPE '!'", r"k NOT LIKE '!%\\d' ESCAPE '!'"),
        ("k LIKE id", r"k LIKE REPLACE(id, '\\', '\\\\')"),
        ("GREATEST(id, v + 1)", "IF(id IS NULL OR (v + 1) IS NULL, NULL, GREATEST(id, v + 1))"),
        ("LEAST(id, v)", "IF(id IS NULL OR v IS NULL, NULL, LEAST(id, v))"),
        ("SUBSTRING(k, 2, 3)", "SUBSTRING(k, 2, 3)"),
        ("SUBSTRING(k FROM 2)", "SUBSTRING(k, 2)"),
        ("LPAD(k, 4, '0')", "LPAD(k, 4, '0')"),
        ("LOCATE('x', k, 2)", "LOCATE('x', k, 2)"),
        ("INSTR(k, 'x', 2)", "LOCATE('x', k, 2)"),
        ("TRANSLATE(k, 'ab', 'x')", "TRANSLATE(k, 'ab', 'x')"),
        ("REGEXP_REPLACE(k, 'a', 'b$')", r"REGEXP_REPLACE(k, 'a', 'b\\$')"),
        ("EXTRACT(YEAR FROM ts)", "EXTRACT(YEAR FROM ts)"),
        ("FLOOR(v)", "FLOOR(v)"),
        ("CEIL(v, 2)", "CEIL(v, 2)"),
        ("ARRAY_SORT(v, (x, y) -> x - y)", "ARRAY_SORT(v, (x, y) -> x - y)"),
        ("CASE v WHEN 1, 5 THEN k END", "CASE WHEN v IN (1, 5) THEN k END"),
        (
            "CASE v + 1 WHEN 1 THEN k WHEN 5, 6 THEN 'x' ELSE 'y' END",
            "CASE WHEN (v + 1) IN (1) THEN k WHEN (v + 1) IN (5, 6) THEN 'x' ELSE 'y' END",
        ),
        ("CASE v WHEN 1 THEN k ELSE 'x' END", "CASE v WHEN 1 THEN k ELSE 'x' END"),
        ("1 + CASE /* size */ WHEN v > 1 THEN k END", "1 + CASE WHEN v > 1 THEN k END /* size */"),
        ("x'4142'", "X'4142'"),
        ("ELEMENT(v)", "IF(SIZE(v) > 1, RAISE_ERROR('ELEMENT of an array with several elements'), GET(v, 0))"),
        ("MAP_UNION(k, v, k)", UNION_OF_THREE),
        ("MAP['x', id, 'y', 2, 'x', v]", "MAP('x', v, 'y', 2)"),
        ("MAP[0, 'a', 1, 'b', 0, 'c']", "MAP(0, 'c', 1, 'b')"),
        ("MAP[-1, 'a', 1, 'b']", "MAP(-1, 'a', 1, 'b')"),
        ("MAP[k, id]", "MAP(k, id)"),
        (
            "MAP[k, id, 'x', v]",
            "MAP_ZIP_WITH(MAP(k, id), TRANSFORM_VALUES(MAP('x', v), (k, v) -> ARRAY(v)), (k, v, w) -> IF(ISNULL(w), v, GET(w, 0)))",
        ),
        ("map['x', v, 'y', 2]['x']", "MAP('x', v, 'y', 2)['x']"),
        ("k IS NOT DISTINCT FROM v", "k IS NOT DISTINCT FROM v"),
    ],
)
def test_functions_of_flink_have_a_counterpart_in_spark(expression: str, spark_sql: str):
    assert relation(f"SELECT {expression} AS x FROM a") == Select(A, (Item("x", spark_sql),))
    assert relation(f"SELECT x FROM (SELECT {expression} AS x FROM a)") == Select(A, (Item("x", spark_sql),))


@pytest.mark.parametrize("call", ["PARSE_JSON(k)", "LOG10(v)", "LOG10(LOG10(v))", "PARSE_JSON(CAST(LOG10(v) AS STRING))"])
def test_an_expression_reads_a_call_of_an_inner_query(call: str):
    assert relation(f"SELECT 10 - x AS y FROM (SELECT {call} AS x FROM a)") == Select(A, (Item("y", f"10 - {call}"),))


@pytest.mark.parametrize(
    ("expression", "spark_sql"),
    [
        ("PERCENTILE(v, 0.5)", "PERCENTILE(v, 0.5)"),
        ("percentile(v, 0.5, id) FILTER (WHERE v > 1)", "PERCENTILE(v, 0.5, id) FILTER(WHERE v > 1)"),
        ("LISTAGG(v) WITHIN GROUP (ORDER BY v)", "LISTAGG(v, ',') WITHIN GROUP (ORDER BY v)"),
        ("LISTAGG(DISTINCT v) WITHIN GROUP (ORDER BY v)", "LISTAGG(DISTINCT v, ',') WITHIN GROUP (ORDER BY v)"),
        ("LISTAGG(v, ';') WITHIN GROUP (ORDER BY v)", "LISTAGG(v, ';') WITHIN GROUP (ORDER BY v)"),
        ("SORT_ARRAY(ARRAY_AGG(v))", "SORT_ARRAY(COLLECT_LIST(v))"),
        ("TO_JSON(SORT_ARRAY(ARRAY_AGG(v)))", "TO_JSON(SORT_ARRAY(COLLECT_LIST(v)))"),
        ("TO_JSON(SORT_ARRAY(ARRAY_AGG(STRUCT(id, v))))", "TO_JSON(SORT_ARRAY(COLLECT_LIST(STRUCT(id, v))))"),
    ],
)
def test_aggregates_of_flink_have_a_counterpart_in_spark(expression: str, spark_sql: str):
    found = applied_operator(relation(f"SELECT k, {expression} AS x FROM a GROUP BY k"))
    assert found is not None
    assert found.operator == Aggregate(by=("k",), aggregates={"x": spark_sql})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("COLLECT(v)", "COLLECT is refused: Tidemark has no type MULTISET; write SORT_ARRAY(ARRAY_AGG(v))"),
        ("JSON_ARRAYAGG(v)", "JSON_ARRAYAGG is refused: Spark has no such aggregate; write TO_JSON(SORT_ARRAY(ARRAY_AGG(v)))"),
        ("JSON_OBJECTAGG(KEY id VALUE v)", "JSON_OBJECTAGG is refused: Spark has no such aggregate; write an array of objects"),
        ("LISTAGG(v)", "sort the result of listagg: listagg(v, ',') WITHIN GROUP (ORDER BY v), by the value itself"),
    ],
)
@pytest.mark.parametrize(
    "query", ["SELECT k, {} AS x FROM a GROUP BY k", "SELECT k, COUNT(*) AS n FROM a GROUP BY k HAVING {} = 'x'", "SELECT {} FROM a"]
)
def test_an_aggregate_without_a_counterpart_is_refused_as_one(query: str, expression: str, message: str):
    with pytest.raises(OperatorError, match=re.escape(message)):
        plan(query.format(expression), TABLES)


RANKED = "SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT 1 + TRUNCATE(TRUNCATE(v, 2)) AS x FROM a",
            "TRUNCATE(v, 2) is refused: Spark's translation would ignore an argument; write it with other functions, such as FLOOR(v, 2)",
        ),
        ("SELECT JSON_VALUE(k, '$.a' RETURNING INT) AS x FROM a", "JSON_VALUE is refused: Spark has no such function; write GET"),
        ("SELECT JSON_OBJECT('a' VALUE v) AS x FROM a", "JSON_OBJECT is refused: Spark has no such function; write TO_JSON(NAMED_STRUCT("),
        ("SELECT k FROM a WHERE k IS JSON", "IS JSON is refused: Spark has no such comparison; write TRY_PARSE_JSON(text) IS NOT NULL"),
        (
            "SELECT k IS NOT JSON OBJECT AS x FROM a",
            "IS JSON is refused: Spark has no such comparison; write TRY_PARSE_JSON(text) IS NOT NULL",
        ),
        ("SELECT CASE WHEN v = 1, v = 2 THEN k END AS x FROM a", "cannot be parsed: Expected THEN of CASE at ',' (line 1, column 23)"),
        ("SELECT CASE v WHEN 1 k END AS x FROM a", "cannot be parsed: Expected THEN of CASE at 'k' (line 1, column 22)"),
        ("SELECT CASE v END AS x FROM a", "cannot be parsed: Required keyword: 'ifs' missing for Case at 'AS' (line 1, column 20)"),
        ("SELECT CASE v WHEN THEN k END AS x FROM a", "cannot be parsed: Expected an expression of CASE at 'THEN' (line 1, column 23)"),
        ("SELECT CASE v WHEN 1, THEN k END AS x FROM a", "cannot be parsed: Expected an expression of CASE at 'THEN' (line 1, column 26)"),
        ("SELECT CASE WHEN THEN k END AS x FROM a", "cannot be parsed: Expected an expression of CASE at 'THEN' (line 1, column 21)"),
        ("SELECT BITMAP_CARDINALITY(BITMAP_BUILD(v)) AS x FROM a", "BITMAP_CARDINALITY is refused: Spark does not have Flink's type BIT"),
        ("SELECT k, BITMAP_OR_AGG(v) AS x FROM a GROUP BY k", "BITMAP_OR_AGG is refused: Spark does not have Flink's type BITMAP; write"),
        (
            "SELECT INET_ATON(k) AS x FROM a",
            "INET_ATON is refused: Spark has no such function; write CAST(SPLIT_INDEX(text, '.', 0) AS BIGINT)",
        ),
        ("SELECT OBJECT_UPDATE(k, 'v', 1) AS x FROM a", "OBJECT_UPDATE is refused: Spark has no such function; write NAMED_STRUCT("),
        ("SELECT IS_DIGIT(k) AS x FROM a", "IS_DIGIT is refused: Spark has no such function; write REGEXP(text, '^[0-9]+$')"),
        ("SELECT RAND_INTEGER(5) AS x FROM a", "RAND_INTEGER in an expression is refused: results are computed again and must not depend"),
        ("SELECT k FROM a WHERE k SIMILAR TO 'x%'", "SIMILAR TO is refused: Spark has no such comparison; write REGEXP(text, '^pattern$')"),
        ("SELECT INSTR(k, 'x', -1) AS x FROM a", "INSTR with a position that is no positive number is refused: Spark counts from the left"),
        ("SELECT INSTR(k, 'x', 1, 2) AS x FROM a", "INSTR with an occurrence is refused: Spark has no such function; write INSTR("),
        ("SELECT CEIL(ts TO MONTH) AS x FROM a", "CEIL TO MONTH is refused: Spark does not round a time to this unit; write one of DAY"),
        ("SELECT FLOOR(ts TO DECADE) AS x FROM a", "FLOOR TO DECADE is refused: Spark does not round a time to this unit; write one of "),
        ("SELECT TO_TIMESTAMP_LTZ(v, -3) AS x FROM a", "TO_TIMESTAMP_LTZ with the precision -3 is refused: Spark's times have micro"),
        ("SELECT TO_TIMESTAMP_LTZ(v, 9) AS x FROM a", "TO_TIMESTAMP_LTZ with the precision 9 is refused: Spark's times have micro"),
        (
            "SELECT TO_TIMESTAMP(k, 'yyyyMMddHHmmssSSS') AS x FROM a",
            "the format 'yyyyMMddHHmmssSSS' is refused: Spark cannot read a fraction right after the seconds; write a separator",
        ),
        ("SELECT ARRAY_SORT(v, k) AS x FROM a", "ARRAY_SORT with an order from a column is refused: Spark needs a constant; write"),
        (
            "SELECT UPPER(TO_CHAR(ts, 'yyyy')) AS x FROM a",
            "TO_CHAR(ts, 'yyyy') is refused: Spark's translation would ignore an argument; write it with other functions",
        ),
        ("SELECT k FROM a WHERE v > UNIX_TIMESTAMP()", "UNIX_TIMESTAMP in an expression is refused: results are computed again"),
        ("SELECT CAST(k AS TIME) AS x FROM a", "the type TIME is refused"),
        ("SELECT /*+ STATE_TTL('a' = '1d') */ k, COUNT(*) AS n FROM a GROUP BY k", "the hint STATE_TTL('a' = '1d') is refused"),
        ("SELECT k FROM a /*+ OPTIONS('scan.mode' = 'x') */", "write them in WITH of CREATE TABLE"),
        ("INSERT INTO t SELECT /*+ BROADCAST(b) */ id FROM a", "Spark chooses how a query runs; leave it out"),
        (
            "SELECT l.v FROM (SELECT * FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR)) l "
            "JOIN (SELECT * FROM SESSION(TABLE b PARTITION BY id, DESCRIPTOR(at_time), INTERVAL '1' HOUR)) r "
            "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end",
            "a join of rows in sessions is refused: Flink joins the sessions of each side that have equal bounds",
        ),
        (
            "SELECT k, COUNT(*) AS n FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR) WHERE v > 1 "
            "GROUP BY k, window_start, window_end",
            "the condition v > 1 is refused: a condition on rows in sessions is applied after the sessions are formed",
        ),
        (
            "SELECT r.'x' FROM a",
            "r.'x' is refused: 'x' is no name of a column or a field; write a name, with backticks if needed, such as `x`",
        ),
        ("SELECT a.r.1 FROM a", "a.r.1 is refused: 1 is no name of a column or a field"),
        ("SELECT COUNT(a.'k') FROM a", "a.'k' is refused: 'k' is no name of a column or a field"),
        ("SELECT k FROM a WHERE (r).'x' > 1", "(r).'x' is refused: 'x' is no name of a column or a field"),
        ("SELECT k FROM a WHERE r.'x' > 1", "r.'x' is refused: 'x' is no name of a column or a field"),
        ("SELECT FROM WHERE", "cannot be parsed"),
        ("SELECT k FROM a;\n\n  INSERT INTO t SELECT k k k FROM a", "Unexpected token at 'k' (line 3, column 28)"),
        ("SELECT k FROM a;\nEXPLAIN SELECT\n k k k FROM a", "Unexpected token at 'k' (line 3, column 6)"),
        ("SELECT k FROM (", "Expected table name but got the end at '(' (line 1, column 15)"),
        ("SELECT k FROM a;\n\nSELECT 'x FROM a", "\"'x FROM a\" in line 3 cannot be parsed: it has no closing '"),
        ("SELECT k,\n`x FROM a", "'`x FROM a' in line 2 cannot be parsed: it has no closing `"),
        ("SELECT /* x", "'/* x' in line 1 cannot be parsed: it has no closing */"),
        ("SELECT '/* no comment', k /* ' */ -- /*\nFROM a\n/* x; *", "'/* x; *' in line 3 cannot be parsed: it has no closing */"),
        ("SELECT x'", '"SELECT x\'" cannot be parsed: a quote or a comment is not closed'),
        ("EXPLAIN INSERT", "INSERT is refused: it has no name"),
        ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), SIZE => )", "cannot be parsed: Expected a value at ')'"),
        ("CREATE VIEW v (1) AS SELECT k FROM a", "1 in the columns of view 'v' is refused: it is no name of a column"),
        ("CREATE TEMPORARY", "CREATE TEMPORARY is refused: it does not say what to create"),
        ("SELECT 'a FROM a", "cannot be parsed"),
        ("SELECT x FROM a", "there is no column 'x'; legal: id, k, v, ts"),
        ("SELECT idd FROM a", "did you mean 'id'?"),
        ("SELECT c.id FROM a", "there is no table or column 'c'; legal: a, id, k, v, ts"),
        ("SELECT x.* FROM a AS o", "there is no table 'x'; legal: o"),
        ("SELECT a.c.id FROM a", "there is no table or column 'a.c'; legal: a, id, k, v, ts"),
        ("SELECT v FROM a JOIN b ON a.k = b.kk AND at_time = ts", "there is no column 'b.kk'; legal: id, k, w, at_time; did you mean 'k'?"),
        ("SELECT v FROM a JOIN b ON a.k = ww AND at_time = ts", "there is no column 'ww'; legal: id, k, v, ts, w, at_time"),
        ("SELECT id FROM aa", "there is no table 'aa'; legal: a, b"),
        (f"SELECT k FROM a LEFT JOIN b ON {WITHIN}", "it is a column of several tables; write the table too"),
        (
            f"SELECT a.id FROM a JOIN b ON {WITHIN} LEFT JOIN (SELECT k, w, at_time AS t3 FROM b) c "
            "ON c.k = a.k AND t3 BETWEEN at_time AND at_time + INTERVAL '1' HOUR WHERE w > 3",
            "w is refused: it is a column of several tables; write the table too",
        ),
        (
            "SELECT v, COUNT(*) AS n FROM a GROUP BY k",
            "the column v is refused: it is neither in GROUP BY nor in an aggregate; add it: GROUP BY ..., v",
        ),
        ("SELECT k, BIT_AND(v) AS n FROM a GROUP BY k", "nor in an aggregate (BIT_AND is read as a function of one row); add it"),
        ("SELECT k FROM a WHERE COUNT(*) > 1", "COUNT(*) is refused: it is an aggregate, and this expression reads one row"),
        ("SELECT k FROM a WHERE v > (SELECT MAX(w) FROM b)", "a subquery in an expression is refused"),
        (
            "SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(v), INTERVAL '1' HOUR) GROUP BY k",
            "TUMBLE by v is refused: it is no event time; legal: ts",
        ),
        ("SELECT k FROM TUMBLE(TABLE a, INTERVAL '1' HOUR)", "TUMBLE has no argument SIZE; legal: TUMBLE(DATA, TIMECOL, SIZE, [OFFSET])"),
        ("SELECT k FROM HOP(TABLE a, DESCRIPTOR(ts), GAP => INTERVAL '1' HOUR)", "HOP has an argument GAP, which it does not take"),
        ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MONTH)", "INTERVAL '1' MONTH is no length of time"),
        ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL 'inf' HOUR)", "INTERVAL 'inf' HOUR is no length of time"),
        ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL 'NaN' HOUR)", "INTERVAL 'NaN' HOUR is no length of time"),
        (
            "SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR, SIZE => INTERVAL '1' DAY)",
            "TUMBLE has the argument SIZE twice; legal: TUMBLE(DATA,",
        ),
        ("SELECT k FROM SESSION(TABLE a PARTITION BY, DESCRIPTOR(ts), INTERVAL '1' HOUR)", "cannot be parsed: Expected a column"),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) WHERE n <= 3 AND n <= v",
            "a rank n with several limits is refused: 3 and v are its last ranks",
        ),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY window_time) AS n "
            "FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE n = 1",
            "ORDER BY window_time in a window is refused: it is the same for all rows of a window; ORDER BY a column of the rows",
        ),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY window_end DESC, window_start) "
            "AS n FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE n <= 3",
            "ORDER BY window_end in a window is refused: it is the same for all rows of a window",
        ),
        (
            "SELECT x FROM (SELECT id, k FROM a) AS c (x)",
            "AS c is refused: it names 1 columns, and the query has 2; write one name for each",
        ),
        (
            "SELECT x FROM (SELECT id, k FROM a) AS c (x, X)",
            "AS c is refused: it names two columns 'X'; write names that differ in more than",
        ),
        ("WITH c (x, x) AS (SELECT id, k FROM a) SELECT x FROM c", "it names two columns 'x'"),
        ("CREATE VIEW c (x, x) AS SELECT id, k FROM a; SELECT x FROM c", "it names two columns 'x'"),
        (
            f"SELECT GROUPING_ID() AS g FROM {HOUR} GROUP BY window_start, window_end, CUBE (k, v)",
            "GROUPING_ID() without columns is refused: it has one bit for each of its columns; name columns of GROUP BY",
        ),
        (f"SELECT v FROM {HOUR} GROUP BY window_start, window_end, ROLLUP (2)", "GROUP BY 2 is refused: it is no position in the SELECT"),
        (
            "SELECT x FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) AS c (x, y) WHERE y <= 3",
            "the column list of AS c is refused: it names rows in windows, or with a rank, which an operator reads",
        ),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM b ORDER BY w LIMIT 1)", "ORDER BY of an inner query is refused"),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM b LIMIT 1)", "LIMIT of an inner query is refused"),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM b HAVING COUNT(*) > 1)", "this subquery of WHERE is refused"),
        ("SELECT k FROM a WHERE EXISTS (SELECT COUNT(*) FROM b WHERE a.k = b.k)", "no aggregates of its rows"),
        ("SELECT k FROM ((SELECT * FROM a) LIMIT 3) x", "LIMIT of an inner query is refused"),
        ("SELECT x.k FROM ((SELECT * FROM a) x JOIN b ON x.k = b.k)", "a join in brackets is refused"),
        ("SELECT k FROM a HAVING COUNT(*) > 1", "the column k is refused: it is neither in GROUP BY nor in an aggregate"),
        (
            "SELECT v FROM a JOIN b ON a.k = b.k AND at_time BETWEEN SYMMETRIC ts + INTERVAL '1' HOUR AND ts",
            "a join without bounds of the times is refused",
        ),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) WHERE n BETWEEN SYMMETRIC 3 AND 1",
            "on a rank is refused: a rank is compared with a bound",
        ),
        ("SELECT k FROM a ORDER BY k FETCH FIRST 5 PERCENT ROWS ONLY", "FETCH with PERCENT or WITH TIES is refused"),
        ("SELECT k FROM a LIMIT 5 OFFSET 2", "OFFSET is refused: a query gives the first rows of its order; write a larger LIMIT"),
        ("SELECT k FROM (SELECT k FROM a OFFSET 2)", "OFFSET of an inner query is refused"),
        (f"SELECT a.id FROM a JOIN b ON {WITHIN} ORDER BY b.id", "ORDER BY b.id is refused: rows are printed in the order"),
        (
            "SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR) WHERE window_start > ts "
            "GROUP BY k, window_start, window_end",
            "the condition window_start > ts is refused: windows are not filtered before their operator; use HAVING",
        ),
        (
            "SELECT COUNT(*) AS n FROM (SELECT *, window_end > ts AS x FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
            "GROUP BY window_start, window_end",
            "window_end > ts AS x of rows in windows is refused: the operator that reads the rows names the windows",
        ),
        ("SELECT k FROM EXPLODE(k)", "the table function EXPLODE is refused"),
        ("INSERT INTO t (x, y) SELECT id, k FROM a", "it has a list of columns, or its query is in brackets"),
        (
            "CREATE TABLE t (x INT, k STRING); INSERT INTO t SELECT k, id AS x FROM a",
            "columns are inserted by position, and the query selects k, x; select them in the order of the table: x, k",
        ),
        (
            "CREATE TABLE t (n INT, K STRING); INSERT INTO t SELECT * FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k)",
            "columns are inserted by position, and the query selects k, n; select them in the order of the table: n, K",
        ),
        (
            f"SELECT x.k FROM {counts()} x JOIN {counts(SESSIONS)} y ON x.k = y.k AND x.e = y.s",
            "a join without bounds of the times is refused",
        ),
        (
            "CREATE TABLE t (x INT); INSERT INTO t SELECT id, k FROM a",
            "the table's columns are x, and the query's are id, k; select one column for each of the table, in their order",
        ),
        (
            f"SELECT id FROM a JOIN {counts(DAY)} x ON a.k = x.k AND ts BETWEEN s AND e",
            "a join without an upper bound is refused",
        ),
        (
            f"SELECT x.v FROM {HOUR} x JOIN {HOUR} y ON x.k = y.k AND x.window_end < y.window_end",
            "a join of windows without an equality of window_start and window_end is refused",
        ),
        (
            "SELECT v FROM a JOIN b ON a.k = b.k",
            "join both sides in windows, or look up the version of b at the time of a: a JOIN b FOR SYSTEM_TIME AS OF a.ts",
        ),
        (
            "SELECT COUNT(*) AS n FROM a GROUP BY k, SESSION(ts, INTERVAL '1' HOUR)",
            "GROUP BY SESSION(...) is refused: it is the old form of a window, which Flink has deprecated; "
            "write FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), ...)) GROUP BY window_start, window_end",
        ),
        ("CREATE FUNCTION f AS 'com.example.F'", "there is no CREATE FUNCTION; write its expression with built-in functions"),
        (
            "CREATE TABLE t (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts); CREATE VIEW w AS SELECT *, PROCTIME() AS p FROM t; "
            "SELECT COUNT(*) AS n FROM TUMBLE(TABLE w, DESCRIPTOR(p), INTERVAL '1' HOUR) GROUP BY window_start, window_end",
            "TUMBLE by the processing time p is refused: its rows have another event time",
        ),
        ("CREATE VIEW a AS SELECT id FROM b", "a second table 'a' is refused"),
        *(
            (
                f"CREATE VIEW w AS SELECT id FROM a; {statement} INTO W SELECT k, COUNT(*) AS n FROM a GROUP BY k",
                "INSERT INTO W is refused: it is a view, whose rows are those of its query; insert into a table with another name",
            )
            for statement in ("INSERT", "EXPLAIN INSERT")
        ),
        (
            "CREATE TABLE t (k STRING); EXPLAIN INSERT INTO t SELECT k, COUNT(*) AS n FROM a GROUP BY k",
            "INSERT INTO t is refused: the table's columns are k, and the query's are k, n",
        ),
        ("CREATE VIEW v (x) AS SELECT id, k FROM a", "it names 1 columns, and the query has 2"),
        ("CREATE TABLE t (x INT, WATERMARK FOR y AS y)", "there is no column 'y'; legal: x"),
        ("CREATE TABLE t (x TIMESTAMP(3), WATERMARK FOR x AS CURRENT_TIMESTAMP)", "the watermark is the event time itself, or the event"),
        ("CREATE TABLE t (x STRIN)", "the type STRIN is refused"),
        (
            "CREATE TABLE t (x INT, , y INT)",
            "'CREATE TABLE t (x INT, , y INT)' cannot be parsed: a comma has nothing before or after it (line 1, column 24)",
        ),
        ("CREATE TABLE t (\nx INT,)", "a comma has nothing before or after it (line 2, column 7)"),
        ("CREATE TABLE t ()", "CREATE TABLE t () is refused: the table has no columns; write a name and a type"),
        ("CREATE VIEW v () AS SELECT id FROM a", "the view has an empty list of columns; leave the brackets out"),
        ("CREATE TABLE t `(` x INT)", "the table has no list of columns"),
        ("CREATE TABLE t (x INT) WITH ('a' = 'b'", "\"('a' = 'b'\" in line 1 cannot be parsed: it has no closing )"),
        ("CREATE TABLE t (x INT) WITH ('a' = 'b', 'c'", "it has no closing )"),
        ("CREATE TABLE t (x INT) WITH ('a' = 'b',)", "a comma has nothing before or after it"),
        ("CREATE TABLE t (x INT) WITH ('a' = 'b', 'c')", "'c' is refused: it is no option; write 'name' = 'value'"),
        ("CREATE TABLE t (x INT) WITH 'a' = 'b'", "WITH 'a' = 'b' is refused: WITH has no list of options; write WITH ('name' = 'value')"),
        ("CREATE TABLE t (x INT) WITH `(` 'a' = 'b')", "WITH has no list of options"),
        ("CREATE TABLE t (x INT) WITH ('a' = 'b') y", "y is refused: only COMMENT 'text' and then WITH (options) can follow"),
        ("CREATE TABLE t (x INT) y WITH ('a' = 'b')", "y WITH ('a' = 'b') is refused: only COMMENT 'text' and then"),
        ("CREATE TABLE t (x INT)) WITH ('a' = 'b')", ") WITH ('a' = 'b') is refused: only COMMENT 'text' and then"),
        ("CREATE TABLE t (x INT) WITH ('a' = 'b') COMMENT 'c'", "COMMENT 'c' is refused: only COMMENT 'text' and then WITH"),
        ("CREATE TABLE t (x INT) AS SELECT id FROM a", "AS SELECT id FROM a is refused: only COMMENT 'text' and then WITH"),
        ("CREATE TABLE t (x INT) WITH ('a' = 'b') AS SELECT id FROM a", "write INSERT INTO t SELECT ..."),
        ("CREATE TABLE t (x INT) COMMENT WITH ('a' = 'b')", "COMMENT WITH ('a' = 'b') is refused: COMMENT has no text"),
        ("CREATE TABLE t (x INT) WITH", "a column, a watermark or a clause is incomplete"),
        ("CREATE TABLE t (x INT NOT NULL DEFAULT 5)", "DEFAULT 5 is refused: only NOT NULL, PRIMARY KEY NOT ENFORCED, COMMENT 'text'"),
        ("CREATE TABLE t (x INT NULL METADATA VIRTUAL FROM 'o')", "NULL METADATA VIRTUAL FROM 'o' is refused: only NOT NULL"),
        ("CREATE TABLE t (x INT COMMENT y)", "COMMENT y is refused: only NOT NULL"),
        ("CREATE TABLE t (x INT, y AS x + 1 FROM z)", "x + 1 FROM z is refused: it is not one expression"),
        ("CREATE TABLE t (x JSON)", "the type JSON is refused: Tidemark has no such type"),
        ("CREATE TABLE t (x ROW<y DECIMAL(5, 9)>)", "the type ROW<y DECIMAL(5, 9)> is refused: Tidemark has no such type"),
        ("CREATE TABLE t (x INT, y AS x z)", "x z is refused: it is not one expression"),
        ("CREATE TABLE t (x INT, y AS *)", "* is refused: it is not one expression"),
        ("CREATE TABLE t (x INT COMMENT 'a' COMMENT 'b')", "COMMENT 'a' COMMENT 'b' is refused: only NOT NULL"),
        ("CREATE TABLE t (x INT NOT NULL NULL)", "NOT NULL NULL is refused: only NOT NULL"),
        ("CREATE VIEW w COMMENT nothing AS SELECT k FROM a", "the view has no query"),
        *(
            (f"CREATE TABLE t (x {kind})", f"the type {kind} is refused: Tidemark has no such type")
            for kind in ("DECIMAL(MAX)", "DECIMAL(1, 2, 3)", "DECIMAL(1.5)", "MAP<STRING>", "ROW", "ROW<INT, STRING>")
        ),
        ("CREATE TABLE t (x DECIMAL(39))", "the type DECIMAL(39) is refused: Tidemark has no such type"),
        (
            "CREATE TABLE t (x TIMESTAMP(3), y TIMESTAMP(3), WATERMARK FOR x AS x, WATERMARK FOR y AS y)",
            "WATERMARK FOR y AS y is refused: the table has a watermark for x; write one WATERMARK FOR",
        ),
        ("CREATE TABLE t (x TIMESTAMP(3), WATERMARK FOR x IS x)", "WATERMARK FOR x IS x is refused: it is no watermark"),
        ("CREATE TABLE t (x TIMESTAMP(3), WATERMARK FOR x AS x - INTERVAL '-5' SECOND)", "the watermark would be ahead of the event time"),
        ("CREATE TABLE t (x TIMESTAMP(3), WATERMARK FOR x AS x - INTERVAL '5' SECOND WHERE 1 = 2)", "it is not one expression"),
        ("EXPLAIN CREATE VIEW w AS SELECT k FROM a", "is refused: only PLAN FOR, or some of ESTIMATED_COST"),
        ("CREATE VIEW w NOTHING SELECT k FROM a", "is refused: the view has no query; write CREATE VIEW w AS SELECT"),
        ("INSERT INTO t PARTITION (k = 'x') SELECT v FROM a", "is refused: Tidemark divides its tables by itself; write INSERT INTO t"),
        (
            "SELECT COUNT(*) AS n FROM TUMBLE(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end",
            "PARTITION BY in TUMBLE is refused: a row's windows depend on its time alone",
        ),
        (
            "SELECT COUNT(*) AS n FROM TUMBLE(TABLE a, DESCRIPTOR(ts, k), INTERVAL '1' HOUR) GROUP BY window_start, window_end",
            "TUMBLE has a DESCRIPTOR with 2 columns; legal: DESCRIPTOR(ts)",
        ),
        *(
            (
                f"SELECT COUNT(*) AS n FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL {length}) GROUP BY window_start, window_end",
                "is no length of time",
            )
            for length in ("'1:-30' HOUR TO MINUTE", "'1:90' HOUR TO MINUTE", "'1_0' SECOND", "5 * 2 MINUTE")
        ),
        (
            "CREATE TABLE t (x INT, PRIMARY KEY)",
            "PRIMARY KEY is refused: it has no columns in brackets; write one PRIMARY KEY (name, ...) NOT ENFORCED",
        ),
        ("CREATE TABLE t (x INT, PRIMARY KEY x)", "PRIMARY KEY x is refused: "),
        ("CREATE TABLE t (x INT, PRIMARY KEY () NOT ENFORCED)", "PRIMARY KEY () NOT ENFORCED is refused: it has no columns in brackets"),
        ("CREATE TABLE t (x INT, PRIMARY KEY (x) NOT ENFORCED y)", "only NOT ENFORCED can follow the columns of a key"),
        ("CREATE TABLE t (x INT, PRIMARY KEY (x), PRIMARY KEY (x))", "PRIMARY KEY (x) is refused: the table has the key (x)"),
        ("CREATE TABLE t (x INT PRIMARY KEY, y INT PRIMARY KEY)", "y INT PRIMARY KEY is refused: the table has the key (x)"),
        ("CREATE TABLE t (x INT, CONSTRAINT c UNIQUE (x))", "a table has no constraint but its primary key"),
        ("CREATE TABLE t (x INT, CONSTRAINT c CHECK (x > 3))", "a table has no constraint but its primary key"),
        ("CREATE TABLE t (x INT COMMENT)", "a column, a watermark or a clause is incomplete"),
        ("CREATE TABLE t (x TIMESTAMP(3), WATERMARK FOR x AS)", "a column, a watermark or a clause is incomplete"),
        ("CREATE TABLE t (x INT) COMMENT", "a column, a watermark or a clause is incomplete"),
        ("CREATE VIEW v (x INT) AS SELECT id FROM a", "x INT in the columns of view 'v' is refused: it is no name of a column"),
        ("CREATE VIEW v (x COMMENT, y) AS SELECT id, k FROM a", "x COMMENT in the columns of view 'v' is refused"),
        ("CREATE VIEW v ('x') AS SELECT id FROM a", "'x' in the columns of view 'v' is refused"),
        ("CREATE VIEW v (x,, y) AS SELECT id, k FROM a", "a comma has nothing before or after it"),
        ("CREATE VIEW v (x SELECT id FROM a", "'(x SELECT id FROM a' in line 1 cannot be parsed: it has no closing )"),
        ("CREATE", "CREATE is refused: it does not say what to create; write CREATE TABLE or CREATE VIEW"),
        ("CREATE TABLE t (x INT) PARTITIONED BY (x)", "PARTITIONED BY of table 't' is refused"),
        (
            "DROP TABLE t",
            "Tidemark has no such statement; write CREATE TABLE, CREATE VIEW",
        ),
        ("SELECT TO_DATE(k, 'yyyyMMddHHmmssSSS') AS x FROM a", "the format 'yyyyMMddHHmmssSSS' is refused"),
        ("SELECT TRUNCATE(v, 0, 5) AS x FROM a", "TRUNCATE of 3 values is refused: it has one or two; write TRUNCATE(v)"),
        ("SELECT SPLIT_INDEX(k, 256, 0) AS x FROM a", "write a text, or a number up to 255"),
        ("SELECT TO_TIMESTAMP_LTZ(v, id) AS x FROM a", "TO_TIMESTAMP_LTZ with the precision id is refused"),
        ("SELECT id FROM a ORDER BY v + 1", "ORDER BY v + 1 is refused"),
        ("SELECT id FROM a ORDER BY v", "ORDER BY v is refused: rows are printed in the order of their columns, which are id; select it"),
        ("SELECT id FROM a ORDER BY idd", "did you mean 'id'?"),
        ("SELECT k, SUM(v) AS n FROM a GROUP BY k HAVING v > 2", "add it: GROUP BY ..., v, or filter by it in WHERE"),
        ("SELECT k FROM a WHERE v > RAND()", "or on the session; use a hash of a column"),
        (
            "SELECT k, FIRST_VALUE(v) AS n FROM a GROUP BY k",
            "FIRST_VALUE is refused: it depends on the order in which rows are read; write MIN_BY",
        ),
        ("SELECT k, LAST_VALUE(v) AS n FROM a GROUP BY k", "write MAX_BY(v, ts), with the event time ts"),
        ("SELECT k, ANY_VALUE(v) + 1 AS n FROM a GROUP BY k", "ANY_VALUE is refused"),
        (
            "SELECT COUNT(*) AS n FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' DAY) "
            "GROUP BY k, window_start, window_end",
            "SESSION with a gap of 2 days is refused: in SQL a session ends after 1 day at the latest; declare the table in Python or YAML",
        ),
        (
            "SELECT v FROM a FULL JOIN b FOR SYSTEM_TIME AS OF ts ON a.k = b.k",
            "FULL JOIN with FOR SYSTEM_TIME AS OF is refused: a version is looked up for each left row; write JOIN or LEFT JOIN",
        ),
        (
            "SELECT v FROM a JOIN b FOR SYSTEM_TIME AS OF ts ON a.k = b.k AND at_time > ts - INTERVAL '1' DAY",
            "a bound of the times in addition to FOR SYSTEM_TIME AS OF is refused: the version at the left row's time is used, however old "
            "it is; leave it out, or declare the table of INSERT INTO with the option 'tidemark.max-age'",
        ),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) WHERE n = 0",
            "a rank n of at least 1 and at most 0 is refused: no row has it: ranks start at 1",
        ),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n "
            "FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE n BETWEEN 5 AND 3",
            "a rank n of at least 5 and at most 3 is refused: no row has it; write",
        ),
        (
            f"SELECT ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS window_time, * FROM {HOUR}",
            "a rank AS window_time is refused: rows in windows have a column of this name; give the rank another name",
        ),
        (f"SELECT id FROM ({RANKED}) WHERE 3 >= n + 1", "the condition 3 >= n + 1 on a rank is refused: a rank is compared with a bound"),
        (f"SELECT id FROM ({RANKED}) WHERE id >= ABS(n)", "the condition id >= ABS(n) on a rank is refused"),
        (f"SELECT id FROM ({RANKED}) WHERE n <= n", "the condition n <= n on a rank is refused"),
        (f"SELECT id FROM ({RANKED}) WHERE n <= v", "there is no column 'v'; legal: id, n"),
        (
            "SELECT x.id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) AS x "
            "JOIN b ON x.k = b.k AND b.at_time = x.ts WHERE n <= 3",
            "ROW_NUMBER() AS n without a last rank is refused: only the first rows of each partition have a bounded state; "
            "add WHERE n <= N in an outer query that reads only these rows",
        ),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS v FROM a) WHERE v <= 3",
            "ROW_NUMBER() AS v0 without a last rank is refused",
        ),
        (
            "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY rank) AS n FROM "
            f"(SELECT k, window_start, window_end, COUNT(*) AS rank FROM {HOUR} GROUP BY k, window_start, window_end)) WHERE n <= 2",
            "a column rank in rows that are ranked is refused: the rank is computed under this name; give the column another name",
        ),
        (
            "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY k) AS n FROM (SELECT k, s AS "
            f"window_start, e AS window_end FROM {counts().replace('AS n', 'AS rank')})) WHERE n <= 2",
            "a column rank in rows that are ranked is refused",
        ),
        (
            "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n "
            f"FROM (SELECT k, v, id AS `Rank`, window_start, window_end FROM {HOUR})) WHERE n <= 2",
            "a column rank in rows that are ranked is refused",
        ),
        (
            "SELECT id FROM (SELECT *, RANK() OVER (PARTITION BY k) AS n FROM a) WHERE n < 3",
            "(PARTITION BY k) is refused: its rows have no order",
        ),
        ("SELECT k FROM (SELECT k, TRUNCATE() AS x FROM a) WHERE x > 1", "'TRUNCATE()' cannot be parsed"),
        ("SELECT k, ROW_NUMBER() OVER (ORDER BY v) FROM a", "give it a name with AS n, and add WHERE n <= N in an outer query"),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY PROCTIME()) AS n FROM a) WHERE n = 1",
            "it has no PARTITION BY, and only the first or the last row of a key is kept; add PARTITION BY",
        ),
    ],
)
def test_an_error_says_what_is_legal(text: str, message: str):
    with pytest.raises(SqlError, match=re.escape(message)):
        plan(text, TABLES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * EXCEPT (v) FROM a", "* EXCEPT (v) is refused: Flink has no such list; name the columns"),
        ("SELECT a.* EXCEPT (v) FROM a", "* EXCEPT (v) is refused"),
        ("SELECT * REPLACE (v + 1 AS v) FROM a", "* REPLACE (v + 1 AS v) is refused"),
        ("SELECT * RENAME (v AS w) FROM a", "* RENAME (v AS w) is refused"),
        ("SELECT COUNT(* EXCEPT (v)) FROM a", "* EXCEPT (v) is refused"),
        ("SELECT k FROM a PIVOT (SUM(v) FOR k IN ('x'))", "PIVOT or UNPIVOT is refused"),
        ("SELECT k FROM (SELECT k FROM a) UNPIVOT (v FOR k IN (x, y))", "PIVOT or UNPIVOT is refused"),
        ("SELECT k, COUNT(*) FROM a GROUP BY k WITH TOTALS", "TOTALS is refused: there is no operator for it; leave it out"),
        ("SELECT COUNT(*) FROM a GROUP BY ALL", "ALL is refused"),
        ("SELECT k FROM a CONNECT BY k = v", "CONNECT BY k = v is refused"),
        ("SELECT k FROM a AT (TIMESTAMP => ts)", "AT (TIMESTAMP => ts) is refused"),
        ("SELECT k FROM TUMBLE(TABLE a AT (TIMESTAMP => ts), DESCRIPTOR(ts), INTERVAL '1' HOUR)", "AT (TIMESTAMP => ts) is refused"),
        ("SELECT k INTO z FROM a", "INTO z is refused"),
        ("SELECT k FROM a FOR UPDATE", "FOR UPDATE is refused: the rows of a query are not locked; leave it out"),
        ("SELECT k FROM a SORT BY k", "SORT BY k is refused"),
        ("SELECT k FROM a CLUSTER BY k", "CLUSTER BY k is refused"),
        ("SELECT k FROM a DISTRIBUTE BY k", "DISTRIBUTE BY k is refused"),
        ("WITH RECURSIVE x AS (SELECT k FROM a) SELECT k FROM x", "RECURSIVE is refused"),
        ("SELECT k FROM a WITH (NOLOCK)", "WITH (NOLOCK) is refused"),
        ("SELECT k FROM (SELECT k FROM a) TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is refused"),
        ("SELECT DISTINCT ON (k) k, v FROM a", "DISTINCT ON is refused: Flink has no such clause; use ROW_NUMBER() ... = 1"),
        ("SELECT k FROM a LIMIT 3 BY k", "LIMIT n BY is refused"),
        ("SELECT k FROM a WHERE k IN ((SELECT k FROM b WHERE at_time = ts) LIMIT 3)", "LIMIT of an inner query is refused"),
        ("SELECT k FROM a WHERE EXISTS ((SELECT k FROM b) LIMIT 3)", "LIMIT inside of an expression is refused"),
        ("WITH x AS (SELECT k FROM a) (SELECT k FROM x) LIMIT 3", "WITH before a query in brackets is refused"),
        ("SELECT k FROM a ORDER BY k WITH FILL", "WITH FILL is refused"),
        ("SELECT v FROM a JOIN b FOR VERSION AS OF ts ON a.k = b.k", "FOR VERSION AS OF is refused"),
        ("SELECT v FROM a JOIN b FOR SYSTEM_TIME BETWEEN ts AND ts ON a.k = b.k", "FOR SYSTEM_TIME BETWEEN is refused"),
        (f"SELECT w FROM a RIGHT SEMI JOIN b ON {WITHIN}", "RIGHT SEMI JOIN is refused: Flink has no such join"),
        (f"SELECT v FROM a OUTER JOIN b ON {WITHIN}", "OUTER JOIN is refused: Flink has no such join"),
        ("SELECT v FROM (a JOIN b ON a.k = b.k)", "a join in brackets is refused"),
        (f"SELECT a.v FROM a JOIN b JOIN a AS c ON b.k = c.k AND c.ts = at_time ON {WITHIN}", "a join inside of another join is refused"),
        (
            f"SELECT v FROM a LEFT JOIN (SELECT k, at_time FROM b) AS b JOIN b AS c ON b.k = c.k ON {WITHIN}",
            "write each ON after its own JOIN",
        ),
        ("SELECT k FROM a INTERSECT SELECT k FROM b", "INTERSECT is refused: there is no operator for it; write EXISTS"),
        ("SELECT k FROM a EXCEPT SELECT k FROM b", "EXCEPT is refused: there is no operator for it; write NOT EXISTS"),
        ("SELECT k FROM a CROSS JOIN UNNEST(v)", "UNNEST in FROM is refused: there is no operator that makes several rows of one; deliver"),
        ("SELECT k FROM a, LATERAL TABLE(f(v))", "LATERAL is refused: there is no operator that makes several rows of one; deliver"),
        ("SELECT x FROM (VALUES (1)) AS c (x)", "VALUES in FROM is refused: an operator reads tables; deliver the rows to a source"),
    ],
)
def test_a_clause_without_an_operator_is_refused(text: str, message: str):
    with pytest.raises(SqlError, match=re.escape(message)):
        plan(text, TABLES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a text without exactly one query is refused"),
        ("CREATE TABLE t (x INT)", "end it with SELECT or EXPLAIN SELECT"),
        ("CREATE TABLE t (x INT); EXPLAIN SELECT x FROM t", "there is no frame 't'; legal: none"),
    ],
)
def test_a_text_over_frames_ends_with_one_query(text: str, message: str):
    with pytest.raises(SqlError, match=message):
        operators.sql(text, {})
