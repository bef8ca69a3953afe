"""Watermarks as functions of the ledger, so that every lateness decision can be repeated."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import arrow_array, arrow_scalar
from platform_defs.engine.ledger.columns import Column, pc
from platform_defs.engine.ledger.history import SourceHistory
from platform_defs.engine.ledger.new_rows import IDLE, IDLE_FIRST_RULE

_INT, _BOOL = pa.int64(), pa.bool_()
BEFORE_ALL = -(1 << 63)
"""A number below all watermarks, in place of None."""
_MINUS_INFINITY, _INFINITY = (arrow_scalar(bound, _INT) for bound in (BEFORE_ALL, (1 << 63) - 1))


@dataclass(frozen=True)
class Timeline:
    """An input's or an operator's watermark over the ledger.

    Args:
        after: the watermark after batch n, at index n; index 0 is before any batch. None is minus infinity. It never decreases.
        idle: whether the input is idle, and does not hold back the watermark, after batch n, at index n.
    """

    after: Sequence[int | None]
    idle: Sequence[bool]

    def with_idle(self, idle: Sequence[bool]) -> "Timeline":
        """The same watermark with another `idle`."""
        return Timeline(self.after, idle)


NOTHING = Timeline(Column(_INT), Column(_BOOL))
"""The empty timeline."""


def after_summary(upto: int, watermark: int | None = None, *, is_known: bool = False) -> Timeline:
    """A timeline that begins with the summary of a ledger's batches: before the end of the summary, it is minus infinity.

    Args:
        upto: the last summarized batch; 0 if there is none.
        watermark: the watermark after that batch.
        is_known: whether that watermark is known; if not, it is computed from the inputs.
    """
    watermarks, idle = ([arrow_array([watermark], _INT)], [arrow_array([False], _BOOL)]) if is_known else ([], [])
    return Timeline(Column(_INT, watermarks, upto), Column(_BOOL, idle, upto, filler=False))


def of_source(history: SourceHistory, head: int, earlier: Timeline = NOTHING) -> Timeline:
    """A source's own watermark.

    Args:
        history: the source's batches.
        head: the last batch of the timeline.
        earlier: the timeline up to an earlier batch; only later batches are computed.
    """
    first = max(1, len(earlier.after))
    rows = history.table(["seq", "watermark", "idle"], first - 1, head)
    index = pc.index_in(arrow_array(range(first, head + 1), pa.int32()), value_set=rows["seq"])
    watermarks, idle = (rows[name].take(index).combine_chunks() for name in ("watermark", "idle"))
    watermarks, idle = (_as_array(values, kind) for values, kind in ((watermarks, _INT), (idle, _BOOL)))
    start = [] if len(earlier.after) else [None]
    after = _running_maximum(earlier.after[-1] if len(earlier.after) else None, watermarks)
    idle = _fill_forward(earlier.idle[-1] if len(earlier.idle) else False, idle)
    return _extend(earlier, _concat(arrow_array(start, _INT), after), _concat(arrow_array([False][: len(start)], _BOOL), idle))


def table_idleness(sources: Sequence[SourceHistory], head: int, summarized: int = 0) -> Column:
    """Whether a table derived from sources is idle, and does not hold back its readers' watermarks, after batch n, at index n.

    As in Flink, a table is idle while all of its sources are. Its readers continue; a result that becomes final behind the watermark of a
    reader is late for it (see `late_results`). Earlier versions of Tidemark had other rules, which still apply to the batches that they
    recorded, so that lateness decisions do not change: from a batch of kind `silent` up to the next batch that records the source, an idle
    table holds back its readers; after older batches (`idle`, `rows`) it does not. Batches of kind `retry` do not count. Before the end of
    a summary it is not known, and False.

    Args:
        sources: the sources of the table.
        head: the last batch.
        summarized: the last summarized batch; 0 if there is none.
    """
    first = max(1, summarized)
    is_idle = pc.fill_null(pa.nulls(head + 2 - first, _BOOL), arrow_scalar(bool(sources), _BOOL))
    for history in sources:
        rows = history.table(["seq", "idle_rule"], first - 1, head)
        index = pc.index_in(arrow_array(range(first, head + 1), pa.int32()), value_set=rows["seq"])
        rule = _as_array(rows["idle_rule"].take(index).combine_chunks(), pa.int32())
        is_passed_on = pc.or_(*[pc.equal(rule, arrow_scalar(accepted_rule, pa.int32())) for accepted_rule in (IDLE, IDLE_FIRST_RULE)])
        idle = is_passed_on.cast(_BOOL)
        is_idle = pc.and_(is_idle, _concat(arrow_array([False], _BOOL), _fill_forward(False, idle)))
    return Column(_BOOL, [is_idle], first - 1, filler=False)


@dataclass(frozen=True)
class LateResults:
    """A range of a table's results that became final while the watermark of a reader was ahead of the table.

    Args:
        after: the range is `after < final_at <= upto`, in epoch ms; None for no start.
        upto: the end of the range; None for no end.
        watermark: the reader's watermark before the batch in which the results became final, in epoch ms.
    """

    after: int | None
    upto: int | None
    watermark: int


def late_results(
    upstream: Timeline, reader: Timeline, delay: int, since: int, earlier: Sequence[LateResults] = (), upto: int | None = None
) -> list[LateResults]:
    """The results of a table that may be late for a reader, by `final_at`.

    A result is final in the first batch after which the table's watermark has reached its `final_at`. So the ledger alone decides whether
    it is late, as for a row of a source. While a table is not idle, no reader's watermark is ahead of it, and no result is late.

    Args:
        upstream: the table's own watermark.
        reader: the reader's own watermark.
        delay: the table's output watermark delay, in ms.
        since: only results that became final after this batch are late; see `idle_since`.
        earlier: the ranges of the results that became final up to the batch `since`.
        upto: the last batch to consider; None also includes results that are not final yet.
    """
    length = min(len(upstream.after), len(reader.after))
    end = length if upto is None else min(length, upto)
    first = min(since, end)
    before, watermark = _values(upstream.after, _INT, first, end), _values(reader.after, _INT, first, end)
    reached = _values(upstream.after, _INT, first + 1, min(length, end + 1))
    reached = _concat(reached, arrow_array([None][: len(before) - len(reached)], _INT))
    low, high = pc.coalesce(before, _MINUS_INFINITY), pc.coalesce(reached, _MINUS_INFINITY)
    is_last = pc.equal(arrow_array(range(first + 1, end + 1), _INT), arrow_scalar(length, _INT))
    is_ahead = pc.greater(pc.add(watermark, arrow_scalar(delay, _INT)), low)
    is_late = pc.and_(pc.or_(pc.greater(high, low), is_last), is_ahead)
    columns = [values.filter(pc.fill_null(is_late, arrow_scalar(False, _BOOL))).to_pylist() for values in (before, reached, watermark)]
    ranges = list(earlier)
    for late_range in map(LateResults, *columns):
        continues = bool(ranges) and (ranges[-1].upto, ranges[-1].watermark) == (late_range.after, late_range.watermark)
        ranges.append(replace(late_range, after=ranges.pop().after) if continues else late_range)
    return ranges


def watermark_without_waiting(upstream: Timeline, reader: Timeline, closed_to: int | None, head: int, since: int) -> int | None:
    """The watermark up to which a reader may close results, although the results of a table are complete only up to `closed_to`.

    It is the reader's watermark before the first batch in which further results of the table become final: each of them is late for the
    reader, or not before this watermark.

    Args:
        upstream: the table's own watermark.
        reader: the reader's own watermark.
        closed_to: the watermark up to which the table's results are in it; None if there are none.
        head: the last batch that the reader may handle.
        since: see `late_results`.

    Returns:
        The watermark; None if there is none, or if results that become final in that batch are never late.
    """
    reached = or_before_all(closed_to)
    final_in = bisect_right(range(head + 1), reached, key=lambda seq: or_before_all(upstream.after[seq]))
    return reader.after[final_in - 1] if final_in > since and final_in else None


def idle_since(sources: Iterable[SourceHistory]) -> int | None:
    """The first batch that records one of the sources as idle by the present rule; None if there is none."""
    return min((seq for source in sources if (seq := source.first_idle_batch(IDLE)) is not None), default=None)


def of_operator(inputs: Sequence[Timeline], earlier: Timeline = NOTHING) -> Timeline:
    """An operator's watermark: the running maximum of the minimum of the watermarks of its inputs that are not idle.

    An input without batches holds the watermark at minus infinity, unless the input is idle. While all inputs are idle, the watermark does
    not change.

    Args:
        inputs: the inputs' timelines; one may be longer if another process commits at the same time.
        earlier: the timeline up to an earlier batch; only later batches are computed.
    """
    first, end = len(earlier.after), min(len(timeline.after) for timeline in inputs)
    if end <= first:
        return earlier
    idle = [_values(timeline.idle, _BOOL, first, end) for timeline in inputs]
    watermarks = [pc.coalesce(_values(timeline.after, _INT, first, end), _MINUS_INFINITY) for timeline in inputs]
    watermarks = [pc.if_else(is_idle, _INFINITY, watermark) for is_idle, watermark in zip(idle, watermarks, strict=True)]
    least = pc.min_element_wise(*watermarks)
    is_held_back = pc.or_(pc.equal(least, _INFINITY), pc.equal(least, _MINUS_INFINITY))
    after = _running_maximum(earlier.after[-1] if first else None, pc.if_else(is_held_back, arrow_scalar(None, _INT), least))
    all_idle = idle[0]
    for is_idle in idle[1:]:
        all_idle = pc.and_(all_idle, is_idle)
    return _extend(earlier, after, all_idle)


def delay_timeline(timeline: Timeline, delay: int, earlier: Timeline = NOTHING) -> Timeline:
    """The output watermark of an operator: its watermark minus its output watermark delay."""
    first = len(earlier.after)
    after = pc.subtract(_values(timeline.after, _INT, first), arrow_scalar(delay, _INT))
    return _extend(earlier, after, _values(timeline.idle, _BOOL, first))


def _running_maximum(before: int | None, watermarks: pa.Array) -> pa.Array:
    """The running maximum, starting from a value; None is below all values."""
    running = pc.cumulative_max(_concat(arrow_array([before], _INT), watermarks), skip_nulls=True)
    return pc.fill_null_forward(running)[1:]


def _fill_forward(before: bool, idle: pa.Array) -> pa.Array:
    return pc.fill_null_forward(_concat(arrow_array([before], _BOOL), idle))[1:]


def _extend(timeline: Timeline, after: pa.Array, idle: pa.Array) -> Timeline:
    columns = (timeline.after, _INT), (timeline.idle, _BOOL)
    watermarks, idle_column = (c if isinstance(c, Column) else Column(kind, [arrow_array(c, kind)]) for c, kind in columns)
    return Timeline(watermarks.with_values(after), idle_column.with_values(idle))


def _values(values: Sequence[int | None] | Sequence[bool], kind: pa.DataType, first: int, end: int | None = None) -> pa.Array:
    chunks = values.between(first, end) if isinstance(values, Column) else pa.chunked_array([arrow_array(values[first:end], kind)])
    return _as_array(chunks.combine_chunks(), kind)


def _as_array(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.concat_arrays([arrow_array([], kind), *values.chunks])


def _concat(first: pa.Array, second: pa.Array) -> pa.Array:
    return pa.concat_arrays([first, second])


def or_before_all(watermark: int | None) -> int:
    """A watermark, or for None a number below all watermarks."""
    return BEFORE_ALL if watermark is None else watermark


def possibly_late_batches(
    history: SourceHistory, operator: Timeline, after: int, head: int, span: tuple[int | None, int | None] = (None, None)
) -> dict[int, int]:
    """The batches `after < seq <= head` that may contain late rows of a source: batch number to the operator's watermark before it.

    Args:
        history: the source's batches.
        operator: the operator's watermark.
        after: the batch before the first one.
        head: the last batch.
        span: the first and the last event time of interest; None for no end. Batches without rows in the span are left out.
    """
    rows = history.batches_with_rows(after, head, span)
    first_known = rows["seq"][0].as_py() - 1 if len(rows) else 0  # earlier watermarks are not looked up
    index = pc.subtract(_as_array(rows["seq"].combine_chunks(), pa.int32()), arrow_scalar(first_known + 1, pa.int32()))
    before = _values(operator.after, _INT, first_known).take(index)
    rows = rows.append_column("before", before)
    late = rows.filter(pc.less_equal(rows["first_event_time"], rows["before"]))
    return dict(zip(late["seq"].to_pylist(), late["before"].to_pylist(), strict=True))
