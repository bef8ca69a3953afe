"""A lazy frame is made once, when something first reads it in the JVM, and behaves as the frame that was made."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from platform_defs.engine.lake.lazy_frame import LazyFrame
from platform_defs.engine.lake.plans import analyzed_plan
from platform_defs.engine.lake.small_queries import materialize, rows_in_memory


def test_a_frame_is_made_once_when_it_is_read(spark: SparkSession) -> None:
    made = list[DataFrame]()

    def make() -> DataFrame:
        made.append(spark.range(3).selectExpr("id AS k", "id > 1 AS is_last"))
        return made[-1]

    plain = make()
    made.clear()
    frame = LazyFrame(spark, plain.schema, make)
    assert frame.columns == ["k", "is_last"]
    assert (frame.unpersist() is frame, frame.is_cached, frame.sparkSession is spark) == (True, False, True)
    assert made == []
    assert frame.where("is_last").collect() == plain.where("is_last").collect()
    assert frame.select(frame.k).collect() == plain.select(plain.k).collect()
    assert plain.join(frame, "k").count() == frame.join(plain, "k").count() == 3
    assert frame.schema == made[0].schema
    assert frame.persist().is_cached
    assert not frame.unpersist().is_cached
    assert len(made) == 1


def test_fetched_rows_are_not_copied_into_the_jvm_until_they_are_read(spark: SparkSession) -> None:
    frame = materialize(spark.range(3).selectExpr("id AS k"))
    assert isinstance(frame, LazyFrame)
    rows = rows_in_memory(frame)
    assert rows is not None
    assert rows["k"].to_pylist() == [0, 1, 2]
    assert frame._made is None
    assert [row.k for row in frame.collect()] == [0, 1, 2]


def test_threads_get_the_same_frame(spark: SparkSession) -> None:
    made, begun = list[DataFrame](), Event()

    def make() -> DataFrame:
        begun.wait(0.2)  # the other thread asks in the meantime
        made.append(spark.range(3).toDF("k"))
        return made[-1]

    frame = LazyFrame(spark, StructType([StructField("k", LongType())]), make)
    with ThreadPoolExecutor(2) as pool:
        frames = [*pool.map(lambda _: frame._jdf, range(2))]
    assert len(made) == 1
    assert frames[0] is frames[1]


def test_an_error_of_an_attribute_is_not_taken_for_a_frame_of_spark_connect(spark: SparkSession) -> None:
    def make() -> DataFrame:
        raise AttributeError("'NoneType' object has no attribute 'sc'")

    frame = LazyFrame(spark, StructType(), make)
    with pytest.raises(RuntimeError, match="the frame cannot be made in the JVM: 'NoneType' object has no attribute 'sc'"):
        analyzed_plan(frame)
