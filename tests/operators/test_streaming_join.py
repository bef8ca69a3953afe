"""The interval join on streams: the rows of the static call where Spark is correct, otherwise an error with the fix."""

import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import EveryStep, IntervalJoin, StreamingError
from operators.interval_join import How
from tests.operators.frames import Row, by_tag, ids_and_times, table, tagged

SCHEMA = "case_id string, k string, event_time timestamp, id string, v int"
BATCHES, SPAN, DELAY = 2, 100, 20
PUSH = 10_000
"""The last row of each side, at this time in ms, is in the last micro-batch. After it, the watermark is past all rows before."""

ONE_QUERY_MANY_JOINS = {"spark.sql.shuffle.partitions": "1", "spark.sql.exchange.reuse": "false"}
BOTH = (f"{DELAY} milliseconds", f"{DELAY} milliseconds")


@dataclass(frozen=True)
class Query:
    """One streaming query: joins of the same two streams, by the tag of their rows."""

    id: str
    joins: dict[str, IntervalJoin]
    watermarks: tuple[str | None, str | None] = BOTH


def _joins(bounds: str, *join_types: How, **spec: Any) -> dict[str, IntervalJoin]:
    return {f"{bounds}: {how}": IntervalJoin(on=("case_id", "k"), how=how, **spec) for how in join_types}


RESIDUAL = "left_v <= right_v AND left_v > 0 AND right_v > 0"
QUERIES = (
    Query(
        "watermarks on both sides",
        {
            **_joins("bounds around zero", "inner", "right", lower=-30, upper=40),
            **_joins("negative bounds", "left", lower=-60, upper=-20, lower_exclusive=True),
            **_joins("bounds wider than a batch", "left", lower=110, upper=150),
            **_joins("lower above upper", "full", lower=30, upper=-30),
            **_joins("residual on both sides and on one", "full", lower=-30, upper=40, residual=RESIDUAL),
        },
    ),
    Query("on the left only", _joins("negative bounds", "inner", lower=-60, upper=-20), (BOTH[0], None)),
    Query("on neither", _joins("bounds around zero", "inner", lower=-30, upper=40), (None, None)),
)
MORE_JOINS = Query(
    "watermarks on both sides, more joins",
    {
        **_joins("bounds around zero", "full", lower=-30, upper=40),
        **_joins("negative bounds", "full", lower=-60, upper=-20, lower_exclusive=True),
        **_joins("residual on both sides and on one", "left", lower=-30, upper=40, residual=RESIDUAL),
    },
)
"""Further combinations of bounds and types, for soak: each join takes Spark a second."""
EVERY_QUERY = [*(pytest.param(query, id=query.id) for query in QUERIES), pytest.param(MORE_JOINS, id=MORE_JOINS.id, marks=pytest.mark.soak)]


def _files(side: str) -> list[list[Row]]:
    """The rows of a side by micro-batch: null keys, duplicate times, out of order by less than the watermark's delay.

    All times are after 1970: Spark's watermark starts there, and it drops earlier rows.
    """
    choose = random.Random(side)

    def row(batch: int, n: int) -> Row:
        ms = (batch + 1) * SPAN + choose.randrange(SPAN) + 1 - choose.randrange(DELAY)
        us = ms * 1000 + choose.choice((0, 0, 1, 500, 999))
        return choose.choice("xy"), choose.choice((None, "a", "a", "b")), us, f"{side}{batch}-{n}", choose.randrange(4)

    sent = [[row(batch, n) for n in range(60)] for batch in range(BATCHES)]
    sent[-1].append(("push", side, PUSH * 1000, f"{side} push", 0))
    return sent


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of files, with one file for each micro-batch."""
    folder = tmp_path_factory.mktemp("streams")
    for side in ("left", "right"):
        (folder / side).mkdir()
        for n, rows in enumerate(_files(side)):
            path = folder / side / f"{n}.parquet"
            pq.write_table(table(rows), path)
            os.utime(path, (1_700_000_000 + n, 1_700_000_000 + n))
    return folder


def _stream(spark: SparkSession, folder: Path, delay: str | None) -> DataFrame:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return rows.withWatermark("event_time", delay) if delay else rows


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query, and how many rows Spark kept in state and dropped."""

    rows: dict[str, Counter[tuple[Any, ...]]]
    kept: int
    dropped: int


@pytest.fixture(scope="module", params=EVERY_QUERY)
def query(request: pytest.FixtureRequest) -> Query:
    return request.param


@pytest.fixture(scope="module")
def found(spark: SparkSession, streams: Path, query: Query, tmp_path_factory: pytest.TempPathFactory) -> QueryResult:
    """The result of the query, with one state partition and no shuffle shared by two joins."""
    before = {name: spark.conf.get(name) or "" for name in ONE_QUERY_MANY_JOINS}
    for name, value in ONE_QUERY_MANY_JOINS.items():
        spark.conf.set(name, value)
    try:
        running = _start(spark, streams, query, tmp_path_factory.mktemp("checkpoint"))
        running.awaitTermination()
        states = [state for progress in running.recentProgress for state in progress.stateOperators]
        kept = sum(state.numRowsTotal for state in running.recentProgress[-1].stateOperators)
        rows = by_tag(_before_push(spark.table("joined")))
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
        spark.catalog.dropTempView("joined")
    return QueryResult(rows, kept, sum(state.numRowsDroppedByWatermark for state in states))


