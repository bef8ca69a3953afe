"""Corrects the wall clocks of the ledger's batches: a clock that had jumped ahead or was set back is recognized by later batches."""

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import arrow_array, arrow_scalar
from platform_defs.engine.ledger.columns import Column, pc

CLOCK_STEP = 60_000
"""The least step back of the clock that is recorded, in ms. Smaller steps are normal with a second host or a synchronized clock."""

_DAY = 86_400_000
_EARLIEST = 1_767_225_600_000
"""2026-01-01: no correct clock is before it, since this version was made later."""


def is_reset(clock: int, clocks: Column) -> bool:
    """Whether the present wall clock is so far behind that it was reset, such as to 1970; it is not recorded then.

    That is a clock behind the first batch's if it is before 2026, or if the batches' clocks span more than a day. Otherwise the clock may
    have been ahead at the first batches, and the present one is right.

    Args:
        clock: the present wall clock.
        clocks: the wall clocks of all batches, of which there is at least one.
    """
    return clock < clocks[0] and (clock < _EARLIEST or pc.max(clocks.between(0)).as_py() - clocks[0] > _DAY)


def processing_times(clocks: pa.ChunkedArray) -> pa.Array:
    """The processing times of consecutive batches in epoch ms, ascending.

    A batch's processing time is its wall clock, but at most that of each later batch: times from a clock that had jumped ahead are
    corrected by the first batch after the clock was set back.

    Args:
        clocks: the wall clocks of the batches.
    """
    if not len(clocks):
        return arrow_array([], pa.int64())
    backwards = arrow_array(range(len(clocks) - 1, -1, -1), pa.int64())
    least = pc.cumulative_min(pa.chunked_array(clocks.take(backwards).chunks, pa.int64()).combine_chunks())
    return least.take(backwards)


def is_set_back(clocks: pa.ChunkedArray) -> bool:
    """Whether one of the wall clocks is less than the one before it."""
    return pc.any(pc.less(clocks.slice(1), clocks.slice(0, max(0, len(clocks) - 1)))).as_py() is True


def first_time(clocks: Column, now: int) -> int:
    """The wall clock at the first batch; `now` if there is none.

    If it is in the future, the clock was wrong then: the result is the least wall clock of all batches, at most `now`.
    """
    if not len(clocks):
        return now
    return clocks[0] if clocks[0] <= now else min(now, pc.min(clocks.between(0)).as_py())


def time_of_batch(clocks: Column, seq: int, now: int) -> int:
    """The wall clock at a batch, corrected by `time_at` if it had jumped ahead."""
    return time_at(clocks[seq - 1], clocks.between(seq), now, clocks.between(0, seq - 1))


def time_at(clock: int, later: pa.ChunkedArray, now: int, earlier: pa.ChunkedArray | None = None) -> int:
    """The wall clock at a batch, corrected; at most `now`.

    If `clock` is more than `CLOCK_STEP` after `now`, it had jumped ahead. The result is then the least of the later clocks; if that is in
    the future too, or there is none, the greatest of the earlier clocks that are not in the future; and `now` if there is none of these.

    Args:
        clock: the wall clock of the batch.
        later: the wall clocks of the batches after it.
        now: the present time.
        earlier: the wall clocks of the batches before it; None if they are not known.
    """
    if clock <= now + CLOCK_STEP:
        return min(now, clock)
    least_later = pc.min(later).as_py()
    if least_later is not None and least_later <= now:
        return least_later
    newest_past = None if earlier is None else pc.max(earlier.filter(pc.less_equal(earlier, arrow_scalar(now, pa.int64())))).as_py()
    return newest_past or now
