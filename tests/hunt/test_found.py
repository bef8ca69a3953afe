"""Shrunk histories of findings that are fixed: they must cause no finding."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from tests.hunt.history import History, generate
from tests.hunt.process import Counted, Fault
from tests.hunt.simulation import Simulation, simulate
from tests.hunt.store import Event
from tests.hunt.world import ASSETS, NOON, Action, Finding, Setup
from tests.support.small_sources import DAY, HOUR, MINUTE

_LANDED = Action("land", 0, ("a", "1.jsonl", (Event(1, "x", NOON - HOUR), Event(2, "y", NOON - HOUR))))
_LOST_BATCH = (
    Action("land", 0, ("b", "1.jsonl", (Event(3, "x", NOON),))),
    Action("ingest", 0),
    Action("land", 0, ("a", "2.jsonl", (Event(1, "x", NOON - 5 * HOUR), Event(2, "x", NOON)))),
    Action("ingest", 1),
    Action("advance", 1, ("pairs", None)),
    Action("lose", 1, ("ledger", False)),
)
Case = tuple[Setup, Sequence[Action]]


def _watermark_takes_number(*changes: Action) -> Iterator[Case]:
    yield Setup(), (*_LOST_BATCH, *changes, Action("watermark", 0, ("b", NOON + HOUR)), *changes)


def _asset_without_rows() -> Iterator[Case]:
    old = Action("land", 0, ("b", "1.jsonl", (Event(1, "x", NOON - 10_000 * DAY),)))
    yield Setup(assets=ASSETS), (old, Action("watermark", 1, ("a", NOON)))


def _pause(on: Counted, nth: int) -> tuple[Fault, ...]:
    return (Fault("pause", on, nth),)


def _kill(nth: int) -> tuple[Fault, ...]:
    return (Fault("kill", "point", nth),)


def _batch_number_taken() -> Iterator[Case]:
    for nth in range(1, 50):
        pause = Action("watermark", 1, ("c", NOON), _pause("any", nth))
        yield Setup(("a", "b", "c"), owners="none"), (_LANDED, Action("ingest", 0, (), _kill(2)), pause, Action("ingest", 0))


def _rows_after_uncommitted_ones() -> Iterator[Case]:
    both = Action("land", 0, ("b", "2.jsonl", (Event(6, "y", NOON - HOUR), Event(7, "x", NOON - HOUR))))
    one_more = Action("land", 1, ("b", "3.jsonl", (Event(12, "y", NOON - HOUR),)))
    for nth, last in product(range(1, 6), range(1, 8)):
        pause, kill = Action("ingest", 0, (), _pause("point", nth)), Action("ingest", 1, (), _kill(last))
        yield Setup(owners="none"), (_LANDED, both, pause, one_more, kill)


def _rows_of_an_earlier_batch() -> Iterator[Case]:
    for nth in range(16, 30):
        late = Action("ingest", 0, (), _pause("point", 1))
        other = Action("watermark", 1, ("b", NOON)), Action("ingest", 1, (), _pause("any", nth))
        yield Setup(owners="none"), (_LANDED, late, *other, Action("resume", 0), Action("resume", 1))


def _rows_removed_as_uncommitted() -> Iterator[Case]:
    for nth, last in product(range(1, 6), range(1, 5)):
        pause, kill = Action("ingest", 0, (), _pause("point", nth)), Action("watermark", 1, ("a", NOON), _kill(last))
        yield Setup(owners="none"), (_LANDED, pause, kill)


def _repeating_commit_lost() -> Iterator[Case]:
    for nth in range(1, 6):
        kill, lost = Action("ingest", 0, (), _kill(nth)), Action("lose", 0, ("events/a", False))
        yield Setup(), (_LANDED, kill, Action("ingest", 0), lost, Action("maintain", 0))


def _repeated_metadata_lost() -> Iterator[Case]:
    for nth, torn in product(range(4, 16), (False, True)):
        kill, lost = Action("maintain", 0, (), _kill(nth)), Action("lose", 0, ("events/a", torn))
        yield Setup(), (_LANDED, Action("ingest", 0), kill, lost, Action("maintain", 0))


def _lost_step_read() -> Iterator[Case]:
    """A reader has read a step of a table. The table loses it, and makes another step of this number, which corrects a closed window."""
    files = ((NOON - 90 * MINUTE, NOON + 2 * MINUTE), (NOON + 4 * MINUTE,), (NOON - MINUTE, NOON + 30 * MINUTE))
    land = [
        Action("land", 0, ("a", f"{n}.jsonl", tuple(Event(10 * n + i, "x", t) for i, t in enumerate(times))))
        for n, times in enumerate(files)
    ]
    advance = Action("ingest", 0), Action("advance", 0, ("counts", None)), Action("advance", 0, ("tops", None))
    for torn in (False, True):
        lost = Action("lose", 0, ("counts", torn))
        yield Setup(("a",), ("counts", "tops")), (land[0], *advance, land[1], *advance, lost, land[2], *advance)


FOUND: dict[str, list[Case]] = {
    "a table has handled a batch that the ledger lost, and a watermark gets its number": [*_watermark_takes_number()],
    "the same, with a table that is not configured": [*_watermark_takes_number(Action("away", 0, ("a",)))],
    "an asset without rows has a watermark, and an older watermark follows": [*_asset_without_rows()],
    "a batch has the number of one that is committed between two reads of its commit": [*_batch_number_taken()],
    "rows are appended after rows that another ingest left for the same batch": [*_rows_after_uncommitted_ones()],
    "rows are appended after rows that another ingest left late for an earlier batch": [*_rows_of_an_earlier_batch()],
    "an ingest commits a batch whose rows another process has removed as uncommitted": [*_rows_removed_as_uncommitted()],
    "a commit is lost that took over the rows of a killed ingest, and so repeats the commit before": [*_repeating_commit_lost()],
    "a commit of maintenance is lost, which compacted a log or repeated its metadata": [*_repeated_metadata_lost()],
    "a table has lost a step that its reader has read, and the reader must be rebuilt": [*_lost_step_read()],
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("seed", [0, 1], ids=["by hand", "by the sensors"])
def test_the_recorded_findings_do_not_recur(name: str, seed: int) -> None:
    found, missed = list[tuple[History, Finding]](), dict[object, int]()
    for setup, actions in FOUND[name]:
        faults = _with_the_rest(setup, actions)
        if any(missed.get(rest, fault.nth) < fault.nth for fault, rest in faults):
            continue  # the same operation has ended before an earlier fault, so it ends before this one
        simulation = Simulation(History(seed, setup, tuple(actions)))
        if (finding := simulation()) is not None:
            found.append((simulation.history, finding))
        occurred = {fault for process in simulation.world.processes.values() for fault in process.occurred}
        missed |= {rest: fault.nth for fault, rest in faults if fault not in occurred}
    assert found == []


def _with_the_rest(setup: Setup, actions: Sequence[Action]) -> list[tuple[Fault, object]]:
    """Each fault of a history, with all of the history except the number of the call or point at which the fault occurs."""
    return [
        (
            fault,
            (
                setup,
                *actions[:n],
                replace(action, faults=tuple(replace(f, nth=0) if f is fault else f for f in action.faults)),
                *actions[n + 1 :],
            ),
        )
        for n, action in enumerate(actions)
        for fault in action.faults
    ]


@pytest.mark.parametrize("seed", [900473, 1003381, 2010887, 3050981, 5076513])
def test_the_loss_of_a_commit_that_changed_no_committed_row_causes_no_finding(seed: int) -> None:
    """The lost commit added or took over uncommitted rows, removed them, or repeated the metadata of commits before a compaction."""
    assert simulate(generate(seed)) is None


def test_a_row_is_quarantined_by_a_clock_that_the_ledger_does_not_record() -> None:
    """The clock was a month ahead at the first batch, and is right at the second: it is behind the first batch, so it is not recorded."""
    event = Event(9, "x", NOON + 16 * DAY)
    for owner in (0, 1):
        skewed = Action("skew", owner, (30 * DAY,)), Action("ingest", owner)
        land = Action("land", 0, ("a", "2.jsonl", (event,)))
        assert simulate(History(owner, Setup(), (_LANDED, *skewed, land))) is None
    assert simulate(generate(4007225)) is None


def test_rows_of_a_killed_try_that_another_clock_decided_are_not_taken_over() -> None:
    """By the clock of the killed try, the first row is too far in the future. By the next clock it is not: the second is its duplicate."""
    rows = Event(1, "y", NOON + 3_000), Event(1, "x", NOON - 10_000)
    land = Action("land", 0, ("a", "1.jsonl", rows))
    for nth in range(1, 9):
        for fault in (Fault("kill", "write", nth), Fault("kill", "point", nth)):
            ingest = Action("ingest", 0, (), (fault,))
            assert simulate(History(0, Setup(), (Action("skew", 0, (-DAY,)), land, ingest))) is None
    assert simulate(generate(5077950)) is None


def test_an_asset_that_read_a_lost_step_is_refused_by_the_sensors_until_it_is_rebuilt() -> None:
    """A table lost the step that a reader has read, and computed another one from more rows."""
    assert simulate(generate(2017281)) is None
