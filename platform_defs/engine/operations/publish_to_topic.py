"""Publishing to Kafka: write the changes of a table's steps to a topic, with the step in each record's headers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from platform_defs.engine.faults import point
from platform_defs.engine.formats.read_errors import read_error
from platform_defs.engine.inputs.progress import progress, results_table, step_id, table_identity
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.missing_files import lost_files
from platform_defs.engine.operations.sink import NamingTopicErrors, Sink, SinkError
from platform_defs.engine.operations.topic import CHANGE, COPY, SINCE, STEP, STEP_ID, TABLE, Topic, WrittenStep
from platform_defs.engine.operations.topic_changes import KEY, KIND, NUMBER, VALUE, Write, writes

_HEADERS = "headers"


@dataclass(frozen=True)
class Published:
    """The last step that a topic has, and the number of steps and records that were written to it now.

    Args:
        topic: the topic.
        step: the last step of the table that the topic has; 0 for none.
        steps: the number of steps that were written.
        records: the number of records that were written.
    """

    topic: str
    step: int
    steps: int = 0
    records: int = 0


def sum_of(earlier: Published | None, later: Published) -> Published:
    """Two publishes of a table as one."""
    if earlier is None:
        return later
    return replace(later, steps=earlier.steps + later.steps, records=earlier.records + later.records)


def publish_to_topic(workspace: Workspace, asset: DerivedAsset, sink: Sink, upto: int | None = None) -> Published:
    """Write the steps that a topic does not have yet, one after the other, each by one Spark job.

    A killed run leaves at most one step of which the topic has a part; the next run writes that step again, with the same keys, values and
    headers. Only one process at a time publishes a table to a topic.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the table. The records of an upserted table are its keys' new values and tombstones; those of another table are its new
            rows, and its corrected rows with their change kind.
        sink: the topic.
        upto: the last step to write; None for the newest. A stream passes the last step that it has checked, since later steps may be
            committed while the topic is written.

    Raises:
        SinkError: the topic does not exist, has records of another table or program or a step that the table has lost, or cannot be read
            or written to; or the table's log or files no longer have the steps.
        LakeBusy: another process publishes the table to a topic.
    """
    with (
        workspace.lake.writer(f"kafka-{asset.name}"),
        Topic(workspace.spark, sink, asset.name, compacted=asset.operator.emits.upserts) as topic,
    ):
        return _publish(workspace.take_snapshot(asset.name), asset, sink, topic, upto)


def _publish(workspace: Workspace, asset: DerivedAsset, sink: Sink, topic: Topic, last_step: int | None) -> Published:
    table, upto, newest = table_identity(workspace.lake, asset), progress(workspace.lake, asset).step, topic.newest()
    if newest is not None:
        _require_same_steps(workspace, asset, sink, newest, table, upto)
    if table is None:
        return Published(sink.topic, 0)
    if last_step is not None:  # a step that the topic has, or has a part of, was checked before
        upto = min(upto, max(last_step, 0 if newest is None else newest.step))
    published_upto, records_before, steps = 0 if newest is None else newest.step if newest.complete else newest.since, topic.records(), 0
    for write in writes(workspace, asset, sink, published_upto, upto, None if newest is None or newest.complete else newest.step):
        with _naming_deleted_files(workspace, asset, sink, write.step):
            _write(sink, write, table, identity := step_id(workspace.lake, asset, write.step) or "")
        topic.commit(table, write.step, identity)
        point("kafka.after_commit")
        steps += 1
    # also if nothing was written: the last steps may have no changes, and Kafka forgets a commit that is not repeated
    topic.commit(table, upto, step_id(workspace.lake, asset, upto) or "")
    return Published(sink.topic, upto, steps, topic.records() - records_before)


def _require_same_steps(workspace: Workspace, asset: DerivedAsset, sink: Sink, newest: WrittenStep, table: str | None, upto: int) -> None:
    """Raise if the topic has steps of another table, or a step that the table has lost."""
    if newest.table != table:
        raise SinkError.other_table(asset.name, sink.topic, newest.table, str(table))
    present = step_id(workspace.lake, asset, newest.step) if newest.id and newest.step <= upto else None
    if newest.step > upto or (present is not None and present != newest.id):
        raise SinkError.other_step(asset.name, sink.topic, newest.step, upto)


@contextmanager
def _naming_deleted_files(workspace: Workspace, asset: DerivedAsset, sink: Sink, step: int) -> Iterator[None]:
    """Raise `SinkError` if Spark fails on a data file that only an earlier version of the table lists."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if read_error(error).kind == "missing" and not lost_files(workspace.lake, results_table(asset), error):
            raise SinkError.no_files(asset.name, sink.topic, step) from error
        raise


def _write(sink: Sink, write: Write, table: str, identity: str) -> None:
    values = {TABLE: table, STEP: str(write.step), SINCE: str(write.since), STEP_ID: identity}
    headers = [_header(name, F.lit(value)) for name, value in values.items()]
    row_headers = [_if_any(CHANGE, F.col(KIND)), _if_any(COPY, F.col(NUMBER).cast("string"))]
    records = write.rows.select(KEY, VALUE, F.concat(F.array(*headers), *row_headers).alias(_HEADERS))
    point("kafka.before_write")
    with NamingTopicErrors(sink.topic):
        _save(records, sink)
    point("kafka.after_write")


_HEADER_TYPE = "array<struct<key:string,value:binary>>"


def _if_any(name: str, value: Column) -> Column:
    """A header in an array, which is empty if its value is null."""
    return F.when(value.isNotNull(), F.array(_header(name, value))).otherwise(F.array().cast(_HEADER_TYPE))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _save(records: DataFrame, sink: Sink) -> None:
    records.write.format("kafka").mode("append").options(**sink.options).option("topic", sink.topic).save()
