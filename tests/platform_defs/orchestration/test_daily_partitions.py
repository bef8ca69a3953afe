"""The first and the last daily partition: those of the settings, else of the pipeline, else from the year of the oldest event to today."""

from dataclasses import replace
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets.contract_checks import LONGEST_DAYS, ContractError
from assets.factories.partitions import daily
from assets.pipeline import Pipeline
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger, SourceBatch
from platform_defs.orchestration.daily_partitions import daily_partitions, first_day
from platform_defs.orchestration.jobs import later_days
from platform_defs.settings import Settings
from tests.support.small_sources import DAY, START, join, source

PIPELINE = Pipeline(sources=[source("l"), source("r")])


@pytest.fixture
def values(tmp_path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"))


def _ingested(values: Settings, **first_event_times: int) -> None:
    rows = [
        SourceBatch(seq=1, kind="rows", ingested_at=START, source=name, accepted=1, first_event_time=t, last_event_time=t)
        for name, t in first_event_times.items()
    ]
    Ledger(Lake(values.lake), lambda: START).commit([tuple(rows)])


def test_the_first_day_of_the_setting_takes_precedence_over_that_of_the_pipeline(values):
    pipeline = Pipeline(sources=PIPELINE.sources, first_day="2021-02-03")
    assert first_day(values, pipeline) == "2021-02-03"
    assert first_day(values.model_copy(update={"first_day": "2020-01-01"}), pipeline) == "2020-01-01"


def test_without_either_the_first_day_is_that_of_the_year_of_the_oldest_event(values):
    _ingested(values, l=START, r=START - 400 * DAY)
    assert first_day(values, PIPELINE, lambda: START) == "2025-01-01"


@pytest.mark.parametrize("lake", ["empty", "unreadable"])
def test_the_first_day_is_that_of_this_year_while_the_lake_is_empty_or_unreadable(values, tmp_path, lake):
    if lake == "unreadable":
        (tmp_path / "lake/ledger/_delta_log").mkdir(parents=True)
        (tmp_path / "lake/ledger/_delta_log/00000000000000000000.json").write_text("no JSON")
    assert first_day(values, PIPELINE, lambda: START) == "2026-01-01"


def test_an_event_after_the_load_of_the_code_location_does_not_move_the_first_day(values):
    before = first_day(values, PIPELINE, lambda: START)
    _ingested(values, l=START + DAY)
    assert first_day(values, PIPELINE, lambda: START + 2 * DAY) == before


def test_an_oldest_event_out_of_range_gives_the_earliest_legal_first_day(values):
    _ingested(values, l=-(10**15))
    assert first_day(values, PIPELINE, lambda: START) == "1900-01-01"


JOINED = Pipeline(sources=PIPELINE.sources, tables=[join("pairs")])
NOW = datetime(2026, 11, 25, 8, tzinfo=UTC)


def _keys(values: Settings, pipeline: Pipeline, now: datetime = NOW) -> tuple[str, str]:
    """The first and the last partition."""
    with dg.partition_loading_context(now):
        keys = daily_partitions(values, pipeline).get_partition_keys()
    return keys[0], keys[-1]


def test_without_a_last_day_partitions_go_on_to_the_present_day(values):
    dated = values.model_copy(update={"first_day": "2026-03-01"})
    assert _keys(dated, PIPELINE)[1] >= "2026-11-25"
    assert _keys(dated, PIPELINE, datetime(2027, 11, 25, 8, tzinfo=UTC))[1] >= "2027-11-25", "the days of later data become partitions"


@pytest.mark.parametrize(("pipeline", "final_after_ms"), [(PIPELINE, 0), (JOINED, JOINED.final_after_ms)], ids=["no table", "a join"])
def test_partitions_end_with_the_day_on_which_the_last_results_become_final(values, pipeline, final_after_ms):
    dated = values.model_copy(update={"first_day": "2026-03-01", "last_day": "2026-03-04"})
    end = datetime.fromtimestamp((START + 4 * DAY + final_after_ms) / 1000, UTC).date()
    assert _keys(dated, pipeline) == ("2026-03-01", str(end))


@pytest.mark.parametrize("last_day", [None, "2026-03-04"])
def test_partitions_are_at_most_200_years_ahead(values, last_day):
    skewed = [replace(source, future_skew=f"{LONGEST_DAYS} days") for source in PIPELINE.sources]
    pipeline = Pipeline(sources=skewed, tables=[join("pairs", upper=f"{LONGEST_DAYS} days")], last_day=last_day)
    assert daily_partitions(values, pipeline).end_offset == 200 * 366 + 1


def test_a_last_day_in_the_future_adds_no_partition_before_it_is_needed(values):
    dated = values.model_copy(update={"first_day": "2026-03-01"})
    assert _keys(dated.model_copy(update={"last_day": "2099-12-31"}), JOINED) == _keys(dated, JOINED)


def test_the_last_day_of_the_setting_takes_precedence_over_that_of_the_pipeline(values):
    pipeline = Pipeline(sources=PIPELINE.sources, first_day="2026-03-01", last_day="2026-03-02")
    assert _keys(values, pipeline) == ("2026-03-01", "2026-03-03")
    assert _keys(values.model_copy(update={"last_day": "2026-03-03"}), pipeline) == ("2026-03-01", "2026-03-04")


def test_with_a_last_day_the_partitions_of_an_empty_lake_begin_with_the_year_of_that_day(values):
    assert first_day(values.model_copy(update={"last_day": "2018-10-17"}), PIPELINE, lambda: START) == "2018-01-01"


def test_a_last_day_before_the_first_one_is_refused(values):
    dated = values.model_copy(update={"first_day": "2026-03-02", "last_day": "2026-03-01"})
    with pytest.raises(ContractError, match=r"`last_day` is '2026-03-01'; legal: the first daily partition, 2026-03-02, or a later day"):
        daily_partitions(dated, PIPELINE)


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [
        ("2026-02-01", "2026-03-31", None),
        ("2026-02-01", "2026-02-25", "the days from 2026-03-01 on are after the last daily partition, 2026-02-25"),
        ("2099-01-01", "2099-12-31", "the first daily partition, 2099-01-01, is in the future; set an earlier `first_day`"),
    ],
)
def test_the_reason_why_no_run_is_requested_for_open_days(first, last, reason):
    days = daily(first, 0, date.fromisoformat(last))
    engine: Any = SimpleNamespace(pending=SimpleNamespace(all_days=lambda: (date(2026, 3, 1), date(2026, 3, 2))))
    assert later_days(engine, days) == (reason and f"the tables are behind, but {reason}")
    engine.pending.all_days = lambda: None
    assert later_days(engine, days) is None
