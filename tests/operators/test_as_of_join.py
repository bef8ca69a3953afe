"""The as-of join on static frames: a comparison with a naive model, closed ranges, result columns, and refused parameters."""

import random
from collections import Counter
from collections.abc import Mapping
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import Append, AsOfJoin, ByTimeRange, ClosedRange, ColumnError, DurationError, OperatorError, StreamingError
from operators.engine_columns import FINALIZED_AT
from operators.timing import instant
from tests.operators.examples import read
from tests.operators.frames import by_tag, frame, tagged
from tests.support.as_of_model import AsOfModel, AsOfRow

ROWS = pa.schema(
    {
        "case_id": pa.string(),
        "k": pa.string(),
        "event_time": pa.timestamp("us", tz="UTC"),
        "seq": pa.int64(),
        "arrival": pa.int64(),
        "id": pa.string(),
        "op": pa.string(),
    }
)
KINDS = ("+I", "+I", "+U", "-U", "-D", "?", None)
MODELS = [
    AsOfModel(how, as_of, change, max_age)
    for how, as_of, change, max_age in product(("inner", "left"), ("event_time", "arrival"), (False, True), (None, 0, 4))
    if max_age is None or as_of == "event_time"
]
CASES = {"event_time": 130, "arrival": 260}
"""The number of cases for each model, at least 1,000 of each `as_of`: there are 12 models by event time, and 4 by arrival."""


def operator_of(model: AsOfModel) -> AsOfJoin:
    return AsOfJoin(
        on=("case_id", "k"),
        how=model.how,  # pyright: ignore[reportArgumentType]
        as_of=model.as_of,  # pyright: ignore[reportArgumentType]
        change="op" if model.change else None,
        max_age=model.max_age,
    )


def drawn_rows(rng: random.Random, side: str) -> list[AsOfRow]:
    return [
        AsOfRow(
            rng.choice((None, "a", "a", "b")),
            rng.choice((None, *range(-6, 7))),
            rng.randint(1, 3),
            n,
            f"{side}{n}",
            rng.choice(KINDS),
        )
        for n in range(rng.randint(0, 7))
    ]


def as_table(case: str, rows: list[AsOfRow]) -> list[tuple[object, ...]]:
    """Rows of a case with times in µs. Their parts below 1 ms must not matter, since the join compares whole milliseconds."""
    return [(case, r.k, None if r.t is None else r.t * 1000 + (n * 379) % 1000, r.seq, r.arrival, r.id, r.op) for n, r in enumerate(rows)]


def test_generated_cases_equal_the_naive_model(spark: SparkSession) -> None:
    rng, parts, expected = random.Random(5), dict[str, DataFrame](), dict[str, Counter[tuple[Any, ...]]]()
    batches: dict[tuple[str, str], int] = {}
    for number, model in enumerate(MODELS):
        cases = {f"{number}-{n}": (drawn_rows(rng, "l"), drawn_rows(rng, "r")) for n in range(CASES[model.as_of])}
        batches.update({(case, row.id): row.seq for case, (left, _) in cases.items() for row in left})
        sides = [frame(spark, [row for case, rows in cases.items() for row in as_table(case, rows[side])], ROWS) for side in (0, 1)]
        times = [F.unix_millis(c).alias(c) for c in ("result_time", "final_at")]
        parts[str(number)] = operator_of(model)(*sides).select("case_id", "left_id", "right_id", *times)
        if model.max_age is None:
            parts[f"{number} split"] = _from_kept_versions(model, *sides).select("case_id", "left_id", "right_id", *times)
        expected[str(number)] = Counter(
            (case, one, other, t, None if t is None else t + 1) for case, rows in cases.items() for one, other, t in model(*rows)
        )
    found = by_tag(tagged(parts))
    for number, model in enumerate(MODELS):
        assert found[str(number)] == expected[str(number)], model
        if model.max_age is None:
            assert found[f"{number} split"] == _of_later_rows(model, expected[str(number)], batches), model
    versions = [other for rows in expected.values() for _, _, other, _, _ in rows]
    assert len(versions) - versions.count(None) > 1000, "many cases have valid versions"
    assert versions.count(None) > 1000


def _from_kept_versions(model: AsOfModel, left: DataFrame, right: DataFrame) -> DataFrame:
    """The results of the left rows from time 0 (by arrival: from batch 2) on.

    Of the versions before that, the join gets only the newest of each key, as in a step over the versions that the engine keeps.
    """
    join, at, first = operator_of(model), *((F.col("seq"), 2) if model.as_of == "arrival" else (F.unix_millis("event_time"), 0))
    kept = join.newest_versions(right.where(at < first))
    return join(left.where(at >= first), kept.unionByName(right.where(at >= first)))


def _of_later_rows(model: AsOfModel, results: Counter[tuple[Any, ...]], batches: Mapping[Any, int]) -> Counter[tuple[Any, ...]]:
    """The results of the left rows from time 0 (by arrival: from batch 2) on; `batches` has the batch of each left row."""

    def is_later(row: tuple[Any, ...]) -> bool:
        return batches[row[:2]] >= 2 if model.as_of == "arrival" else row[3] is not None and row[3] >= 0

    return Counter({row: n for row, n in results.items() if is_later(row)})


