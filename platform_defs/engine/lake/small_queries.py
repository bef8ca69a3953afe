"""Plans queries over little data as one Spark job each.

With adaptive execution, Spark runs each stage of a query as its own job, and then plans the rest again. That pays for large inputs. For an
input of a few megabytes the extra jobs cost more than the query. Such a query runs in a copy of the session without adaptive execution
and with one shuffle partition. Its rows can be fetched as Arrow, so that Spark need not write them.
"""

import json
from collections.abc import Sequence
from threading import Lock
from typing import Any, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.serializers import BatchedSerializer, CPickleSerializer
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType
from pyspark.util import _load_from_socket

from operators.column_types import types_within
from platform_defs.engine.formats.values import COMMON_TYPES
from platform_defs.engine.lake.arrow_rows import all_nullable, arrow_rows
from platform_defs.engine.lake.commit_settings import COMMIT_SETTINGS
from platform_defs.engine.lake.lazy_frame import LazyFrame
from platform_defs.engine.lake.plan_inputs import ROWS_IN_MEMORY, inputs_of, text_bytes
from platform_defs.engine.lake.plans import analyzed_plan, first_rows, frame_of, has_cached_plans, with_single_partitions

SMALL_INPUT_BYTES = 4 * 1024 * 1024
"""The most bytes of data files that a small query reads."""
MATERIALIZED_INPUT_BYTES = 1024 * 1024
"""The most bytes of text whose rows are held in memory for several queries. Rows in memory become part of each task of a query."""
MOST_FETCHED_ROWS = 200_000
"""A query with this many rows or more is not fetched."""
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # a broadcast is a job of its own
    # physical operators without closures: to clean a closure of references, Spark reads the closure's class from the JARs each time
    "spark.sql.execution.usePartitionEvaluator": "true",
}
_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_RULES = {
    "catalyst.optimizer": (
        "PushDownLeftSemiAntiJoin",  # it would move a semi join below the one partition of a table's rows, and so add a shuffle
        "ConstantPropagation",
        "EliminateAggregateFilter",
        "FoldablePropagation",
        "GenerateOptimization",
        "InferFiltersFromConstraints",
        "InjectRuntimeFilter",
        "MergeScalarSubqueries",
        "NullDownPropagation",
        "OptimizeCsvJsonExprs",
        "OptimizeOneRowRelationSubquery",
        "OptimizeUpdateFields",
        "PushFoldableIntoBranches",
        "RemoveRedundantAggregates",
        "RemoveRedundantAliases",
        "ReorderAssociativeOperator",
        "ReplaceNullWithFalseInPredicate",
        "SimplifyBinaryComparison",
        "SimplifyConditionals",
        "SimplifyExtractValueOps",
        "UnwrapCastInBinaryComparison",
    ),
    "execution.datasources": ("PruneFileSourcePartitions", "PushVariantIntoScan", "SchemaPruning"),
    "delta.metric": ("OptimizeConditionalIncrementMetric",),  # for the metrics of a MERGE
}
"""Rules of Spark's optimizer that small queries are planned without, by package: they take more time than they save."""
_MEASURES = "measures"
_SESSIONS: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_ROWS: WeakKeyDictionary[DataFrame, pa.Table] = WeakKeyDictionary()
"""The rows by frame, for frames whose rows are in memory already."""
_ONE_AT_A_TIME = Lock()


def small_session(spark: SparkSession) -> SparkSession:
    """The copy of a session in which small queries are planned; a copy is returned unchanged."""
    with _ONE_AT_A_TIME:
        if any(copy is spark for copy in _SESSIONS.values()):
            return spark
        if spark not in _SESSIONS:
            copy = SparkSession(spark.sparkContext, cast(Any, spark)._jsparkSession.cloneSession())
            for name, value in _SETTINGS.items():
                copy.conf.set(name, value)
            rules = [f"org.apache.spark.sql.{package}.{rule}" for package, names in _RULES.items() for rule in names]
            copy.conf.set(_EXCLUDED_RULES, ",".join(filter(None, [copy.conf.get(_EXCLUDED_RULES, ""), *rules])))
            for name in COMMIT_SETTINGS:  # another thread's MERGE may have set them at that moment
                copy.conf.unset(name)
            _SESSIONS[spark] = copy
        return _SESSIONS[spark]


