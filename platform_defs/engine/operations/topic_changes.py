"""The changes of a table's steps as records for a topic."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import CHANGED_AT, INSERT, OWN_CHANGE, STEP, UPDATE_BEFORE, bag_changes, difference, keyed_upserts
from operators.columns import FINAL_AT
from platform_defs.engine.inputs.changelog_reader import steps_of
from platform_defs.engine.inputs.progress import PROGRESS, Progress, results_table
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.operations.sink import Sink, SinkError
from platform_defs.engine.operations.topic_values import Encoding

KEY, VALUE, KIND, NUMBER = "key", "value", "change", "copy"
"""The columns of the records: the key, the value, the change kind, which is null for an upserted table, and the number of the record among
equal ones of its step, which is null if the results have a key."""


@dataclass(frozen=True)
class Write:
    """The records that one Spark job writes: the changes of the steps after `since`, up to `step`.

    Of these steps, only the last one has changes. The first write of an appended table is an exception: it has all rows of the table.

    Args:
        since: the last step before the write; 0 for none.
        step: the last step of the write.
        rows: the records.
    """

    since: int
    step: int
    rows: DataFrame


@dataclass(frozen=True)
class _Version:
    """A step of an appended table, the version of the table after it, and the number of rows that it wrote."""

    progress: Progress
    version: int
    rows: int

    @property
    def step(self) -> int:
        return self.progress.step


def writes(workspace: Workspace, asset: DerivedAsset, sink: Sink, from_step: int, upto: int, first: int | None) -> Iterator[Write]:
    """The writes that bring a topic from one step of a table to another.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the table.
        sink: the sink.
        from_step: the last step that the topic has; 0 for none.
        upto: the last step to write.
        first: the step of the first write of an appended table, if the topic has a part of that write; None for `upto`. It is not used if
            `from_step` is not 0.

    Raises:
        SinkError: the table neither is upserted nor closes ranges. While the writes are read: its log no longer has the steps, it lacks a
            column of the sink's key, or Avro does not allow a column.
        ProgressError: while the writes are read: retention has replaced steps of the changelog that the topic lacks.
        RegistryError: while the writes are read; see `Encoding`.
    """
    if asset.operator.emits.upserts:
        return _of_changelog(workspace, asset, sink, from_step, upto)
    if not asset.operator.reads.closes_ranges:
        raise SinkError.not_by_range(asset.name)
    return _of_versions(workspace, asset, sink, from_step, upto, first)


def _of_changelog(workspace: Workspace, asset: DerivedAsset, sink: Sink, from_step: int, upto: int) -> Iterator[Write]:
    encoding = Encoding(workspace.spark, sink, asset.name)
    for step in _steps_with_changes(workspace, asset, from_step, upto):
        changelog = steps_of(workspace, asset, from_step, step).drop(CHANGED_AT)
        encoders = partial(encoding, "value", changelog.schema), partial(encoding, "key", changelog.schema)
        upserts = keyed_upserts(changelog, key=asset.operator.emits.key, order=STEP, encode=encoders[0], encode_key=encoders[1])
        yield Write(from_step, step, upserts.select(KEY, VALUE, F.lit(None).cast("string").alias(KIND), _no_number()))
        from_step = step


def _steps_with_changes(workspace: Workspace, asset: DerivedAsset, from_step: int, upto: int) -> list[int]:
    """The steps after `from_step`, up to `upto`, that have changes."""
    values = workspace.lake.few_numbers(asset.changelog, STEP, {STEP: (from_step + 1, upto)})
    if values is None:
        steps = {step for (step,) in collect(steps_of(workspace, asset, from_step, upto).select(STEP).distinct())}
    else:
        steps = {*values.drop_null().to_pylist()}
    return sorted(step for step in steps if from_step < step <= upto)


def _of_versions(workspace: Workspace, asset: DerivedAsset, sink: Sink, from_step: int, upto: int, first: int | None) -> Iterator[Write]:
    versions = [version for version in _versions(workspace, asset, from_step) if version.step <= upto]
    encoding = Encoding(workspace.spark, sink, asset.name)
    if not from_step:
        starts = versions[-1:] if first is None else [version for version in versions if version.step == first]
        if not starts and first is not None:
            raise SinkError.no_version(asset.name, sink.topic, first)
        if not starts:
            return
        [start] = starts
        yield Write(0, start.step, _records(asset, encoding, _rows(workspace, asset, start).withColumn(OWN_CHANGE, F.lit(INSERT))))
        versions = versions[versions.index(start) :]
    elif not versions or versions[0].step != from_step:
        raise SinkError.no_version(asset.name, sink.topic, from_step)
    for before, after in pairwise(versions):
        frames = _changes(workspace, asset, before, after)
        if frames is not None:
            yield Write(from_step, after.step, _records(asset, encoding, frames))
            from_step = after.step


def _versions(workspace: Workspace, asset: DerivedAsset, from_step: int) -> list[_Version]:
    """The newest version of each step from `from_step` on, in the order of the steps, as far as the table's log goes back."""
    versions_by_step = dict[int, _Version]()
    table = results_table(asset)
    for commit in workspace.lake.commits(table, PROGRESS):
        version = _Version(Progress.from_metadata(table, commit.value), commit.version, commit.rows)
        if version.step < from_step or (
            versions_by_step and version.progress.generation != next(iter(versions_by_step.values())).progress.generation
        ):
            break
        newer = versions_by_step.get(version.step, version)  # maintenance repeats a step in a later commit without rows
        versions_by_step[version.step] = replace(newer, rows=max(newer.rows, version.rows))
    return [versions_by_step[step] for step in sorted(versions_by_step)]


