"""The history of a ledger's batches: columns for each source, which are validated as they are read.

Operands are Arrow scalars: see `arrow_values`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import arrow_array, arrow_scalar
from platform_defs.engine.ledger.columns import Column, pc
from platform_defs.engine.ledger.rows import Entry, SourceEntry, as_ints, table_of

_INT, _BOOL = pa.int64(), pa.bool_()
COLUMNS = (
    "seq",
    "kind",
    "source",
    "ingested_at",
    "clock",
    "watermark",
    "idle",
    "first_event_time",
    "last_event_time",
    "accepted",
    "rows_read",
    "quarantined",
    "spread",
)
"""The columns of a ledger that are read when it is opened."""
_KEPT = {
    "seq": pa.int32(),
    "watermark": _INT,
    "idle": _BOOL,
    "idle_rule": pa.int32(),
    "first_event_time": _INT,
    "last_event_time": _INT,
    "accepted": _INT,
}
_INACTIVE, _SILENT, _RETRY = (arrow_scalar(kind, pa.string()) for kind in ("inactive", "silent", "retry"))
ACTIVE, IDLE_FIRST_RULE, IDLE_SECOND_RULE, IDLE = range(4)
"""The rules by which a batch records a source as idle; see `watermarks.passed_on`. Earlier versions of Tidemark used two other rules."""
_UNCHANGED, _ZERO = arrow_scalar(None, pa.int32()), arrow_scalar(0, _INT)
_SETS_WATERMARK = arrow_array(["watermark", "drain"], pa.string())


@dataclass(frozen=True)
class SourceHistory:
    """The batches with a row of one source, in order.

    Args:
        columns: a value for each batch: `seq`, `watermark`, `idle`, `idle_rule` (`ACTIVE`, `IDLE` or an earlier rule; None if the batch
            does not change it), `first_event_time`, `last_event_time`, `accepted`.
        spread: for each batch with recorded quantiles of event times: its number, and the quantiles.
        active_in: the newest batch that read rows, or that set a watermark; None if there is none.
        rejected_in: the newest batch with quarantined rows; None if there is none.
        oldest: the oldest event time of all of its rows.
    """

    columns: dict[str, Column] = field(default_factory=lambda: {name: Column(kind) for name, kind in _KEPT.items()})
    spread: tuple[Column, Column] = field(default_factory=lambda: (Column(pa.int32()), Column(pa.list_(_INT))))
    active_in: int | None = None
    rejected_in: int | None = None
    oldest: int | None = None

    def range(self, after: int, upto: int | None = None) -> tuple[int, int]:
        """The indexes `first <= index < end` of the batches `after < seq <= upto`."""
        seq = self.columns["seq"]
        return seq.count_upto(after), len(seq) if upto is None else seq.count_upto(upto)

    @property
    def idle_rule(self) -> int:
        """The rule by which the source is idle now; `ACTIVE` if it is not. Requests to read files again do not change it."""
        rule = self.columns["idle_rule"]
        return next((rule[n] for n in range(len(rule) - 1, -1, -1) if rule[n] is not None), ACTIVE)

    def first_idle_by(self, rule: int) -> int | None:
        """The first batch that records the source as idle by a rule; None if there is none."""
        found = self.columns["idle_rule"].between(0)
        return pc.min(self.columns["seq"].between(0).filter(pc.equal(found, arrow_scalar(rule, pa.int32())))).as_py()

    def table(self, names: Sequence[str], after: int, upto: int | None = None) -> pa.Table:
        """Columns of the batches `after < seq <= upto`."""
        first, end = self.range(after, upto)
        return pa.table({name: self.columns[name].between(first, end) for name in names})

    def batches_with_rows(self, after: int, upto: int | None = None) -> pa.Table:
        """The batches with accepted rows: `seq`, `first_event_time`, `last_event_time`, `accepted`."""
        found = self.table(["seq", "first_event_time", "last_event_time", "accepted"], after, upto)
        return found.filter(pc.and_(pc.greater(found["accepted"], _ZERO), pc.is_valid(found["first_event_time"])))

    def oldest_since(self, since: int) -> int | None:
        """The oldest known event time at or after `since`; for a batch that starts before it, its last one. None if there is none."""
        rows = self.batches_with_rows(0)
        start = arrow_scalar(since, _INT)
        rows = rows.filter(pc.greater_equal(rows["last_event_time"], start))
        first, last = rows["first_event_time"], rows["last_event_time"]
        return pc.min(pc.if_else(pc.greater_equal(first, start), first, last)).as_py()

    def spreads(self, seqs: pa.ChunkedArray) -> dict[int, list[int]]:
        """The recorded quantiles of event times of some batches, by batch number."""
        seq, spread = (column.between(0) for column in self.spread)
        asked = pc.is_in(seq, value_set=seqs)
        return dict(zip(seq.filter(asked).to_pylist(), spread.filter(asked).to_pylist(), strict=True))

    def extended(self, more: "_NewSourceRows") -> "SourceHistory":
        """The history with more batches."""
        columns = {name: column.extended(more.columns[name]) for name, column in self.columns.items()}
        seq, spread = self.spread
        oldest = [t for t in (self.oldest, pc.min(more.columns["first_event_time"]).as_py()) if t is not None]
        spreads = seq.extended(more.spread["seq"]), spread.extended(more.spread["spread"])
        active_in, rejected_in = _newest(self.active_in, more.active_in), _newest(self.rejected_in, more.rejected_in)
        return SourceHistory(columns, spreads, active_in, rejected_in, min(oldest, default=None))


@dataclass(frozen=True)
class History:
    """The columns of a ledger.

    Args:
        times: `ingested_at` of batch n, at index n - 1.
        clocks: the wall clock of batch n, at index n - 1: `ingested_at`, unless the clock was behind it.
        sources: each source's batches.
        rows: the number of ledger rows that were read.
    """

    times: Column = field(default_factory=lambda: Column(_INT))
    clocks: Column = field(default_factory=lambda: Column(_INT))
    sources: dict[str, SourceHistory] = field(default_factory=dict)
    rows: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "History":
        """The history of batches given as objects, not validated."""
        found = list(entries)
        return cls()._with(_read([as_ints(table_of(found))])) if found else cls()

    @property
    def head(self) -> int:
        """The newest batch number; 0 if there is none."""
        return len(self.times)

    def source(self, name: str) -> SourceHistory:
        """A source's batches; none if it has none."""
        return self.sources.get(name) or SourceHistory()

    def followed_by(self, parts: Iterable[pa.Table]) -> "History | None":
        """The history with the rows of more batches (`COLUMNS`), in any order; None if they do not follow it.

        They follow if no batch is missing or records a source twice, all rows of a batch have the same time, times increase, and no
        watermark decreases.
        """
        new = _read(parts)
        if not new.rows:
            return self
        follows = self._goes_on(new) and all(self._rises(name, of) for name, of in new.sources.items())
        return self._with(new) if follows else None

    def _with(self, new: "_NewRows") -> "History":
        sources = {name: self.source(name).extended(of) for name, of in new.sources.items()}
        times, clocks = self.times.extended(new.batches["time"]), self.clocks.extended(new.batches["clock"])
        return History(times, clocks, {**self.sources, **sources}, self.rows + new.rows)

    def _goes_on(self, new: "_NewRows") -> bool:
        """Whether the batches continue the history, each with one time, which is later than that of the batch before."""
        seq = new.batches["seq"]
        ends = (pc.min(seq).as_py(), pc.max(seq).as_py()) == (self.head + 1, self.head + len(seq))
        return new.agree and ends and _rising(seq, strictly=True) and _rising(_after(self.times, new.batches["time"]), strictly=True)

    def _rises(self, name: str, new: "_NewSourceRows") -> bool:
        """Whether a source is recorded once in each batch, and its watermark never decreases or becomes null."""
        known = self.source(name).columns
        marks = _after(known["watermark"], new.columns["watermark"])
        vanished = marks.null_count and pc.any(pc.is_valid(marks.slice(0, marks.null_count))).as_py()
        once = _rising(_after(known["seq"], new.columns["seq"]), strictly=True)
        return once and not vanished and _rising(marks.drop_null() if marks.null_count else marks)