def own_sessions() -> list[SparkSession]:
    """The sessions of this process, with the copies for small queries.

    It takes no lock: the handler of Ctrl-C waits for it, and the interrupted thread may hold the lock of `small_session`.
    """
    instantiated = SparkSession._instantiatedSession
    copied = [session for reference in _SESSIONS.keyrefs() if (session := reference()) is not None]
    copies = [copy for session in copied if (copy := _SESSIONS.get(session)) is not None]
    return [*([] if instantiated is None else [instantiated]), *copies]


def plan_if_small(frame: DataFrame) -> DataFrame:
    """The frame, planned as a small query if the data files that it reads are small; otherwise unchanged."""
    small = _small_frame(analyzed_plan(frame), frame.sparkSession)
    return frame if small is None else small


def collect(frame: DataFrame) -> list[Row]:
    """The rows of a frame, which must be few."""
    small = plan_if_small(frame)
    jdf: Any = getattr(small, "_jdf", None)
    if jdf is None:
        return small.collect()
    # PySpark's own `collect` would name the job by the line of Python that calls it
    return list(_load_from_socket(jdf.collectToPython(), BatchedSerializer(CPickleSerializer())))


def fetch_arrow(frame: DataFrame) -> pa.Table | None:
    """The rows of a small query as Arrow. None if it is not small, or returns `MOST_FETCHED_ROWS` rows or more, or too many bytes.

    If the rows are few, they are kept in memory as long as the frame exists, and are not fetched again.
    """
    cached_rows = _ROWS.get(frame)
    if cached_rows is not None and _are_few(cached_rows):
        return cached_rows
    small = _limited_small_frame(frame)
    rows = None if small is None else _fetch_if_few(small)
    if rows is not None and _are_few(rows):
        _ROWS[frame] = rows
    return rows


def _are_few(rows: pa.Table) -> bool:
    return rows.nbytes <= SMALL_INPUT_BYTES and rows.num_rows < MOST_FETCHED_ROWS


def _limited_small_frame(frame: DataFrame) -> DataFrame | None:
    """The frame's small query, limited to `MOST_FETCHED_ROWS` rows for each partition; None if it is not small."""
    session, plan = frame.sparkSession, analyzed_plan(frame)
    return None if plan is None else _small_frame(first_rows(session, plan, MOST_FETCHED_ROWS), session)


def _fetch_if_few(small: DataFrame) -> pa.Table | None:
    """The rows of a small query as Arrow; None if they are too many."""
    try:
        rows = arrow_rows(small)
    except (PySparkException, Py4JJavaError) as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise
    return rows if rows.num_rows < MOST_FETCHED_ROWS else None


def count(frame: DataFrame) -> int:
    """The number of a frame's rows."""
    [[rows]] = collect(frame.agg(F.count("*")))
    return rows


def materialize(frame: DataFrame) -> DataFrame:
    """The frame with its rows computed once, for several queries. The rows must be few."""
    rows = fetch_arrow(frame)
    return frame.localCheckpoint() if rows is None else from_arrow(rows, frame)


def materialize_and_measure(frame: DataFrame, measures: Sequence[Column]) -> tuple[DataFrame, dict[str, Any]] | None:
    """As `materialize`, with aggregates over all rows, in one job.

    Args:
        frame: the rows.
        measures: aggregates with names, of numbers, strings or dates; a date is returned as text.

    Returns:
        The frame, and the aggregates by name; None if the input has more than `MATERIALIZED_INPUT_BYTES` or an unknown size, if there are
        too many rows to fetch, or if Arrow and Spark write a column's type differently.
    """
    size = text_bytes(analyzed_plan(frame))
    if size is None or size > MATERIALIZED_INPUT_BYTES or not is_arrow_type(frame.schema):
        return None
    small = _limited_small_frame(frame.observe(_MEASURES, *measures))
    if small is None or (rows := _fetch_if_few(small)) is None:
        return None
    measured = cast(Any, small)._jdf.queryExecution().observedMetrics().apply(_MEASURES)
    return from_arrow(rows, frame), json.loads(measured.json())


