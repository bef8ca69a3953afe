"""Small frames for the operators' tests: many cases in one frame, distinguished by `case_id`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Row = tuple[str, str | None, int | None, str, int]
"""`case_id`, key, event time in epoch microseconds, the row's name, a value."""

EVENTS = pa.schema(
    {"case_id": pa.string(), "k": pa.string(), "event_time": pa.timestamp("us", tz="UTC"), "id": pa.string(), "v": pa.int32()}
)


def table(rows: Iterable[tuple[object, ...]], schema: pa.Schema = EVENTS) -> pa.Table:
    """Rows as an Arrow table."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def frame(spark: SparkSession, rows: Iterable[tuple[object, ...]], schema: pa.Schema = EVENTS) -> DataFrame:
    """Rows as a frame, which Spark plans as a local relation."""
    return spark.createDataFrame(table(rows, schema))


def frame_of(spark: SparkSession, rows: Iterable[tuple[object, ...]], schema: str) -> DataFrame:
    """Rows as a frame of a DDL schema, which Spark plans as a local relation; for a Python list, Spark would start Python processes."""
    return frame(spark, rows, to_arrow_schema(StructType.fromDDL(schema)))


def frame_of_json(spark: SparkSession, rows: Iterable[Mapping[str, object]], schema: str) -> DataFrame:
    """Rows of JSON, in which times are text, as a frame of a DDL schema. The first row has all columns, in the schema's order."""
    return spark.createDataFrame(pa.Table.from_pylist([*rows]).cast(to_arrow_schema(StructType.fromDDL(schema))))


def tagged(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Several frames as one, so that one Spark job computes all of them."""
    parts = [rows.select(F.lit(tag).alias("tag"), *rows.columns) for tag, rows in frames.items()]
    return reduce(DataFrame.union, parts)


def by_tag(rows: DataFrame) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of each tag, without the tag."""
    found: dict[str, Counter[tuple[Any, ...]]] = {}
    for tag, *rest in rows.collect():
        found.setdefault(tag, Counter())[tuple(rest)] += 1
    return found


def ids_and_times(rows: DataFrame) -> DataFrame:
    """The ids of both rows of each result of an interval join, and its two times in epoch milliseconds."""
    millis = [F.unix_millis(c).alias(c) for c in ("result_time", "final_at")]
    return rows.select("case_id", "left_id", "right_id", *millis)
