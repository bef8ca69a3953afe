"""The naive model of the interval join gives hand-written answers, and Flink's recorded answers where no deliberate difference applies."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.oracle.cases import DATASTREAM, SQL, Case, files, load, parse
from tests.oracle.flink import EVICTED, Flink
from tests.oracle.residual import ResidualError, predicate, translated
from tests.support.model import Event, IntervalJoinModel, Mark
from tests.support.shared_data import ORACLE

needs_recorded_answers = pytest.mark.skipif(not ORACLE.is_dir(), reason=f"Flink's recorded answers are not installed: {ORACLE}")


def stream(*steps: str) -> list[Event | Mark]:
    """`L1@100` is the left row 1 at time 100 with key `a`, `L1@100/-` has a null key, and `w100` is a watermark."""
    items = list[Event | Mark]()
    for step, text in enumerate(steps):
        if text.startswith("w"):
            items.append(Mark(int(text[1:])))
            continue
        name, _, rest = text.partition("@")
        ts, _, key = rest.partition("/")
        items.append(Event(step, name[0], int(name[1:]), {"": "a", "-": None}.get(key, key), int(ts), int(name[1:])))  # pyright: ignore[reportArgumentType]
    return items


@dataclass(frozen=True)
class Example:
    id: str
    steps: tuple[str, ...]
    rows: tuple[tuple[int | None, int | None, int], ...]
    late: tuple[int, ...] = ()
    params: dict[str, Any] | None = None


EXAMPLES = [
    Example("both ends are in", ("L1@100", "R2@90", "R3@120", "R4@89", "R5@121"), ((1, 2, 100), (1, 3, 120))),
    Example(
        "open ends are out",
        ("L1@100", "R2@90", "R3@120", "R4@91"),
        ((1, 4, 100),),
        params={"lower_exclusive": True, "upper_exclusive": True},
    ),
    Example("left keeps unmatched left rows", ("L1@100", "R2@300"), ((1, None, 120),), params={"how": "left"}),
    Example("right keeps unmatched right rows", ("L1@100", "R2@300"), ((None, 2, 310),), params={"how": "right"}),
    Example("full keeps all unmatched rows", ("L1@100", "R2@300"), ((1, None, 120), (None, 2, 310)), params={"how": "full"}),
    Example(
        "null keys match nothing and are unmatched", ("L1@100/-", "R2@100/-"), ((1, None, 120), (None, 2, 110)), params={"how": "full"}
    ),
    Example("other keys match nothing", ("L1@100", "R2@100/b"), ()),
    Example("at the watermark is on time", ("L1@100", "w110", "R2@110"), ((1, 2, 110),)),
    Example("below the watermark is late, and in no result", ("L1@100", "w111", "R2@110"), ((1, None, 120),), (2,), {"how": "full"}),
    Example("a watermark never goes back", ("w100", "w50", "L1@99"), (), (1,), {"how": "left"}),
    Example("lower above upper matches nothing", ("L1@100", "R2@100"), ((1, None, 100),), params={"lower": 5, "upper": -5, "how": "left"}),
    Example(
        "matches that lie in the past do not delay a row",
        ("L1@100",),
        ((1, None, 100),),
        params={"lower": -20, "upper": -10, "how": "left"},
    ),
    Example(
        "the residual decides", ("L1@100", "R2@100", "L3@100"), ((1, 2, 100),), params={"residual": lambda left, right: left.v < right.v}
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_model_gives_the_hand_written_answers(example: Example):
    answer = IntervalJoinModel(**{"lower": -10, "upper": 20, **(example.params or {})})(stream(*example.steps))
    assert Counter((j.left and j.left.id, j.right and j.right.id, j.result_time) for j in answer.rows) == Counter(example.rows)
    assert [row.id for row in answer.late] == list(example.late)
    assert all(j.final_at == j.result_time + 1 for j in answer.rows)


def test_a_result_is_final_from_its_final_at_on():
    answer = IntervalJoinModel(-10, 20, how="left")(stream("L1@100", "R2@105", "L3@200"))
    assert [[j.left and j.left.id for j in answer.closed(w)] for w in (None, 105, 106, 220, 221)] == [[], [], [1], [1], [1, 3]]


def test_a_residual_is_translated_to_the_result_columns():
    assert translated("L.v < R.v AND L.k = 'L.v' OR R.ts / 2 > L.`id`") == "left_v < right_v AND k = 'L.v' OR right_ts  DIV  2 > left_id"


def test_a_residual_compares_with_null_as_sql_does():
    low, none = Event(0, "L", 1, "a", 0, 1), Event(1, "R", 2, "a", 0, None)
    assert not predicate("L.v < R.v")(low, none)
    assert predicate("R.v IS NULL AND L.id <> R.id")(low, none)


def test_a_residual_that_cannot_be_read_is_an_error():
    with pytest.raises(ResidualError, match="cannot read the residual"):
        predicate("L.v <")


def recorded_cases(operator: str) -> list[Case]:
    contents = [(path, load(path)) for path in files(ORACLE)]
    return [case for path, content in contents if content["operator"] == operator if (case := parse(path, content)).error is None]


@needs_recorded_answers
def test_flinks_datastream_join_equals_the_model_without_evicted_rows():
    cases = recorded_cases(DATASTREAM)
    assert cases
    for case in cases:
        answer, lost = case.params.model(case.stream), Flink(case).lost
        assert {reason for _, reason in lost} <= {EVICTED}
        evicted = Counter((left.id, right.id, left.ts, right.ts, max(left.ts, right.ts)) for (left, right), _ in lost)
        assert Counter(map(case.row, answer.rows)) - evicted == case.expected, case.name
        assert {side: Counter((row.step, row.id) for row in answer.late if row.side == side) for side in ("L", "R")} == case.late, case.name


@needs_recorded_answers
def test_flinks_sql_join_equals_the_model_if_no_row_is_late_or_lost():
    clean = [case for case in recorded_cases(SQL) if Flink(case).is_clean]
    assert {case.name for case in recorded_cases(SQL) if case.name.startswith("clean_")} <= {case.name for case in clean}
    for case in clean:
        assert Counter(map(case.row, case.params.model(case.stream).rows)) == case.expected, case.name
