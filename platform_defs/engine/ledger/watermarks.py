"""Watermarks as functions of the ledger, so that every verdict of lateness can be replayed."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from platform_defs.engine.ledger.columns import Column, pc
from platform_defs.engine.ledger.history import SourceHistory

_MARK, _IDLE = pa.int64(), pa.bool_()
_BEFORE_ALL, _AFTER_ALL = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Timeline:
    """An input's or an operator's watermark over the ledger.

    Args:
        after: the watermark in force after batch n, at index n; index 0 is before any batch. None is minus
            infinity. It never falls.
        idle: whether the input does not hold the watermark back after batch n, at index n.
    """

    after: Sequence[int | None]
    idle: Sequence[bool]

    def with_idle(self, idle: pa.Array) -> "Timeline":
        """The same watermark, with another say on who holds it back."""
        return Timeline(self.after, Column(_IDLE, [idle]))


NOTHING = Timeline(Column(_MARK), Column(_IDLE))
"""A timeline of which nothing is known yet."""


def of_source(history: SourceHistory, head: int, known: Timeline = NOTHING) -> Timeline:
    """A source's own watermark.

    Args:
        history: the source's batches.
        head: the batch up to which it is asked for.
        known: the timeline as it was before some batch; only the later ones are worked out.
    """
    first = max(1, len(known.after))
    rows = history.table(["seq", "watermark", "idle"], first - 1, head)
    index = pc.index_in(pa.array(range(first, head + 1), pa.int32()), value_set=rows["seq"])
    marks, idle = (rows[name].take(index).combine_chunks() for name in ("watermark", "idle"))
    marks, idle = (_column(values, kind) for values, kind in ((marks, _MARK), (idle, _IDLE)))
    start = [] if len(known.after) else [None]
    after = _running(known.after[-1] if len(known.after) else None, marks)
    idle = _filled(known.idle[-1] if len(known.idle) else False, idle)
    return _extended(known, _joined(pa.array(start, _MARK), after), _joined(pa.array([False][: len(start)], _IDLE), idle))


def passed_on(sources: Sequence[SourceHistory], head: int) -> pa.Array:
    """Whether what is made of sources does not hold its readers' watermarks after batch n, at index n.

    A derived table holds its readers while it is idle: what it has not finalized would otherwise come behind what they have closed.
    Earlier versions let its readers go on. So that every row keeps the decision it got then, the old rule still holds from a batch by
    which such a version recorded the last of the sources as idle (not of kind `silent`) up to the next batch that names one of them, but
    for a batch that asks for files to be read again: it changes nothing.
    """
    found = pa.array([bool(sources)] * (head + 1), _IDLE)
    for history in sources:
        rows = history.table(["seq", "idle_by_old_rule"], 0, head)
        index = pc.index_in(pa.array(range(1, head + 1), pa.int32()), value_set=rows["seq"])
        idle = _column(rows["idle_by_old_rule"].take(index).combine_chunks(), _IDLE)
        found = pc.and_(found, _joined(pa.array([False], _IDLE), _filled(False, idle)))
    return found


def of_operator(inputs: Sequence[Timeline], known: Timeline = NOTHING) -> Timeline:
    """An operator's watermark: the running maximum of the minimum over its inputs that are not idle.

    An input never seen holds it at minus infinity unless it is idle; where all are idle it stays.

    Args:
        inputs: the inputs' timelines; where another process commits meanwhile, one may be longer than the other.
        known: the timeline as it was before some batch; only the later ones are worked out.
    """
    first, end = len(known.after), min(len(i.after) for i in inputs)
    if end <= first:
        return known
    idle = [_values(i.idle, _IDLE, first, end) for i in inputs]
    marks = [pc.coalesce(_values(i.after, _MARK, first, end), _BEFORE_ALL) for i in inputs]
    marks = [pc.if_else(away, _AFTER_ALL, mark) for away, mark in zip(idle, marks, strict=True)]
    least = pc.min_element_wise(*marks)
    held = pc.or_(pc.equal(least, _AFTER_ALL), pc.equal(least, _BEFORE_ALL))
    after = _running(known.after[-1] if first else None, pc.if_else(held, pa.scalar(None, _MARK), least))
    every = idle[0]
    for away in idle[1:]:
        every = pc.and_(every, away)
    return _extended(known, after, every)


def delayed(timeline: Timeline, delay: int, known: Timeline = NOTHING) -> Timeline:
    """The watermark that readers of an operator's results see."""
    first = len(known.after)
    return _extended(known, pc.subtract(_values(timeline.after, _MARK, first), delay), _values(timeline.idle, _IDLE, first))


def _running(before: int | None, marks: pa.Array) -> pa.Array:
    """The running maximum, from a value on; None is below all."""
    running = pc.cumulative_max(_joined(pa.array([before], _MARK), marks), skip_nulls=True)
    return pc.fill_null_forward(running)[1:]


def _filled(before: bool, idle: pa.Array) -> pa.Array:
    return pc.fill_null_forward(_joined(pa.array([before], _IDLE), idle))[1:]


def _extended(known: Timeline, after: pa.Array, idle: pa.Array) -> Timeline:
    marks, away = (c if isinstance(c, Column) else Column(k, [pa.array(c, k)]) for c, k in ((known.after, _MARK), (known.idle, _IDLE)))
    return Timeline(marks.extended(after), away.extended(idle))


def _values(values: Sequence[int | None] | Sequence[bool], kind: pa.DataType, first: int, end: int | None = None) -> pa.Array:
    found = values.between(first, end) if isinstance(values, Column) else pa.chunked_array([pa.array(values[first:end], kind)])
    return _column(found.combine_chunks(), kind)


def _column(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.concat_arrays([pa.array([], kind), *values.chunks])


def _joined(one: pa.Array, other: pa.Array) -> pa.Array:
    return pa.concat_arrays([one, other])


def possibly_late(
    history: SourceHistory, operator: Timeline, after: int, head: int, span: tuple[int | None, int | None] = (None, None)
) -> dict[int, int]:
    """The batches `after < seq <= head` that may hold late rows of a source: batch number to the operator's watermark before it.

    Args:
        history: the source's batches.
        operator: the operator's watermark.
        after: the batch after which to look.
        head: the last batch to look at.
        span: the first and the last event time of the rows asked for; None for no end. Batches without such rows are left out.
    """
    rows = history.brought(after, head)
    first, last = span
    if first is not None:
        rows = rows.filter(pc.greater_equal(rows["last_event_time"], first))
    if last is not None:
        rows = rows.filter(pc.less_equal(rows["first_event_time"], last))
    before = _values(operator.after, _MARK, 0).take(pc.subtract(rows["seq"].combine_chunks(), 1))
    rows = rows.append_column("before", before)
    late = rows.filter(pc.less_equal(rows["first_event_time"], rows["before"]))
    return dict(zip(late["seq"].to_pylist(), late["before"].to_pylist(), strict=True))
