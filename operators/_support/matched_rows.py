"""Which rows of a join's inputs are in a result with a row of the other input.

A row's id is a hash of all its columns. Equal rows of an input have the same id, which is right: they match the same rows.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import FINAL_AT, RESULT_TIME, quoted_name, row_hash
from operators.engine_columns import EVENT_TIME, FINALIZED_AT, MATCHED, WHICH, drop_engine_columns
from operators.timing import timestamp

ROW_ID = "matched_row_id"
"""The column with a row's id while rows are matched. It has no temporary name, because operators refuse inputs with such columns."""


def finality(frames: Sequence[DataFrame], times: Sequence[str], final_at: Callable[[int, Column], Column], *columns: str) -> DataFrame:
    """When the rows of a join's inputs are final: `WHICH`, `EVENT_TIME`, `FINALIZED_AT` and the columns to keep.

    Args:
        frames: the rows of each input.
        times: the event time of each input, a timestamp column.
        final_at: returns when a row of an input with an event time is final.
        columns: further columns of the frames.
    """
    rows = [
        frame.select(F.lit(index).alias(WHICH), EVENT_TIME, final_at(index, F.col(time)).alias(FINALIZED_AT), *columns)
        for index, (frame, time) in enumerate(zip(frames, times, strict=True))
    ]
    return reduce(DataFrame.unionByName, rows)


def result_times(last_time: Column, event_time: str | None) -> tuple[Column, Column]:
    """`result_time` and `final_at` of a result of a join.

    Args:
        last_time: the time up to which the result waits for rows, in epoch ms.
        event_time: the column with the event time of the result, in epoch ms; None if it is `last_time`.
    """
    return timestamp(last_time if event_time is None else F.col(event_time)).alias(RESULT_TIME), timestamp(last_time + 1).alias(FINAL_AT)


def with_ids(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """The frames with `ROW_ID`."""
    return [frame.withColumn(ROW_ID, row_hash(drop_engine_columns(frame).schema)) for frame in frames]


def ids_in_pairs(pairs: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The ids of the rows that pairs contain: `WHICH` and `ROW_ID`.

    Args:
        pairs: results with a row of every input.
        columns: for each input, the column that has the id of its row.
    """
    ids = [pairs.select(F.lit(index).alias(WHICH), F.col(quoted_name(column)).alias(ROW_ID)) for index, column in enumerate(columns)]
    return reduce(DataFrame.unionByName, ids).distinct()


def with_matched(rows: DataFrame, ids: DataFrame) -> DataFrame:
    """Rows of inputs with `MATCHED`: whether their id is among some ids.

    Args:
        rows: `WHICH`, `EVENT_TIME`, `FINALIZED_AT` and `ROW_ID`.
        ids: `WHICH` and `ROW_ID`.
    """
    rows_with_match = rows.join(ids.withColumn(MATCHED, F.lit(True)), [WHICH, ROW_ID], "left")
    return rows_with_match.select(WHICH, EVENT_TIME, FINALIZED_AT, F.coalesce(MATCHED, F.lit(False)).alias(MATCHED))
