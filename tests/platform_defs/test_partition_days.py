"""Runs over daily partitions, and their checks by day, also with rows outside all partitions. The engine is a fake."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest

from assets.completeness import Completeness
from assets.factories.closed_range_table import FINALIZED, IN_DAYS, LAW, event_time_asset
from assets.factories.join_completeness import COMPLETENESS
from assets.factories.partitions import daily, partitioned_range, range_tags
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.parallel_work import ParallelWork
from tests.support.small_sources import DAY, HOUR, START, join

YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
DAYS = dg.DailyPartitionsDefinition(start_date="2026-02-27", end_date="2026-03-05")
_DAYS_WITH_ROWS = (date.min, date(1970, 1, 1), date(2026, 3, 1), date.max)


@dataclass
class Engine:
    """A fake engine with the methods that assets call."""

    times: tuple[int, int]
    closed_to: int | None = 0
    rows: Sequence[DayAccount] = tuple(DayAccount("l", day, accepted=1, matched=1) for day in _DAYS_WITH_ROWS)
    differences: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    advanced: list[tuple[str, int | None]] = field(default_factory=list)
    accounted: list[tuple[date, date] | None] = field(default_factory=list)

    @property
    def accounts(self) -> "Engine":
        return self

    @property
    def pending(self) -> "Engine":
        return self

    def steps(self, asset: str, until: int | None = None) -> list[Any]:
        self.advanced.append((asset, until))
        return []

    def account_for(
        self, asset: str, days: tuple[date, date] | None = None
    ) -> tuple[list[DayAccount], Mapping[tuple[str, int], tuple[int, int]]]:
        self.accounted.append(days)
        return [*self.rows], self.differences

    def matches(self, asset: str, days: tuple[date, date] | None = None) -> list[DayAccount]:
        return [*self.rows]

    def event_times(self, asset: str) -> tuple[int, int]:
        return self.times

    def describe_progress(self, asset: str) -> dict[str, Any]:
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
def test_a_check_reports_rows_outside_the_partitions_and_the_run_succeeds(times: tuple[int, int], passed: bool) -> None:
    engine: Any = Engine(times)
    worker, assets = ParallelWork(), (join("pairs"), join("more", ("l", "pairs")))
    tables = [event_time_asset(a, sources=["l", "r"], days=DAYS, worker=worker) for a in assets]
    requested = partitioned_range(DAYS, date.min, date(2026, 3, 2))
    assert requested is not None
    assert requested == (date(2026, 2, 27), date(2026, 3, 2))
    run = dg.materialize(tables, tags=range_tags(*requested), resources={"engine": engine}, raise_on_error=False)
    assert run.success
    assert [name for name, _ in engine.advanced] == ["pairs", "more"], "downstream runs"
    found = {(c.asset_key.to_user_string(), c.check_name): c for c in run.get_asset_check_evaluations() if c.check_name == IN_DAYS}
    assert {key[0]: c.passed for key, c in found.items()} == {"pairs": passed, "more": passed}
    descriptions = {c.description for c in found.values()}
    assert descriptions == {
        "all events are in the daily partitions"
        if passed
        else "some events are before the first daily partition: their results are in the table, but in no partition"
        if times[0] < START
        else "some events are after the last daily partition: no run of Dagster finalizes their results until their days are partitions"
    }
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
        run = dg.materialize([table], tags=days, resources={"engine": engine}, instance=instance)
    assert run.success
    found = [e.asset_check_evaluation_data for e in run.all_events if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    by_day = {e.partition: e for e in found if e.check_name == FINALIZED}
    whole = by_day.pop(None)
    assert [day for day, e in by_day.items() if e.passed] == final
    assert [*by_day] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert whole.passed == (len(final) == 3)
    assert {e.severity for e in (whole, *by_day.values())} == {dg.AssetCheckSeverity.WARN}


def test_the_materialization_of_a_day_shows_whether_the_day_is_finalized() -> None:
    """Dagster shows every partition of a run as materialized, even a day without rows, or one whose results are not all final."""
    engine: Any = Engine((START, START + DAY), START + DAY + HOUR, [DayAccount("l", date(2026, 3, 1), accepted=1, matched=1)])
    table = event_time_asset(join("pairs"), sources=["l", "r"], days=DAYS, worker=ParallelWork())
    run = dg.materialize([table], tags=range_tags("2026-03-01", "2026-03-03"), resources={"engine": engine})
    by_day = {m.partition: m.metadata for m in run.asset_materializations_for_node("pairs")}
    assert {day: metadata["finalized"].value for day, metadata in by_day.items()} == {
        "2026-03-01": True,
        "2026-03-02": False,
        "2026-03-03": False,
    }
    assert by_day["2026-03-01"]["accepted l"].value == 1
    assert by_day["2026-03-02"]["closed_to"].value == (START + DAY + HOUR) / 1000


@pytest.mark.parametrize(
    ("closed_to", "upper", "lateness", "accounted"),
    [
        (None, "0 ms", 0, date(2026, 3, 1)),
        (START + DAY - 1, "0 ms", 0, date(2026, 3, 1)),
        (START + DAY, "0 ms", 0, date(2026, 3, 2)),
        (START + DAY + HOUR - 1, "1 hour", 0, date(2026, 3, 1)),
        (START + DAY + HOUR, "1 hour", 0, date(2026, 3, 2)),
        (START + DAY + HOUR, "1 hour", "1 hour", date(2026, 3, 1)),
    ],
)
def test_a_run_accounts_for_the_days_of_the_rows_that_it_finalizes(
    closed_to: int | None, upper: str, lateness: Any, accounted: date
) -> None:
    """A result is final 1 ms after its time: the row of the last ms of a day is finalized when the watermark has reached the next day."""
    fake = Engine((START, START + 2 * DAY), closed_to)
    asset = join("pairs", lower="0 ms", upper=upper, allowed_lateness=lateness)
    table = event_time_asset(asset, sources=["l", "r"], days=DAYS, worker=ParallelWork())
    engine: Any = fake
    assert dg.materialize([table], tags=range_tags("2026-03-03", "2026-03-03"), resources={"engine": engine}).success
    assert fake.accounted == [(accounted, date(2026, 3, 3))]


def test_a_range_of_days_is_limited_to_existing_partitions() -> None:
    first, last = date(2026, 2, 27), date(2026, 3, 4)
    assert partitioned_range(DAYS, first, last) == (first, last)
    assert partitioned_range(DAYS, date.min, date.max) == (first, last)
    assert partitioned_range(DAYS, date(1970, 1, 1), date(1970, 1, 2)) == (first, first), "earlier days belong to the first partition"
    assert partitioned_range(DAYS, date.max, date.max) is None
    assert partitioned_range(daily("9000-01-01", 0), first, last) is None


MANY_DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-03-05")
MARCH = [date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)]


@dg.asset(deps=["pairs"])
def an_upserted_table() -> None:
    """Dagster sorts the steps of a plan by name, so the last asset of the run is `pairs`, and its checks are planned by day."""


@dg.asset(deps=["pairs"])
def upserted_table() -> None:
    """This is the last asset of the run, and has no partitions, so Dagster plans the checks of `pairs` without partitions."""


def _accounts(days: Iterable[date], *, violated: Iterable[date] = (), unmatched: Iterable[date] = ()) -> list[DayAccount]:
    """Accounts of days with two matched rows. On a violated day one of them is in no term; on an unmatched day both are unmatched."""
    violated_days, unmatched_days = {*violated}, {*unmatched}
    matched = {day: 0 if day in unmatched_days else 1 if day in violated_days else 2 for day in days}
    return [DayAccount("l", day, accepted=2, matched=rows, unmatched=2 if day in unmatched_days else 0) for day, rows in matched.items()]


def _advance(instance: dg.DagsterInstance, engine: Any, last_asset: Any, tags: Mapping[str, str]) -> dg.ExecuteInProcessResult:
    required = Completeness(warn_below=0.5)
    table = event_time_asset(join("pairs"), sources=["l", "r"], days=MANY_DAYS, worker=ParallelWork(), completeness=required)
    options = {"tags": tags, "resources": {"engine": engine}, "instance": instance, "raise_on_error": False}
    return dg.materialize([table, last_asset], **options)


@pytest.mark.parametrize(
    ("check", "engine", "description"),
    [
        (LAW, {"rows": _accounts(MARCH)}, "every row is accounted for"),
        (LAW, {"rows": _accounts(MARCH, violated=MARCH[:1])}, "the account does not add up: l on 2026-03-01"),
        (LAW, {"rows": _accounts(MARCH, violated=MARCH[:2])}, "the account does not add up: l on 2026-03-01, l on 2026-03-02"),
        (
            LAW,
            {"rows": _accounts(MARCH, violated=MARCH[:1]), "differences": {("l", 1): (1, 2), ("r", 3): (2_000, 0)}},
            "the account does not add up: l on 2026-03-01; ledger and log differ: l, batch 1 (1 row in the ledger, 2 rows in the log), "
            "r, batch 3 (2,000 rows in the ledger, 0 rows in the log)",
        ),
        (COMPLETENESS, {"rows": _accounts(MARCH)}, "no side has too few matched rows on any day"),
        (COMPLETENESS, {"rows": _accounts(MARCH, unmatched=MARCH[:1])}, "too few rows are matched: l on 2026-03-01 (0.0% of 2)"),
        (
            COMPLETENESS,
            {"rows": _accounts(MARCH, unmatched=MARCH[:2])},
            "too few rows are matched: l on 2026-03-01 (0.0% of 2), l on 2026-03-02 (0.0% of 2)",
        ),
        (FINALIZED, {"closed_to": START + 3 * DAY}, "all days are finalized"),
        (FINALIZED, {"closed_to": START + 2 * DAY}, "2026-03-03 is not finalized"),
        (FINALIZED, {"closed_to": START}, "2026-03-01 to 2026-03-03 are not finalized"),
    ],
)
def test_the_description_of_a_check_names_sides_and_days(check: str, engine: dict[str, Any], description: str) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run = _advance(instance, Engine(**{"times": (START, START + DAY), **engine}), upserted_table, range_tags(MARCH[0], MARCH[-1]))
    found = [e.asset_check_evaluation_data for e in run.all_events if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    assert [e.description for e in found if e.check_name == check and e.partition is None] == [description]
    [*_, newest_day] = [e for e in found if e.check_name == check and e.partition is not None]
    assert newest_day.description == description, "the UI opens with the newest result"


def _materialized(run: dg.ExecuteInProcessResult) -> set[str]:
    return {e.asset_key.to_user_string() for e in run.get_asset_materialization_events() if e.asset_key}


def _newest(instance: dg.DagsterInstance, check: str) -> tuple[str, str | None]:
    """The status that the UI shows for a check, and the partition of its record."""
    key = dg.AssetCheckKey(dg.AssetKey("pairs"), check)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    return record.status.value, record.partition


def _by_day(instance: dg.DagsterInstance, check: str) -> dict[str | None, str]:
    """The newest status of a check by partition; None is the key of a result of the whole run."""
    key = dg.AssetCheckKey(dg.AssetKey("pairs"), check)
    return {i.partition_key: i.latest_execution_status.value for i in instance.event_log_storage.get_asset_check_partition_info([key])}


in_any_plan = pytest.mark.parametrize("last_asset", [an_upserted_table, upserted_table], ids=["planned by day", "planned without days"])


@in_any_plan
def test_a_violation_on_an_early_day_fails_the_newest_result_until_that_day_passes(last_asset: Any) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        engine = Engine((START, START + DAY), YEAR_9999, _accounts(MARCH, violated=MARCH[:1]))
        run = _advance(instance, engine, last_asset, range_tags(MARCH[0], MARCH[-1]))
        assert not run.success
        assert _materialized(run) == {"pairs"}, "the law blocks downstream tables"
        assert _newest(instance, LAW)[0] == "FAILED"
        assert _by_day(instance, LAW) == {None: "FAILED", "2026-03-01": "FAILED", "2026-03-02": "SUCCEEDED", "2026-03-03": "SUCCEEDED"}
        engine.rows = _accounts(MARCH)
        run = _advance(instance, engine, last_asset, range_tags(MARCH[0], MARCH[0]))
        assert run.success
        assert _materialized(run) == {"pairs", last_asset.key.to_user_string()}
        assert _newest(instance, LAW)[0] == "SUCCEEDED"
        assert {*_by_day(instance, LAW).values()} == {"SUCCEEDED"}


@in_any_plan
@pytest.mark.parametrize(
    ("check", "engine", "failed"),
    [
        (LAW, {"rows": _accounts(MARCH, violated=MARCH[1:2])}, ["2026-03-02"]),
        (LAW, {"rows": _accounts([date(2026, 2, 28), *MARCH], violated=[date(2026, 2, 28)])}, ["2026-02-28"]),
        (LAW, {"rows": _accounts(MARCH), "differences": {("l", 1): (1, 2)}}, []),
        (COMPLETENESS, {"rows": _accounts(MARCH, unmatched=MARCH[:2])}, ["2026-03-01", "2026-03-02"]),
        (FINALIZED, {"rows": _accounts(MARCH), "closed_to": START + DAY}, ["2026-03-02", "2026-03-03"]),
    ],
    ids=["law", "law before the first day", "law of no day", "completeness", "finalized in part"],
)
def test_the_newest_result_of_a_check_fails_if_a_day_fails(check: str, engine: dict[str, Any], failed: list[str], last_asset: Any) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        _advance(instance, Engine(**{"times": (START, START + DAY), **engine}), last_asset, range_tags(MARCH[0], MARCH[-1]))
        assert _newest(instance, check)[0] == "FAILED"
        assert sorted(day for day, status in _by_day(instance, check).items() if day and status == "FAILED") == failed


@in_any_plan
@pytest.mark.parametrize("violated", [0, 33], ids=lambda n: f"{n} violated days")
def test_the_newest_result_of_more_than_a_month_fails_if_a_day_fails(violated: int, last_asset: Any) -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(33)]
    engine = Engine((START, START + DAY), YEAR_9999, _accounts(days, violated=days[:violated]))
    with dg.DagsterInstance.ephemeral() as instance:
        _advance(instance, engine, last_asset, range_tags(days[0], days[-1]))
        assert _newest(instance, LAW)[0] == ("FAILED" if violated else "SUCCEEDED")
        assert list(_by_day(instance, LAW).values()).count("FAILED") == min(violated, 31) + bool(violated)
