"""Aggregates that depend on the order of rows, on randomness or on the clock are refused; others are accepted."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from operators import (
    Aggregate,
    CoGroup,
    CountWindowAggregate,
    DeltaEvictor,
    IntervalJoin,
    Operator,
    OperatorError,
    ProcessCountWindow,
    ProcessWindow,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators.nondeterministic import check_deterministic


@pytest.mark.parametrize(
    ("sql", "match"),
    [
        ("first(v)", r"in place of first use min_by\(v, struct\(event_time, seq, arrival\)\)"),
        ("sum(v) + LAST (v)", "in place of last use"),
        ("any_value(v)", "in place of any_value"),
        ("max(k) || `First` -- of all\n (v)", "in place of first use"),
        ("count(*) -- rows\r + first(v)", "in place of first use"),
        ("approx_top_k_estimate(approx_top_k_accumulate(v), 5)", r"in place of approx_top_k_accumulate use mode\(\) WITHIN GROUP"),
        ("approx_top_k_combine(v, 100)", r"in place of approx_top_k_combine use mode\(\) WITHIN GROUP"),
        ("first_value(v, true)", "in place of first_value"),
        ("collect_list(v)", r"sort_array\(collect_list\(v\)\)"),
        ("to_json(collect_set(v))", "sort the result of collect_set"),
        ("`collect_list`(v)", "sort the result of collect_list"),
        ("array_join(array_agg(v), ',')", "sort the result of array_agg"),
        ("listagg(v, ',')", "sort the result of listagg"),
        ("listagg(k, ',') WITHIN GROUP (ORDER BY v)", "ORDER BY v\\), by the value itself"),
        ("listagg(v, ',') WITHIN GROUP (ORDER BY v % 10)", "by the value itself"),
        ("sort_array(slice(collect_list(v), 1, 2))", "sort the result of collect_list before anything else"),
        ("array_sort(collect_list(struct(v, k)), (a, b) -> a.v - b.v)", "without a comparator"),
        ("sort_array(transform(collect_list(v), (x, i) -> x * i))", "sort the result of collect_list"),
        ("size(collect_set(v)) + element_at(collect_list(v), 1)", "sort the result of collect_list"),
        ("percentile_disc(0.5) WITHIN GROUP (ORDER BY v) + size(slice(array_agg(v), 1, 2))", "sort the result of array_agg"),
        ("size(collect_list(v)[0])", "sort the result of collect_list"),
        ("array_sort(transform(collect_list(v), x -> x)[0])", "sort the result of collect_list"),
        ("listagg(last, ',') WITHIN GROUP (ORDER BY first)", "by the value itself"),
        ("listagg(name.last, ',') WITHIN GROUP (ORDER BY name.first)", "by the value itself"),
        ("listagg(o.desc, ',') WITHIN GROUP (ORDER BY o.asc NULLS FIRST)", "by the value itself"),
        ("listagg(m['A'], ',') WITHIN GROUP (ORDER BY m['a'])", "by the value itself"),
        ("sum(v) --\r * max(rand())", r"more than the rows \(random numbers, files or the session\), as rand does"),
        ("sum(v * rand())", r"more than the rows \(random numbers, files or the session\), as rand does"),
        ("max(current_timestamp)", "the clock, as current_timestamp does"),
        ("max(current_user)", r"more than the rows \(random numbers, files or the session\), as current_user does"),
        ("count_if(k = SESSION_USER)", "as session_user does; write the name of a column in backticks"),
        ("max(`rand`())", "as rand does"),
        ("count_if(o.user = current_user)", "as current_user does"),
        ("max(LOCALTIME())", "the clock, as localtime does"),
        ("max(input_file_block_start())", "as input_file_block_start does"),
        ("count_if(name = session_user())", "as session_user does"),
        ("max(current_database())", "as current_database does"),
        ("max(UNIX_TIMESTAMP( ) - t)", "the clock, as unix_timestamp does; take a time from a column"),
        ("max(unix_timestamp(/* no time */) - t)", "the clock, as unix_timestamp does"),
        (
            "max(CAST('Now' AS TIMESTAMP))",
            r"the clock, as 'Now' does; take a time from a column; if the word itself is meant, compare by column RLIKE '\^today\$' "
            r"and return concat\('to', 'day'\)",
        ),
        ("sum(v) FILTER (WHERE t > timestamp'today UTC')", "the clock, as 'today UTC' does"),
        (r"max(replace(k, r'\', concat(now(), 'b')))", "the clock, as now does"),
        (r"max(replace(k, R'\', '/') || rand() || r'x\')", "as rand does"),
        ("max(t > r'now')", "the clock, as 'now' does"),
    ],
)
def test_an_aggregate_that_depends_on_order_randomness_or_the_clock_is_refused(sql: str, match: str) -> None:
    with pytest.raises(OperatorError, match=f"`aggregates` is .*legal: aggregates that do not depend on .*{match}"):
        WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"x": sql})
    with pytest.raises(OperatorError, match=match):
        Aggregate(by="k", aggregates={"x": sql})


@pytest.mark.parametrize(
    "sql",
    [
        "min_by(v, struct(event_time, seq, arrival))",
        "sort_array(collect_list(struct(seq, arrival)))",
        "size(collect_set(v))",
        "max(o.current_date)",
        "max(o.current_user)",
        "max(`current_user`)",
        "max(user)",
        "max(struct(k AS current_user, user))",
        "size(filter(sort_array(collect_list(v)), session_user -> session_user > 1))",
        "max(unix_timestamp(t))",
        "max(unix_timestamp(`t`))",
        "max(unix_timestamp('2024-01-01 00:00:00'))",
        "max(if(k RLIKE '^today$', concat('to', 'day'), k))",
        "count_if(k = 'now or never' OR k RLIKE '^today$' OR `now` > 1)",
        "array_sort(transform(collect_list(v), x -> x + 1))",
        "listagg(v, ',') WITHIN GROUP (ORDER BY v)",
        "listagg(DISTINCT v, ',') WITHIN GROUP (ORDER BY v DESC NULLS LAST)",
        "listagg(last, ',') WITHIN GROUP (ORDER BY first DESC, last NULLS LAST)",
        "listagg(DISTINCT desc, ',') WITHIN GROUP (ORDER BY desc DESC)",
        "`sort_array`(`collect_list`(v))",
        "listagg(upper(k), ',') WITHIN GROUP (ORDER BY upper(k), v)",
        "sort_array((array_distinct(filter(collect_list(v), x -> x > 1))))",
        "aggregate(sort_array(collect_list(v)), 0, (sum, x) -> sum + x)",
        "concat_ws(' ', transform(sort_array(collect_list(struct(seq, id))), r -> r.id))",
        "mode() WITHIN GROUP (ORDER BY v)",
        "array_sort(flatten(collect_list(tags)))",
        "sort_array(concat(collect_list(a), collect_list(b)))",
        "size(array_except(collect_set(a), collect_set(b)))",
        "array_sort(coalesce(collect_list(v), array()))",
        "sort_array(collect_list(tags[0]))",
        "element_at(sort_array(collect_list(v)), 1) + sort_array(collect_list(v))[0]",
        "listagg(name, ',') WITHIN GROUP (ORDER BY ts, (name) DESC)",
        "max(first)",
        "max(`first(v)`)",
        "count_if(kind = 'first(v)')",
        "sum(v) /* no first(v) */",
        r"count_if(replace(k, r'\', '/') = 'current_date')",
        "sum(now)",
        "max(version)",
        "count(*)",
    ],
)
def test_a_deterministic_aggregate_is_accepted(sql: str) -> None:
    assert Aggregate(by="k", aggregates={"x": sql}).aggregates == {"x": sql}


def test_a_name_that_is_no_column_is_a_function_without_parentheses(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'a' AS k, TIMESTAMP '1970-01-01 00:00:01' AS event_time, 1L AS seq, 0L AS arrival")
    minute = Tumbling(size="1 minute")
    operators: list[Operator] = [
        Aggregate(by="k", aggregates={"who": "max(user)"}),
        WindowedAggregate(by="k", window=minute, aggregates={"who": "max(user)"}),
        CountWindowAggregate(by="k", size=1, aggregates={"who": "max(user)"}),
        CountWindowAggregate(by="k", ends_with="k <> `user`", aggregates={"n": "count(*)"}),
    ]
    for operator in operators:
        with pytest.raises(OperatorError, match=r"`(aggregates|ends_with)` is .*; legal: .* on the rows alone.*, as user does"):
            operator(rows)
        assert operator(rows.withColumn("User", F.lit("me"))).columns


def test_an_extra_join_condition_reads_columns_of_the_result() -> None:
    columns = ["k", "event_time", "v"]
    for join in (
        IntervalJoin(on="k", lower=0, upper=0, residual="v <> user"),
        WindowJoin(on="k", window=Tumbling(size=1), residual="v <> user"),
    ):
        with pytest.raises(OperatorError, match=r"`residual` is 'v <> user'; legal: .*, as user does"):
            join.result_columns(columns, columns)
        assert "user" in join.result_columns(columns, [*columns, "user"])


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: ProcessWindow(by="k", window=Tumbling(size=1), rows="transform(elements, e -> struct(user AS who))"), "rows"),
        (lambda: ProcessCountWindow(by="k", size=1, rows="transform(elements, e -> struct(user AS who))"), "rows"),
        (lambda: CoGroup(on="k", window=Tumbling(size=1), rows="transform(left, l -> struct(user AS who))"), "rows"),
        (lambda: DeltaEvictor("row.v - length(user)", 1), "delta"),
    ],
)
def test_a_function_of_a_windows_rows_has_no_column_of_the_user(make: Callable[[], object], parameter: str) -> None:
    with pytest.raises(OperatorError, match=f"`{parameter}` is .*, as user does"):
        make()


def test_a_row_or_a_key_may_be_named_user() -> None:
    ProcessWindow(by="user", window=Tumbling(size=1), rows="transform(elements, e -> struct(user AS who))")
    CoGroup(on="k", window=Tumbling(size=1), rows="transform(left, (user, i) -> struct(user.id, i, user.user))")


@pytest.mark.parametrize(
    "residual", ["current_user = left_name", "left_t < now()", "left_t < 'now'", "v > rand()", "unix_timestamp() - left_v > right_v"]
)
def test_an_extra_join_condition_depends_on_the_rows_alone(residual: str) -> None:
    with pytest.raises(OperatorError, match=r"`residual` is .*; legal: an expression whose value depends on the rows alone"):
        WindowJoin(on="k", window=Tumbling(size="1 minute"), residual=residual)
    with pytest.raises(OperatorError, match=r"`residual` is .*; legal: an expression whose value depends on the rows alone"):
        IntervalJoin(on="k", lower=0, upper="1 minute", residual=residual)


def test_backticks_are_no_way_out_if_there_is_no_such_column() -> None:
    with pytest.raises(OperatorError, match="as user does; there is no column user"):
        check_deterministic("residual", "user = name", ["name"])


def test_fields_after_a_raw_text_of_a_delta_are_read() -> None:
    assert DeltaEvictor(r"length(replace(row.k, r'\', last.n || 'x'))", 5).fields_read == (("k",), ("n",))
    assert DeltaEvictor("row.k -- of x\r - last.n", 5).fields_read == (("k",), ("n",))
