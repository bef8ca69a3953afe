"""The kept versions of an as-of join without `max_age`: of the old versions of each key, only the newest.

A step reads the kept versions and the newer versions of the log, instead of all versions of the log. A step writes the kept versions only
if the log has many newer ones.
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
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger.columns import pc

MANY_VERSIONS = 20_000
"""A step writes the kept versions if they lack this many versions of the log. So a step reads fewer old versions than this from the log."""
_UPTO, _FROM = "upto", "from"


@dataclass(frozen=True)
class _Completeness:
    """Up to where kept versions are complete.

    Args:
        upto: the time (epoch ms) before which they are complete; with `as_of="arrival"`, the batch up to which they are complete.
        results_from: the first `final_at` (epoch ms) of the results that can be computed from the kept versions and later ones.
    """

    upto: int
    results_from: int


@dataclass(frozen=True)
class KeptVersions:
    """Reads and writes the kept versions of an asset.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
        index: the index of the input of versions, which is a source.
    """

    workspace: Workspace
    asset: DerivedAsset
    index: int

    @classmethod
    def of(cls, workspace: Workspace, asset: DerivedAsset) -> "KeptVersions | None":
        """The kept versions of an asset; None unless exactly one input has versions without a `max_age`, and it is a source."""
        reads = asset.operator.reads
        inputs = [index for index in range(len(asset.inputs)) if reads.is_versioned(index) and reads.lookback_of(index) is None]
        if (
            len(inputs) != 1
            or not isinstance(asset.operator, KeepsVersions)
            or not workspace.input_named(asset.inputs[inputs[0]]).is_source
        ):
            return None
        return cls(workspace, asset, inputs[0])

    def needed_versions(self, closing: ClosedRange, head: int) -> DataFrame | None:
        """The versions that rows of a range may look up; None if the kept versions cannot be used."""
        complete = self._read_completeness()
        if complete is None or closing.after is None or closing.after + 1 < complete.results_from:
            return None
        later_versions = self._log_versions(complete, head, None if self._is_by_arrival else closing.upto)
        return self._table.rows().unionByName(later_versions) if self._table.has_columns_of(later_versions) else None

    def state(self, now: Progress) -> Iterator[StatePart] | None:
        """The kept versions, and the versions of the log that they lack; None if the next step must read all versions of the log."""
        complete = self._read_completeness()
        if complete is None or now.closed_to is None or now.closed_to + 1 < complete.results_from:
            return None
        ranges = {SEQ: (complete.upto + 1, now.seq)} if self._is_by_arrival else {SEQ: (None, now.seq), EVENT_TIME: (complete.upto, None)}
        log = self.workspace.sources[self.asset.inputs[self.index]].log
        return iter((StatePart("kept_rows", self.asset.kept), StatePart("event_log", log, ranges)))

    def commit(self, after: Progress) -> None:
        """Commit the old versions that later steps can look up, the newest of each key, if the kept versions lack many versions."""
        complete_after = self._complete_after(after)
        complete = self._read_completeness(after.step)
        if complete is not None and complete.upto > complete_after.upto:  # the table was rebuilt, and its next steps need older versions
            complete = None
        if self._count_missing(complete, complete_after, after.seq) < MANY_VERSIONS:
            return
        head, last = (complete_after.upto, None) if self._is_by_arrival else (after.seq, complete_after.upto - 1)
        later_versions = self._log_versions(complete, head, last)
        upto = {_UPTO: complete_after.upto, _FROM: complete_after.results_from}
        if complete is None or not self._table.has_columns_of(later_versions):
            all_versions = self._log_versions(None, head, last)
            self._table.replace(self._operator.newest_versions(all_versions), upto, after.step, [])
            return
        kept_versions = self._table.rows()
        self._table.change(kept_versions, self._operator.newest_versions(kept_versions.unionByName(later_versions)), upto, after.step)

    @property
    def _table(self) -> KeptTable:
        return KeptTable(self.workspace, self.asset)

    @property
    def _operator(self) -> KeepsVersions:
        assert isinstance(self.asset.operator, KeepsVersions)
        return self.asset.operator

    @property
    def _is_by_arrival(self) -> bool:
        return self.asset.operator.reads.is_by_arrival(self.index)

    def _read_completeness(self, number: int | None = None) -> _Completeness | None:
        metadata = self._table.usable_metadata(number)
        return None if metadata is None else _Completeness(metadata[_UPTO], metadata[_FROM])

    def _log_versions(self, complete: _Completeness | None, head: int, last: int | None) -> DataFrame:
        """The versions of the log that are not among the kept ones, up to a batch and an event time."""
        if self._is_by_arrival:
            return read_input(self.workspace, self.asset, self.index, head, after=0 if complete is None else complete.upto)
        return read_input(self.workspace, self.asset, self.index, head, Span(None if complete is None else complete.upto, last))

    def _complete_after(self, after: Progress) -> _Completeness:
        """Up to where kept versions are to be complete after a step: of older versions, later rows can look up only the newest of each key.

        In a join by event time, later rows are not older than the watermark minus the allowed lateness. In a join by arrival, the ledger
        records the first batch with rows whose results are not closed yet.
        """
        closed_to = after.closed_to or 0
        if not self._is_by_arrival:
            upto = closed_to - self.asset.operator.reads.lateness
            return _Completeness(upto, upto)
        first = after.seq + 1
        for index, name in enumerate(self.asset.inputs):
            if index != self.index:
                batches = self.workspace.ledger.source(name).batches_with_rows(0, after.seq)
                open_batches = batches.filter(pc.greater_equal(batches["last_event_time"], closed_to))
                first = min(first, pc.min(open_batches["seq"]).as_py() or first)
        return _Completeness(first - 1, closed_to + 1)

    def _count_missing(self, complete: _Completeness | None, complete_after: _Completeness, head: int) -> int:
        """An estimate, from the ledger's row counts, of how many versions a commit after a step would add to the kept versions."""
        after = complete.upto if complete is not None and self._is_by_arrival else 0
        batches = self.workspace.ledger.source(self.asset.inputs[self.index]).batches_with_rows(
            after, complete_after.upto if self._is_by_arrival else head
        )
        if not self._is_by_arrival:
            batches = batches.filter(pc.less(batches["first_event_time"], complete_after.upto))
            if complete is not None:
                batches = batches.filter(pc.greater_equal(batches["last_event_time"], complete.upto))
        return pc.sum(batches["accepted"]).as_py() or 0
