"""An expression that reads an unknown column is found without Spark; one that Spark accepts is never refused."""

import pytest
from pyspark.sql import functions as F

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, Punctuated, RowRule, SourceContract
from assets.expressions import unknown_column
from assets.pipeline import Pipeline
from operators import (
    Aggregate,
    AsOfJoin,
    CoGroup,
    Consecutive,
    CountWindowAggregate,
    Deduplicate,
    DeltaEvictor,
    IntervalJoin,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)

COLUMNS = (
    "a INT, b STRING, ts STRING, t TIMESTAMP, arr ARRAY<STRUCT<price: INT>>, m MAP<STRING, INT>, s STRUCT<x: STRUCT<y: INT>>, `b-c` STRING"
)
NAMES = ["a", "b", "ts", "t", "arr", "m", "s", "b-c"]
LEGAL = [
    "to_timestamp(ts, 'yyyy')",
    "timestampadd(HOUR, 1, t)",
    "dateadd(DAY, a, t)",
    "datediff(DAY, t, t) > 1",
    "timestampdiff(MINUTE, t, t)",
    "exists(arr, x -> x.price > a)",
    "transform(arr, (v, i) -> v.price + i + a)",
    "aggregate(arr, 0, (acc, v) -> acc + v.price)",
    "s.x.y > 3",
    "S.X.y + A",
    "m['k'] + arr[0].price",
    "extract(YEAR FROM t)",
    "interval 3 days + t",
    "t > timestamp '2020-01-01'",
    '`b-c` = "text"',
    "current_timestamp > t",
    "current_date() < t",
    "user = b",
    "cast(ts as timestamp)",
    "a::decimal(3,1)",
    "try_to_timestamp(concat(b, 'T', ts))",
    "a <=> 1",
    "b rlike 'a'",
    "date_trunc('DAY', t)",
    "named_struct('q', a).q",
    "if(a is not distinct from 1, b, ts)",
    "b like any ('a', 'b')",
    "from_json(b, 'z INT').z",
    "unix_millis(t)",
    "case when a > 1 then b else ts end",
    "count(*)",
    "sum(a) filter (where b = 'x')",
    "max_by(b, t)",
    "try_cast(b as int)",
    "b ilike 'x'",
    "arr.price",
    "window(t, '1 hour').start",
]


def test_what_spark_accepts_is_not_refused(spark):
    frame = spark.createDataFrame([], COLUMNS)
    for expression in LEGAL:
        assert unknown_column(expression, NAMES) is None, expression
        assert frame.select(F.expr(expression)).schema, expression


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("to_timestamp(tss, 'yyyy')", "tss"),
        ("exists(arr, x -> x.price > z)", "z"),
        ("ss.x.y", "ss"),
        ("sum(amount) - a", "amount"),
        ("`b-d` = 'x'", "b-d"),
    ],
)
def test_an_unknown_column_is_found(expression, unknown):
    assert unknown_column(expression, NAMES) == unknown


@pytest.mark.parametrize("expression", ["a in (select z from other)", "a ->", ")(", "SELECT 1"])
def test_what_is_not_certain_is_left_to_spark(expression):
    assert unknown_column(expression, NAMES) is None


