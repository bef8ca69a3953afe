"""Limit how many rows of sources a step reads, so that memory stays bounded however long the backlog is."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from assets.contracts import DerivedAsset
from platform_defs.engine.ledger.arrow_values import arrow_scalar
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.history import History, SourceHistory
from platform_defs.engine.ledger.rows import SHARES

_ZERO = arrow_scalar(0, pa.int64())


def can_change_rows(ledger: History, asset: DerivedAsset, after: int, head: int) -> bool:
    """Whether the batches `after < seq <= head` can change an asset's rows: by new rows or, if keys have a TTL, by a later time."""
    reads = asset.operator.reads
    ttl_by = reads.ttl_by if reads.ttl is not None else None
    if ttl_by == "processing":  # every batch advances the clock, whichever source it belongs to
        return head > after
    return any(pc.any(pc.greater(rows, _ZERO)).as_py() or (ttl_by and len(rows)) for rows in _accepted_rows(ledger, asset, after, head))


def _accepted_rows(ledger: History, asset: DerivedAsset, after: int, head: int) -> list[pa.ChunkedArray]:
    """The accepted rows of each source's batches; summarized batches change nothing any more."""
    since = max(after, ledger.summarized)
    return [source.table(["accepted"], since, head)["accepted"] for source in _sources(ledger, asset)]


def _sources(ledger: History, asset: DerivedAsset) -> list[SourceHistory]:
    """The batches of each source that an asset reads; a source that is not in the ledger is left out."""
    return [ledger.sources[name] for name in dict.fromkeys(asset.inputs) if name in ledger.sources]


def cut_batches(ledger: History, asset: DerivedAsset, after: int, head: int, max_step: int) -> int:
    """The last batch of a step that handles batches: with at most `max_step` rows in all, but with at least one batch with rows."""
    batches = [source.batches_with_rows(after, head).select(["seq", "accepted"]) for source in _sources(ledger, asset)]
    if not batches:
        return head
    rows = 0
    all_batches = pa.concat_tables(batches).sort_by("seq")
    for seq, batch_rows in _rows_by_batch(all_batches["seq"].to_pylist(), all_batches["accepted"].to_pylist()):
        if rows and rows + batch_rows > max_step:
            return seq - 1
        rows += batch_rows
    return head


def _rows_by_batch(seqs: Iterable[int], rows: Iterable[int]) -> Iterable[tuple[int, int]]:
    rows_of_batch: dict[int, int] = {}
    for seq, source_rows in zip(seqs, rows, strict=True):
        rows_of_batch[seq] = rows_of_batch.get(seq, 0) + source_rows
    return rows_of_batch.items()