def test_ranges_with_their_lookback_partition_the_result(spark: SparkSession) -> None:
    """A step reads only the versions within its lookback, and computes only the results of its closed range."""
    rng = random.Random(6)
    rows = [[(*drawn_rows(rng, side), *drawn_rows(rng, side)) for _ in range(40)] for side in "lr"]
    sides = [frame(spark, [r for n, case in enumerate(cases) for r in as_table(str(n), list(case))], ROWS) for cases in rows]
    sides = [side.where("event_time IS NOT NULL").cache() for side in sides]
    parts, whole, ranges = dict[str, DataFrame](), dict[str, DataFrame](), [ClosedRange(None, -3), ClosedRange(-3, 0), ClosedRange(0, 99)]
    for name, join in {"all": AsOfJoin(on=("case_id", "k")), "aged": AsOfJoin(on=("case_id", "k"), max_age=2)}.items():
        whole[name] = join(*sides).select("case_id", "left_id", "right_id")
        for n, closed_range in enumerate(ranges):
            spans = [join.reads.span_of(which, closed_range.after, closed_range.upto) for which in (0, 1)]
            inputs = [_within(side, *span) for side, span in zip(sides, spans, strict=True)]
            parts[f"{name}-{n}"] = join(*inputs).where(closed_range.holds(F.col("final_at"))).select("case_id", "left_id", "right_id")
    found, expected = by_tag(tagged(parts)), by_tag(tagged(whole))
    for name in whole:
        assert sum((found.get(f"{name}-{n}", Counter()) for n in range(len(ranges))), Counter()) == expected[name]
        assert all(found[f"{name}-{n}"] for n in range(len(ranges)))


def _within(rows: DataFrame, first: int | None, last: int | None) -> DataFrame:
    """The rows with event times from `first` to `last`, inclusive, in ms; None for no limit."""
    time = F.date_trunc("millisecond", "event_time")
    rows = rows if first is None else rows.where(time >= instant(first, time))
    return rows if last is None else rows.where(time <= instant(last, time))


def test_the_contract_for_the_engine(spark: SparkSession) -> None:
    join = AsOfJoin(on="k", how="left", max_age=5)
    assert (join.reads, join.emits) == (ByTimeRange(lookback=(0, 5), watermark_delay=1, versions=(1,)), Append())
    assert AsOfJoin(on="k").reads.lookback_of(1) is None
    late = AsOfJoin(on="k", allowed_lateness=7)
    assert (late.reads.lateness, late.late_before(100), join.late_before(100)) == (7, 93, 100)
    assert AsOfJoin(on="k").reads.span_of(1, 100, 200) == (None, 200)
    assert AsOfJoin(on="k").reads.span_of(0, 100, 200) == (100, 200)
    arrival = AsOfJoin(on="k", as_of="arrival").reads
    assert (arrival.span_of(0, 100, 200), arrival.span_of(1, 100, 200)) == ((100, 200), (None, None))
    assert [reads.longest_lookback for reads in (join.reads, arrival)] == [0, 0], "neither a drain nor the end of a day waits for versions"
    assert [join.reads.wait_of(which) for which in (0, 1)] == [1, 1]
    assert (join.keeps_unmatched(0), join.keeps_unmatched(1)) == (True, False)
    assert not AsOfJoin(on="k").keeps_unmatched(0)
    assert join.traced("seq") == ("left_seq", "right_seq")
    sides = [read(spark, "time\n10:00"), read(spark, "time\n11:00")]
    finalized = join.finalized_at(*sides).select(F.unix_millis(FINALIZED_AT)).collect()
    assert sorted(t for (t,) in finalized) == [36_000_001, 39_600_001]


def test_an_unlimited_lookback_and_a_look_up_by_arrival_need_an_input_of_versions() -> None:
    with pytest.raises(OperatorError, match=r"`lookback` is \(0, None\); legal: a number of ms for input 1: only inputs in `versions`"):
        ByTimeRange(lookback=(0, None))
    with pytest.raises(OperatorError, match=r"`by_arrival` is \(0,\); legal: inputs that are in `versions` too, which is \(1,\)"):
        ByTimeRange(lookback=(0, None), versions=(1,), by_arrival=(0,))


@pytest.mark.parametrize("lookback", ["1000", ("1 s",), 1000, (1.5,), (True,), (-1,)])
def test_a_lookback_is_a_list_of_milliseconds(lookback: Any) -> None:
    legal = r"a number of ms of at least 0, or None, for each input, such as \(1000,\)"
    with pytest.raises(OperatorError, match=f"`lookback` is .*; legal: {legal}"):
        ByTimeRange(lookback=lookback)


def test_the_names_of_the_result(spark: SparkSession) -> None:
    left, right = read(spark, "k | time | v:int | op\na | 10:00 | 1 | x"), read(spark, "k | time | v:int | op | w\na | 09:00 | 2 | +I | y")
    join = AsOfJoin(on="k", change="op", left_prefix="order_")
    expected = ["k", "order_event_time", "order_v", "op", "right_event_time", "right_v", "w", "result_time", "final_at"]
    assert join(left, right).columns == expected
    assert [*join.result_columns(left.columns, right.columns)] == expected


