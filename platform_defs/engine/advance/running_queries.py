"""The streaming queries of tables with `streams_as="query"`: each keeps the operator's state in Spark while a stream runs.

A query is a cache of what a step would read from the event logs. It starts with rows of the logs, and is fed the rows of each step. If the
table has a step whose rows it was not fed, the query is dropped. No later process reads a query's files.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from threading import Lock
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from assets.contracts import DerivedAsset
from assets.days import moment
from operators.columns import FINAL_AT, quoted
from operators.contract import RunsAsQuery
from operators.errors import TidemarkError
from operators.timing import ClosedRange, timestamp
from platform_defs.engine.formats.files import hadoop_file
from platform_defs.engine.lake.small_queries import materialize
from platform_defs.engine.lake.tables import Lake

FOLDER = "_queries"
"""The folder of the lake for the input, the checkpoints and the output of running queries. No table can have this name."""
MOST_STEPS = 1_000
"""After this many steps a query is replaced by a new one, so that its input and output do not grow for ever."""
_WATERMARK, _WHICH, _FED = "watermark", "which", "fed"
_EVERY_FILE = (1 << 31) - 1
"""More files than a commit has, so that Spark reads a commit in one micro-batch. If it read the row with a step's watermark in an earlier
micro-batch than other rows of the step, it would drop these as late."""
_SETTINGS = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",  # a watermark finalizes results at once, without further rows
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.streaming.numRecentProgressUpdates": "8",
    "spark.sql.streaming.noDataProgressEventInterval": "3600000",  # only batches are in the recent progress
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.minBatchesToRetain": "2",  # no query goes back to an earlier state
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",  # no later process reads a checkpoint
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.exchange.reuse": "false",  # a join whose two shuffles are shared never removes state
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class RunningQueryError(TidemarkError, RuntimeError):
    """The streaming query of a table has failed, or has not done what a step needs."""

    @classmethod
    def dropped(cls, table: str, rows: int) -> "RunningQueryError":
        """Spark dropped rows that are not late."""
        return cls(
            f"Spark's query of table {table!r} dropped {rows} rows that are on time; nothing was committed, and the next step starts the "
            "query again. If this repeats, set `streams_as` to 'ranges', and report it"
        )

    @classmethod
    def behind(cls, table: str, reached: str, required: str) -> "RunningQueryError":
        """The query has ended, or has not reached the watermark that it was given."""
        return cls(
            f"Spark's query of table {table!r} has the watermark {reached} instead of {required}; nothing was committed, and the next step "
            "starts the query again. If this repeats, set `streams_as` to 'ranges', and report it"
        )

    @classmethod
    def refused(cls, table: str, error: object) -> "RunningQueryError":
        """Spark refuses the query's plan."""
        first_line = "".join(str(error).strip().splitlines()[:1]).rstrip(";")
        return cls(
            f"Spark refuses the query of table {table!r}: {first_line}; nothing was committed. Set `streams_as` to 'ranges', by which a "
            "stream computes the same rows without a query"
        )


