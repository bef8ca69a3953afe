"""Rows are fetched as Arrow whatever their types, and a query whose thread ends without reporting an error raises one."""

from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from platform_defs.engine.lake import arrow_rows as module
from platform_defs.engine.lake.arrow_rows import arrow_rows
from platform_defs.engine.lake.errors import LakeError


def test_rows_keep_their_order_and_a_field_that_is_never_null_may_be_in_a_null_struct(spark: SparkSession) -> None:
    rows = spark.range(0, 20, 1, 4).selectExpr("id", "if(id % 2 = 0, named_struct('n', id), null) AS s")
    assert arrow_rows(rows).to_pylist() == [{"id": n, "s": None if n % 2 else {"n": n}} for n in range(20)]


def test_no_rows_keep_their_columns(spark: SparkSession) -> None:
    assert arrow_rows(spark.range(3).where("id > 5")).schema.names == ["id"]


def test_an_error_of_the_query_is_raised(spark: SparkSession) -> None:
    with pytest.raises((ArithmeticException, Py4JJavaError), match="DIVIDE_BY_ZERO"):
        arrow_rows(spark.range(3).selectExpr("1 / id AS x"))


def test_a_thread_that_ends_without_an_answer_is_an_error(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong password the thread ends before it runs the query and reports no error, so that PySpark would wait for it forever."""
    load: Callable[[Any, Any], Any] = module._load_from_socket
    monkeypatch.setattr(module, "_load_from_socket", lambda found, serializer: load((found[0], "wrong"), serializer))
    monkeypatch.setattr(module, "_END_S", 1)
    with pytest.raises(LakeError, match="Spark ended a query without an answer"):
        arrow_rows(spark.range(3))
