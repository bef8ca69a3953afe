"""Runs over daily partitions, and their checks by day, also with rows outside all partitions. The engine is a fake.

A run takes much longer than a test's assertions, so the cases of a test are tables of one run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest

from assets.completeness import Completeness
from assets.contracts import DerivedAsset
from assets.factories.closed_range_table import EVENT_TIMES_IN_PARTITIONS, FINALIZED, closed_range_asset
from assets.factories.conservation_law import LAW
from assets.factories.join_completeness import COMPLETENESS
from assets.factories.partitions import daily, partitioned_range, range_tags
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.operations.rebuild import Rebuilt
from platform_defs.orchestration.parallel_work import ParallelWork
from tests.support.small_sources import DAY, HOUR, START, join

YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
DAYS = dg.DailyPartitionsDefinition(start_date="2026-02-27", end_date="2026-03-05")
_DAYS_WITH_ROWS = (date.min, date(1970, 1, 1), date(2026, 3, 1), date.max)


@dataclass
class Engine:
    """A fake engine of one table, with the methods that assets call."""

    times: tuple[int, int]
    closed_to: int | None = 0
    rows: Sequence[DayAccount] = tuple(DayAccount("l", day, accepted=1, matched=1) for day in _DAYS_WITH_ROWS)
    differences: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    advanced: list[tuple[str, int | None]] = field(default_factory=list)
    kept_from: date | None = None
    accounted: list[tuple[date, date] | None] = field(default_factory=list)

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

    def rebuild_days(self, asset: str, first: date, last: date) -> Rebuilt:
        return Rebuilt(first, last, (date(2026, 3, 1), date(2026, 3, 3)), missing=2, extra=1, kept_from=self.kept_from)

    def event_times(self, asset: str) -> tuple[int, int]:
        return self.times

    def describe_progress(self, asset: str) -> dict[str, Any]:
        return {"steps": 0, "closed_to": self.closed_to, "watermark": self.times[1] + DAY, "lag_ms": 0, "complete_to": None}


class Engines:
    """A fake engine with several tables, each of which has a fake of its own."""

    def __init__(self, tables: Mapping[str, Engine]) -> None:
        self._tables = tables
        self.accounts = self.pending = self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(Engine, name)
        return lambda asset, *args, **named: method(self._tables[asset], asset, *args, **named)


def _tables(*assets: DerivedAsset, days: dg.DailyPartitionsDefinition = DAYS, **options: Any) -> list[dg.AssetsDefinition]:
    worker = ParallelWork()
    return [closed_range_asset(asset, sources=["l", "r"], days=days, worker=worker, **options) for asset in assets]


def _evaluations(run: dg.ExecuteInProcessResult, table: str, check: str) -> list[dg.AssetCheckEvaluation]:
    found = [e.asset_check_evaluation_data for e in run.all_events if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    return [e for e in found if (e.asset_key.to_user_string(), e.check_name) == (table, check)]


_INSIDE = "all events are in the daily partitions"
_BEFORE = "some events are before the first daily partition: their results are in the table, but may be in no partition"
_AFTER = "some events are after the last daily partition: no run of Dagster finalizes their results until their days are partitions"


def test_a_check_reports_rows_outside_the_partitions_and_the_run_succeeds() -> None:
    cases = {
        "in_the_days": ((START, START + DAY), True, _INSIDE),
        "in_1970": ((0, START), False, _BEFORE),
        "in_year_1": ((YEAR_1, START), False, _BEFORE),
        "in_year_9999": ((START, YEAR_9999), False, _AFTER),
    }
    engines = {name: Engine(times) for name, (times, _, _) in cases.items()}
    downstream = {f"of_{name}": Engine(times) for name, (times, _, _) in cases.items()}
    tables = _tables(*map(join, cases), *(join(f"of_{name}", ("l", name)) for name in cases))
    requested = partitioned_range(DAYS, date.min, date(2026, 3, 2))
    assert requested is not None
    assert requested == (date(2026, 2, 27), date(2026, 3, 2))
    run = dg.materialize(tables, tags=range_tags(*requested), resources={"engine": Engines(engines | downstream)}, raise_on_error=False)
    assert run.success
    advanced = {name: [table for table, _ in fake.advanced] for name, fake in (engines | downstream).items()}
    assert advanced == {name: [name] for name in engines | downstream}, "each runs once, also downstream"
    for name, (_, passed, description) in cases.items():
        for table in (name, f"of_{name}"):
            [found] = _evaluations(run, table, EVENT_TIMES_IN_PARTITIONS)
            assert (table, found.passed, found.description) == (table, passed, description)
            assert found.severity == dg.AssetCheckSeverity.WARN


def test_a_day_that_is_finalized_in_part_fails_with_a_warning() -> None:
    march = ["2026-03-01", "2026-03-02", "2026-03-03"]
    cases: dict[str, tuple[int | None, list[str]]] = {
        "to_nothing": (None, []),
        "before_the_last_ms": (START + DAY - 2, []),
        "to_the_end_of_a_day": (START + DAY - 1, march[:1]),
        "into_the_third_day": (START + 2 * DAY + HOUR, march[:2]),
        "to_year_9999": (YEAR_9999, march),
    }
    engine = Engines({name: Engine((START, START + DAY), closed_to) for name, (closed_to, _) in cases.items()})
    run = dg.materialize(_tables(*map(join, cases)), tags=range_tags(march[0], march[-1]), resources={"engine": engine})
    assert run.success
    for name, (_, final) in cases.items():
        by_day = {e.partition: e for e in _evaluations(run, name, FINALIZED)}
        assert {e.severity for e in by_day.values()} == {dg.AssetCheckSeverity.WARN}
        assert (name, by_day.pop(None).passed) == (name, len(final) == 3)
        assert [*by_day] == march
        assert (name, [day for day, e in by_day.items() if e.passed]) == (name, final)


def test_the_materialization_of_a_day_shows_whether_the_day_is_finalized_and_which_days_were_rebuilt() -> None:
    """Dagster shows every partition of a run as materialized, even a day without rows, or one whose results are not all final."""
    fake = Engine((START, START + DAY), START + DAY + HOUR, [DayAccount("l", date(2026, 3, 1), accepted=1, matched=1)])
    kept_from = {"pairs": None, "others": date(2026, 3, 2), "all": date(2026, 3, 1), "none": date(2026, 3, 4)}
    engine = Engines({name: replace(fake, kept_from=day) for name, day in kept_from.items()})
    rebuild = {"ops": {name: {"config": {"rebuild": True}} for name in kept_from}}
    days, resources = range_tags("2026-03-01", "2026-03-03"), {"engine": engine}
    run = dg.materialize(_tables(*map(join, rebuild["ops"])), tags=days, resources=resources, run_config=rebuild)
    by_day = {m.partition: m.metadata for m in run.asset_materializations_for_node("pairs")}
    assert {day: metadata["finalized"].value for day, metadata in by_day.items()} == {
        "2026-03-01": True,
        "2026-03-02": False,
        "2026-03-03": False,
    }
    assert by_day["2026-03-01"]["accepted l"].value == 1
    assert by_day["2026-03-02"]["closed_to"].value == (START + DAY + HOUR) / 1000
    found = {name: run.asset_materializations_for_node(name)[0].metadata for name in rebuild["ops"]}
    assert {metadata["rebuilt"].value for metadata in found.values()} == {"2026-03-01, 2026-03-03"}
    assert {metadata["rows_repaired"].value for metadata in found.values()} == {3}
    assert {name: metadata["compared_from"].value for name, metadata in found.items() if "compared_from" in metadata} == {
        "others": "2026-03-02",
        "none": "no day",
    }


def test_a_run_accounts_for_the_days_of_the_rows_that_it_finalizes() -> None:
    """A result is final 1 ms after its time: the row of the last ms of a day is finalized when the watermark has reached the next day."""
    first, second = date(2026, 3, 1), date(2026, 3, 2)
    cases: dict[str, tuple[int | None, str, Any, date]] = {
        "of_nothing": (None, "0 ms", 0, first),
        "at_the_end_of_a_day": (START + DAY - 1, "0 ms", 0, first),
        "at_the_next_day": (START + DAY, "0 ms", 0, second),
        "before_an_upper_bound": (START + DAY + HOUR - 1, "1 hour", 0, first),
        "at_an_upper_bound": (START + DAY + HOUR, "1 hour", 0, second),
        "within_a_lateness": (START + DAY + HOUR, "1 hour", "1 hour", first),
    }
    engines = {name: Engine((START, START + 2 * DAY), closed_to) for name, (closed_to, *_) in cases.items()}
    assets = [join(name, lower="0 ms", upper=upper, allowed_lateness=late) for name, (_, upper, late, _) in cases.items()]
    assert dg.materialize(_tables(*assets), tags=range_tags("2026-03-03", "2026-03-03"), resources={"engine": Engines(engines)}).success
    accounted = {name: engine.accounted for name, engine in engines.items()}
    assert accounted == {name: [(day, date(2026, 3, 3))] for name, (*_, day) in cases.items()}


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
    """Dagster sorts the steps of a plan by name, so the last asset of the run is `pairs`, and all checks are planned by day."""


@dg.asset(deps=["pairs"])
def upserted_table() -> None:
    """This is the last asset of the run, and has no partitions, so Dagster plans all checks without partitions."""


def _accounts(days: Iterable[date], *, violated: Iterable[date] = (), unmatched: Iterable[date] = ()) -> list[DayAccount]:
    """Accounts of days with two matched rows. On a violated day one of them is in no term; on an unmatched day both are unmatched."""
    violated_days, unmatched_days = {*violated}, {*unmatched}
    matched = {day: 0 if day in unmatched_days else 1 if day in violated_days else 2 for day in days}
    return [DayAccount("l", day, accepted=2, matched=rows, unmatched=2 if day in unmatched_days else 0) for day, rows in matched.items()]


def _advance(
    instance: dg.DagsterInstance, engines: Mapping[str, Engine], last_asset: Any, tags: Mapping[str, str]
) -> dg.ExecuteInProcessResult:
    tables = _tables(*map(join, engines), days=MANY_DAYS, completeness=Completeness(warn_below=0.5))
    options = {"tags": tags, "resources": {"engine": Engines(engines)}, "instance": instance, "raise_on_error": False}
    return dg.materialize([*tables, last_asset], **options)


def _engine(closed_to: int = 0, **options: Any) -> Engine:
    return Engine((START, START + DAY), closed_to, **options)


def test_the_description_of_a_check_names_sides_and_days() -> None:
    differences = {("l", 1): (1, 2), ("r", 3): (2_000, 0)}
    cases = [
        (LAW, _engine(rows=_accounts(MARCH)), "every row is accounted for"),
        (LAW, _engine(rows=_accounts(MARCH, violated=MARCH[:1])), "the account does not add up: l on 2026-03-01"),
        (LAW, _engine(rows=_accounts(MARCH, violated=MARCH[:2])), "the account does not add up: l on 2026-03-01, l on 2026-03-02"),
        (
            LAW,
            _engine(rows=_accounts(MARCH, violated=MARCH[:1]), differences=differences),
            "the account does not add up: l on 2026-03-01; ledger and log differ: l, batch 1 (1 row in the ledger, 2 rows in the log), "
            "r, batch 3 (2,000 rows in the ledger, 0 rows in the log)",
        ),
        (
            LAW,
            _engine(rows=[replace(account, extra=1) for account in _accounts(MARCH[:1])]),
            "results are missing or superfluous: l on 2026-03-01",
        ),
        (
            LAW,
            _engine(rows=[replace(account, missing=1) for account in _accounts(MARCH[:2], violated=MARCH[:1])]),
            "the account does not add up: l on 2026-03-01; results are missing or superfluous: l on 2026-03-01, l on 2026-03-02",
        ),
        (COMPLETENESS, _engine(rows=_accounts(MARCH)), "no side has too few matched rows on any day"),
        (COMPLETENESS, _engine(rows=_accounts(MARCH, unmatched=MARCH[:1])), "too few rows are matched: l on 2026-03-01 (0.0% of 2)"),
        (
            COMPLETENESS,
            _engine(rows=_accounts(MARCH, unmatched=MARCH[:2])),
            "too few rows are matched: l on 2026-03-01 (0.0% of 2), l on 2026-03-02 (0.0% of 2)",
        ),
        (FINALIZED, _engine(START + 3 * DAY), "all days are finalized"),
        (FINALIZED, _engine(START + 2 * DAY), "2026-03-03 is not finalized"),
        (FINALIZED, _engine(START), "2026-03-01 to 2026-03-03 are not finalized"),
    ]
    with dg.DagsterInstance.ephemeral() as instance:
        engines = {"pairs" if n == 0 else f"pairs_{n}": engine for n, (_, engine, _) in enumerate(cases)}
        run = _advance(instance, engines, upserted_table, range_tags(MARCH[0], MARCH[-1]))
    for table, (check, _, description) in zip(engines, cases, strict=True):
        found = _evaluations(run, table, check)
        assert [e.description for e in found if e.partition is None] == [description]
        [*_, newest_day] = [e for e in found if e.partition is not None]
        assert newest_day.description == description, "the UI opens with the newest result"


def _materialized(run: dg.ExecuteInProcessResult) -> set[str]:
    return {e.asset_key.to_user_string() for e in run.get_asset_materialization_events() if e.asset_key}


def _newest(instance: dg.DagsterInstance, check: str, table: str = "pairs") -> tuple[str, str | None]:
    """The status that the UI shows for a check, and the partition of its record."""
    key = dg.AssetCheckKey(dg.AssetKey(table), check)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    return record.status.value, record.partition


def _by_day(instance: dg.DagsterInstance, check: str, table: str = "pairs") -> dict[str | None, str]:
    """The newest status of a check by partition; None is the key of a result of the whole run."""
    key = dg.AssetCheckKey(dg.AssetKey(table), check)
    return {i.partition_key: i.latest_execution_status.value for i in instance.event_log_storage.get_asset_check_partition_info([key])}


in_any_plan = pytest.mark.parametrize("last_asset", [an_upserted_table, upserted_table], ids=["planned by day", "planned without days"])


@in_any_plan
def test_a_violation_on_an_early_day_fails_the_newest_result_until_that_day_passes(last_asset: Any) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        engine = _engine(YEAR_9999, rows=_accounts(MARCH, violated=MARCH[:1]))
        run = _advance(instance, {"pairs": engine}, last_asset, range_tags(MARCH[0], MARCH[-1]))
        assert not run.success
        assert _materialized(run) == {"pairs"}, "the law blocks downstream tables"
        assert _newest(instance, LAW)[0] == "FAILED"
        assert _by_day(instance, LAW) == {None: "FAILED", "2026-03-01": "FAILED", "2026-03-02": "SUCCEEDED", "2026-03-03": "SUCCEEDED"}
        engine.rows = _accounts(MARCH)
        run = _advance(instance, {"pairs": engine}, last_asset, range_tags(MARCH[0], MARCH[0]))
        assert run.success
        assert _materialized(run) == {"pairs", last_asset.key.to_user_string()}
        assert _newest(instance, LAW)[0] == "SUCCEEDED"
        assert {*_by_day(instance, LAW).values()} == {"SUCCEEDED"}


@in_any_plan
def test_the_newest_result_of_a_check_fails_if_a_day_fails(last_asset: Any) -> None:
    before = date(2026, 2, 28)
    cases = {
        "pairs": (LAW, _engine(rows=_accounts(MARCH, violated=MARCH[1:2])), ["2026-03-02"]),
        "pairs_before_the_first_day": (LAW, _engine(rows=_accounts([before, *MARCH], violated=[before])), ["2026-02-28"]),
        "pairs_of_no_day": (LAW, _engine(rows=_accounts(MARCH), differences={("l", 1): (1, 2)}), []),
        "pairs_unmatched": (COMPLETENESS, _engine(rows=_accounts(MARCH, unmatched=MARCH[:2])), ["2026-03-01", "2026-03-02"]),
        "pairs_finalized_in_part": (FINALIZED, _engine(START + DAY, rows=_accounts(MARCH)), ["2026-03-02", "2026-03-03"]),
    }
    with dg.DagsterInstance.ephemeral() as instance:
        engines = {table: engine for table, (_, engine, _) in cases.items()}
        _advance(instance, engines, last_asset, range_tags(MARCH[0], MARCH[-1]))
        for table, (check, _, failed) in cases.items():
            assert (table, _newest(instance, check, table)[0]) == (table, "FAILED")
            by_day = _by_day(instance, check, table)
            assert (table, sorted(day for day, status in by_day.items() if day and status == "FAILED")) == (table, failed)


@in_any_plan
def test_the_newest_result_of_more_than_a_month_fails_if_a_day_fails(last_asset: Any) -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(33)]
    engines = {"pairs": _engine(YEAR_9999, rows=_accounts(days, violated=days)), "pairs_held": _engine(YEAR_9999, rows=_accounts(days))}
    with dg.DagsterInstance.ephemeral() as instance:
        _advance(instance, engines, last_asset, range_tags(days[0], days[-1]))
        assert (_newest(instance, LAW)[0], _newest(instance, LAW, "pairs_held")[0]) == ("FAILED", "SUCCEEDED")
        assert list(_by_day(instance, LAW).values()).count("FAILED") == 31 + 1
        assert list(_by_day(instance, LAW, "pairs_held").values()).count("FAILED") == 0