@dataclass(frozen=True)
class _Distribution:
    """The estimated distribution of source rows over event time: uniform within each interval, which may be a single millisecond.

    Args:
        first: the first millisecond of each interval.
        last: the last millisecond of each interval.
        rows: the estimated number of rows in each interval.
    """

    first: pa.ChunkedArray
    last: pa.ChunkedArray
    rows: pa.ChunkedArray

    @cached_property
    def _intervals(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.ChunkedArray]:
        """The millisecond before each interval; the length of each in ms, and its number of rows, as floats."""
        before = pc.subtract(self.first, 1)
        return before, pc.cast(pc.subtract(self.last, before), pa.float64()), pc.cast(self.rows, pa.float64())

    def rows_within(self, after: int, upto: int) -> float:
        """The estimated number of rows with `after < event_time <= upto`."""
        before, length, rows = self._intervals
        low, high = pc.max_element_wise(before, after), pc.min_element_wise(self.last, upto)
        share = pc.divide(pc.cast(pc.max_element_wise(pc.subtract(high, low), 0), pa.float64()), length)
        return pc.sum(pc.multiply(rows, share)).as_py() or 0.0

    def last_time_with(self, after: int, max_rows: float, low: int, high: int) -> int:
        """The last `time` in `low <= time < high` with at most `max_rows` rows in `after < event_time <= time`; `low` if none has."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.rows_within(after, middle) <= max_rows else (low, middle)
        return low


def cut_time(ledger: History, asset: DerivedAsset, after: int | None, upto: int, head: int, max_step: int) -> int:
    """The watermark up to which a step finalizes results, so that the step reads about `max_step` rows; at least 1 ms after `after`.

    For each batch the ledger records the number of rows, their time range and, for a long range, quantiles of the event time. The estimate
    assumes that rows are spread evenly between neighbouring ones of these times. Rows of derived inputs are not counted, so an asset that
    reads only tables finalizes everything in one step.
    """
    lookback = asset.operator.reads.longest_lookback
    rows = _distribution(ledger, asset, None if after is None else after - lookback, head)
    if not len(rows.rows):
        return upto
    first = pc.min(rows.first).as_py() - 1
    low = first if after is None else max(after, first)
    if low >= upto or rows.rows_within(low - lookback, upto) <= max_step:
        return upto
    budget = max(max_step, rows.rows_within(low - lookback, low) + max_step // 4)
    return max(rows.last_time_with(low - lookback, budget, low, upto), low + 1)


@dataclass(frozen=True)
class RowsOfRange:
    """The estimated source rows with event times in a range.

    Args:
        rows: the distribution of the rows, and of some rows outside the range.
        after: the last millisecond before the range, in epoch ms.
        upto: the last millisecond of the range, in epoch ms.
    """

    rows: _Distribution
    after: int
    upto: int

    @cached_property
    def number(self) -> float:
        """The number of rows."""
        return self.rows.rows_within(self.after, self.upto)

    def middle(self, parts: int) -> tuple[int, int]:
        """Divide the rows into `parts` parts with equally many rows; returns the first and the last event time of the middle part."""
        rows_before = (self.number * (parts // 2 + n) / parts for n in (0, 1))
        start, end = (self.rows.last_time_with(self.after, max_rows, self.after, self.upto) for max_rows in rows_before)
        return min(start + 1, self.upto), end


def rows_of_range(ledger: History, asset: DerivedAsset, after: int | None, upto: int, head: int) -> RowsOfRange:
    """The estimated source rows with `after < event_time <= upto` that an asset reads up to batch `head`; `after` None for all earlier."""
    rows = _distribution(ledger, asset, after, head)
    if not len(rows.rows):
        return RowsOfRange(rows, upto, upto)
    first = pc.min(rows.first).as_py() - 1
    return RowsOfRange(rows, first if after is None else max(after, first), upto)


def _distribution(ledger: History, asset: DerivedAsset, after: int | None, head: int) -> _Distribution:
    """The estimated distribution of the source rows with event times after a time."""
    parts: list[pa.Table] = []
    for source in _sources(ledger, asset):
        rows = source.batches_with_rows(0, head).select(["seq", "first_event_time", "last_event_time", "accepted"])
        if after is not None:
            rows = rows.filter(pc.greater(rows["last_event_time"], after))
        spreads = source.spreads(rows["seq"])
        plain = rows.filter(pc.invert(pc.is_in(rows["seq"], value_set=pa.array(spreads, pa.int32()))))
        parts.append(plain.drop_columns(["seq"]).cast(_INTERVAL_SCHEMA))
        accepted = dict(zip(rows["seq"].to_pylist(), rows["accepted"].to_pylist(), strict=True)) if spreads else {}
        parts += [_intervals_between_quantiles(spread, accepted[seq]) for seq, spread in spreads.items()]
    all_parts = pa.concat_tables([_INTERVAL_SCHEMA.empty_table(), *parts])
    return _Distribution(all_parts["first_event_time"], all_parts["last_event_time"], all_parts["accepted"])


_INTERVAL_SCHEMA = pa.schema([("first_event_time", pa.int64()), ("last_event_time", pa.int64()), ("accepted", pa.float64())])


def _intervals_between_quantiles(spread: Sequence[int], accepted: int) -> pa.Table:
    """A batch's rows between neighbouring quantiles. The few outliers at each end count at the time of the quantile next to them."""
    ends = list(itertools.pairwise(spread))
    shares = [high - low for low, high in itertools.pairwise(SHARES)]
    ends[0], ends[-1] = (spread[1], spread[1]), (spread[-2], spread[-2])
    return pa.table(
        [
            pa.array(column)
            for column in zip(*[(first, last, share * accepted) for (first, last), share in zip(ends, shares, strict=True)], strict=True)
        ],
        schema=_INTERVAL_SCHEMA,
    )
