"""The days whose account a step changes. Without Spark."""

from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.engine.accounting.days_of_step import Days, days_of_step
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.inputs.progress import Progress
from tests.support.small_sources import DAY, START

COUNT = {"n": "count(*)"}
WINDOWS = DerivedAsset(name="w", inputs=("upstream",), operator=WindowedAggregate(by="k", window=Tumbling(size="1 day"), aggregates=COUNT))
TOTALS = DerivedAsset(name="t", inputs=("upstream",), operator=Aggregate(by="k", aggregates=COUNT))
FIRST = Progress(step=4, seq=1, closed_to=START + 10 * DAY - 1)
NEXT = replace(FIRST, step=5, seq=2, closed_to=START + 12 * DAY - 1)


def _days(asset: DerivedAsset, before: Progress, after: Progress) -> Days | None:
    advance: Any = SimpleNamespace(asset=asset, workspace=SimpleNamespace(sources={}))
    return days_of_step(advance, Step(before, after, 1))


@pytest.mark.parametrize(
    ("after", "days"),
    [
        (NEXT, (date(2026, 3, 10), date(2026, 3, 12))),
        (replace(NEXT, corrected=((5, START + 3 * DAY, START + 4 * DAY - 1),)), (date(2026, 3, 3), date(2026, 3, 12))),
        (replace(NEXT, corrected=((4, START + 3 * DAY, START + 4 * DAY - 1),)), (date(2026, 3, 10), date(2026, 3, 12))),
    ],
    ids=["closed", "corrected", "corrected by an earlier step"],
)
def test_a_step_changes_the_days_that_it_closes_and_those_that_it_corrects(after: Progress, days: Days) -> None:
    assert _days(WINDOWS, FIRST, after) == days


def test_a_first_step_and_a_step_of_an_upserted_table_may_change_all_days() -> None:
    assert _days(WINDOWS, replace(FIRST, closed_to=None), NEXT) is None
    assert _days(TOTALS, FIRST, NEXT) is None
