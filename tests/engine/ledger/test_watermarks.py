"""Watermarks are computed from the ledger."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.ledger.watermarks import (
    LateResults,
    Timeline,
    delay_timeline,
    late_results,
    of_operator,
    of_source,
    possibly_late_batches,
    watermark_without_waiting,
)
from tests.engine.source_batches import source_batch, watermark_batches
from tests.support.example_counts import example_count


def _source(batches: Sequence[Batch], name: str) -> Timeline:
    return of_source(History.of(batches).source(name), len(batches))


@dataclass(frozen=True)
class Case:
    id: str
    batches: tuple[dict[str, int | str | None], ...]
    after: tuple[int | None, ...]
    idle: tuple[bool, ...] = ()


def _ids(case: Case) -> str:
    return case.id


OF_SOURCE = [
    Case("no batch", (), (None,), (False,)),
    Case("the first batch counts from the next index on", ({"l": 5},), (None, 5), (False, False)),
    Case("a batch without the source changes nothing", ({"l": 5}, {"r": 9}), (None, 5, 5), (False,) * 3),
    Case("a watermark never decreases", ({"l": 5}, {"l": 3}, {"l": 6}), (None, 5, 5, 6), (False,) * 4),
    Case("rows without a watermark leave it at minus infinity", ({"l": None},), (None, None), (False,) * 2),
    Case("None after a watermark keeps it", ({"l": 5}, {"l": None}), (None, 5, 5), (False,) * 3),
    Case("negative times and zero are ordinary", ({"l": -7}, {"l": 0}), (None, -7, 0), (False,) * 3),
    Case(
        "idle until the next batch of the source",
        ({"l": 5}, {"l": "idle"}, {"r": 1}, {"l": 6}),
        (None, 5, 5, 5, 6),
        (False, False, True, True, False),
    ),
    Case("idle without a batch before", ({"l": "idle"},), (None, None), (False, True)),
]


@pytest.mark.parametrize("case", OF_SOURCE, ids=_ids)
def test_the_watermark_and_idleness_of_a_source_after_each_batch(case: Case) -> None:
    assert _source(watermark_batches(*case.batches), "l") == Timeline(case.after, case.idle)


OF_OPERATOR = [
    Case("no batch", (), (None,)),
    Case("a source without a batch keeps the watermark at minus infinity", ({"l": 5}, {"l": 9}), (None, None, None)),
    Case("the smaller one of both", ({"l": 5, "r": 3}, {"l": 9}, {"r": 7}), (None, 3, 3, 7)),
    Case("zero is not None", ({"l": 0, "r": 0},), (None, 0)),
    Case("an idle source does not hold the watermark back", ({"l": 5, "r": 3}, {"r": "idle"}, {"l": 8}), (None, 3, 5, 8)),
    Case("an idle source without rows does not hold the watermark back", ({"l": 5}, {"r": "idle"}), (None, None, 5)),
    Case(
        "a source that returns behind the watermark does not decrease it",
        ({"l": 5, "r": 3}, {"r": "idle"}, {"r": 4}, {"r": 6}),
        (None, 3, 5, 5, 5),
    ),
    Case("all idle: the watermark is unchanged", ({"l": 5, "r": 3}, {"r": "idle", "l": "idle"}), (None, 3, 3)),
    Case(
        "all idle one after the other: the watermark of the last one counts",
        ({"l": 5, "r": 3}, {"r": "idle"}, {"l": "idle"}),
        (None, 3, 5, 5),
    ),
    Case("all idle from the start", ({"l": "idle", "r": "idle"},), (None, None)),
    Case("a source without a watermark keeps the watermark at minus infinity", ({"l": 5, "r": None},), (None, None)),
]


@pytest.mark.parametrize("case", OF_OPERATOR, ids=_ids)
def test_the_watermark_of_an_operator_after_each_batch(case: Case) -> None:
    batches = watermark_batches(*case.batches)
    found = of_operator([_source(batches, "l"), _source(batches, "r")])
    assert found.after == case.after
    assert list(found.after[1:]) == [found.after[n] if found.after[n + 1] is None else found.after[n + 1] for n in range(len(batches))]


def test_an_operator_is_idle_while_all_of_its_inputs_are() -> None:
    batches = watermark_batches({"l": 5, "r": 3}, {"r": "idle"}, {"l": "idle"}, {"r": 9})
    assert of_operator([_source(batches, "l"), _source(batches, "r")]).idle == (False, False, False, True, False)


def test_an_input_listed_twice_counts_once() -> None:
    left = _source(watermark_batches({"l": 5}, {"l": 8}), "l")
    assert of_operator([left, left]) == left


def test_an_output_delay_keeps_a_missing_watermark_and_idleness() -> None:
    assert delay_timeline(Timeline((None, 0, 7), (False, False, True)), 3) == Timeline((None, -3, 4), (False, False, True))


@dataclass(frozen=True)
class LateResultsCase:
    id: str
    upstream: tuple[int | None, ...]
    reader: tuple[int | None, ...]
    expected: list[LateResults]
    delay: int = 1
    since: int = 0


LATE_RESULTS = [
    LateResultsCase("a reader behind its table", (None, 10, 20), (None, 9, 19), []),
    LateResultsCase(
        "results that are final after an idle time, and those that are not final yet",
        (None, 10, 10, 15, 50),
        (None, 9, 30, 30, 49),
        [LateResults(10, 50, 30)],
    ),
    LateResultsCase("the table has not caught up", (None, 10, 10, 15), (None, 9, 30, 30), [LateResults(10, None, 30)]),
    LateResultsCase(
        "the reader goes on while the table catches up",
        (None, 10, 12, 14),
        (None, 20, 25, 30),
        [LateResults(10, 12, 20), LateResults(12, 14, 25), LateResults(14, None, 30)],
    ),
    LateResultsCase("a table that has no watermark while its reader has one", (None, None, 10), (None, 7, 9), [LateResults(None, 10, 7)]),
    LateResultsCase(
        "only after the batch that records the idle source",
        (None, 10, 10, 15, 50),
        (None, 9, 30, 30, 49),
        [LateResults(15, 50, 30)],
        since=3,
    ),
    LateResultsCase("the reader's watermark is at the table's output watermark", (None, 10, 12), (None, 9, 11), []),
    LateResultsCase(
        "the reader's watermark is 1 ms past the table's output watermark", (None, 10, 12), (None, 10, 11), [LateResults(10, 12, 10)]
    ),
]


@pytest.mark.parametrize("case", LATE_RESULTS, ids=lambda case: case.id)
def test_the_results_of_a_table_that_may_be_late(case: LateResultsCase) -> None:
    upstream, reader = (Timeline(after, (False,) * len(after)) for after in (case.upstream, case.reader))
    assert late_results(upstream, reader, case.delay, case.since) == case.expected


@pytest.mark.parametrize(
    ("closed_to", "expected"),
    [(None, None), (9, None), (10, 30), (14, 30), (15, 30), (50, 49), (70, 49)],
)
def test_the_watermark_up_to_which_a_reader_may_close_without_its_table(closed_to: int | None, expected: int | None) -> None:
    upstream, reader = Timeline((None, 10, 10, 15, 50), (False,) * 5), Timeline((None, 9, 30, 30, 49), (False,) * 5)
    assert watermark_without_waiting(upstream, reader, closed_to, 4, 1) == expected


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=12)


def check_late_results(steps, delay, closed_to, head):
    """A naive model: each later result of the table, one for each `final_at`, is late for its reader or not before the closed range.

    Returns:
        how many of the compared times are late, and how many are not.
    """
    decisions = Counter[bool]()
    upstream, other, idle = [None], [None], [False]
    for up, on, is_idle in steps:
        upstream.append(upstream[-1] if is_idle else (upstream[-1] or 0) + up)
        other.append((other[-1] or 0) + on)
        idle.append(is_idle)
    reader = of_operator([delay_timeline(Timeline(upstream, idle), delay), Timeline(other, [False] * len(other))]).after
    head = min(head, len(upstream) - 1)
    found = late_results(Timeline(upstream, idle), Timeline(reader, idle), delay, 0)
    past = watermark_without_waiting(Timeline(upstream, idle), Timeline(reader, idle), closed_to, head, 0)
    allowed = max(closed_to - delay, -(1 << 63) if past is None else past)
    for final_at in range(closed_to + 1, max(upstream[-1] or 0, closed_to) + 3):
        batch = next((n for n, watermark in enumerate(upstream) if watermark is not None and watermark >= final_at), len(upstream))
        expected = reader[batch - 1]
        [watermark] = {
            of.watermark for of in found if (of.after is None or of.after < final_at) and (of.upto is None or final_at <= of.upto)
        } or {None}
        for time in range(final_at - delay, final_at + 1):
            is_late = watermark is not None and time < watermark
            assert is_late == (expected is not None and time < expected)
            assert is_late or time >= min(allowed, reader[head] if reader[head] is not None else -1)
            decisions[is_late] += 1
    return decisions


def test_no_result_that_is_not_late_can_appear_in_a_range_that_its_reader_has_closed() -> None:
    rng, decisions = random.Random(3), Counter[bool]()
    for _ in range(example_count(1_000)):
        steps = [(rng.randrange(10), rng.randrange(10), rng.random() < 0.5) for _ in range(rng.randrange(13))]
        decisions += check_late_results(steps, rng.randrange(4), rng.randrange(rng.choice([20, 100])), rng.randrange(13))
    assert min(decisions[True], decisions[False]) > example_count(1_000), decisions


@pytest.mark.soak
@settings(max_examples=5_000)
@given(STEPS, st.integers(0, 3), st.integers(0, 100), st.integers(0, 12))
def test_in_many_examples_no_result_that_is_not_late_can_appear_in_a_closed_range(steps, delay, closed_to, head) -> None:
    check_late_results(steps, delay, closed_to, head)


@dataclass(frozen=True)
class LateRowsCase:
    id: str
    first: int | None
    accepted: int
    before: int | None
    found: bool


@pytest.mark.parametrize(
    "case",
    [
        LateRowsCase("oldest row before the watermark", 9, 1, 10, True),
        LateRowsCase("oldest row at the watermark", 10, 1, 10, True),
        LateRowsCase("oldest row a millisecond after", 11, 1, 10, False),
        LateRowsCase("no watermark yet", 0, 1, None, False),
        LateRowsCase("watermark and row at zero", 0, 1, 0, True),
        LateRowsCase("negative times", -5, 1, -5, True),
        LateRowsCase("nothing accepted", 9, 0, 10, False),
        LateRowsCase("no time", None, 1, 10, False),
    ],
    ids=lambda c: c.id,
)
def test_a_batch_may_contain_late_rows_if_its_oldest_row_is_not_above_the_previous_watermark(case: LateRowsCase) -> None:
    batches = [(source_batch("r", 1),), (source_batch("l", 2, accepted=case.accepted, first_event_time=case.first),)]
    operator = Timeline((None, case.before, 10**9), (False,) * 3)
    history = History.of(batches)
    assert possibly_late_batches(history.source("l"), operator, 0, 2) == ({2: case.before} if case.found else {})
    assert possibly_late_batches(history.source("r"), operator, 0, 2) == {}


@dataclass
class _Model:
    """Computes watermarks batch by batch, from the formulas of the module."""

    batches: list[Batch]

    def of_source(self, name: str) -> tuple[list[int | None], list[bool]]:
        watermarks, idle = list[int | None]([None]), [False]
        for batch in self.batches:
            row = next((s for s in batch if s.source == name), None)
            seen = [w for w in (watermarks[-1], row and row.watermark) if w is not None]
            watermarks.append(max(seen, default=None))
            idle.append(idle[-1] if row is None else row.idle)
        return watermarks, idle

    def of_operator(self, names: Sequence[str]) -> list[int | None]:
        inputs, watermarks = [self.of_source(name) for name in names], list[int | None]()
        for n in range(len(self.batches) + 1):
            active = [after[n] for after, idle in inputs if not idle[n]]
            least = None if not active or None in active else min(w for w in active if w is not None)
            watermarks.append(max((w for w in (least, watermarks[-1] if watermarks else None) if w is not None), default=None))
        return watermarks


ROWS_BY_SOURCE = st.lists(st.dictionaries(st.sampled_from("lrx"), st.none() | st.just("idle") | st.integers(-9, 9)), max_size=12)


def test_timelines_equal_the_formulas_and_are_extended_incrementally() -> None:
    rng, seen = random.Random(5), set[str]()
    for _ in range(example_count(50)):
        rows = [{name: rng.choice([None, "idle", rng.randint(-9, 9)]) for name in rng.sample("lrx", rng.randrange(4))} for _ in range(12)]
        seen |= check_timelines(rows[: rng.randrange(13)], rng.randrange(13))
    assert seen == {"idle before active", "extended", "no watermark"}


@pytest.mark.soak
@settings(max_examples=1_000)
@given(ROWS_BY_SOURCE, st.integers(0, 12))
def test_in_many_examples_timelines_equal_the_formulas(rows: list[dict[str, int | str | None]], cut: int) -> None:
    check_timelines(rows, cut)


def check_timelines(rows: list[dict[str, int | str | None]], cut: int) -> set[str]:
    """Compare the timelines of batches, of which the first ones were known before; returns the cases that they contain."""
    batches = list(watermark_batches(*[row or {"x": 0} for row in rows]))
    cut, head = min(cut, len(batches)), len(batches)
    model, history = _Model(batches), History.of(batches)
    known = {name: of_source(history.source(name), cut) for name in "lrx"}
    before = of_operator([known["l"], known["r"]])
    found = {name: of_source(history.source(name), head, known[name]) for name in "lrx"}
    for name in "lrx":
        after, idle = model.of_source(name)
        assert (list(found[name].after), list(found[name].idle)) == (after, idle)
        assert known[name] == Timeline(tuple(after[: cut + 1]), tuple(idle[: cut + 1]))
    operator = of_operator([found["l"], found["r"]], before)
    assert operator == of_operator([found["l"], found["r"]])
    assert list(operator.after) == model.of_operator("lr")
    assert delay_timeline(operator, 3, delay_timeline(before, 3)) == delay_timeline(operator, 3)
    cases = {
        "idle before active": any(before and not after for name in "lr" for before, after in pairwise(found[name].idle)),
        "extended": 0 < cut < head and operator != before,
        "no watermark": head > 0 and operator.after[-1] is None,
    }
    return {case for case, is_seen in cases.items() if is_seen}


def test_an_input_with_more_batches_is_used_up_to_the_same_batch_as_the_others() -> None:
    batches = watermark_batches({"l": 5, "r": 3}, {"l": 9}, {"r": 7})
    history = History.of(batches)
    longer, shorter = of_source(history.source("l"), 3), of_source(history.source("r"), 2)
    known = of_operator([longer, shorter])
    assert known.after == (None, 3, 3)
    assert of_operator([longer, of_source(history.source("r"), 3, shorter)], known).after == (None, 3, 3, 7)
    assert of_operator([longer, shorter], known) == known
