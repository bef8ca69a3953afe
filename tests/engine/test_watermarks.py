"""Watermarks are functions of the ledger."""

from dataclasses import dataclass

import pytest

from platform_defs.engine.watermarks import Timeline, delayed, of_operator, of_source, possibly_late
from tests.engine.made import marks, said


@dataclass(frozen=True)
class Case:
    id: str
    entries: tuple[dict[str, int | str | None], ...]
    after: tuple[int | None, ...]
    idle: tuple[bool, ...] = ()


def _ids(case: Case) -> str:
    return case.id


OF_SOURCE = [
    Case("no entry", (), (None,), (False,)),
    Case("first entry counts from the next index on", ({"l": 5},), (None, 5), (False, False)),
    Case("an entry that does not tell of it changes nothing", ({"l": 5}, {"r": 9}), (None, 5, 5), (False,) * 3),
    Case("never back", ({"l": 5}, {"l": 3}, {"l": 6}), (None, 5, 5, 6), (False,) * 4),
    Case("rows without a watermark keep minus infinity", ({"l": None},), (None, None), (False,) * 2),
    Case("None after a mark keeps the mark", ({"l": 5}, {"l": None}), (None, 5, 5), (False,) * 3),
    Case("negative and zero are times like others", ({"l": -7}, {"l": 0}), (None, -7, 0), (False,) * 3),
    Case("idle until it returns", ({"l": 5}, {"l": "idle"}, {"r": 1}, {"l": 6}), (None, 5, 5, 5, 6), (False, False, True, True, False)),
    Case("idle and never seen", ({"l": "idle"},), (None, None), (False, True)),
]


@pytest.mark.parametrize("case", OF_SOURCE, ids=_ids)
def test_watermark_of_a_source(case: Case) -> None:
    assert of_source(marks(*case.entries), "l") == Timeline(case.after, case.idle)


OF_OPERATOR = [
    Case("no entry", (), (None,)),
    Case("a source never seen holds at minus infinity", ({"l": 5}, {"l": 9}), (None, None, None)),
    Case("the least of both", ({"l": 5, "r": 3}, {"l": 9}, {"r": 7}), (None, 3, 3, 7)),
    Case("zero is not none", ({"l": 0, "r": 0},), (None, 0)),
    Case("an idle source does not hold", ({"l": 5, "r": 3}, {"r": "idle"}, {"l": 8}), (None, 3, 5, 8)),
    Case("a source never seen that is idle does not hold", ({"l": 5}, {"r": "idle"}), (None, None, 5)),
    Case("a source that returns behind does not pull it back", ({"l": 5, "r": 3}, {"r": "idle"}, {"r": 4}, {"r": 6}), (None, 3, 5, 5, 5)),
    Case("all idle: it holds", ({"l": 5, "r": 3}, {"r": "idle", "l": "idle"}), (None, 3, 3)),
    Case("all idle one after the other: it rests at the last's", ({"l": 5, "r": 3}, {"r": "idle"}, {"l": "idle"}), (None, 3, 5, 5)),
    Case("all idle from the start", ({"l": "idle", "r": "idle"},), (None, None)),
    Case("a source seen without a mark holds", ({"l": 5, "r": None},), (None, None)),
]


@pytest.mark.parametrize("case", OF_OPERATOR, ids=_ids)
def test_watermark_of_an_operator(case: Case) -> None:
    entries = marks(*case.entries)
    found = of_operator([of_source(entries, "l"), of_source(entries, "r")])
    assert found.after == case.after
    assert list(found.after[1:]) == [found.after[n] if found.after[n + 1] is None else found.after[n + 1] for n in range(len(entries))]


def test_an_operator_is_idle_while_all_of_its_inputs_are() -> None:
    entries = marks({"l": 5, "r": 3}, {"r": "idle"}, {"l": "idle"}, {"r": 9})
    assert of_operator([of_source(entries, "l"), of_source(entries, "r")]).idle == (False, False, False, True, False)


def test_one_input_twice_is_that_input() -> None:
    left = of_source(marks({"l": 5}, {"l": 8}), "l")
    assert of_operator([left, left]) == left


def test_a_delay_leaves_minus_infinity_and_idleness() -> None:
    assert delayed(Timeline((None, 0, 7), (False, False, True)), 3) == Timeline((None, -3, 4), (False, False, True))


@dataclass(frozen=True)
class Late:
    id: str
    first: int | None
    accepted: int
    before: int | None
    found: bool


@pytest.mark.parametrize(
    "case",
    [
        Late("oldest row before the mark", 9, 1, 10, True),
        Late("oldest row at the mark", 10, 1, 10, True),
        Late("oldest row a millisecond after", 11, 1, 10, False),
        Late("no mark yet", 0, 1, None, False),
        Late("mark zero, row at zero", 0, 1, 0, True),
        Late("negative times", -5, 1, -5, True),
        Late("nothing accepted", 9, 0, 10, False),
        Late("no time", None, 1, 10, False),
    ],
    ids=lambda c: c.id,
)
def test_an_entry_may_hold_late_rows_when_its_oldest_row_is_not_above_the_mark_before_it(case: Late) -> None:
    entries = [(said("r", 1),), (said("l", 2, accepted=case.accepted, first_event_time=case.first),)]
    operator = Timeline((None, case.before, 10**9), (False,) * 3)
    assert possibly_late(entries, "l", operator) == ({2: case.before} if case.found else {})
    assert possibly_late(entries, "r", operator) == {}
