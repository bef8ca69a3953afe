"""Time travel of an upserted table: its rows at an earlier time, from its changelog, or as of an event time, from the event log."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import CHANGED_AT, INSERT, fold
from operators.columns import keys_of, of_keys
from operators.errors import OperatorError
from platform_defs.engine.inputs.changelog_reader import STEP, as_of_step, change_column, steps_of, upserted
from platform_defs.engine.inputs.reader import Reading, Span


def table_and_changelog(reading: Reading, asset: DerivedAsset, step: int) -> tuple[DataFrame, DataFrame]:
    """A table and its changelog, both as of a step. The result is exact while another process writes to them."""
    return as_of_step(reading, asset, step), steps_of(reading, asset, 0, step).drop(CHANGED_AT)


def as_of(reading: Reading, asset: DerivedAsset, time: int) -> DataFrame:
    """A table as it was at a time (epoch ms, by the ledger's clock): the changelog of its steps until then, merged.

    The first step after `time` and all steps with higher numbers are left out, even if the clock was set back after that step.

    Raises:
        OperatorError: the asset has no changelog, or no step yet.
    """
    key = upserted(asset).key
    if reading.lake.delta(asset.changelog) is None:
        raise OperatorError(f"{asset.name} has no step yet, so it has no earlier state; advance it first")
    changelog = reading.spark.read.format("delta").load(reading.lake.path(asset.changelog))
    [later] = changelog.where(F.col(CHANGED_AT) > F.timestamp_millis(F.lit(time))).agg(F.min(STEP)).first() or [None]
    changelog_then = changelog if later is None else changelog.where(F.col(STEP) < later)
    return fold(changelog_then.drop(CHANGED_AT), key=key, order=STEP)


def as_known_now(reading: Reading, asset: DerivedAsset, time: int) -> DataFrame:
    """A table computed from all rows ingested so far with an event time up to `time` (epoch ms).

    Each row is selected by its event time, however late it arrived. Rows of a changelog are applied in changelog order. With an
    event-time TTL, only keys with a row in the TTL before `time` are returned. A processing-time TTL is not applied, because rows do not
    record it.

    Raises:
        OperatorError: the asset, or a table that it reads, has no changelog.
    """
    _ = upserted(asset)
    rows = asset.rows(*[_known(reading, asset, which, time) for which in range(len(asset.inputs))])
    reads = asset.operator.reads
    if reads.ttl is None or reads.ttl_by == "processing":
        return rows
    newest = Span(time - reads.ttl, time)
    recent = [reading.input(asset, which, reading.ledger.head, newest) for which in range(len(asset.inputs))]
    return of_keys(rows, keys_of(recent, reads.affected_by), reads.affected_by)


def _known(reading: Reading, asset: DerivedAsset, which: int, time: int) -> DataFrame:
    table = reading.input_named(asset.inputs[which]).table
    if table is None:
        return reading.input(asset, which, reading.ledger.head, Span(None, time))
    return as_known_now(reading, table, time).withColumn(change_column(asset), F.lit(INSERT))