def materialize_and_count(frame: DataFrame) -> tuple[DataFrame, int]:
    """The frame with its rows computed once, as by `materialize`, and their number."""
    fetched = fetch_arrow(frame)
    if fetched is None:
        rows = frame.localCheckpoint()
        return rows, rows.count()
    return from_arrow(fetched, frame), fetched.num_rows


def from_arrow(rows: pa.Table, frame: DataFrame) -> DataFrame:
    """A frame of rows that were fetched from another frame, with its schema."""
    return in_memory(frame.sparkSession, rows, all_nullable(frame)) if rows.num_rows else frame.limit(0)


def in_memory(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """A frame of rows in memory, fewer than `MOST_FETCHED_ROWS`, with the columns of a schema."""
    frame = LazyFrame(spark, schema, lambda: spark.createDataFrame(rows, schema))
    _ROWS[frame] = rows
    return frame


def rows_in_memory(frame: DataFrame) -> pa.Table | None:
    """A frame's rows if they are in memory: the frame was made from Arrow or fetched, or `remember_rows` recorded them. Else None."""
    return _ROWS.get(frame)


def remember_rows(frame: DataFrame, rows: pa.Table) -> DataFrame:
    """Record the rows of a frame, so that no query fetches them; returns the frame.

    Args:
        frame: the frame.
        rows: its rows, with the names of its columns; the types may differ in the unit of a timestamp.
    """
    _ROWS[frame] = rows.cast(to_arrow_schema(all_nullable(frame)))
    return frame


def is_small(frame: DataFrame) -> bool:
    """Whether a query of a frame is small."""
    plan = analyzed_plan(frame)
    return plan is not None and _single_partition_inputs(plan) is not None


def is_arrow_type(kind: DataType) -> bool:
    """Whether the values of a type are the same when they are written to Parquet by Arrow and by Spark."""
    return all(isinstance(part, COMMON_TYPES) for part in types_within(kind))


def _single_partition_inputs(plan: Any) -> list[Any] | None:
    """The inputs of a small plan to read as one partition; None if its data files exceed `SMALL_INPUT_BYTES`, or their size is not known.

    These are the Parquet tables, and the rows in memory unless the plan reads nothing else.
    """
    inputs = inputs_of(plan)
    if inputs is None or sum(plan_input.bytes for plan_input in inputs) > SMALL_INPUT_BYTES:
        return None
    return [
        plan_input.relation
        for plan_input in inputs
        if plan_input.kind == "parquet" or (plan_input.kind == ROWS_IN_MEMORY and len(inputs) > 1)
    ]


def _small_frame(plan: Any, session: SparkSession) -> DataFrame | None:
    """The frame of a small plan in the copy of its session; None if the plan is not small.

    Each Parquet table and each list of rows is read as one partition, so that joins and aggregations need no shuffle, except after a union.
    Text files are not repartitioned: Spark would push filters below the repartitioning and evaluate the parser again in each. While
    anything is cached, nothing is repartitioned: Spark finds cached rows by an equal plan.
    """
    if plan is None or (inputs := _single_partition_inputs(plan)) is None:
        return None
    copy = small_session(session)
    if inputs and not has_cached_plans(session):
        plan = with_single_partitions(session, plan, inputs)
    _name_jobs(copy.sparkContext)
    return frame_of(copy, plan)


def _name_jobs(context: SparkContext) -> None:
    """Name the next jobs of this thread. Spark would name a job by its caller, for which it walks the stack at each operator of a plan."""
    for form in ("callSite.short", "callSite.long"):  # PySpark's own `collect` removes the first
        context.setLocalProperty(form, "tidemark")