@dataclass(frozen=True)
class _NewSourceRows:
    """New rows of one source, by batch number."""

    columns: dict[str, pa.ChunkedArray]
    spread: pa.Table
    active_in: int | None
    rejected_in: int | None


@dataclass(frozen=True)
class _NewRows:
    """New rows by source, and `seq`, `time` and `clock` of each batch; `agree` is whether all rows of each batch have one time."""

    sources: dict[str, _NewSourceRows]
    batches: pa.Table
    agree: bool
    rows: int


def _read(parts: Iterable[pa.Table]) -> _NewRows:
    """Group rows by source as they are read; less than a third of each part is kept."""
    found: dict[str, list[_NewSourceRows]] = {}
    batches, rows = list[pa.Table](), 0
    for part in parts:
        rows += part.num_rows
        batches.append(_distinct(_batches(part)))
        for name in pc.unique(part["source"]):
            found.setdefault(name.as_py(), []).append(_of_source(part.filter(pc.equal(part["source"], name))))
    every = _ordered(pa.concat_tables(batches)) if batches else pa.table({})
    alike = _distinct(every) if rows else every
    agree = not rows or len(alike) == len(pc.unique(alike["seq"]))
    return _NewRows({name: _joined(of) for name, of in found.items()}, alike, agree, rows)


