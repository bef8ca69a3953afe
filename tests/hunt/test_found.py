"""Shrunk histories of findings that are fixed: they must show no finding."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from tests.hunt.history import History, generate
from tests.hunt.life import live
from tests.hunt.process import On, Trouble
from tests.hunt.store import Event
from tests.hunt.world import ASSETS, NOON, Action, Setup
from tests.support.shopkeeping import DAY, HOUR

_LANDED = Action("land", 0, ("a", "1.jsonl", (Event(1, "x", NOON - HOUR), Event(2, "y", NOON - HOUR))))
_LOST_BATCH = (
    Action("land", 0, ("b", "1.jsonl", (Event(3, "x", NOON),))),
    Action("ingest", 0),
    Action("land", 0, ("a", "2.jsonl", (Event(1, "x", NOON - 5 * HOUR), Event(2, "x", NOON)))),
    Action("ingest", 1),
    Action("advance", 1, ("pairs", None)),
    Action("lose", 1, ("ledger", False)),
)
Lived = tuple[Setup, Sequence[Action]]


def _number_taken(*changes: Action) -> Iterator[Lived]:
    yield Setup(), (*_LOST_BATCH, *changes, Action("watermark", 0, ("b", NOON + HOUR)), *changes)


def _asset_without_rows() -> Iterator[Lived]:
    old = Action("land", 0, ("b", "1.jsonl", (Event(1, "x", NOON - 10_000 * DAY),)))
    yield Setup(assets=ASSETS), (old, Action("watermark", 1, ("a", NOON)))


def _held_up(on: On, nth: int) -> tuple[Trouble, ...]:
    return (Trouble("pause", on, nth),)


def _killed(nth: int) -> tuple[Trouble, ...]:
    return (Trouble("kill", "point", nth),)


def _commit_upon_another() -> Iterator[Lived]:
    for nth in range(1, 50):
        held_up = Action("watermark", 1, ("c", NOON), _held_up("any", nth))
        yield Setup(("a", "b", "c"), owners="none"), (_LANDED, Action("ingest", 0, (), _killed(2)), held_up, Action("ingest", 0))


def _rows_after_anothers() -> Iterator[Lived]:
    both = Action("land", 0, ("b", "2.jsonl", (Event(6, "y", NOON - HOUR), Event(7, "x", NOON - HOUR))))
    one_more = Action("land", 1, ("b", "3.jsonl", (Event(12, "y", NOON - HOUR),)))
    for nth, last in product(range(1, 6), range(1, 8)):
        held_up, killed = Action("ingest", 0, (), _held_up("point", nth)), Action("ingest", 1, (), _killed(last))
        yield Setup(owners="none"), (_LANDED, both, held_up, one_more, killed)


def _rows_of_an_earlier_batch() -> Iterator[Lived]:
    for nth in range(16, 30):
        late = Action("ingest", 0, (), _held_up("point", 1))
        other = Action("watermark", 1, ("b", NOON)), Action("ingest", 1, (), _held_up("any", nth))
        yield Setup(owners="none"), (_LANDED, late, *other, Action("resume", 0), Action("resume", 1))


def _rows_deleted() -> Iterator[Lived]:
    for nth, last in product(range(1, 6), range(1, 5)):
        held_up, killed = Action("ingest", 0, (), _held_up("point", nth)), Action("watermark", 1, ("a", NOON), _killed(last))
        yield Setup(owners="none"), (_LANDED, held_up, killed)


def _repeating_commit_lost() -> Iterator[Lived]:
    for nth in range(1, 6):
        killed, lost = Action("ingest", 0, (), _killed(nth)), Action("lose", 0, ("events/a", False))
        yield Setup(), (_LANDED, killed, Action("ingest", 0), lost, Action("maintain", 0))


FOUND: dict[str, list[Lived]] = {
    "a table has handled a batch that the ledger lost, and a watermark takes its number": [*_number_taken()],
    "the same, of a table that is not configured": [*_number_taken(Action("away", 0, ("a",)))],
    "an asset without rows has a watermark, and an older one is due": [*_asset_without_rows()],
    "a batch takes the place of one that lands between two looks of its commit": [*_commit_upon_another()],
    "rows are appended after those that another ingest left for the same batch": [*_rows_after_anothers()],
    "rows are appended after those that another ingest left late for an earlier batch": [*_rows_of_an_earlier_batch()],
    "an ingest commits a batch whose rows another has taken for orphans": [*_rows_deleted()],
    "a commit is lost that took over the rows of a killed ingest, and so only repeats the one before": [*_repeating_commit_lost()],
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("settled", [0, 1], ids=["by hand", "by the sensors"])
def test_the_recorded_findings_do_not_recur(name: str, settled: int) -> None:
    found = [(history, finding) for lived in FOUND[name] if (finding := live(history := History(settled, lived[0], tuple(lived[1]))))]
    assert found == []


@pytest.mark.parametrize("seed", [900473, 1003381])
def test_the_loss_of_a_commit_that_changed_no_committed_row_is_no_finding(seed: int) -> None:
    """The lost commit took over, or removed, uncommitted rows."""
    assert live(generate(seed)) is None