class RunningQuery:
    """A running query of a table.

    Args:
        spark: the session.
        lake: the lake.
        asset: the table.
        frames: static frames with the columns of each input.
    """

    def __init__(self, spark: SparkSession, lake: Lake, asset: DerivedAsset, frames: Sequence[DataFrame]) -> None:
        self._spark, self._lake, self._asset = spark, lake, asset
        self._folder = f"{FOLDER}/{asset.name}/{uuid.uuid4().hex}"
        self._schemas = [frame.schema for frame in frames]
        self._query: StreamingQuery | None = None
        self._schema: StructType | None = None
        self._later_results: DataFrame | None = None
        self._read_files, self._last_batch = set[str](), -1
        self.steps = 0

    @property
    def _operator(self) -> RunsAsQuery:
        return cast(RunsAsQuery, self._asset.operator)

    def results(self, frames: Sequence[DataFrame], closing: ClosedRange) -> DataFrame:
        """Feed the rows of a step, and return the results that are final in its range; later results are kept for later steps.

        Args:
            frames: the rows of each input that the query does not have yet, without late rows.
            closing: the range.

        Raises:
            RunningQueryError: Spark refuses the query, or the query has ended, has dropped a row, or has not reached the watermark.
        """
        self._feed(frames, watermark := self._operator.query_watermark(closing.upto))
        query = self._query or self._start()
        query.processAllAvailable()
        self._require_all(query, watermark)
        new_results = self._new_results()
        self._later_results = new_results.where(~ClosedRange(None, closing.upto).holds(FINAL_AT))
        return new_results.where(closing.holds(FINAL_AT))

    def stop(self) -> None:
        """End the query, and remove its files."""
        with suppress(PySparkException, Py4JError):
            if self._query is not None:
                self._query.stop()
        with suppress(PySparkException, Py4JError):
            remove_queries(self._spark, self._lake, self._folder)

    def _feed(self, frames: Sequence[DataFrame], watermark: int) -> None:
        """Commit the rows and a row with the watermark to the query's input, in one commit."""
        self.steps += 1
        marker = self._spark.createDataFrame(pa.table({_WATERMARK: pa.array([watermark], pa.int64())}))
        marker = marker.select(F.lit(-1).alias(_WHICH), timestamp(F.col(_WATERMARK)).alias(_WATERMARK), *self._inputs(-1))
        no_watermark = F.lit(None).cast("timestamp").alias(_WATERMARK)
        rows = [frame.select(F.lit(index).alias(_WHICH), no_watermark, *self._inputs(index)) for index, frame in enumerate(frames)]
        self._lake.append(reduce(DataFrame.unionAll, [*rows, marker]), f"{self._folder}/input", {_FED: self.steps})

    def _inputs(self, index: int) -> list[Column]:
        """A column for each input, with a struct of its columns; null except for input `index`."""
        columns = list[Column]()
        for number, schema in enumerate(self._schemas):
            row = F.struct(*quoted(schema.names)) if number == index else F.lit(None).cast(schema)
            columns.append(row.alias(_column(number)))
        return columns

    def _start(self) -> StreamingQuery:
        reader = _session(self._spark).readStream.format("delta").option("maxFilesPerTrigger", _EVERY_FILE)
        source = reader.load(self._path("input")).withWatermark(_WATERMARK, "0 seconds")
        results = self._operator.as_query(*[self._stream(source, index) for index in range(len(self._schemas))])
        self._schema = results.schema
        writer = results.writeStream.format("parquet").outputMode("append").queryName(self._asset.name)
        try:
            self._query = writer.option("checkpointLocation", self._path("checkpoint")).start(self._path("output"))
        except AnalysisException as error:
            raise RunningQueryError.refused(self._asset.name, error) from error
        return self._query

    def _stream(self, source: DataFrame, index: int) -> DataFrame:
        """The rows of an input.

        The condition reads the column of the watermark in each of its parts and is not deterministic. Otherwise Spark would move it, or
        later conditions on the rows, before `withWatermark`, which would then miss the rows that carry a watermark.
        """
        is_own = F.col(_WATERMARK).isNull() & (F.col(_WHICH) == index)
        return source.where(F.greatest(is_own, F.spark_partition_id() < 0)).select(f"{_column(index)}.*")

    def _require_all(self, query: StreamingQuery, watermark: int) -> None:
        """Raise `RunningQueryError` if Spark dropped a row since the last step, or has not reached the watermark: its state is wrong."""
        batches = [batch for batch in query.recentProgress if batch.batchId > self._last_batch]
        self._last_batch = max([self._last_batch, *[batch.batchId for batch in batches]])
        if dropped := sum(state.numRowsDroppedByWatermark for batch in batches for state in batch.stateOperators):
            raise RunningQueryError.dropped(self._asset.name, dropped)
        reached = max((str(batch.eventTime.get("watermark")) for batch in batches), default="none")
        if reached != (required := moment(watermark).isoformat(timespec="milliseconds").replace("+00:00", "Z")):
            raise RunningQueryError.behind(self._asset.name, reached, required)

    def _new_results(self) -> DataFrame:
        """The results since the last step, and the earlier ones that were not final at that step. They are computed once."""
        read = self._spark.read.schema(cast(StructType, self._schema))
        files = {unquote(file) for file in read.parquet(self._path("output")).inputFiles()} - self._read_files
        self._read_files |= files
        parts = [*([read.parquet(*sorted(files))] if files else []), *([] if self._later_results is None else [self._later_results])]
        return materialize(reduce(DataFrame.unionAll, parts)) if parts else self._spark.createDataFrame([], cast(StructType, self._schema))

    def _path(self, part: str) -> str:
        return self._lake.path(f"{self._folder}/{part}")


class RunningQueries:
    """The queries that run in this process, by table, each with the id of the table's step up to which it was fed."""

    def __init__(self) -> None:
        self._running, self._lock = dict[str, tuple[str | None, RunningQuery]](), Lock()
        self.are_enabled = False
        """Whether a continuous stream runs; otherwise a query would be of no use after the step for which it starts."""

    @contextmanager
    def enable(self) -> Iterator[None]:
        """Let tables be computed by queries while the block runs, and end them after it."""
        self.are_enabled = True
        try:
            yield
        finally:
            self.are_enabled = False
            self.stop()

    def query_at_step(self, table: str, step: str | None) -> RunningQuery | None:
        """The running query of a table, if it was fed all steps up to the one with this id, and no later step.

        None also for a table without a step, and if the query was fed `MOST_STEPS` steps.
        """
        with self._lock:
            fed_step, query = self._running.get(table, (None, None))
        return query if query is not None and fed_step == step is not None and query.steps < MOST_STEPS else None

    def remember(self, table: str, step: str | None, query: RunningQuery) -> None:
        """Remember that a query was fed the steps up to the one with this id; None while it is fed a step that is not committed yet."""
        with self._lock:
            self._running[table] = step, query

    def drop(self, table: str) -> None:
        """End the query of a table, if one runs."""
        with self._lock:
            _, query = self._running.pop(table, (None, None))
        if query is not None:
            query.stop()

    def stop(self) -> None:
        """End all queries."""
        for table in [*self._running]:
            self.drop(table)


def remove_queries(spark: SparkSession, lake: Lake, folder: str) -> int:
    """Remove a folder of queries that do not run, if it exists; returns the number of its files."""
    files, path = hadoop_file(spark, lake.path(folder))
    if not files.exists(path):
        return 0
    number = files.getContentSummary(path).getFileCount()
    files.delete(path, True)
    return number


def _column(index: int) -> str:
    return f"input_{index}"


def _session(spark: SparkSession) -> SparkSession:
    """A copy of the session with the settings of a query."""
    copy = SparkSession(spark.sparkContext, cast(Any, spark)._jsparkSession.cloneSession())
    for name, value in {**_SETTINGS, "spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism)}.items():
        copy.conf.set(name, value)
    return copy
