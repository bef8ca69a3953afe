"""Kept versions of an as-of join without `max_age`: a step reads its range, and of older versions only the newest of each key.

They are not written at each step, but when the log has many versions since: until then a step reads these from the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from operators.contract import KeepsVersions
from operators.engine_columns import EVENT_TIME, SEQ
from operators.timing import ClosedRange
from platform_defs.engine.advance.kept_table import KeptTable
from platform_defs.engine.advance.state import StatePart
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.reader import Reading, Span
from platform_defs.engine.ledger.columns import pc

MANY_VERSIONS = 20_000
"""The kept versions are written if the log has this many rows that they lack: a step reads no more, beside the rows of its range."""
_UPTO, _FROM = "upto", "from"


@dataclass(frozen=True)
class _Complete:
    """Up to where kept versions are complete.

    Args:
        upto: the event time (ms) before which, or with `as_of="arrival"` the batch up to which, they are complete.
        results_from: the first `final_at` (ms) of the results that can be computed from them and later versions.
    """

    upto: int
    results_from: int


@dataclass(frozen=True)
class KeptVersions:
    """Reads and writes the kept versions of an asset.

    Args:
        reading: reads the lake.
        asset: the asset.
        which: the index of the input of versions, which is a source.
    """

    reading: Reading
    asset: DerivedAsset
    which: int

    @classmethod
    def of(cls, reading: Reading, asset: DerivedAsset) -> "KeptVersions | None":
        """The kept versions of an asset; None if no input has versions of any age, or that input is a table."""
        reads = asset.operator.reads
        inputs = [n for n in range(len(asset.inputs)) if reads.is_versioned(n) and reads.lookback_of(n) is None]
        if len(inputs) != 1 or not isinstance(asset.operator, KeepsVersions) or not reading.input_named(asset.inputs[inputs[0]]).is_source:
            return None
        return cls(reading, asset, inputs[0])

    def needed(self, closing: ClosedRange, head: int) -> DataFrame | None:
        """The versions that rows of a range may look up; None if all must be read from the log."""
        known = self._known()
        if known is None or closing.after is None or closing.after + 1 < known.results_from:
            return None
        later = self._log(known, head, None if self._is_by_arrival else closing.upto)
        return self._table.rows().unionByName(later) if self._table.has_columns_of(later) else None

    def state(self, now: Progress) -> Iterator[StatePart] | None:
        """The kept versions, and those of the log that they lack; None if the next step must read all of the log's."""
        known = self._known()
        if known is None or now.closed_to is None or now.closed_to + 1 < known.results_from:
            return None
        later = {SEQ: (known.upto + 1, now.seq)} if self._is_by_arrival else {SEQ: (None, now.seq), EVENT_TIME: (known.upto, None)}
        log = self.reading.sources[self.asset.inputs[self.which]].log
        return iter((StatePart("kept_rows", self.asset.kept), StatePart("event_log", log, later)))

    def commit(self, after: Progress) -> None:
        """Commit the newest version of each key that later steps can look up, if the log has many versions since."""
        to = self._complete_after(after)
        known = self._known(after.step)
        if known is not None and known.upto > to.upto:
            known = None
        if self._lacking(known, to, after.seq) < MANY_VERSIONS:
            return
        head, last = (to.upto, None) if self._is_by_arrival else (after.seq, to.upto - 1)
        later = self._log(known, head, last)
        upto = {_UPTO: to.upto, _FROM: to.results_from}
        if known is None or not self._table.has_columns_of(later):
            every = self._log(None, head, last)
            self._table.replace(self._operator.newest_versions(every), upto, after.step, [])
            return
        held = self._table.rows()
        self._table.change(held, self._operator.newest_versions(held.unionByName(later)), upto, after.step)

    @property
    def _table(self) -> KeptTable:
        return KeptTable(self.reading, self.asset)

    @property
    def _operator(self) -> KeepsVersions:
        assert isinstance(self.asset.operator, KeepsVersions)
        return self.asset.operator

    @property
    def _is_by_arrival(self) -> bool:
        return self.asset.operator.reads.is_by_arrival(self.which)

    def _known(self, number: int | None = None) -> _Complete | None:
        recorded = self._table.recorded(number)
        return None if recorded is None else _Complete(recorded[_UPTO], recorded[_FROM])

    def _log(self, known: _Complete | None, head: int, last: int | None) -> DataFrame:
        """The versions of the log that are not among the kept ones, up to a batch and an event time."""
        if self._is_by_arrival:
            return self.reading.input(self.asset, self.which, head, after=0 if known is None else known.upto)
        return self.reading.input(self.asset, self.which, head, Span(None if known is None else known.upto, last))

    def _complete_after(self, after: Progress) -> _Complete:
        """Up to where the versions are complete after a step, so that no later row can look up an older one than the newest.

        By event time, later rows are not older than the watermark less the allowed lateness. By arrival, rows that are not closed yet
        belong to known batches.
        """
        closed_to = after.closed_to or 0
        if not self._is_by_arrival:
            upto = closed_to - self.asset.operator.reads.lateness
            return _Complete(upto, upto)
        first = after.seq + 1
        for which, name in enumerate(self.asset.inputs):
            if which != self.which:
                batches = self.reading.ledger.source(name).batches_with_rows(0, after.seq)
                open_batches = batches.filter(pc.greater_equal(batches["last_event_time"], closed_to))
                first = min(first, pc.min(open_batches["seq"]).as_py() or first)
        return _Complete(first - 1, closed_to + 1)

    def _lacking(self, known: _Complete | None, to: _Complete, head: int) -> int:
        """About how many versions of the log, by the ledger's counts, kept versions would take in after a step."""
        after = known.upto if known is not None and self._is_by_arrival else 0
        batches = self.reading.ledger.source(self.asset.inputs[self.which]).batches_with_rows(
            after, to.upto if self._is_by_arrival else head
        )
        if not self._is_by_arrival:
            batches = batches.filter(pc.less(batches["first_event_time"], to.upto))
            if known is not None:
                batches = batches.filter(pc.greater_equal(batches["last_event_time"], known.upto))
        return pc.sum(batches["accepted"]).as_py() or 0
