"""Builds frames and relations directly from Spark's logical plans, which takes fewer calls into the JVM than the public API."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators.errors import TidemarkError
from platform_defs.engine.formats.strict import STRICT

_CONDITIONS: WeakKeyDictionary[SparkSession, dict[int, Any]] = WeakKeyDictionary()
"""The conditions of `first_rows`, by session and number of rows."""


class OtherSizeError(TidemarkError):
    """Files have another size than their table's log says."""


class _Spark:
    """The classes and functions of Spark that this module calls, looked up once for each JVM, since each lookup is a call."""

    def __init__(self, client: Any) -> None:
        def find(name: str) -> Any:
            return JavaClass(name, client)

        plans, sources = "org.apache.spark.sql.catalyst.plans.logical", "org.apache.spark.sql.execution.datasources"
        self.frame_of_plan = find("org.apache.spark.sql.classic.Dataset").ofRows
        self.filter, self.repartition = find(f"{plans}.Filter"), find(f"{plans}.Repartition")
        self.data_source = find(f"{sources}.DataSource")
        self.relation_of = getattr(find(f"{sources}.LogicalRelation$"), "MODULE$").apply
        self.some, self.none = find("scala.Some"), find("scala.Option").empty()
        self.empty_map = find("scala.collection.immutable.HashMap")()
        functions = find("org.apache.spark.api.python.PythonUtils")
        self.to_seq = functions.toSeq
        self.empty_seq, self.options = self.to_seq([]), functions.toScalaMap(STRICT)


_spark_of = lru_cache(maxsize=2)(_Spark)


def _spark(session: SparkSession) -> _Spark:
    return _spark_of(cast(Any, session)._jvm._gateway_client)


def analyzed_plan(frame: DataFrame) -> Any:
    """The frame's plan in the JVM; None in a Spark Connect session."""
    jdf: Any = getattr(frame, "_jdf", None)
    return None if jdf is None else jdf.queryExecution().analyzed()


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """The frame of an analyzed plan."""
    return DataFrame(_spark(session).frame_of_plan(cast(Any, session)._jsparkSession, plan), session)


def has_cached_plans(session: SparkSession) -> bool:
    """Whether any frame is cached. Spark finds the rows of a cached frame by an equal plan."""
    return not cast(Any, session)._jsparkSession.sharedState().cacheManager().isEmpty()


def first_rows(session: SparkSession, plan: Any, number: int) -> Any:
    """The plan of the first rows of each partition of an analyzed plan. Spark would compile new code for each LIMIT."""
    conditions = _CONDITIONS.setdefault(session, {})
    if number not in conditions:
        number_in_partition = F.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
        conditions[number] = analyzed_plan(session.range(1).where(number_in_partition < number)).condition()
    # the expression counts rows, so plans must not share it
    limited = _spark(session).filter(conditions[number].freshCopyIfContainsStatefulExpression(), plan)
    limited.setAnalyzed()
    return limited


def with_single_partitions(session: SparkSession, plan: Any, relations: Sequence[Any]) -> Any:
    """An analyzed plan that reads each of some of its relations as one partition."""
    spark = _spark(session)
    replacements = spark.empty_map
    for relation in relations:
        replacements = replacements.updated(relation, spark.repartition(1, False, relation))
    changed = plan.transformUp(replacements)  # a Scala map is a partial function
    changed.setAnalyzed()  # each relation was replaced by one with the same columns, so Spark need not analyze the plan again
    return changed


def copy_of_relation(session: SparkSession, relation: Any) -> DataFrame:
    """A frame of a relation with new column ids, so that it can be joined with other copies."""
    copy = relation.newInstance()
    copy.setAnalyzed()
    return frame_of(session, copy)


def parquet_relation(session: SparkSession, paths: Sequence[str], schema: str, size: int) -> Any:
    """The relation of Parquet files.

    Spark's reader takes more than twice as long, because it also looks for each file, in threads that it starts for this.

    Args:
        session: a classic session.
        paths: the files, which the caller has found to exist.
        schema: the columns, as JSON.
        size: the size of all files in bytes.

    Raises:
        OtherSizeError: Spark finds another size.
    """
    spark, j_session = _spark(session), cast(Any, session)._jsparkSession
    columns = spark.some(j_session.parseDataType(schema))
    of_files = "parquet", spark.to_seq([*paths]), columns, spark.empty_seq, spark.none, spark.options, spark.none
    source = spark.data_source(j_session, *of_files)
    files = source.resolveRelation(False, False)  # checkFilesExist: the caller has found the files; readOnly: as by default
    if files.location().sizeInBytes() != size:
        raise OtherSizeError
    return spark.relation_of(files, False)
