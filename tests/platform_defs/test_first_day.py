"""The first daily partition: the setting's, else the pipeline's, else the first day of the year of the oldest event in the lake."""

import pytest

from assets.pipeline import Pipeline
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger, SourceEntry
from platform_defs.first_day import first_day
from platform_defs.settings import Settings
from tests.support.small_sources import DAY, START, source

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


def test_without_either_it_is_the_first_day_of_the_year_of_the_oldest_event(values):
    _ingested(values, l=START, r=START - 400 * DAY)
    assert first_day(values, PIPELINE, lambda: START) == "2025-01-01"


@pytest.mark.parametrize("lake", ["empty", "unreadable"])
def test_it_is_the_first_day_of_this_year_while_the_lake_is_empty_or_unreadable(values, tmp_path, lake):
    if lake == "unreadable":
        (tmp_path / "lake/ledger/_delta_log").mkdir(parents=True)
        (tmp_path / "lake/ledger/_delta_log/00000000000000000000.json").write_text("no JSON")
    assert first_day(values, PIPELINE, lambda: START) == "2026-01-01"


def test_an_event_after_the_load_of_the_code_location_does_not_make_it_later(values):
    before = first_day(values, PIPELINE, lambda: START)
    _ingested(values, l=START + DAY)
    assert first_day(values, PIPELINE, lambda: START + 2 * DAY) == before


def test_a_day_out_of_range_is_clamped_to_it(values):
    _ingested(values, l=-(10**15))
    assert first_day(values, PIPELINE, lambda: START) == "1900-01-01"
