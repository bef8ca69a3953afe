"""The size of a step: it always advances, never exceeds its limit, and reads about `max_step` rows."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts import DerivedAsset
from operators.steps import ByKey, ByTimeRange
from operators.timing import TimeKind
from platform_defs.engine.advance.step_size import can_change_rows, cut_batches, cut_time
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.ledger import Batch
from tests.engine.source_batches import source_batch
from tests.support.example_operators import Spread
from tests.support.small_sources import join

ASSET = join(lower=-3, upper=4)
LOOKBACK = max(ASSET.operator.reads.lookback) if isinstance(ASSET.operator.reads, ByTimeRange) else 0


def _batch(seq: int, rows: int, first: int, length: int, source: str = "l") -> Batch:
    times = {"first_event_time": first, "last_event_time": first + length} if rows else {}
    return (source_batch(source, seq, accepted=rows, **times),)


@dataclass(frozen=True)
class _SpreadWithTtl(Spread):
    ttl: int | None = None
    by: TimeKind = "event"

    @property
    def reads(self) -> ByKey:
        return ByKey(("k",), ttl=self.ttl, ttl_by=self.by)


def _batches(times: int) -> st.SearchStrategy[list[Batch]]:
    """Batches of up to 200 rows, which begin within `times` ms of 0."""
    row = st.tuples(st.integers(0, 200), st.integers(-times, times), st.integers(0, times * 3 // 5), st.sampled_from(["l", "r", "x"]))
    return st.lists(row, max_size=8).map(lambda rows: [_batch(seq, *row) for seq, row in enumerate(rows, 1)])


BATCHES = _batches(500)


@given(BATCHES, st.none() | st.integers(-600, 900), st.integers(1, 800), st.integers(1, 300))
def test_a_step_by_time_progresses_and_never_exceeds_its_limit(
    batches: list[Batch], after: int | None, distance: int, max_step: int
) -> None:
    upto = (-600 if after is None else after) + distance
    cut = cut_time(History.of(batches), ASSET, after, upto, len(batches), max_step)
    assert cut <= upto
    assert after is None or cut > after


@given(_batches(50), st.integers(1, 300))
def test_steps_by_time_reach_the_end(batches: list[Batch], max_step: int) -> None:
    ledger, after, upto = History.of(batches), None, 90
    for _ in range(151):
        after = cut_time(ledger, ASSET, after, upto, len(batches), max_step)
        if after == upto:
            break
    assert after == upto, "more steps than milliseconds"


@given(BATCHES, st.data(), st.integers(1, 300))
def test_a_step_by_batches_progresses_and_never_exceeds_its_limit(batches: list[Batch], data: st.DataObject, max_step: int) -> None:
    head = data.draw(st.integers(0, len(batches)))
    after = data.draw(st.integers(0, head))
    cut = cut_batches(History.of(batches), ASSET, after, head, max_step)
    assert cut == head if after == head else after < cut <= head
    rows = [sum(s.accepted for s in e if s.source in ASSET.inputs) for e in batches]
    read = sum(rows[after:cut])
    assert read <= max_step or read == max(rows[after:cut])
    assert cut == head or (read and read + rows[cut] > max_step)


@pytest.mark.parametrize(("ttl", "rows", "expected"), [(None, 0, False), (None, 1, True), (5, 0, True)])
def test_batches_without_rows_change_nothing_without_a_ttl(ttl: int | None, rows: int, expected: bool) -> None:
    asset = DerivedAsset(name="spread", inputs=("l",), operator=_SpreadWithTtl(ttl=ttl))
    assert can_change_rows(History.of([_batch(1, 5, 0, 9, "x"), _batch(2, rows, 0, 9)]), asset, 0, 2) is expected
    assert not can_change_rows(History.of([]), asset, 0, 0)


def test_every_batch_moves_the_clock_of_key_expiry() -> None:
    asset = DerivedAsset(name="spread", inputs=("l",), operator=_SpreadWithTtl(ttl=5, by="processing"))
    assert can_change_rows(History.of([_batch(1, 0, 0, 9, "x")]), asset, 0, 1)
    assert not can_change_rows(History.of([]), asset, 0, 0)


def _steps(batches: list[Batch], upto: int, max_step: int, after: int | None = None) -> list[int]:
    ledger, cuts = History.of(batches), list[int]()
    while after is None or after < upto:
        after = cut_time(ledger, ASSET, after, upto, len(batches), max_step)
        cuts.append(after)
    return cuts


def test_a_backlog_is_cut_into_steps_of_about_max_step() -> None:
    """1,000 rows, one per millisecond: a step reads its new rows and those of the lookback."""
    cuts = _steps([_batch(1, 1_000, 0, 999)], 999, 100)
    lengths = [b - a for a, b in zip([-1, *cuts], cuts, strict=False)]
    assert lengths[0] == 100
    assert set(lengths[1:-1]) == {100 - LOOKBACK}
    assert lengths[-1] <= 100 - LOOKBACK


def test_a_backlog_that_fits_is_one_step() -> None:
    assert _steps([_batch(1, 100, 0, 999)], 5_000, 100) == [5_000]


def test_rows_with_the_same_time_are_one_step() -> None:
    assert _steps([_batch(1, 10_000, 50, 0)], 100, 10)[0] <= 50
    assert len(_steps([_batch(1, 10_000, 50, 0)], 100, 10)) <= 2 + LOOKBACK


def test_a_lookback_with_more_than_max_step_rows_is_advanced_in_the_smallest_steps() -> None:
    """1,000 rows per millisecond and a `max_step` of 100: every step covers 1 ms, the minimum."""
    cuts = _steps([_batch(1, 20_000, 0, 19)], 19, 100)
    assert cuts == list(range(20))


@pytest.mark.parametrize(
    ("batches", "after", "upto", "cut"),
    [
        pytest.param([], None, 7, 7, id="nothing ingested"),
        pytest.param([_batch(1, 500, 0, 9, "x")], None, 7, 7, id="another source's rows do not count"),
        pytest.param([_batch(1, 0, 0, 0)], None, 7, 7, id="a batch without rows"),
        pytest.param([_batch(1, 500, 100, 9)], None, 50, 50, id="all rows after the watermark"),
        pytest.param([_batch(1, 500, 0, 9)], 50, 60, 60, id="all rows handled"),
        pytest.param([_batch(1, 500, 0, 9)], 59, 60, 60, id="one millisecond left"),
        pytest.param([_batch(1, 500, 0, 9), _batch(2, 500, 0, 9)], None, -5, -5, id="a watermark before the first row"),
    ],
)
def test_edges_of_a_step_by_time(batches: list[Batch], after: int | None, upto: int, cut: int) -> None:
    assert cut_time(History.of(batches), ASSET, after, upto, len(batches), 10) == cut


def test_batches_after_the_snapshot_do_not_count() -> None:
    batches = [_batch(1, 5, 0, 9), _batch(2, 5_000, 0, 9)]
    assert cut_time(History.of(batches), ASSET, None, 9, 1, 10) == 9
    assert cut_batches(History.of(batches), ASSET, 0, 1, 10) == 1


@pytest.mark.parametrize(
    ("rows", "after", "cut"),
    [
        pytest.param([10, 10, 10], 0, 1, id="each batch is full"),
        pytest.param([5, 5, 1], 0, 2, id="exactly full"),
        pytest.param([500, 1], 0, 1, id="a batch that is too large is a separate step"),
        pytest.param([0, 500], 0, 2, id="an empty batch before a large one"),
        pytest.param([1, 1, 1], 1, 3, id="all remaining batches"),
        pytest.param([10, 0, 0], 0, 3, id="empty batches are included"),
    ],
)
def test_edges_of_a_step_by_batches(rows: list[int], after: int, cut: int) -> None:
    batches = [_batch(seq, n, 0, 9) for seq, n in enumerate(rows, 1)]
    assert cut_batches(History.of(batches), ASSET, after, len(rows), 10) == cut


YEAR = 365 * 86_400_000
QUANTILES = (0.0, 0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)


def test_an_old_row_in_each_batch_does_not_turn_a_backlog_into_one_step() -> None:
    """20 batches of 1,000 rows, one minute each, and in each of them a row that is 56 years older."""
    minute, start = 60_000, 56 * YEAR
    batches: list[Batch] = []
    for seq in range(1, 21):
        first = start + seq * minute
        spread = (0, *[first + int(share * (minute - 1)) for share in QUANTILES[1:]])
        batches.append((source_batch("l", seq, accepted=1_000, first_event_time=0, last_event_time=first + minute - 1, spread=spread),))
    cuts = _steps(batches, start + 30 * minute, 2_000)
    lengths = [min(b, start + 21 * minute) - max(a, start + minute) for a, b in zip([start, *cuts], cuts, strict=False)]
    assert max(lengths) * 1_000 / minute <= 2_000 * 1.1
    assert 10 <= len(cuts) <= 15


def test_rows_far_ahead_do_not_turn_a_backlog_into_one_step() -> None:
    batches: list[Batch] = []
    for seq in range(1, 21):
        spread = (*[seq * 60_000 + int(share * 59_999) for share in QUANTILES[:-1]], 10 * YEAR)
        batches.append((source_batch("l", seq, accepted=1_000, first_event_time=seq * 60_000, last_event_time=10 * YEAR, spread=spread),))
    cuts = _steps(batches, 11 * YEAR, 2_000)
    lengths = [b - a for a, b in zip([60_000, *cuts], cuts, strict=False) if a < 21 * 60_000]
    assert max(min(length, 20 * 60_000) for length in lengths[:-1]) <= 2.2 * 60_000
    assert 9 <= len(lengths) <= 15
