"""Finds the duplicates of a small batch in memory, without a Spark job. The result is that of `duplicates.duplicates`."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from assets.contracts import SourceContract
from operators.columns import temporary
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.timing import length_ms
from platform_defs.engine.ingest.batch_counts import is_good_in_memory
from platform_defs.engine.lake.data_skipping import Ranges
from platform_defs.engine.lake.reads import ReadTables
from platform_defs.engine.lake.small_queries import in_memory, rows_in_memory
from platform_defs.engine.lake.small_upserts import has_one_equality

_ROWS = temporary("rows")
_LOGGED = -1
"""In place of the `arrival` of a logged row: it comes before all new rows."""
_MOST_SUSPECTS = 100_000
"""The largest number of rows with a repeated key that are compared here: Python takes about 1 s for this many."""


def duplicates_in_memory(
    lake: ReadTables, validated: DataFrame, contract: SourceContract, ranges: Ranges, newest: int
) -> Sequence[int] | None:
    """The rows of a batch that are duplicates, as `arrival`.

    Args:
        lake: the lake.
        validated: the result of `validate.classify`.
        contract: the source's contract, with a key.
        ranges: the ranges of values of the logged rows that new rows may duplicate.
        newest: the number of the newest committed batch with rows of the source.

    Returns:
        The rows; None if Spark must find them, because the new rows are not in memory, the rows to compare are many, or Arrow does not
        compare values of the key as Spark does.
    """
    rows, key = rows_in_memory(validated), [*contract.unique_key]
    if rows is None or not all(has_one_equality(contract.struct[column].dataType) for column in key):
        return None
    new_rows = rows.filter(is_good_in_memory()).select([*key, EVENT_TIME, ARRIVAL])
    columns = pa.schema([*[new_rows.schema.field(column) for column in (*key, EVENT_TIME)], (SEQ, pa.int64())])
    log = lake.few_rows(contract.log, columns, ranges)
    if log is None:
        return None
    logged_rows = log.filter(pc.field(SEQ) <= newest).drop_columns([SEQ])
    return duplicates_of_rows(new_rows, logged_rows, key, length_ms(contract.duplicate_horizon, "duplicate_horizon"))


def rows_of_arrivals(spark: SparkSession, arrivals: Sequence[int]) -> DataFrame:
    """A frame of `arrival`, whose rows are in memory."""
    return in_memory(spark, pa.table({ARRIVAL: pa.array(arrivals, pa.int64())}), StructType([StructField(ARRIVAL, LongType())]))


def duplicates_of_rows(new_rows: pa.Table, logged_rows: pa.Table, key: Sequence[str], horizon: int) -> Sequence[int] | None:
    """The new rows that are duplicates, as `arrival`; None if too many rows have a repeated key.

    Args:
        new_rows: the key columns, `event_time` and `arrival`.
        logged_rows: rows of the log with the same columns, except `arrival`.
        key: the key columns.
        horizon: the duplicate horizon, in ms.
    """
    has_key = pc.field(key[0]).is_valid()
    for column in key[1:]:
        has_key &= pc.field(column).is_valid()
    new_rows = new_rows.filter(has_key)
    known_rows = logged_rows.filter(has_key).join(new_rows.select(key), [*key], join_type="left semi")
    rows = pa.concat_tables([known_rows, new_rows], promote_options="default")
    numbers_of_rows = rows.group_by([*key]).aggregate([([], "count_all")]).rename_columns([*key, _ROWS])
    suspects = rows.join(numbers_of_rows.filter(pc.field(_ROWS) > 1).select(key), [*key], join_type="left semi")
    if suspects.num_rows > _MOST_SUSPECTS:
        return None
    micros = suspects[EVENT_TIME].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    arrivals = suspects[ARRIVAL].fill_null(_LOGGED).to_pylist()
    by_key = defaultdict[tuple[Any, ...], list[tuple[int, int]]](list)
    for value, arrival, time in zip(zip(*[_comparable(suspects[c]) for c in key], strict=True), arrivals, micros, strict=True):
        by_key[value].append((arrival, time // 1_000))
    return [arrival for rows_of_key in by_key.values() for arrival in _duplicates_of_key(rows_of_key, horizon)]


def _comparable(values: pa.ChunkedArray) -> list[Any]:
    """The values of a key's column: text as bytes, dates and times as numbers, since not each of these values has a Python object."""
    for is_of_type, kind in (
        (pa.types.is_string, pa.binary()),
        (pa.types.is_large_string, pa.large_binary()),
        (pa.types.is_date, pa.int32()),
        (pa.types.is_timestamp, pa.int64()),
    ):
        values = values.cast(kind) if is_of_type(values.type) else values
    return values.to_pylist()


def _duplicates_of_key(rows: list[tuple[int, int]], horizon: int) -> list[int]:
    """The rows of one key that are duplicates, as `arrival`: those that are within the horizon of an ingested row before them.

    Args:
        rows: the `arrival` and the event time (epoch ms) of each row.
        horizon: the duplicate horizon, in ms.
    """
    ingested, repeated = list[int](), list[int]()
    for arrival, time in sorted(rows):
        first_near = bisect_left(ingested, time - horizon)
        if arrival != _LOGGED and first_near < len(ingested) and ingested[first_near] <= time + horizon:
            repeated.append(arrival)
        else:
            insort(ingested, time)
    return repeated