def _changes(workspace: Workspace, asset: DerivedAsset, before: _Version, after: _Version) -> DataFrame | None:
    """The rows that became final between two steps, and the corrections of earlier rows, with change kinds; None if there are neither."""
    closed_to_before, closed_to_after = before.progress.closed_to, after.progress.closed_to
    frames = list[DataFrame]()
    if closed_to_after is not None and closed_to_after != closed_to_before and after.rows:
        rows_after = _rows(workspace, asset, after, Span(None if closed_to_before is None else closed_to_before + 1, closed_to_after))
        frames.append(rows_after.withColumn(OWN_CHANGE, F.lit(INSERT)))
    for _, first, last in (c for c in after.progress.corrected if c[0] > before.step):
        span = Span(first, last if closed_to_before is None else min(last, closed_to_before))
        rows_before, rows_after = _rows(workspace, asset, before, span), _rows(workspace, asset, after, span)
        key = asset.operator.emits.key
        changes = (
            difference(rows_before, rows_after, key=key, change=OWN_CHANGE) if key else bag_changes(rows_before, rows_after, OWN_CHANGE)
        )
        frames.append(changes.where(F.col(OWN_CHANGE) != UPDATE_BEFORE))
    if not frames:
        return None
    [all_changes, *other_frames] = frames
    for frame in other_frames:
        all_changes = all_changes.unionByName(frame)
    return all_changes


def _rows(workspace: Workspace, asset: DerivedAsset, version: _Version, span: Span | None = None) -> DataFrame:
    rows = workspace.spark.read.format("delta").option("versionAsOf", version.version).load(workspace.lake.path(asset.name))
    return rows if span is None else rows.where(span.holds(FINAL_AT))


def _records(asset: DerivedAsset, encoding: Encoding, rows: DataFrame) -> DataFrame:
    """Rows with their change kinds as records."""
    columns = [c for c in rows.columns if c != OWN_CHANGE]
    key = encoding.sink.key or asset.operator.emits.key
    if not {*key} <= {*columns}:
        raise SinkError.no_key(asset.name, key, columns)
    number = _no_number() if asset.operator.emits.key else F.row_number().over(Window.partitionBy(KIND, VALUE).orderBy(KIND)).alias(NUMBER)
    of_key = encoding("key", rows.schema, key) if key else F.lit(None).cast("string")
    records = rows.select(of_key.alias(KEY), encoding("value", rows.schema, columns).alias(VALUE), F.col(OWN_CHANGE).alias(KIND))
    return records.select("*", number)


def _no_number() -> Column:
    return F.lit(None).cast("int").alias(NUMBER)
