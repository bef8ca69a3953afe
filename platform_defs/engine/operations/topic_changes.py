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
from platform_defs.engine.inputs.reader import Reading, Span
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.operations.sink import Sink, SinkError
from platform_defs.engine.operations.topic_values import Encoding

KEY, VALUE, KIND, NUMBER = "key", "value", "change", "copy"
"""The columns of the records: the key, the value, the change kind, which is null for an upserted table, and the number of the record among
equal ones of its step, which is null if the results have a key."""


@dataclass(frozen=True)
class Write:
    """The records that one Spark job writes: the changes of the steps `since < step <= step`, of which only the last has changes.

    Args:
        since: the step after which it begins.
        step: the step.
        rows: the records.
    """

    since: int
    step: int
    rows: DataFrame


@dataclass(frozen=True)
class _Version:
    """A step of an appended table, and the version of the table after it."""

    progress: Progress
    version: int
    rows: int

    @property
    def step(self) -> int:
        return self.progress.step


def writes(reading: Reading, asset: DerivedAsset, sink: Sink, done: int, upto: int, first: int | None) -> Iterator[Write]:
    """The writes that bring a topic from one step of a table to another.

    Args:
        reading: reads the lake.
        asset: the table.
        sink: the sink.
        done: the last step that the topic has; 0 for none.
        upto: the last step to write.
        first: the step of the first write of an appended table, if the topic has a part of that write; None for `upto`.
    """
    if asset.operator.emits.upserts:
        return _of_changelog(reading, asset, sink, done, upto)
    if not asset.operator.reads.closes_ranges:
        raise SinkError.not_by_range(asset.name)
    return _of_versions(reading, asset, sink, done, upto, first)


def _of_changelog(reading: Reading, asset: DerivedAsset, sink: Sink, done: int, upto: int) -> Iterator[Write]:
    encoding = Encoding(reading.spark, sink, asset.name)
    for step in _steps_with_changes(reading, asset, done, upto):
        changelog = steps_of(reading, asset, done, step).drop(CHANGED_AT)
        encoders = partial(encoding, "value", changelog.schema), partial(encoding, "key", changelog.schema)
        upserts = keyed_upserts(changelog, key=asset.operator.emits.key, order=STEP, encode=encoders[0], encode_key=encoders[1])
        yield Write(done, step, upserts.select(KEY, VALUE, F.lit(None).cast("string").alias(KIND), _no_number()))
        done = step


def _steps_with_changes(reading: Reading, asset: DerivedAsset, done: int, upto: int) -> list[int]:
    """The steps after `done`, up to `upto`, that have changes."""
    values = reading.lake.few_values(asset.changelog, STEP, {STEP: (done + 1, upto)})
    if values is None:
        found = {step for (step,) in collect(steps_of(reading, asset, done, upto).select(STEP).distinct())}
    else:
        found = {*values.drop_null().to_pylist()}
    return sorted(step for step in found if done < step <= upto)


def _of_versions(reading: Reading, asset: DerivedAsset, sink: Sink, done: int, upto: int, first: int | None) -> Iterator[Write]:
    versions, encoding = [v for v in _versions(reading, asset, done) if v.step <= upto], Encoding(reading.spark, sink, asset.name)
    if not done:
        found = versions[-1:] if first is None else [v for v in versions if v.step == first]
        if not found and first is not None:
            raise SinkError.no_version(asset.name, sink.topic, first)
        if not found:
            return
        [start] = found
        yield Write(0, start.step, _records(asset, encoding, _rows(reading, asset, start).withColumn(OWN_CHANGE, F.lit(INSERT))))
        versions = versions[versions.index(start) :]
    elif not versions or versions[0].step != done:
        raise SinkError.no_version(asset.name, sink.topic, done)
    for before, after in pairwise(versions):
        frames = _changes(reading, asset, before, after)
        if frames is not None:
            yield Write(done, after.step, _records(asset, encoding, frames))
            done = after.step


def _versions(reading: Reading, asset: DerivedAsset, done: int) -> list[_Version]:
    """The newest version of each step from `done` on, in the order of the steps, as far as the table's log goes back."""
    found = dict[int, _Version]()
    table = results_table(asset)
    for commit in reading.lake.commits(table, PROGRESS):
        at = _Version(Progress.recorded(table, commit.value), commit.version, commit.rows)
        if at.step < done or (found and at.progress.generation != next(iter(found.values())).progress.generation):
            break
        newer = found.get(at.step, at)  # maintenance repeats a step in a later commit without rows
        found[at.step] = replace(newer, rows=max(newer.rows, at.rows))
    return [found[step] for step in sorted(found)]


def _changes(reading: Reading, asset: DerivedAsset, before: _Version, after: _Version) -> DataFrame | None:
    """The rows that a step closed, and its corrections of earlier rows, with their change kinds; None if there are neither."""
    was, now = before.progress.closed_to, after.progress.closed_to
    frames = list[DataFrame]()
    if now is not None and now != was and after.rows:
        new = _rows(reading, asset, after, Span(None if was is None else was + 1, now))
        frames.append(new.withColumn(OWN_CHANGE, F.lit(INSERT)))
    for _, first, last in (c for c in after.progress.corrected if c[0] > before.step):
        span = Span(first, last if was is None else min(last, was))
        old, new = _rows(reading, asset, before, span), _rows(reading, asset, after, span)
        key = asset.operator.emits.key
        changes = difference(old, new, key=key, change=OWN_CHANGE) if key else bag_changes(old, new, OWN_CHANGE)
        frames.append(changes.where(F.col(OWN_CHANGE) != UPDATE_BEFORE))
    if not frames:
        return None
    [found, *others] = frames
    for other in others:
        found = found.unionByName(other)
    return found


def _rows(reading: Reading, asset: DerivedAsset, at: _Version, span: Span | None = None) -> DataFrame:
    rows = reading.spark.read.format("delta").option("versionAsOf", at.version).load(reading.lake.path(asset.name))
    return rows if span is None else rows.where(span.holds(F.col(FINAL_AT)))


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