HOURLY = {"window": Tumbling(size="1 hour"), "aggregates": {"n": "count(*)"}}
RIDES = {"name": "rides", "schema": "zone STRING, started_at TIMESTAMP, fare INT", "event_time": "started_at"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"event_time": "started"},
            r"`event_time` is 'started'; legal: the columns of source 'rides' are zone, started_at, fare; did you mean 'started_at'\?",
        ),
        (
            {"rules": (RowRule("fare_not_negative", "fair >= 0"),)},
            r"`condition` is 'fair >= 0'; legal: 'fair' is no column of source 'rides'; .*; did you mean 'fare'\?",
        ),
        (
            {"unique_key": ("zones",)},
            r"`unique_key` is 'zones'; legal: the columns of source 'rides' are zone, started_at, fare; did you mean 'zone'\?",
        ),
        ({"watermark": Punctuated("mark")}, r"`watermark` is 'mark'; legal: the columns of source 'rides' are"),
        ({"watermark": Punctuated("started_at", marker="is_mark")}, r"`marker` is 'is_mark'; legal: the columns of source 'rides' are"),
    ],
)
def test_a_contract_names_the_parameter_and_the_columns(changes, message):
    with pytest.raises(ContractError, match=message):
        SourceContract(**{**RIDES, **changes})


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (
            WindowedAggregate(by="zones", window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}),
            r"^table 'made': `by` is 'zones'; legal: the columns of 'rides' are zone, started_at, fare; did you mean 'zone'\?",
        ),
        (
            WindowedAggregate(by="zone", window=Tumbling(size="1 hour"), aggregates={"total": "sum(fair)"}),
            r"^table 'made': `aggregates` is 'sum\(fair\)'; legal: 'fair' is no column of 'rides'; .*; did you mean 'fare'\?$",
        ),
        (Aggregate(by="zone", aggregates={"total": "sum(fair)"}), r"`aggregates` is 'sum\(fair\)'; legal: 'fair' is no column of 'rides'"),
        (
            Aggregate(by="zone", aggregates={"newest": "max(localtimestamp)"}),
            r"`aggregates` is 'max\(localtimestamp\)'; legal: an expression .* on the rows alone; localtimestamp is no column",
        ),
        (
            CountWindowAggregate(by="zone", ends_with="zone = USER", aggregates={"n": "count(*)"}),
            r"`ends_with` is 'zone = USER'; legal: an expression .* on the rows alone; USER is no column",
        ),
        (TopN(by="area", order_by="fare DESC", rank_end=3), r"`by` is 'area'; legal: the columns of 'rides' are"),
        (TopN(by="zone", order_by="fair DESC", rank_end=3), r"`order_by` is 'fair'; legal: the columns of 'rides' are"),
        (TopN(by="zone", order_by="fare", rank_end="fair"), r"`rank_end` is 'fair'; legal: .*; did you mean 'fare'\?$"),
        (TopN(by="zone", order_by="fare", rank_end=3, unique_key="Zone"), r"`unique_key` is 'Zone'; legal: .*; did you mean 'zone'\?$"),
        (
            TopN(by="zone", order_by="zone", rank_end=3, unique_key="zone", change="Fare"),
            r"`change` is 'Fare'; legal: .*; did you mean 'fare'",
        ),
        (TopN(by="zone", order_by="Fare DESC", rank_end=3), r"`order_by` is 'Fare'; legal: .*; did you mean 'fare'\?$"),
        (Aggregate(by="ZONE", aggregates={"n": "count(*)"}), r"`by` is 'ZONE'; legal: .*; did you mean 'zone'\?$"),
        (
            Consecutive(of=WindowedAggregate(by="Zone", **HOURLY), then=TopK(k=1, order_by="n")),
            r"`by` is 'Zone'; legal: .* 'rides' .*; did you mean 'zone'\?$",
        ),
        (
            Consecutive(of=WindowedAggregate(by="zone", **HOURLY), then=TopK(k=1, order_by="N")),
            r"`order_by` is 'N'; legal: the columns of the results of WindowedAggregate are zone, .*; did you mean 'n'\?$",
        ),
        (
            WindowedAggregate(by="zone", **HOURLY, evictor=DeltaEvictor("row.fare - last.Fair", 5)),
            r"`delta` is 'row.fare - last.Fair'; legal: 'Fair' is no column of 'rides'; .*; did you mean 'fare'\?$",
        ),
        (
            CountWindowAggregate(
                by="zone", size=2, aggregates={"n": "count(*)"}, evictor=DeltaEvictor("row.left.fare - last.left.fare", 5)
            ),
            r"`delta` is 'row.left.fare - last.left.fare'; legal: 'left' is no column of 'rides'; ",
        ),
    ],
)
def test_a_pipeline_names_the_parameter_and_the_input(operator, message):
    table = DerivedAsset(name="made", inputs=("rides",), operator=operator)
    with pytest.raises(ContractError, match=message):
        Pipeline(sources=[SourceContract(**RIDES)], tables=[table])


