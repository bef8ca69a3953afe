"""The history of a ledger's batches: for each source, columns that are validated when they are read.

Operands are Arrow scalars: Arrow would load pandas for an operand that is a Python value (see `arrow_values`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import arrow_array, arrow_scalar
from platform_defs.engine.ledger.columns import Column, pc
from platform_defs.engine.ledger.new_rows import ACTIVE, COLUMN_TYPES, IDLE, NewLedgerRows, NewSourceRows, is_rising, newest, read_rows
from platform_defs.engine.ledger.rows import Batch, SourceBatch, as_ints, table_of
from platform_defs.engine.ledger.summary import SourceSummary, Summary

_INT = pa.int64()
_ZERO = arrow_scalar(0, _INT)


@dataclass(frozen=True)
class SourceHistory:
    """The batches with a row of one source, in order.

    Args:
        columns: a value for each batch: `seq`, `watermark`, `idle`, `idle_rule` (`ACTIVE`, `IDLE` or an earlier rule; None if the batch
            does not change it), `first_event_time`, `last_event_time`, `accepted`. A summary is a batch without accepted rows.
        spread: for each batch with recorded quantiles of event times: its number, and the quantiles.
        active_in: the newest batch that read rows, or that set a watermark; None if there is none.
        rejected_in: the newest batch with quarantined rows; None if there is none.
        accepted_in: the newest batch with accepted rows; None if there is none.
        oldest: the oldest event time of all of its rows.
        before: the summary of its oldest batches; None if the ledger has all of them.
    """

    columns: dict[str, Column] = field(default_factory=lambda: {name: Column(kind) for name, kind in COLUMN_TYPES.items()})
    spread: tuple[Column, Column] = field(default_factory=lambda: (Column(pa.int32()), Column(pa.list_(_INT))))
    active_in: int | None = None
    rejected_in: int | None = None
    accepted_in: int | None = None
    oldest: int | None = None
    before: SourceSummary | None = None

    def range(self, after: int, upto: int | None = None) -> tuple[int, int]:
        """The indexes `first <= index < end` of the batches `after < seq <= upto`."""
        seq = self.columns["seq"]
        return seq.count_upto(after), len(seq) if upto is None else seq.count_upto(upto)

    @property
    def idle_rule(self) -> int:
        """The rule by which the source is idle now; `ACTIVE` if it is not. Requests to read files again do not change it."""
        rule = self.columns["idle_rule"]
        return next((rule[n] for n in range(len(rule) - 1, -1, -1) if rule[n] is not None), ACTIVE)

    def first_idle_batch(self, rule: int) -> int | None:
        """The first batch that records the source as idle by a rule; None if there is none."""
        if rule == IDLE and self.before is not None and self.before.idle_since is not None:
            return self.before.idle_since
        rules = self.columns["idle_rule"].between(0)
        return pc.min(self.columns["seq"].between(0).filter(pc.equal(rules, arrow_scalar(rule, pa.int32())))).as_py()

    def table(self, names: Sequence[str], after: int, upto: int | None = None) -> pa.Table:
        """Columns of the batches `after < seq <= upto`."""
        first, end = self.range(after, upto)
        return pa.table({name: self.columns[name].between(first, end) for name in names})

    def batches_with_rows(self, after: int, upto: int | None = None, span: tuple[int | None, int | None] = (None, None)) -> pa.Table:
        """The batches with accepted rows: `seq`, `first_event_time`, `last_event_time`, `accepted`.

        Args:
            after: the batch before the first one.
            upto: the last batch; None for the newest.
            span: the first and the last event time of interest; None for no end. Batches without rows in the span are left out.
        """
        batches = self.table(["seq", "first_event_time", "last_event_time", "accepted"], after, upto)
        batches = batches.filter(pc.and_(pc.greater(batches["accepted"], _ZERO), pc.is_valid(batches["first_event_time"])))
        first, last = span
        if first is not None:
            batches = batches.filter(pc.greater_equal(batches["last_event_time"], arrow_scalar(first, _INT)))
        return batches if last is None else batches.filter(pc.less_equal(batches["first_event_time"], arrow_scalar(last, _INT)))

    def oldest_since(self, since: int) -> int | None:
        """The oldest known event time at or after `since`; None if there is none.

        A batch that also has rows before `since` counts with its newest event time.
        """
        rows = self.batches_with_rows(0)
        start = arrow_scalar(since, _INT)
        rows = rows.filter(pc.greater_equal(rows["last_event_time"], start))
        first, last = rows["first_event_time"], rows["last_event_time"]
        return pc.min(pc.if_else(pc.greater_equal(first, start), first, last)).as_py()

    def spreads(self, seqs: pa.ChunkedArray) -> dict[int, list[int]]:
        """The recorded quantiles of event times of some batches, by batch number."""
        seq, spread = (column.between(0) for column in self.spread)
        is_requested = pc.is_in(seq, value_set=seqs)
        return dict(zip(seq.filter(is_requested).to_pylist(), spread.filter(is_requested).to_pylist(), strict=True))

    def with_batches(self, new_rows: NewSourceRows) -> "SourceHistory":
        """The history with more batches."""
        columns = {name: column.with_values(new_rows.columns[name]) for name, column in self.columns.items()}
        seq, spread = self.spread
        oldest = [t for t in (self.oldest, pc.min(new_rows.columns["first_event_time"]).as_py()) if t is not None]
        spreads = seq.with_values(new_rows.spread["seq"]), spread.with_values(new_rows.spread["spread"])
        active_in, rejected_in = newest(self.active_in, new_rows.active_in), newest(self.rejected_in, new_rows.rejected_in)
        accepted_in = newest(self.accepted_in, new_rows.accepted_in)
        return SourceHistory(columns, spreads, active_in, rejected_in, accepted_in, min(oldest, default=None), self.before)

    def with_summary(self, summary: SourceSummary) -> "SourceHistory":
        """This history with the state that a summary records for the batches that it replaces."""
        rule = self.columns["idle_rule"].between(1)
        rules = Column(pa.int32(), [arrow_array([summary.idle_rule], pa.int32()), *rule.chunks])
        active_in, rejected_in = newest(self.active_in, summary.active_in), newest(self.rejected_in, summary.rejected_in)
        accepted_in = newest(self.accepted_in, summary.accepted_in)
        columns = {**self.columns, "idle_rule": rules}
        return replace(self, columns=columns, active_in=active_in, rejected_in=rejected_in, accepted_in=accepted_in, before=summary)

    def accepted_upto(self, seq: int) -> int | None:
        """The newest batch with accepted rows up to a batch; None if there is none."""
        if self.accepted_in is None or self.accepted_in <= seq:
            return self.accepted_in
        rows = self.table(["seq", "accepted"], 0, seq)
        accepted_in = pc.max(rows["seq"].filter(pc.greater(rows["accepted"], _ZERO))).as_py()
        return accepted_in if accepted_in is not None or self.before is None else self.before.accepted_in


@dataclass(frozen=True)
class History:
    """The columns of a ledger.

    Args:
        times: `ingested_at` of batch n, at index n - 1.
        clocks: the wall clock of batch n, at index n - 1: `ingested_at`, unless the clock was behind it.
        sources: each source's batches.
        rows: the number of ledger rows that were read.
        summary: the summary with which the ledger begins; None if it has all batches.
    """

    times: Column = field(default_factory=lambda: Column(_INT))
    clocks: Column = field(default_factory=lambda: Column(_INT))
    sources: dict[str, SourceHistory] = field(default_factory=dict)
    rows: int = 0
    summary: Summary | None = None

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> "History":
        """The history of batches given as objects, not validated."""
        batches = list(batches)
        return cls()._with_rows(read_rows([as_ints(table_of(batches))])) if batches else cls()

    @property
    def head(self) -> int:
        """The newest batch number; 0 if there is none."""
        return len(self.times)

    @property
    def summarized(self) -> int:
        """The last batch of the summary with which the ledger begins; 0 if it has all batches."""
        return 0 if self.summary is None else self.summary.upto

    def rows_upto(self, seq: int) -> int:
        """The number of ledger rows in the batches up to `seq`."""
        return sum(source.range(0, seq)[1] for source in self.sources.values())

    def source(self, name: str) -> SourceHistory:
        """A source's batches; none if it has none."""
        return self.sources.get(name) or SourceHistory()

    def with_next_batches(self, parts: Iterable[pa.Table]) -> "History | None":
        """The history with the rows of more batches (`COLUMNS`), in any order; None if the batches do not follow it.

        Batches follow if none is missing or records a source twice, all rows of a batch have the same time, times increase, and no
        watermark decreases or becomes null.
        """
        new_rows = read_rows(parts)
        if not new_rows.rows:
            return self
        follows = self._is_continued_by(new_rows) and all(
            self._is_consistent(name, source_rows) for name, source_rows in new_rows.sources.items()
        )
        return self._with_rows(new_rows) if follows else None

    def _with_rows(self, new_rows: NewLedgerRows) -> "History":
        sources = {name: self.source(name).with_batches(source_rows) for name, source_rows in new_rows.sources.items()}
        times, clocks, summary = self.times, self.clocks, self.summary or new_rows.summary
        if new_rows.summary is not None:
            before = new_rows.summary.upto - 1
            times, clocks = Column(_INT, before=before), Column(_INT, before=before, filler=new_rows.summary.began)
            sources |= {name: sources[name].with_summary(summary_of_source) for name, summary_of_source in new_rows.summary.sources.items()}
        times, clocks = times.with_values(new_rows.batches["time"]), clocks.with_values(new_rows.batches["clock"])
        return History(times, clocks, {**self.sources, **sources}, self.rows + new_rows.rows, summary)

    def _is_continued_by(self, new_rows: NewLedgerRows) -> bool:
        """Whether new batches continue the history: none is missing, and each has one time, later than that of the batch before it.

        A ledger may begin with one summary. It counts as one batch.
        """
        seq, first = new_rows.batches["seq"], self.head + 1
        if new_rows.summary is not None:
            first = new_rows.summary.upto
            if self.head or not {*new_rows.summary.sources} <= {
                name for name, source_rows in new_rows.sources.items() if source_rows.columns["seq"][0].as_py() == first
            }:
                return False
        has_every_batch = (pc.min(seq).as_py(), pc.max(seq).as_py()) == (first, first - 1 + len(seq))
        return (
            new_rows.are_consistent
            and has_every_batch
            and is_rising(seq, strictly=True)
            and is_rising(_preceded_by_last(self.times, new_rows.batches["time"]), strictly=True)
        )

    def _is_consistent(self, name: str, new_rows: NewSourceRows) -> bool:
        """Whether no batch records a source twice, and the source's watermark never decreases or becomes null."""
        columns = self.source(name).columns
        watermarks = _preceded_by_last(columns["watermark"], new_rows.columns["watermark"])
        becomes_null = watermarks.null_count and pc.any(pc.is_valid(watermarks.slice(0, watermarks.null_count))).as_py()
        is_recorded_once = is_rising(_preceded_by_last(columns["seq"], new_rows.columns["seq"]), strictly=True)
        return is_recorded_once and not becomes_null and is_rising(watermarks.drop_null() if watermarks.null_count else watermarks)


def _preceded_by_last(column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values, preceded by the last known value."""
    return pa.chunked_array([*column.between(max(0, len(column) - 1)).chunks, *values.chunks], values.type)


def newest_by_source(rows: Iterable[SourceBatch]) -> dict[str, SourceBatch]:
    """The newest row of each source."""
    newest: dict[str, SourceBatch] = {}
    for row in sorted(rows, key=lambda r: r.seq):
        newest[row.source] = row
    return newest