def _batches(part: pa.Table) -> pa.Table:
    clock = pc.coalesce(part["clock"], part["ingested_at"])
    return _ordered(pa.table({"seq": part["seq"].cast(pa.int32()), "time": part["ingested_at"], "clock": clock}))


def _of_source(rows: pa.Table) -> _NewSourceRows:
    columns = {name: (_idle_rule(rows) if name == "idle_rule" else rows[name]).cast(kind) for name, kind in _KEPT.items()}
    spread = rows.select(["seq", "spread"]).filter(pc.list_value_length(rows["spread"]).cast(_BOOL))
    is_active = pc.or_(rows["rows_read"].cast(_BOOL), pc.is_in(rows["kind"], value_set=_SETS_WATERMARK))
    active_in, rejected_in = (pc.max(rows["seq"].filter(of)).as_py() for of in (is_active, rows["quarantined"].cast(_BOOL)))
    return _NewSourceRows(columns, spread.set_column(0, "seq", spread["seq"].cast(pa.int32())), active_in, rejected_in)


def _idle_rule(rows: pa.Table) -> pa.ChunkedArray:
    first, second, present, active = (arrow_scalar(n, pa.int32()) for n in (IDLE_FIRST_RULE, IDLE_SECOND_RULE, IDLE, ACTIVE))
    earlier = pc.if_else(pc.equal(rows["kind"], _SILENT), second, first)
    rule = pc.if_else(rows["idle"].cast(_BOOL), pc.if_else(pc.equal(rows["kind"], _INACTIVE), present, earlier), active)
    return pc.if_else(pc.equal(rows["kind"], _RETRY), _UNCHANGED, rule)  # a retry does not change whether a source is idle


def _joined(parts: Sequence[_NewSourceRows]) -> _NewSourceRows:
    """The parts of a source as one, ordered; joined column by column to save memory."""
    parts = sorted(parts, key=lambda part: part.columns["seq"][0].as_py())
    seq = pa.chunked_array([chunk for part in parts for chunk in part.columns["seq"].chunks])
    order = None if _rising(seq) else pc.sort_indices(seq)
    columns: dict[str, pa.ChunkedArray] = {}
    for name in _KEPT:
        column = pa.chunked_array([chunk for part in parts for chunk in part.columns.pop(name).chunks])
        columns[name] = column if order is None else column.take(order)
    spread = _ordered(pa.concat_tables([part.spread for part in parts]))
    return _NewSourceRows(columns, spread, _newest(*[p.active_in for p in parts]), _newest(*[p.rejected_in for p in parts]))


def _newest(*seqs: int | None) -> int | None:
    return max((seq for seq in seqs if seq is not None), default=None)


def _distinct(rows: pa.Table) -> pa.Table:
    """Ordered rows without those equal to the row before."""
    if len(rows) < 2:
        return rows
    alike = [pc.equal(column.slice(0, len(rows) - 1), column.slice(1)) for column in rows.columns]
    differs = pc.invert(pc.and_(pc.and_(alike[0], alike[1]), alike[2]))
    return rows.filter(pa.chunked_array([*pc.is_valid(rows["seq"].slice(0, 1)).chunks, *differs.chunks]))


def _ordered(rows: pa.Table) -> pa.Table:
    return rows if _rising(rows["seq"]) else rows.sort_by("seq")


def _after(known: Column, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values, preceded by the last known value."""
    return pa.chunked_array([*known.between(max(0, len(known) - 1)).chunks, *values.chunks], values.type)


def _rising(values: pa.ChunkedArray, strictly: bool = False) -> bool:
    compare = pc.less if strictly else pc.less_equal
    return len(values) < 2 or pc.all(compare(values.slice(0, len(values) - 1), values.slice(1))).as_py()


def newest_by_source(rows: Iterable[SourceEntry]) -> dict[str, SourceEntry]:
    """The newest row of each source."""
    found: dict[str, SourceEntry] = {}
    for row in sorted(rows, key=lambda r: r.seq):
        found[row.source] = row
    return found
