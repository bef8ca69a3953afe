"""The check `fresh`, and the sensor that evaluates it without a run and reports changes, else one result an hour. No test starts Spark."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetCheckEvaluation

from assets.pipeline import Pipeline
from platform_defs.definitions import build
from platform_defs.engine import Engine
from platform_defs.engine.ledger.store import TABLE as LEDGER
from platform_defs.monitoring.fresh_checks import evaluate_limits, fresh_checks, fresh_sensor, limits_of
from platform_defs.settings import Settings
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, MINUTE, START, join, source

SOURCES = [source("l"), source("r")]
KEY = dg.AssetCheckKey(dg.AssetKey("pairs"), "fresh")
LIMITS = {"pairs": 10 * MINUTE}


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    made = bare_engine(tmp_path, clock, SOURCES, [join()])
    commit_batch(made, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(made, "pairs", closed_to=START)
    return made


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def _definitions(tmp_path: Path, **pipeline: object) -> dg.RepositoryDefinition:
    values = Settings(lake=str(tmp_path / "lake"))
    made = Pipeline(sources=SOURCES, tables=[join(), join("others")], **pipeline)  # pyright: ignore[reportArgumentType]
    return build(values, made).get_repository_def()


def test_a_pipeline_without_a_limit_has_neither_check_nor_sensor(tmp_path: Path) -> None:
    repository = _definitions(tmp_path)
    assert "fresh" not in {key.name for key in repository.asset_graph.asset_check_keys}
    assert not repository.has_sensor_def("freshness")


def test_a_pipeline_with_a_limit_has_a_check_for_each_table_with_one(tmp_path: Path) -> None:
    repository = _definitions(tmp_path, freshness={"pairs": "10 minutes"})
    assert [key for key in repository.asset_graph.asset_check_keys if key.name == "fresh"] == [KEY]
    assert "fresh_tables" in [node.name for node in repository.get_job("advance").graph.nodes], "an advance evaluates the check"
    assert "fresh_tables" not in [node.name for node in _definitions(tmp_path).get_job("advance").graph.nodes]
    sensor = repository.get_sensor_def("freshness")
    assert (sensor.default_status, sensor.minimum_interval_seconds) == (dg.DefaultSensorStatus.STOPPED, 60)
    assert limits_of(Pipeline(sources=SOURCES, tables=[join()], freshness="1 hour")) == {"pairs": HOUR}


def test_a_table_fails_when_rows_have_waited_for_longer_than_the_limit(engine: Engine, clock: Clock) -> None:
    clock.pass_ms(24 * HOUR)
    assert evaluate_limits(engine, LIMITS)["pairs"]["passed"], "the sources are silent"
    commit_batch(engine, {"l": {"watermark": START + HOUR}, "r": {"watermark": START + HOUR}})
    clock.pass_ms(10 * MINUTE)
    found = evaluate_limits(engine, LIMITS)["pairs"]
    assert (found["passed"], found["metadata"]["waited_seconds"]) == (True, 600)
    clock.pass_ms(MINUTE)
    found = evaluate_limits(engine, LIMITS)["pairs"]
    assert not found["passed"]
    assert found["description"] == "Rows have waited for 11 min, with a limit of 10 min: it was not advanced."
    commit_step(engine, "pairs", closed_to=START + HOUR)
    commit_batch(engine, {"l": {"watermark": START + 2 * HOUR}})
    clock.pass_ms(HOUR)
    found = evaluate_limits(engine, LIMITS)["pairs"]
    assert not found["passed"]
    assert found["description"] == "Rows have waited for 1 h, with a limit of 10 min: source r holds back its watermark."
    assert found["metadata"]["held_back_by"] == "r"


def test_a_ledger_that_cannot_be_read_fails_the_checks(engine: Engine) -> None:
    log = Path(engine.lake.path(LEDGER)) / "_delta_log"
    [*sorted(log.glob("*.json"))][-1].write_text("no JSON", "utf-8")
    found = evaluate_limits(engine, LIMITS)["pairs"]
    assert not found["passed"]
    assert found["description"].startswith("It is not known how long rows have waited: ")


def test_a_run_evaluates_the_check_without_spark(engine: Engine, clock: Clock, instance: dg.DagsterInstance) -> None:
    commit_batch(engine, {"l": {"watermark": START + HOUR}, "r": {"watermark": START + HOUR}})
    clock.pass_ms(HOUR)
    asset = dg.AssetsDefinition(specs=[dg.AssetSpec("pairs")])
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
    definitions = dg.Definitions(assets=[asset], asset_checks=[fresh_checks(LIMITS)], jobs=[job], resources={"engine": engine})
    done = definitions.resolve_job_def("checks").execute_in_process(instance=instance)
    [evaluation] = done.get_asset_check_evaluations()
    assert (evaluation.check_name, evaluation.passed, evaluation.severity) == ("fresh", False, dg.AssetCheckSeverity.ERROR)


def test_the_sensor_reports_changes_and_once_an_hour(engine: Engine, clock: Clock, instance: dg.DagsterInstance) -> None:
    sensor, cursor, reported = fresh_sensor(LIMITS), None, list[bool]()

    def tick() -> str:
        nonlocal cursor
        with dg.build_sensor_context(cursor=cursor, instance=instance, resources={"engine": engine}) as context:
            result = sensor.evaluate_tick(context)
        cursor = result.cursor
        for event in result.asset_events:
            instance.report_runless_asset_event(event)  # as the daemon does
            reported.append(event.passed)  # pyright: ignore[reportAttributeAccessIssue]
        return result.skip_message or ""

    assert [tick(), tick()] == ["all tables are fresh"] * 2
    assert reported == [True]
    commit_batch(engine, {"l": {"watermark": START + HOUR}, "r": {"watermark": START + HOUR}})
    clock.pass_ms(11 * MINUTE)
    assert [tick(), tick()] == ["stale: pairs"] * 2
    assert reported == [True, False]
    clock.pass_ms(HOUR)
    tick()
    assert reported == [True, False, False]
    commit_step(engine, "pairs", closed_to=START + HOUR)
    assert tick() == "all tables are fresh"
    assert reported == [True, False, False, True]
    instance.report_runless_asset_event(AssetCheckEvaluation(KEY.asset_key, KEY.name, False, {}))
    assert tick() == "all tables are fresh"
    assert reported == [True, False, False, True, True], "a run that began before the advance has reported another result since"
