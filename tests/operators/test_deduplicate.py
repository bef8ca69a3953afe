"""Deduplicate: the first or last row by event time or arrival, with and without windows, at once and merged batch by batch."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import ColumnError, Deduplicate, OperatorError, Sliding, StreamingError, Tumbling
from operators.engine_columns import WATERMARK
from tests.operators.frames import by_tag, tagged
from tests.support.windows_model import TimedRow, open_windows

SCHEMA = pa.schema({"k": pa.string(), "t": pa.int64(), "seq": pa.int64(), "arrival": pa.int64(), "w": pa.int64()})
Row = tuple[str | None, int | None, int, int, int | None]
KINDS = [(keep, order) for keep in ("first", "last") for order in ("event_time", "arrival")]


def _rows(seed: int) -> list[Row]:
    """Few times and keys, so that there are many ties. Some rows have no time, some a watermark after their windows."""
    rng = random.Random(seed)
    positions = rng.sample([(seq, arrival) for seq in range(1, 7) for arrival in range(10)], 48)
    return [
        (rng.choice(["a", "b", "c", None]), rng.choice([None, *range(-12, 13, 3)]), *position, rng.choice([None, None, -5, 4, 9]))
        for position in positions
    ]


def _frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    frame = spark.createDataFrame(pa.table(columns, schema=SCHEMA))
    return frame.select("k", F.timestamp_millis("t").alias("event_time"), "seq", "arrival", F.timestamp_millis("w").alias(WATERMARK))


def _order(order: str, row: Row) -> tuple[int, ...]:
    return (row[1] or 0, row[2], row[3]) if order == "event_time" else (row[2], row[3])


def _expected_positions(rows: Sequence[Row], keep: str, order: str) -> dict[str | None, tuple[int, int]]:
    timed = [r for r in rows if order == "arrival" or r[1] is not None]
    choose = min if keep == "first" else max
    keys = {r[0] for r in timed}
    return {k: choose((r for r in timed if r[0] == k), key=lambda r: _order(order, r))[2:4] for k in keys}


def test_the_kept_row_equals_the_model_at_once_and_batch_by_batch(spark: SparkSession) -> None:
    """One query has the rows of each kind, kept at once and in three batches."""
    rows = [(k and f"{k}{seed}", t, seq, arrival + 10 * seed, w) for seed in (1, 2) for k, t, seq, arrival, w in _rows(seed)]
    kept: dict[str, DataFrame] = {}
    for keep, order in KINDS:
        deduplicate = Deduplicate(by="k", keep=keep, order=order)  # pyright: ignore[reportArgumentType]
        kept[f"{keep} {order} at once"] = deduplicate(_frame(spark, rows).drop(WATERMARK))
        current = kept[f"{keep} {order} at once"].limit(0)
        for last in (2, 4, 6):
            current = deduplicate.fold(current, _frame(spark, [r for r in rows if r[2] in (last - 1, last)]).drop(WATERMARK))
        kept[f"{keep} {order} in batches"] = current
    found = by_tag(tagged({tag: frame.select("k", "seq", "arrival") for tag, frame in kept.items()}))
    for keep, order in KINDS:
        wanted = Counter((k, *position) for k, position in _expected_positions(rows, keep, order).items())
        assert len(wanted) == 7
        for how in ("at once", "in batches"):
            assert found[f"{keep} {order} {how}"] == wanted, (keep, order, how)


def test_each_window_keeps_one_of_its_rows_that_are_not_late(spark: SparkSession) -> None:
    """One query has the rows of each kind and window."""
    rows, kept, wanted = _rows(3), dict[str, DataFrame](), dict[str, Counter[tuple[Any, ...]]]()
    times = [F.unix_millis(c).alias(c) for c in ("window_start", "window_end", "result_time", "final_at")]
    for window, (keep, order) in product((Tumbling(size=10, offset=-3), Sliding(size=10, slide=4)), KINDS):
        spans: dict[tuple[int, int], list[Row]] = {}
        for row in rows:
            if row[1] is not None:
                for span in open_windows(window, TimedRow(row[0], row[1], None, row[4])):
                    spans.setdefault(span, []).append(row)
        result = Deduplicate(by="k", keep=keep, order=order, window=window)(_frame(spark, rows))  # pyright: ignore[reportArgumentType]
        assert result.columns == ["k", "event_time", "seq", "arrival", "window_start", "window_end", "result_time", "final_at"]
        name = f"{keep} {order} {window}"
        kept[name] = result.select("k", *times, "seq", "arrival")
        wanted[name] = Counter(
            (k, start, end, end - 1, end - 1, *position)
            for (start, end), inside in spans.items()
            for k, position in _expected_positions(inside, keep, order).items()
        )
    assert by_tag(tagged(kept)) == wanted


def test_only_a_first_row_by_event_time_can_be_late(spark: SparkSession) -> None:
    times = spark.sql("SELECT timestamp_millis(t) AS event_time FROM VALUES (9), (10), (11) AS v(t)")
    mark, never = F.expr("timestamp_millis(10)"), F.lit(None).cast("timestamp")
    for keep, order in KINDS:
        late = Deduplicate(by="k", keep=keep, order=order).late  # pyright: ignore[reportArgumentType]
        wanted = [True, True, False] if (keep, order) == ("first", "event_time") else [False] * 3
        assert [r[0] for r in times.select(late(F.col("event_time"), mark)).collect()] == wanted
        assert [r[0] for r in times.select(late(F.col("event_time"), never)).collect()] == [False] * 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"by": ()}, "`by` is (); legal: at least one column"),
        ({"keep": "any"}, "`keep` is 'any'; legal: first, last"),
        ({"order": "offset"}, "`order` is 'offset'; legal: event_time, arrival"),
    ],
)
def test_illegal_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        Deduplicate(**{"by": "k", **parameters})


def test_illegal_frames_are_refused(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'a' AS k, timestamp_millis(5) AS event_time")
    with pytest.raises(ColumnError, match="`by` names the column 'j', which the frame does not have"):
        Deduplicate(by="j")(rows)
    with pytest.raises(ColumnError, match="`order` names the column 'seq', which the frame does not have"):
        Deduplicate(by="k", order="arrival")(rows)
    stream = spark.readStream.format("rate").load().selectExpr("'a' AS k", "timestamp AS event_time")
    with pytest.raises(StreamingError, match="Deduplicate on streaming frames: Spark keeps the first row that it meets"):
        Deduplicate(by="k")(stream)
