"""The wall clock and the ledger's clock: the effects of a jump of the clock."""

import itertools
from dataclasses import dataclass

import pytest

from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.ledger.ledger import Ledger
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.memory_ledger import memory_ledger
from tests.support.small_sources import source

MINUTE, HOUR, DAY, YEAR = 60_000, 3_600_000, 86_400_000, 31_536_000_000
IN_2021, IN_2027 = 51 * YEAR, 58 * YEAR


@dataclass(frozen=True)
class Jump:
    id: str
    clocks: tuple[int, ...]
    processing_times: tuple[int, ...]
    set_back: tuple[int, ...] = ()


def _ledger(*clocks: int, sources: str = "l") -> tuple[Ledger, Clock]:
    """A ledger with a batch at each time of the wall clock. Each batch has one source, in turn."""
    clock = Clock()
    ledger = memory_ledger([], clock)
    for n, now in enumerate(clocks):
        clock.now = now
        ledger.commit([(source_batch(sources[n % len(sources)], ledger.head + 1, ingested_at=ledger.now(), rows_read=1),)])
    return ledger, clock


JUMPS = [
    Jump("a correct clock", (HOUR, 2 * HOUR, 3 * HOUR), (HOUR, 2 * HOUR, 3 * HOUR)),
    Jump("a clock that stands still", (HOUR, HOUR, HOUR), (HOUR, HOUR + 1, HOUR + 2)),
    Jump("a small step back", (HOUR, HOUR - MINUTE // 2, HOUR), (HOUR, HOUR + 1, HOUR + 2)),
    Jump("a year ahead", (HOUR, YEAR), (HOUR, YEAR)),
    Jump("a year ahead, and correct again", (HOUR, YEAR, 2 * HOUR, 3 * HOUR), (HOUR, 2 * HOUR, 2 * HOUR, 3 * HOUR), (3,)),
    Jump("a year ahead twice", (HOUR, YEAR, 2 * HOUR, 2 * YEAR, 3 * HOUR), (HOUR, 2 * HOUR, 2 * HOUR, 3 * HOUR, 3 * HOUR), (3, 5)),
    Jump("a clock that was reset", (HOUR, 5, 2 * HOUR), (HOUR, HOUR + 1, 2 * HOUR)),
    Jump(
        "a clock that was reset to 2021 on the first day",
        (IN_2027, IN_2027 + HOUR, IN_2021, IN_2027 + 2 * HOUR),
        (IN_2027, IN_2027 + HOUR, IN_2027 + HOUR + 1, IN_2027 + 2 * HOUR),
    ),
    Jump(
        "a clock that was set back to before the first batch after more than a day",
        (IN_2027 + YEAR, IN_2027 + YEAR + DAY + 1, IN_2027, IN_2027 + YEAR + 2 * DAY),
        (IN_2027 + YEAR, IN_2027 + YEAR + DAY + 1, IN_2027 + YEAR + DAY + 2, IN_2027 + YEAR + 2 * DAY),
    ),
    Jump(
        "a first batch a year ahead",
        (IN_2027 + YEAR, IN_2027 + YEAR + DAY, IN_2027, IN_2027 + HOUR),
        (IN_2027, IN_2027, IN_2027, IN_2027 + HOUR),
        (3,),
    ),
]


@pytest.mark.parametrize("case", JUMPS, ids=lambda c: c.id)
def test_processing_time_is_the_wall_clock_and_increases(case: Jump) -> None:
    ledger, _ = _ledger(*case.clocks)
    times = list(ledger.history.times)
    assert all(a < b for a, b in itertools.pairwise(times))
    head = ledger.head
    assert ledger.processing_times(head)[1].to_pylist() == list(case.processing_times)
    for after in range(head + 1):
        assert ledger.processing_times(head, after)[1].to_pylist() == list(case.processing_times[after:])
    newest = [ledger.processing_times(seq)[1][-1].as_py() for seq in range(1, head + 1)]
    assert [ledger.processing_time(seq) for seq in range(head + 1)] == [None, *newest]
    assert tuple(n for n in range(2, head + 1) if ledger.was_clock_set_back(n - 1, n)) == case.set_back
    assert ledger.was_clock_set_back(0, head) == bool(case.set_back)


def _idle(ledger: Ledger) -> set[str]:
    return set(idle_sources(ledger, {n: source(n, idle_timeout="1 hour") for n in "lrx"}, ledger.now()))


def test_silence_is_measured_by_the_wall_clock_after_a_clock_jump() -> None:
    ledger, clock = _ledger(10 * HOUR, 10 * HOUR + 1, YEAR, YEAR, 10 * HOUR + 5 * MINUTE, sources="lr")
    clock.now = 11 * HOUR + 4 * MINUTE
    assert _idle(ledger) == {"x"}, "the clock was corrected at 10:05; l and r were last active then or earlier"
    clock.now = 11 * HOUR + 6 * MINUTE
    assert _idle(ledger) == {"l", "r", "x"}


def test_silence_is_measured_after_a_clock_jump_without_a_later_batch() -> None:
    """The newest batch of a source is in the future, so its silence counts from the batch before."""
    ledger, clock = _ledger(10 * HOUR, 10 * HOUR + 1, YEAR, sources="lr")
    clock.now = 12 * HOUR
    assert _idle(ledger) == {"l", "r", "x"}
    clock.now = 10 * HOUR + MINUTE
    assert _idle(ledger) == set()


def test_silence_is_measured_after_a_first_batch_in_the_future() -> None:
    ledger, clock = _ledger(IN_2027 + YEAR, IN_2027, IN_2027 + HOUR, sources="lr")
    clock.now = IN_2027 + HOUR + MINUTE
    assert (ledger.first_batch_at(), _idle(ledger)) == (IN_2027, {"r", "x"})


def test_a_first_batch_in_the_future_counts_from_the_present() -> None:
    ledger, clock = _ledger(YEAR)
    clock.now = HOUR
    assert (ledger.first_batch_at(), ledger.last_active_at("l"), _idle(ledger)) == (HOUR, HOUR, set())
