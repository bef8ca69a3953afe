"""Joined late rows are those of Flink's SQL interval join: the model of `late_rows="join"` gives the rows of Flink's operator.

`tests/operators/test_semi_and_anti_joins.py` compares the operator with the model.
"""

import random
from collections import Counter
from pathlib import Path

import pytest

from operators.interval_join import LateRows
from operators.timing import Interval
from tests.oracle.cases import SQL, Case, Params, Row
from tests.oracle.runner import gather
from tests.oracle.sql_cache import Simulation
from tests.support.late_rows_model import Arrival, JoinModel
from tests.support.model import Event, How, Joined, Mark
from tests.support.shared_data import ORACLE

GENERATED = 2_000


def _rows(case: Case, late_rows: LateRows) -> Counter[Row]:
    """The model's rows of a case."""
    rows, arrivals, watermark = dict[int, Event](), list[Arrival](), None
    for item in case.stream:
        if isinstance(item, Mark):
            watermark = item.ts if watermark is None else max(watermark, item.ts)
            continue
        rows[item.step] = item
        arrivals.append(Arrival(int(item.side == "R"), item.step, item.key, item.ts, watermark))
    of, found = case.params.model, Counter[Row]()
    model = _Model(Interval(of.first, of.last), case.params.how, late_rows=late_rows)
    for (left, right, at), copies in model.of_case(case, rows, arrivals).items():
        found[case.row(Joined(rows.get(left), rows.get(right), at))] += copies
    return found


class _Model(JoinModel):
    """The model with the extra condition of a case."""

    def of_case(self, case: Case, rows: dict[int, Event], arrivals: list[Arrival]) -> Counter[tuple[int, int, int]]:
        matches = case.params.model.matches
        object.__setattr__(self, "matches", lambda left, right: matches(rows[left.id], rows[right.id]))
        return self(arrivals)


def _generated(choose: random.Random) -> Case:
    """A case in which Flink has none of its defects. Times are above 0 and even; watermarks are odd, so no last match is at one.

    One row arrives between two watermarks, so that the order of late rows is known.
    """
    how: How = choose.choice(("inner", "left", "right", "full"))
    params = Params(-2 * choose.randint(0, 8), 2 * choose.randint(0, 8), False, False, how, None)
    stream, newest = list[Event | Mark](), 99
    for _ in range(choose.randint(2, 12)):
        newest += 2 * choose.randint(1, 5)
        at = 2 * choose.randint(30, newest // 2 + 10)
        stream.append(Event(len(stream), choose.choice(("L", "R")), len(stream), choose.choice((None, "a", "a", "b")), at))
        stream.append(Mark(newest))
    return Case(Path(), SQL, "generated", params, tuple(stream), drained=True, expected=Counter(), late=None, error=None)


def test_joined_late_rows_are_those_of_flinks_sql_join() -> None:
    """Flink has one timer for each key: it may still join a row that the timer of a later row keeps beyond its time."""
    choose, with_late_rows, kept_too_long = random.Random(5), 0, 0
    for _ in range(GENERATED):
        case = _generated(choose)
        wanted, found = Simulation(case)(), _rows(case, "join")
        with_late_rows += _rows(case, "drop") != wanted
        if found != wanted:
            kept_too_long += 1
            assert all(None not in row[:2] for row in wanted - found)
            assert all(None in row[:2] for row in found - wanted)
    assert with_late_rows > GENERATED // 4
    assert kept_too_long < GENERATED // 100


@pytest.mark.skipif(not ORACLE.is_dir(), reason=f"Flink's recorded answers are not there: {ORACLE}")
def test_joined_late_rows_are_those_that_flink_recorded() -> None:
    """At times above 0, none of Flink's rows is missing. The model has one more pair, at the watermark at which Flink has evicted a row."""
    cases = [case for case in gather(ORACLE, SQL).cases if case.error is None and all(row.ts > 0 for row in case.events)]
    joined = [_rows(case, "join") for case in cases]
    lacking = sum((case.expected - rows for case, rows in zip(cases, joined, strict=True)), Counter[Row]())
    more = sum((rows - case.expected for case, rows in zip(cases, joined, strict=True)), Counter[Row]())
    assert (len(cases), lacking.total(), more.total()) == (12, 0, 1)
    assert sum((case.expected - _rows(case, "drop")).total() for case in cases) > 0
