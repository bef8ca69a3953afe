"""Watermarks as functions of the ledger, so that every lateness decision can be repeated."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import arrow_array, arrow_scalar
from platform_defs.engine.ledger.columns import Column, pc
from platform_defs.engine.ledger.history import SourceHistory

_MARK, _IDLE = pa.int64(), pa.bool_()
_BEFORE_ALL, _AFTER_ALL = (arrow_scalar(bound, _MARK) for bound in (-(1 << 63), (1 << 63) - 1))


@dataclass(frozen=True)
class Timeline:
    """An input's or an operator's watermark over the ledger.

    Args:
        after: the watermark after batch n, at index n; index 0 is before any batch. None is minus infinity. It never decreases.
        idle: whether the input is idle, and does not hold back the watermark, after batch n, at index n.
    """

    after: Sequence[int | None]
    idle: Sequence[bool]

    def with_idle(self, idle: pa.Array) -> "Timeline":
        """The same watermark with another `idle`."""
        return Timeline(self.after, Column(_IDLE, [idle]))


NOTHING = Timeline(Column(_MARK), Column(_IDLE))
"""The empty timeline."""


def of_source(history: SourceHistory, head: int, known: Timeline = NOTHING) -> Timeline:
    """A source's own watermark.

    Args:
        history: the source's batches.
        head: the last batch of the timeline.
        known: the timeline up to an earlier batch; only later batches are computed.
    """
    first = max(1, len(known.after))
    rows = history.table(["seq", "watermark", "idle"], first - 1, head)
    index = pc.index_in(arrow_array(range(first, head + 1), pa.int32()), value_set=rows["seq"])
    marks, idle = (rows[name].take(index).combine_chunks() for name in ("watermark", "idle"))
    marks, idle = (_column(values, kind) for values, kind in ((marks, _MARK), (idle, _IDLE)))
    start = [] if len(known.after) else [None]
    after = _running(known.after[-1] if len(known.after) else None, marks)
    idle = _filled(known.idle[-1] if len(known.idle) else False, idle)
    return _extended(known, _joined(arrow_array(start, _MARK), after), _joined(arrow_array([False][: len(start)], _IDLE), idle))


def passed_on(sources: Sequence[SourceHistory], head: int) -> pa.Array:
    """Whether a table derived from sources does not hold back its readers' watermarks after batch n, at index n.

    A derived table holds back its readers even while it is idle: otherwise its pending results would be behind ranges that the readers
    have closed. In earlier versions of Tidemark an idle table did not. So that lateness decisions do not change, the old rule still holds
    from a batch in which such a version recorded the last of the sources as idle (not of kind `silent`) up to the next batch that records
    one of the sources. Batches of kind `retry` do not count.
    """
    found = pc.fill_null(pa.nulls(head + 1, _IDLE), arrow_scalar(bool(sources), _IDLE))
    for history in sources:
        rows = history.table(["seq", "idle_by_old_rule"], 0, head)
        index = pc.index_in(arrow_array(range(1, head + 1), pa.int32()), value_set=rows["seq"])
        idle = _column(rows["idle_by_old_rule"].take(index).combine_chunks(), _IDLE)
        found = pc.and_(found, _joined(arrow_array([False], _IDLE), _filled(False, idle)))
    return found


def of_operator(inputs: Sequence[Timeline], known: Timeline = NOTHING) -> Timeline:
    """An operator's watermark: the running maximum of the minimum over its inputs that are not idle.

    An input without batches holds it at minus infinity unless it is idle. While all inputs are idle it does not change.

    Args:
        inputs: the inputs' timelines; one may be longer if another process commits at the same time.
        known: the timeline up to an earlier batch; only later batches are computed.
    """
    first, end = len(known.after), min(len(i.after) for i in inputs)
    if end <= first:
        return known
    idle = [_values(i.idle, _IDLE, first, end) for i in inputs]
    marks = [pc.coalesce(_values(i.after, _MARK, first, end), _BEFORE_ALL) for i in inputs]
    marks = [pc.if_else(away, _AFTER_ALL, mark) for away, mark in zip(idle, marks, strict=True)]
    least = pc.min_element_wise(*marks)
    held = pc.or_(pc.equal(least, _AFTER_ALL), pc.equal(least, _BEFORE_ALL))
    after = _running(known.after[-1] if first else None, pc.if_else(held, arrow_scalar(None, _MARK), least))
    every = idle[0]
    for away in idle[1:]:
        every = pc.and_(every, away)
    return _extended(known, after, every)


def delayed(timeline: Timeline, delay: int, known: Timeline = NOTHING) -> Timeline:
    """The output watermark of an operator: its watermark less its output watermark delay."""
    first = len(known.after)
    after = pc.subtract(_values(timeline.after, _MARK, first), arrow_scalar(delay, _MARK))
    return _extended(known, after, _values(timeline.idle, _IDLE, first))


def _running(before: int | None, marks: pa.Array) -> pa.Array:
    """The running maximum, starting from a value; None is below all values."""
    running = pc.cumulative_max(_joined(arrow_array([before], _MARK), marks), skip_nulls=True)
    return pc.fill_null_forward(running)[1:]


def _filled(before: bool, idle: pa.Array) -> pa.Array:
    return pc.fill_null_forward(_joined(arrow_array([before], _IDLE), idle))[1:]


def _extended(known: Timeline, after: pa.Array, idle: pa.Array) -> Timeline:
    marks, away = (c if isinstance(c, Column) else Column(k, [arrow_array(c, k)]) for c, k in ((known.after, _MARK), (known.idle, _IDLE)))
    return Timeline(marks.extended(after), away.extended(idle))


def _values(values: Sequence[int | None] | Sequence[bool], kind: pa.DataType, first: int, end: int | None = None) -> pa.Array:
    found = values.between(first, end) if isinstance(values, Column) else pa.chunked_array([arrow_array(values[first:end], kind)])
    return _column(found.combine_chunks(), kind)


def _column(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.concat_arrays([arrow_array([], kind), *values.chunks])


def _joined(one: pa.Array, other: pa.Array) -> pa.Array:
    return pa.concat_arrays([one, other])


def possibly_late(
    history: SourceHistory, operator: Timeline, after: int, head: int, span: tuple[int | None, int | None] = (None, None)
) -> dict[int, int]:
    """The batches `after < seq <= head` that may contain late rows of a source: batch number to the operator's watermark before it.

    Args:
        history: the source's batches.
        operator: the operator's watermark.
        after: the batch before the first one.
        head: the last batch.
        span: the first and the last event time of interest; None for no end. Batches without such rows are left out.
    """
    rows = history.batches_with_rows(after, head)
    first, last = span
    if first is not None:
        rows = rows.filter(pc.greater_equal(rows["last_event_time"], arrow_scalar(first, _MARK)))
    if last is not None:
        rows = rows.filter(pc.less_equal(rows["first_event_time"], arrow_scalar(last, _MARK)))
    before = _values(operator.after, _MARK, 0).take(pc.subtract(rows["seq"].combine_chunks(), arrow_scalar(1, pa.int32())))
    rows = rows.append_column("before", before)
    late = rows.filter(pc.less_equal(rows["first_event_time"], rows["before"]))
    return dict(zip(late["seq"].to_pylist(), late["before"].to_pylist(), strict=True))