def test_a_column_with_the_name_of_a_function_can_be_aggregated():
    rides = SourceContract(name="rides", schema="zone STRING, at TIMESTAMP, User STRING, session_user STRING", event_time="at")
    aggregates = {"last_user": "max(user)", "last_session": "max(`session_user`)"}
    table = DerivedAsset(name="made", inputs=("rides",), operator=Aggregate(by="zone", aggregates=aggregates))
    assert Pipeline(sources=[rides], tables=[table]).tables == (table,)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (
            IntervalJoin(on="zones", lower=0, upper="1 hour"),
            r"`on` is 'zones'; legal: the columns of 'rides' are .*; did you mean 'zone'\?$",
        ),
        (
            CoGroup(on="Zone", window=Tumbling(size="1 hour")),
            r"`on` is 'Zone'; legal: the columns of 'rides' are .*; did you mean 'zone'\?$",
        ),
        (AsOfJoin(on="zone", change="kind"), r"`change` is 'kind'; legal: the columns of 'fares' are zone, at, event_time, seq, arrival$"),
        (
            IntervalJoin(on="zone", lower=0, upper="1 hour", residual="fair > 1"),
            r"`residual` is 'fair > 1'; legal: 'fair' is no column of the pairs of 'rides' and 'fares'; .*; did you mean 'fare'\?$",
        ),
        (
            WindowJoin(on="zone", window=Tumbling(size="1 hour"), residual="user = zone"),
            r"`residual` is .*; legal: an expression .* rows alone; user is no column",
        ),
        (
            WindowJoin(on="zone", window=Tumbling(size="1 hour"), evictor=DeltaEvictor("row.Left.fare - last.right.fare", 5)),
            r"`delta` is 'row.Left.fare - last.right.fare'; legal: 'fare' is no column of 'fares'; ",
        ),
        (
            CoGroup(on="zone", window=Tumbling(size="1 hour"), evictor=DeltaEvictor("row.left.`fair` - 1", 5)),
            r"`delta` is 'row.left.`fair` - 1'; legal: 'fair' is no column of 'rides'; .*; did you mean 'fare'\?$",
        ),
    ],
)
def test_a_join_names_the_table_and_the_most_similar_column(operator, message):
    fares = SourceContract(name="fares", schema="zone STRING, at TIMESTAMP", event_time="at")
    table = DerivedAsset(name="made", inputs=("rides", "fares"), operator=operator)
    with pytest.raises(ContractError, match=f"^table 'made': {message}"):
        Pipeline(sources=[SourceContract(**RIDES), fares], tables=[table])


@pytest.mark.parametrize(
    "operator",
    [
        Deduplicate(by="zone", order="arrival"),
        Deduplicate(by="zone", window=Tumbling(size="1 hour")),
        TopK(k=2, order_by=["fare DESC", "zone"], window=Tumbling(size="1 hour")),
        TopN(by="zone", order_by="fare", rank_end="fare", unique_key="zone"),
        Aggregate(by="zone", aggregates={"latest": "MAX(Fare)"}),
        TopN(by="zone", order_by="seq", rank_end=2),
        Aggregate(by="zone", aggregates={"latest": "max_by(fare, event_time)"}),
        WindowedAggregate(window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}),
        WindowedAggregate(
            window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}, evictor=DeltaEvictor("row.Fare - last . `fare`", 5)
        ),
        CountWindowAggregate(
            by="zone", size=2, aggregates={"n": "count(*)"}, evictor=DeltaEvictor("row.seq + row . arrival /* row.x */", 5)
        ),
        Consecutive(
            of=WindowedAggregate(by="zone", window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}),
            then=TopK(k=1, order_by="n DESC"),
        ),
    ],
    ids=lambda o: type(o).__name__,
)
def test_an_operator_of_known_columns_is_accepted(operator):
    made = DerivedAsset(name="made", inputs=("rides",), operator=operator)
    assert Pipeline(sources=[SourceContract(**RIDES)], tables=[made]).tables == (made,)


@pytest.mark.parametrize(
    "operator",
    [Deduplicate(by="zone", window=Tumbling(size="1 hour")), TopK(k=2, order_by="fare", window=Tumbling(size="1 hour"))],
    ids=lambda o: type(o).__name__,
)
def test_the_rows_of_a_window_keep_the_columns_of_their_source(operator):
    made = DerivedAsset(name="made", inputs=("rides",), operator=operator)
    total = WindowedAggregate(by="zone", window=Tumbling(size="1 hour"), aggregates={"total": "sum(fare)", "first": "min(window_start)"})
    tables = [made, DerivedAsset(name="totals", inputs=("made",), operator=total)]
    assert len(Pipeline(sources=[SourceContract(**RIDES)], tables=tables).tables) == 2


def test_the_columns_of_a_window_are_those_that_its_readers_can_use():
    counts = DerivedAsset(
        name="counts",
        inputs=("rides",),
        operator=WindowedAggregate(by="zone", window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}),
    )
    top = DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by="m DESC"))
    with pytest.raises(ContractError, match=r"`order_by` is 'm'; legal: the columns of 'counts' are zone, window_start, window_end, n"):
        Pipeline(sources=[SourceContract(**RIDES)], tables=[counts, top])
