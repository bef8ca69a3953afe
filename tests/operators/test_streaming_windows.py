"""Windows on streams: the rows of the static call where Spark's own are correct, otherwise an error with the fix."""

import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import (
    CountEvictor,
    Cumulative,
    EveryStep,
    OperatorError,
    Session,
    Sliding,
    StreamingError,
    TopK,
    Tumbling,
    WindowedAggregate,
)
from operators.windows import Aligned
from tests.operators.frames import Row, by_tag, table, tagged

SCHEMA = "case_id string, k string, event_time timestamp, id string, v int"
BATCHES, SPAN, DELAY, PUSH = 2, 300, 40, 100_000
SUMS = {"n": "count(*)", "total": "sum(v)", "least": "min(v)"}
WINDOWS: dict[str, Aligned] = {
    "tumbling, shifted": Tumbling(size=50, offset=-13),
    "sliding": Sliding(size=100, slide=30),
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each micro-batch: null keys, times finer than 1 ms, out of order by less than the watermark's delay."""
    folder, choose = tmp_path_factory.mktemp("stream"), random.Random(3)

    def row(batch: int, n: int) -> Row:
        ms = 1_000 + batch * SPAN + choose.randrange(SPAN) - choose.randrange(DELAY)
        return (
            "x",
            choose.choice([None, "a", "b", "c", "d", "e"]),
            ms * 1_000 + choose.choice([0, 999]),
            f"{batch}-{n}",
            choose.choice([None, 1, 2, 3]),
        )

    sent: list[list[Row]] = [[row(batch, n) for n in range(120)] for batch in range(BATCHES)]
    sent[-1].append(("x", "push", PUSH * 1_000, "push", 0))  # after this micro-batch, the watermark is past all rows before
    for n, rows in enumerate(sent):
        path = folder / f"{n}.parquet"
        pq.write_table(table(rows), path)
        os.utime(path, (1_700_000_000 + n, 1_700_000_000 + n))
    return folder


def _streamed(spark: SparkSession, folder: Path) -> DataFrame:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return rows.withWatermark("event_time", f"{DELAY} milliseconds")


Results = dict[str, Counter[tuple[Any, ...]]]
"""The rows of each result, by its name."""


def _results(events: DataFrame) -> dict[str, DataFrame]:
    """The counts of each kind of window, and their ranks."""
    counts = {name: WindowedAggregate(by="k", window=window, aggregates=SUMS)(events) for name, window in WINDOWS.items()}
    top = TopK(k=2, order_by=["total DESC", "least NULLS LAST", "window_end"])
    frames = {f"counts, {name}": rows for name, rows in counts.items()}
    for name, rows in counts.items():
        frames[f"ranks, {name}"] = top(rows if rows.isStreaming else rows.drop("final_at").withColumnRenamed("result_time", "event_time"))
    return frames


def _final_rows(frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of all windows except that of the last row, which never closes. Counts have no rank."""
    ranked = {name: rows if "rank" in rows.columns else rows.withColumn("rank", F.lit(0)) for name, rows in frames.items()}
    columns = next(iter(ranked.values())).columns
    return tagged({name: rows.select(columns).where(F.unix_millis("window_end") < PUSH - 1_000) for name, rows in ranked.items()})


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, stream: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of one streaming query, which computes all of them. An error while it runs fails every test that reads them."""
    before = spark.conf.get("spark.sql.exchange.reuse") or ""
    spark.conf.set("spark.sql.exchange.reuse", "false")  # Spark would share a shuffle of two stateful operators
    try:
        rows = _final_rows(_results(_streamed(spark, stream)))
        query = rows.writeStream.format("memory").queryName("windows").outputMode("append").trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path_factory.mktemp("checkpoint"))).start().awaitTermination()
        return by_tag(spark.table("windows"))
    finally:
        spark.conf.set("spark.sql.exchange.reuse", before)
        spark.catalog.dropTempView("windows")


@pytest.fixture(scope="module")
def computed(spark: SparkSession, stream: Path) -> Results:
    """The results of the static calls."""
    return by_tag(_final_rows(_results(spark.read.schema(SCHEMA).parquet(str(stream)))))


@pytest.mark.parametrize("name", [f"{kind}, {name}" for kind in ("counts", "ranks") for name in WINDOWS])
def test_a_stream_gives_the_windows_and_ranks_of_the_static_call(streamed: Results, computed: Results, name: str) -> None:
    assert streamed[name] == computed[name]
    assert len(computed[name]) > 20


def test_the_columns_of_a_stream_are_those_of_the_static_call(spark: SparkSession, stream: Path) -> None:
    found, wanted = _results(_streamed(spark, stream)), _results(spark.read.schema(SCHEMA).parquet(str(stream)))
    assert {name: rows.columns for name, rows in found.items()} == {name: rows.columns for name, rows in wanted.items()}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"window": Session(gap=10)}, r"tumbling, or sliding without gaps, and `window` is Session\("),
        ({"window": Cumulative(size=20, step=10)}, r"`window` is Cumulative\("),
        ({"window": Sliding(size=10, slide=20)}, r"sliding without gaps"),
        ({"allowed_lateness": 5}, "have no `allowed_lateness`, which is 5; write the streams to tables"),
        ({"evictor": CountEvictor(2)}, "have no `evictor`"),
        ({"early": EveryStep()}, "have no `early`"),
    ],
)
def test_parameters_that_spark_lacks_are_refused_with_advice(spark: SparkSession, stream: Path, spec: dict[str, Any], why: str) -> None:
    count = WindowedAggregate(**{"window": Tumbling(size=10), "aggregates": {"n": "count(*)"}, **spec})
    with pytest.raises(StreamingError, match=why):
        count(_streamed(spark, stream))


def test_a_stream_without_a_watermark_is_refused(spark: SparkSession, stream: Path) -> None:
    rows = spark.readStream.schema(SCHEMA).parquet(str(stream))
    count = WindowedAggregate(window=Tumbling(size=10), aggregates={"n": "count(*)"})
    with pytest.raises(StreamingError, match=r"no watermark on 'event_time', so that no window would ever end; call withWatermark"):
        count(rows)
    windows = rows.select("k", F.col("event_time").alias("window_start"), F.col("event_time").alias("window_end"))
    with pytest.raises(StreamingError, match="Spark does not know when a window has ended; call it on the result of WindowedAggregate"):
        TopK(k=1, order_by="k")(windows)


def test_a_streaming_ranking_does_not_keep_every_row_of_a_window(spark: SparkSession, stream: Path) -> None:
    with pytest.raises(OperatorError, match="Spark would keep every row of a window to rank them; aggregate by window first"):
        TopK(k=1, order_by="v", window=Tumbling(size=10))(_streamed(spark, stream))