def test_time_columns_can_be_named_and_keys_of_two_types_are_widened(spark: SparkSession) -> None:
    left = spark.sql("SELECT 1 AS k, 7 AS n, timestamp_millis(100) AS sold")
    right = spark.sql("SELECT 1L AS k, 'p' AS price, timestamp_millis(100) AS since")
    result = AsOfJoin(on="k", left_time="sold", right_time="since")(left, right)
    assert [(r.k, r.n, r.price) for r in result.collect()] == [(1, 7, "p")]
    assert dict(result.dtypes)["k"] == "bigint"


def test_versions_of_one_time_without_an_arrival_are_ordered_by_their_columns(spark: SparkSession) -> None:
    prices = read(spark, "k | time | price:int\na | 10:00 | 9\na | 10:00 | 11\na | 10:00 | -")
    found = [
        AsOfJoin(on="k")(read(spark, "k | time\na | 10:00"), prices.orderBy(order)).collect()[0].price
        for order in ("price", F.desc("price"))
    ]
    assert found == [11, 11]


def test_columns_that_spark_does_not_compare_are_kept(spark: SparkSession) -> None:
    left = read(spark, "k | time\na | 10:00")
    right = left.selectExpr("k", "event_time", "map('x', 1) AS m", "struct(1 AS a) AS s", "array(map(1, 2)) AS n")
    [row] = AsOfJoin(on="k")(left, right).collect()
    assert (row.m, row.s.a, row.n) == ({"x": 1}, 1, [{1: 2}])


def test_the_plan_has_one_window_and_no_join(spark: SparkSession) -> None:
    join = AsOfJoin(on="k", how="left", change="op", max_age=5)
    result = join(read(spark, "k | time\na | 10:00"), read(spark, "k | time | op\na | 10:00 | +I"))
    plan = result._jdf.queryExecution().optimizedPlan().toString()  # pyright: ignore[reportOptionalMemberAccess]
    assert plan.count("Window [") == 1
    assert "Join" not in plan
    assert not [c for c in result.columns if c.startswith("__tm_")]


@pytest.mark.parametrize(
    ("parameters", "error", "match"),
    [
        ({"how": "full"}, OperatorError, r"`how` is 'full'; legal: inner, left; a version that no row uses is no result"),
        ({"as_of": "now"}, OperatorError, r"`as_of` is 'now'; legal: event_time, arrival"),
        ({"on": []}, OperatorError, r"`on` is \[\]; legal: at least one column"),
        ({"max_age": -1}, DurationError, r"`max_age` is -1; legal: a duration of zero or more"),
        ({"max_age": "1 day", "as_of": "arrival"}, OperatorError, r"`max_age` is '1 day'; legal: None with `as_of='arrival'`"),
        ({"allowed_lateness": 5, "as_of": "arrival"}, OperatorError, r"`allowed_lateness` is 5; legal: zero with `as_of='arrival'`"),
        ({"change": "k"}, OperatorError, r"`change` is 'k'; legal: a right column that is neither in `on` nor the `right_time`"),
        ({"left_prefix": "x_", "right_prefix": "x_"}, OperatorError, r"`right_prefix` is 'x_'; legal: a prefix other than `left_prefix`"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_parameter_that_is_refused(parameters: dict[str, Any], error: type[OperatorError], match: str) -> None:
    with pytest.raises(error, match=match):
        AsOfJoin(**{"on": "k", **parameters})


@pytest.mark.parametrize(
    ("join", "match"),
    [
        (AsOfJoin(on="key"), r"`on` names the column 'key', which the frame does not have"),
        (AsOfJoin(on="k", change="kind"), r"`change` names the column 'kind', which the frame does not have"),
        (AsOfJoin(on="k", left_time="v"), r"`left_time` names the column 'v' of type int; legal: timestamp"),
        (AsOfJoin(on="k", right_time="v"), r"`right_time` names the column 'v' of type int; legal: timestamp"),
        (AsOfJoin(on="k", as_of="arrival"), r"`as_of` is 'arrival'; legal: event_time, for frames without the columns 'seq' and 'arrival'"),
        (AsOfJoin(on="k", left_prefix=""), r"the result would have .*final_at twice"),
    ],
    ids=["no key", "no change column", "left time", "right time", "no arrival", "two columns of one name"],
)
def test_a_frame_that_is_refused(spark: SparkSession, join: AsOfJoin, match: str) -> None:
    rows = read(spark, "k | time | v:int\na | 10:00 | 1").withColumn("final_at", F.lit(1))
    with pytest.raises(ColumnError, match=match):
        join(rows, rows)


def test_streaming_frames_are_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "event_time").withColumn("k", F.lit(1))
    with pytest.raises(StreamingError, match=r"AsOfJoin on streaming frames: .*; let the engine run it"):
        AsOfJoin(on="k")(stream, stream)
