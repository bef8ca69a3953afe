"""Runs over days, if rows are outside the partitions: in 1970, in the year 1, in the far future. The engine is fake."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import dagster as dg
import pytest

from assets.factories.closed_range_table import FINALIZED, IN_DAYS, event_time_asset
from assets.factories.partitions import daily, range_tags, within
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.parallel_work import ParallelWork
from tests.support.small_sources import DAY, HOUR, START, join

YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
DAYS = dg.DailyPartitionsDefinition(start_date="2026-02-27", end_date="2026-03-05")


@dataclass
class Engine:
    """A fake engine with the methods that assets call."""

    times: tuple[int, int]
    closed_to: int | None = 0
    advanced: list[tuple[str, int | None]] = field(default_factory=list)

    @property
    def accounts(self) -> "Engine":
        return self

    @property
    def pending(self) -> "Engine":
        return self

    def steps(self, asset: str, until: int | None = None) -> list[Any]:
        self.advanced.append((asset, until))
        return []

    def days(self, asset: str, days: tuple[date, date] | None = None) -> list[DayAccount]:
        return [DayAccount("l", day, accepted=1, matched=1) for day in (date.min, date(1970, 1, 1), date(2026, 3, 1), date.max)]

    def count_differences(self, asset: str, days: tuple[date, date] | None = None) -> Mapping[tuple[str, int], tuple[int, int]]:
        return {}

    def record(self, *_: object) -> None:
        """The fake keeps no accounts."""

    def event_times(self, asset: str) -> tuple[int, int]:
        return self.times

    def described(self, asset: str) -> dict[str, Any]:
        return {"steps": 0, "closed_to": self.closed_to, "watermark": self.times[1] + DAY, "lag_ms": 0, "complete_to": None}


@pytest.mark.parametrize(
    ("times", "passed"),
    [
        ((START, START + DAY), True),
        ((0, START), False),
        ((YEAR_1, START), False),
        ((START, YEAR_9999), False),
    ],
    ids=["in the days", "1970", "year 1", "year 9999"],
)
def test_rows_outside_the_partitions_are_reported_and_do_not_fail_a_run(times: tuple[int, int], passed: bool) -> None:
    engine: Any = Engine(times)
    worker, assets = ParallelWork(), (join("pairs"), join("more", ("l", "pairs")))
    tables = [event_time_asset(a, sources=["l", "r"], days=DAYS, worker=worker) for a in assets]
    requested = within(DAYS, date.min, date(2026, 3, 2))
    assert requested is not None
    assert requested == (date(2026, 2, 27), date(2026, 3, 2))
    done = dg.materialize(tables, tags=range_tags(*requested), resources={"engine": engine}, raise_on_error=False)
    assert done.success
    assert [name for name, _ in engine.advanced] == ["pairs", "more"], "downstream runs"
    found = {(c.asset_key.to_user_string(), c.check_name): c for c in done.get_asset_check_evaluations() if c.check_name == IN_DAYS}
    assert {key[0]: c.passed for key, c in found.items()} == {"pairs": passed, "more": passed}
    assert {c.severity for c in found.values()} == {dg.AssetCheckSeverity.WARN}


@pytest.mark.parametrize(
    ("closed_to", "final"),
    [
        (None, []),
        (START + DAY - 2, []),
        (START + DAY - 1, ["2026-03-01"]),
        (START + 2 * DAY + HOUR, ["2026-03-01", "2026-03-02"]),
        (YEAR_9999, ["2026-03-01", "2026-03-02", "2026-03-03"]),
    ],
)
def test_a_day_that_is_finalized_in_part_fails_with_a_warning(closed_to: int | None, final: list[str]) -> None:
    engine: Any = Engine((START, START + DAY), closed_to)
    table = event_time_asset(join("pairs"), sources=["l", "r"], days=DAYS, worker=ParallelWork())
    with dg.DagsterInstance.ephemeral() as instance:
        days = range_tags("2026-03-01", "2026-03-03")
        done = dg.materialize([table], tags=days, resources={"engine": engine}, instance=instance)
    assert done.success
    found = [e.asset_check_evaluation_data for e in done.all_events if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    by_day = {e.partition: e for e in found if e.check_name == FINALIZED}
    whole = by_day.pop(None)
    assert [day for day, e in by_day.items() if e.passed] == final
    assert [*by_day] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert whole.passed == (len(final) == 3)
    assert {e.severity for e in (whole, *by_day.values())} == {dg.AssetCheckSeverity.WARN}


def test_a_range_of_days_is_limited_to_existing_partitions() -> None:
    first, last = date(2026, 2, 27), date(2026, 3, 4)
    assert within(DAYS, first, last) == (first, last)
    assert within(DAYS, date.min, date.max) == (first, last)
    assert within(DAYS, date(1970, 1, 1), date(1970, 1, 2)) == (first, first), "earlier days belong to the first partition"
    assert within(DAYS, date.max, date.max) is None
    assert within(daily("9000-01-01", 0), first, last) is None
