"""Kept rows of an upserted table: a step reads its new rows, and only those older rows that are still needed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.columns import keys_of, of_keys
from operators.contract import NEVER_LATE, KeepsRows, late_before
from operators.engine_columns import BATCH_TIME, EVENT_TIME, PERIOD_END, SEQ
from operators.errors import OperatorError
from operators.steps import ByKey, Kept
from operators.timing import TimeKind
from platform_defs.engine.advance.kept_table import KeptTable
from platform_defs.engine.advance.state import StatePart
from platform_defs.engine.advance.upserted_table import with_keys
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.reader import Reading
from platform_defs.engine.lake.small_queries import materialize
from platform_defs.engine.ledger.columns import pc

_SEQ = "seq"
"""In the metadata of the kept rows: the batch up to which they are complete."""


@dataclass(frozen=True)
class StepRows:
    """The rows that a step needs.

    Args:
        kept: all kept rows; None if they are made from the log.
        new: the rows of the batches that the kept rows do not include yet.
        keys: the keys of the new rows, and those from which a row has moved.
        rows: all needed rows of these keys, and the rows of other keys with the same `through`.
    """

    kept: DataFrame | None
    new: DataFrame
    keys: DataFrame
    rows: DataFrame


@dataclass(frozen=True)
class KeptRows:
    """Reads and writes the kept rows of an asset that reads a source.

    Args:
        reading: reads the lake.
        asset: the asset.
        reads: what a step reads.
    """

    reading: Reading
    asset: DerivedAsset
    reads: ByKey

    def of_step(self, before: Progress, after: Progress) -> StepRows:
        """The rows that a step needs: the kept rows of the keys of its new rows, and the new rows.

        If a new row may be within the TTL of rows that were forgotten, they are all rows of these keys, from the log.
        """
        since = self._since(before, after)
        new = self.reading.input(self.asset, 0, after.seq, after=since)
        if since and not self._table.has_columns_of(new):
            since, new = 0, self.reading.input(self.asset, 0, after.seq)
        if not since:
            return StepRows(None, new, keys_of([new], self.reads.key), new)
        held = self._table.rows()
        if self._may_need_forgotten(since, after):
            keys = keys_of([new], self.reads.key)
            return StepRows(held, new, keys, materialize(of_keys(self.reading.input(self.asset, 0, after.seq), keys, self.reads.key)))
        rows = materialize(self._of(held, self._affected_keys(held, new)).unionByName(new, allowMissingColumns=True))
        keys = keys_of([rows], self.reads.key)
        if self.reads.through:  # a row of these keys may have moved to a key that the step does not affect
            rows = materialize(self._of(held, keys_of([rows], self.reads.through)).unionByName(new, allowMissingColumns=True))
        return StepRows(held, new, keys, rows)

    def of_affected(self, step: StepRows, rows: DataFrame) -> DataFrame:
        """Only the rows with one of the step's keys. The step does not have all rows of other keys."""
        return of_keys(rows, step.keys, self.reads.key) if self.reads.through else rows

    def ends(self, step: StepRows) -> DataFrame:
        """The time in ms of the newest row of each key, in `PERIOD_END`."""
        time = F.unix_millis(EVENT_TIME if self.reads.ttl_by == "event" else BATCH_TIME)
        new = step.new.select(*self.reads.key, time.alias(PERIOD_END))
        ends = new if step.kept is None else new.unionByName(step.kept.select(*self.reads.key, PERIOD_END))
        return ends.groupBy(*self.reads.key).agg(F.max(PERIOD_END).alias(PERIOD_END))

    def commit(self, step: StepRows, after: Progress) -> None:
        """Commit the kept rows up to the last batch of a step."""
        oldest, upto = self._oldest_needed(after), {_SEQ: after.seq}
        needed = self.of_affected(step, self._operator.still_needed(step.rows, oldest).drop(BATCH_TIME))
        if step.kept is None:
            self._table.replace(needed, upto, after.step, [*self.reads.key, *self.reads.through])
            return
        keys = step.keys
        if oldest is not None and self.reads.key:
            keys = keys.unionByName(self._forgotten_keys(step.kept, oldest)).distinct()
        self._table.change(self._of(step.kept, keys), needed, upto, after.step)

    def state(self, now: Progress) -> Iterator[StatePart]:
        """The rows that the next step may read: the kept rows, and those of the log that these do not include."""
        since = self._since(now, replace(now, step=now.step + 1))
        if since:
            yield StatePart("kept_rows", self.asset.kept)
        if since < now.seq:
            yield StatePart("event_log", self.reading.sources[self.asset.inputs[0]].log, {SEQ: (since + 1, now.seq)})

    @property
    def _table(self) -> KeptTable:
        return KeptTable(self.reading, self.asset)

    @property
    def _operator(self) -> KeepsRows:
        operator = self.asset.operator
        if not isinstance(operator, KeepsRows):
            raise OperatorError(f"{type(operator).__name__} lets the engine keep rows, so it needs a `still_needed(rows, oldest)`")
        return operator

    @property
    def _keeps(self) -> Kept:
        return self.reads.keeps or Kept()

    def _since(self, before: Progress, after: Progress) -> int:
        """The batch up to which the kept rows are complete; 0 if they must be made from the log."""
        recorded = self._table.recorded(after.step)
        since = 0 if recorded is None else recorded[_SEQ]
        by_clock = self._keeps.ttl is not None and self.reads.ttl_by == "processing"
        had_other_clock = by_clock and self.reading.ledger.was_clock_set_back(since, after.seq)
        return 0 if since > before.seq or had_other_clock else since

    def _may_need_forgotten(self, since: int, after: Progress) -> bool:
        """Whether a new row may be within the TTL of a forgotten row, because it is more than the TTL behind the watermark.

        Rows that are late for the operator are not read, so they are left out of account.
        """
        if self._keeps.ttl is None or self.reads.ttl_by == "processing":
            return False
        watermark = present(self.reading, self.asset, "event", since)
        first = self.reading.ledger.source(self.asset.inputs[0]).batches_with_rows(since, after.seq)["first_event_time"]
        least = pc.min(first).as_py()
        if watermark is None or least is None:
            return False
        # a lower bound: the watermark before later batches is at least as high
        is_dropped_before = late_before(self.asset.operator, watermark)
        return max(least, NEVER_LATE if is_dropped_before is None else is_dropped_before) < watermark - self._keeps.ttl

    def _oldest_needed(self, after: Progress) -> int | None:
        """The time in ms before which a key's newest row must be for its rows to be forgotten."""
        ttl, now = self._keeps.ttl, present(self.reading, self.asset, self.reads.ttl_by, after.seq)
        if ttl is None or now is None:
            return None
        return now - (ttl if self.reads.ttl_by == "processing" else 2 * ttl)  # later rows may be as far as the TTL behind the watermark

    def _affected_keys(self, held: DataFrame, new: DataFrame) -> DataFrame:
        """The keys of new rows; if rows can move, also the present keys of these rows."""
        if not self.reads.through:
            return keys_of([new], self.reads.key)
        return keys_of([new, self._of(held, keys_of([new], self.reads.through))], self.reads.key)

    def _of(self, held: DataFrame, keys: DataFrame) -> DataFrame:
        return with_keys(self.reading.lake, self.asset.kept, held, keys)

    def _forgotten_keys(self, held: DataFrame, oldest: int) -> DataFrame:
        """The keys whose rows are no longer needed."""
        ends = held.groupBy(*self.reads.key).agg(F.max(PERIOD_END).alias(PERIOD_END))
        return ends.where(F.col(PERIOD_END) < oldest).select(*self.reads.key)


def present(reading: Reading, asset: DerivedAsset, by: TimeKind, seq: int) -> int | None:
    """The time in ms after a batch by which keys expire: the asset's watermark, or the batch's processing time; None if there is none."""
    if by == "event":
        return reading.operator_timeline(asset).after[seq]
    return reading.ledger.processing_times(seq, seq - 1)[1][0].as_py() if seq else None
