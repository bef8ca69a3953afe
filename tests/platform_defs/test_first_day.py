"""The first daily partition: the setting's, else the pipeline's, else the day of the oldest event in the lake."""

from datetime import UTC, datetime, timedelta

import pytest

from assets.pipeline import Pipeline
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger, SourceEntry
from platform_defs.first_day import EMPTY_LAKE_DAYS, first_day
from platform_defs.settings import Settings
from tests.support.small_sources import START, source

PIPELINE = Pipeline(sources=[source("l"), source("r")])


@pytest.fixture
def values(tmp_path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"))


def _ingested(values: Settings, **first_event_times: int) -> None:
    rows = [
        SourceEntry(seq=1, kind="rows", ingested_at=START, source=name, accepted=1, first_event_time=t, last_event_time=t)
        for name, t in first_event_times.items()
    ]
    Ledger(Lake(values.lake), lambda: START).commit([tuple(rows)])


def test_the_setting_comes_before_the_pipeline(values):
    pipeline = Pipeline(sources=PIPELINE.sources, first_day="2021-02-03")
    assert first_day(values, pipeline) == "2021-02-03"
    assert first_day(values.model_copy(update={"first_day": "2020-01-01"}), pipeline) == "2020-01-01"


def test_without_either_it_is_the_day_of_the_oldest_event(values):
    _ingested(values, l=START, r=START - 40 * 86_400_000)
    oldest = datetime.fromtimestamp(START / 1000, UTC).date() - timedelta(days=40)
    assert first_day(values, PIPELINE) == str(oldest)


def test_it_is_a_month_ago_while_the_lake_is_empty_or_unreadable(values, tmp_path):
    expected = {str(datetime.now(UTC).date() - timedelta(days=EMPTY_LAKE_DAYS + n)) for n in (0, 1)}
    assert first_day(values, PIPELINE) in expected
    (tmp_path / "lake/ledger/_delta_log").mkdir(parents=True)
    (tmp_path / "lake/ledger/_delta_log/00000000000000000000.json").write_text("no JSON")
    assert first_day(values, PIPELINE) in expected


def test_a_day_out_of_range_is_clamped_to_it(values):
    _ingested(values, l=-(10**15))
    assert first_day(values, PIPELINE) == "1900-01-01"
