"""Names are found, lists passed, and objects deleted in the JVM with few calls."""

import time
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_defs.spark import java_calls
from tests.support.java_objects import objects_of


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls into the JVM since the test began."""
    made, send = list[str](), ClientServerConnection.send_command

    def record(self: ClientServerConnection, command: str) -> Any:
        made.append(command)
        return send(self, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", record)
    return made


@pytest.mark.parametrize("size", [0, 1, 2, 9, 10, 11, 20, 21, 100])
def test_a_list_arrives_whole(spark: SparkSession, size: int) -> None:
    java: Any = spark._jvm
    for values in ([f"v{n}" for n in range(size)], [*range(size)], [n / 2 for n in range(size)]):
        made = java.java.util.LinkedList(values)
        assert [*made] == values
    assert [*java.java.util.ArrayList((None, "a"))] == [None, "a"]
    assert [[*part] for part in java.java.util.ArrayList([["a"], ["b", "c"]])] == [["a"], ["b", "c"]]


def test_thirty_columns_are_passed_with_few_calls(spark: SparkSession, calls: list[str]) -> None:
    columns = [F.lit(n).alias(f"c{n}") for n in range(30)]
    frame = spark.range(1)
    calls.clear()
    selected = frame.select(*columns)
    assert len(calls) <= 10
    assert selected.columns == [f"c{n}" for n in range(30)]


def test_a_column_of_a_name_is_made_once(spark: SparkSession, calls: list[str]) -> None:
    F.col("made once")
    calls.clear()
    columns = [F.col("made once") for _ in range(10)]
    assert calls == []
    frame = spark.range(2).select(F.col("id").alias("made once"))
    assert [tuple(row) for row in frame.select(*[c.alias(f"c{n}") for n, c in enumerate(columns)]).where(columns[0] > 0).collect()] == [
        (1,) * 10
    ]


def test_classes_and_methods_are_looked_up_once(spark: SparkSession, calls: list[str]) -> None:
    def parsed() -> Any:
        return cast(Any, spark)._jvm.java.lang.Integer.parseInt("12")

    def lookups() -> list[str]:
        return [command for command in calls if command.startswith("r")]

    assert parsed() == 12
    calls.clear()
    assert [parsed(), parsed()] == [12, 12]
    assert (lookups(), len(calls)) == ([], 2)


def test_a_missing_class_and_a_static_field_are_looked_up_again(spark: SparkSession, calls: list[str]) -> None:
    """A JAR that is added later may have the class, and a static field may change."""
    java: Any = spark._jvm
    assert java.java.lang.Integer.MAX_VALUE == java.java.lang.Integer.MAX_VALUE == 2**31 - 1
    assert isinstance(java.com.example.Missing, JavaPackage)
    calls.clear()
    assert isinstance(java.com.example.Missing, JavaPackage)
    assert java.java.lang.Integer.MAX_VALUE == 2**31 - 1
    assert [command.split("\n")[2:4] for command in calls] == [["com.example.Missing", "rj"], ["java.lang.Integer", "MAX_VALUE"]]


def test_objects_are_deleted_with_one_call_for_many(spark: SparkSession, calls: list[str]) -> None:
    java: Any = spark._jvm
    objects = [java.java.lang.Object() for _ in range(1_000)]
    names = {made._target_id for made in objects}
    assert names <= objects_of(spark)
    calls.clear()
    objects.clear()
    deadline = time.monotonic() + 30
    while len(names & objects_of(spark)) >= 500 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(names & objects_of(spark)) < 500
    assert sum(command.startswith("m") for command in calls) == 0


def test_rdds_take_rows(spark: SparkSession) -> None:
    """Spark requires an `ArrayList` of the numbers of the partitions."""
    rdd = spark.sparkContext.parallelize([1, 2, 3], 2)
    assert (rdd.take(2), rdd.first()) == ([1, 2], 1)


def test_all_objects_are_deleted_while_another_thread_deletes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    class ShrinkingDeque(deque[tuple[Any, str]]):
        def __len__(self) -> int:
            return super().__len__() + 1  # as if the other thread took one afterwards

    waiting, deleted = ShrinkingDeque([(None, "o1"), (None, "o2")]), list[str]()
    gateway = SimpleNamespace(_gateway_client=SimpleNamespace(finalizer_deque=waiting))
    monkeypatch.setattr(java_calls, "_deletion", lambda _: deleted.extend)
    java_calls.delete_all(gateway)
    assert {"o1", "o2"} <= {*deleted}


def test_numbers_of_numpy_are_literals(spark: SparkSession) -> None:
    numbers = (np.float64(1.5), np.float32(0.5), np.int64(7), np.bool_(True))
    assert spark.range(1).select(*[F.lit(number) for number in numbers]).collect() == [(1.5, 0.5, 7, True)]


def test_a_python_object_that_implements_a_java_interface_is_called(spark: SparkSession) -> None:
    """Structured Streaming calls back into Python through an object of this kind."""
    seen = list[int]()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "3").load()
    query = stream.writeStream.trigger(once=True).foreachBatch(lambda rows, _: seen.append(rows.count())).start()
    assert query.awaitTermination(60)
    assert seen == [3]


def test_hadoops_configuration_is_sent_without_the_sources_of_its_properties(spark: SparkSession) -> None:
    """The sources would be compressed one by one for each scan of files. Each copy still has the session's own settings."""
    java: Any = spark._jvm
    sources = java.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField("updatingResource")
    sources.setAccessible(True)
    hadoop = cast(Any, spark)._jsparkSession.sessionState().newHadoopConf()
    assert hadoop.size() > 500
    assert sources.get(hadoop).size() < hadoop.size() / 4
    assert hadoop.get("fs.s3a.impl") == "org.apache.hadoop.fs.s3a.S3AFileSystem"