@pytest.fixture(scope="module")
def static(spark: SparkSession, streams: Path, query: Query) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of the static calls, by tag, read by one query."""
    sides = [spark.read.schema(SCHEMA).parquet(str(streams / side)) for side in ("left", "right")]
    return by_tag(_before_push(_joined(query.joins, *sides)))


def _start(spark: SparkSession, streams: Path, query: Query, checkpoint: Path) -> Any:
    sides = [_stream(spark, streams / side, delay) for side, delay in zip(("left", "right"), query.watermarks, strict=True)]
    writer = _joined(query.joins, *sides).writeStream.format("memory").queryName("joined")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def _joined(joins: dict[str, IntervalJoin], left: DataFrame, right: DataFrame) -> DataFrame:
    return tagged({tag: ids_and_times(join(left, right)) for tag, join in joins.items()})


def _before_push(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("final_at") < PUSH)


def test_the_stream_gives_the_rows_of_the_static_call(query: Query, found: QueryResult, static: dict[str, Counter[tuple[Any, ...]]]):
    assert found.dropped == 0
    for tag in query.joins:
        assert static[tag], tag
        assert found.rows.get(tag) == static[tag], tag


def test_state_is_dropped_only_with_two_watermarks(query: Query, found: QueryResult):
    pushes = 2 * len(query.joins)
    assert found.kept <= pushes if query.watermarks == BOTH else found.kept > pushes


def test_every_type_of_join_is_streamed():
    assert {join.how for query in QUERIES for join in query.joins.values()} == {"inner", "left", "right", "full"}


def _rates(spark: SparkSession) -> DataFrame:
    """A stream that is never started."""
    return spark.readStream.format("rate").load().selectExpr("value as k", "timestamp as event_time", "timestamp as other")


JOIN = IntervalJoin(on="k", lower=0, upper=10)
LEFT, RIGHT, FULL = (IntervalJoin(on="k", lower=0, upper=10, how=how) for how in ("left", "right", "full"))


def test_a_join_of_a_stream_and_a_static_frame_is_refused(spark: SparkSession):
    static = spark.range(1).selectExpr("id as k", "timestamp_millis(id) as event_time")
    advice = "write the streams to tables and call the operator on those"
    with pytest.raises(StreamingError, match=f"only the left frame is streaming, .*; {advice}"):
        JOIN(_rates(spark), static)
    with pytest.raises(StreamingError, match=f"only the right frame is streaming, .*; {advice}"):
        JOIN(static, _rates(spark))


@pytest.mark.parametrize("join", [LEFT, RIGHT, FULL], ids=lambda j: j.how)
@pytest.mark.parametrize(
    ("left", "right", "side"),
    [
        pytest.param("event_time", None, "right", id="left only"),
        pytest.param(None, "event_time", "left", id="right only"),
        pytest.param(None, None, "left", id="none"),
        pytest.param("event_time", "other", "right", id="on another column"),
        pytest.param("other", "event_time", "left", id="on another column, left"),
    ],
)
def test_an_outer_join_needs_a_watermark_on_both_time_columns(
    spark: SparkSession, join: IntervalJoin, left: str | None, right: str | None, side: str
):
    frames = [_rates(spark).withWatermark(c, "1 second") if c else _rates(spark) for c in (left, right)]
    match = rf"a {join.how} interval join on streaming frames: the {side} frame has no watermark on 'event_time', .*; call withWatermark"
    with pytest.raises(StreamingError, match=match):
        join(*frames)


def test_a_chained_streaming_join_is_refused(spark: SparkSession):
    marked = _rates(spark).withWatermark("event_time", "1 second")
    chained = JOIN(marked, marked.drop("other"))
    match = "the left frame has a watermark on each of left_event_time, right_event_time, .*; write the streams to tables"
    with pytest.raises(StreamingError, match=match):
        IntervalJoin(on="k", lower=0, upper=10, left_time="left_event_time")(chained, marked)


def test_a_session_zone_other_than_utc_is_refused_for_streams_alone(spark: SparkSession):
    static = spark.range(1).selectExpr("id as k", "timestamp_millis(id) as event_time")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert JOIN(static, static).columns[-1] == "final_at"
        with pytest.raises(
            StreamingError, match=r"in the time zone 'Europe/Berlin' Spark counts calendar days, .*; set spark.sql.session.timeZone"
        ):
            JOIN(_rates(spark), _rates(spark))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ({"how": "semi"}, r"a semi interval join on streaming frames: .* emits a left row when it finds any match"),
        ({"how": "anti"}, r"an? anti interval join on streaming frames: Spark has no anti join of streams; write the streams to tables"),
        ({"allowed_lateness": "5 ms"}, r"Spark's join of streams has no `allowed_lateness`, which is 5; write the streams to tables"),
        ({"late_rows": "join"}, r"Spark's join of streams has no `late_rows`, which is 'join'"),
        ({"early": EveryStep()}, r"Spark's join of streams has no `early`, which is EveryStep\(\)"),
    ],
    ids=lambda value: next(iter(value)) + str(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_a_parameter_without_an_equivalent_in_sparks_join_is_refused(spark: SparkSession, spec: dict[str, Any], match: str):
    marked = _rates(spark).withWatermark("event_time", "1 second")
    with pytest.raises(StreamingError, match=match):
        IntervalJoin(**({"on": "k", "lower": 0, "upper": 10} | spec))(marked, marked)
