"""The daily partitions that a stream reports as materialized."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

import dagster as dg
import pytest

from platform_defs.engine.advance.advance import Step
from platform_defs.engine.inputs.progress import Progress
from platform_defs.stream.changed_days import MOST_DAYS, changed_days
from tests.support.small_sources import DAY, HOUR, START

DAYS = dg.DailyPartitionsDefinition("2026-02-01")  # START is 2026-03-01
BEFORE = Progress(step=3, closed_to=START + HOUR, corrected=((3, START - 9 * DAY, START - 9 * DAY),))


@dataclass(frozen=True)
class Case:
    id: str
    before: Progress
    after: Progress
    days: list[date]
    oldest: int | None = START


CASES = [
    Case("within a day", BEFORE, Progress(step=4, closed_to=START + 2 * HOUR), [date(2026, 3, 1)]),
    Case("over midnight", BEFORE, Progress(step=4, closed_to=START + DAY), [date(2026, 3, 1), date(2026, 3, 2)]),
    Case("from midnight", Progress(closed_to=START - 1), Progress(step=1, closed_to=START), [date(2026, 3, 1)]),
    Case("nothing closed", BEFORE, Progress(step=4, closed_to=START + HOUR), []),
    Case("the first step", Progress(), Progress(step=1, closed_to=START + DAY), [date(2026, 3, 1), date(2026, 3, 2)]),
    Case("the first step without rows", Progress(), Progress(step=1, closed_to=START), [date(2026, 3, 1)], oldest=None),
    Case(
        "a correction, and an older one of an earlier step",
        BEFORE,
        Progress(step=4, closed_to=START + HOUR, corrected=(*BEFORE.corrected, (4, START - DAY, START - DAY + HOUR))),
        [date(2026, 2, 28)],
    ),
    Case("before the first partition", Progress(), Progress(step=1, closed_to=START - 99 * DAY), [date(2026, 2, 1)], START - 200 * DAY),
    Case("a row of 1970", Progress(), Progress(step=1, closed_to=START - 27 * DAY), [date(2026, 2, 1), date(2026, 2, 2)], oldest=0),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_days_of_a_step(case: Case) -> None:
    with dg.partition_loading_context(datetime(2026, 3, 5, 12, tzinfo=UTC)):
        assert changed_days([Step(case.before, case.after, 1)], DAYS, case.oldest) == case.days


def test_steps_over_decades_are_reported_for_their_newest_days() -> None:
    with dg.partition_loading_context(datetime(2026, 3, 5, 12, tzinfo=UTC)):
        since_1990 = dg.DailyPartitionsDefinition("1990-01-01")
        found = changed_days([Step(Progress(), Progress(step=1, closed_to=START), 1)], since_1990, 0)
    assert (len(found), found[-1]) == (MOST_DAYS, date(2026, 3, 1))
