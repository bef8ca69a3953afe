"""The sensor `alerts`: real runs of jobs that fail and succeed in a Dagster instance, and alerts at a real server. No test starts Spark."""

import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster import AssetCheckEvaluation
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from platform_defs.engine import LawError
from platform_defs.engine.lake.errors import LakeError
from platform_defs.monitoring import alert_sensor as sensor_module
from platform_defs.monitoring import hooks
from platform_defs.monitoring.alert import Alert
from platform_defs.monitoring.alert_sensor import Delivery, alert_sensor, label_of
from platform_defs.monitoring.outcomes import FailureStreak, streaks
from platform_defs.settings import Settings
from tests.platform_defs.monitoring.test_hooks import Webhook, running

NOW_S = 1e10
OUTCOME: dict[str, Any] = {}
"""What the next run does: the error that its op raises, and whether its check passes and with which severity."""


@dg.op
def work() -> None:
    if (error := OUTCOME.get("error")) is not None:
        raise error


@dg.job
def flaky() -> None:
    work()


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-03-01"), backfill_policy=dg.BackfillPolicy.single_run())
def rows() -> None: ...


@dg.asset_check(asset=rows, description="no row twice")
def unique() -> dg.AssetCheckResult:
    severity = OUTCOME.get("severity", dg.AssetCheckSeverity.ERROR)
    return dg.AssetCheckResult(passed=OUTCOME.get("passed", True), severity=severity, description="2 of 4 rows fail")


@dg.job
def other() -> None: ...


@dg.job(name="stream")
def stream() -> None:
    work()


@pytest.fixture(autouse=True)
def _no_outcome() -> Iterator[None]:
    OUTCOME.clear()
    yield
    OUTCOME.clear()


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    checks = dg.define_asset_job("checks", selection=dg.AssetSelection.checks_for_assets(rows))
    return dg.Definitions(assets=[rows], asset_checks=[unique], jobs=[flaky, other, stream, checks]).get_repository_def()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with running(Webhook()) as server:
        yield server


Tick = Callable[[], tuple[list[str], str]]


@pytest.fixture
def tick(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> Tick:
    """Evaluate the sensor once more; returns the texts that it has posted, and the reason of its skip."""
    monkeypatch.setattr(hooks, "TIMEOUT_S", 60.0)  # a busy machine may take long to answer
    values = Settings(alert_after=2, alert_webhook=webhook.url, alert_ui="https://dagster.invalid")
    sensor, cursors = alert_sensor(values), list[str | None]([None])

    def evaluate() -> tuple[list[str], str]:
        seen = len(webhook.posts)
        with dg.build_sensor_context(instance=instance, cursor=cursors[-1], repository_def=repository) as context:
            result = sensor.evaluate_tick(context)
        assert not result.run_requests
        cursors.append(result.cursor)
        return [body["text"] for _, _, body in webhook.posts[seen:]], result.skip_message or ""

    return evaluate


def _run(repository: dg.RepositoryDefinition, instance: dg.DagsterInstance, job: str = "flaky", **outcome: Any) -> str:
    OUTCOME.clear()
    OUTCOME.update(outcome)
    return repository.get_job(job).execute_in_process(instance=instance, raise_on_error=False).run_id


def test_an_alert_is_sent_after_failures_in_a_row_and_a_message_after_a_success(instance, repository, tick) -> None:
    error = LakeError("orders has another writer")
    assert tick() == ([], "no alert is open")
    _run(repository, instance, error=error)
    assert tick() == ([], "no alert is open")
    _run(repository, instance)
    _run(repository, instance, error=error)
    assert tick() == ([], "no alert is open"), "a success lies between the failures"
    run_id = _run(repository, instance, error=error)
    [text], reason = tick()
    first, why, url = text.split("\n")
    assert first.startswith("Tidemark: job flaky has failed 2 times in a row, since 20")
    assert (why, url) == ("work: orders has another writer", f"https://dagster.invalid/runs/{run_id}")
    assert reason == "1 sent; failing: job flaky"
    _run(repository, instance, error=error)
    assert tick() == ([], "failing: job flaky"), "each alert is sent once"
    _run(repository, instance)
    [text], reason = tick()
    assert text.startswith("Tidemark: job flaky succeeds again. It had failed since 20")
    assert reason == "1 sent; no alert is open"
    assert tick() == ([], "no alert is open")


def test_the_text_of_an_error_that_tidemark_did_not_write_is_not_sent(instance, repository, tick) -> None:
    for _ in range(2):
        _run(repository, instance, error=ValueError("customer Smith"))
    [text], _ = tick()
    assert "work: ValueError" in text
    assert "Smith" not in text  # a name, because digits could also be in the run id, which the text has
    _run(repository, instance)
    tick()
    for _ in range(2):
        _run(repository, instance, error=dg.Failure("the disk is full"))
    assert "work: the disk is full" in tick()[0][0]


def test_runs_of_other_code_locations_and_cancelled_runs_are_not_counted(instance, repository) -> None:
    for _ in range(2):
        _run(repository, instance, error=ValueError())
    assert "job flaky" not in streaks(instance, repository, "__repository__@elsewhere", 2, NOW_S)
    run = instance.create_run_for_job(flaky)
    instance.report_run_canceled(run)
    found = streaks(instance, repository, None, 2, NOW_S)["job flaky"]
    assert (found.failures, found.is_failing) == (2, True)


def test_runs_that_the_daemon_launched_for_this_code_location_are_counted(instance, repository) -> None:
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file="defs.py"), location_name="here")
    label = RemoteRepositoryOrigin(location, "__repository__").get_label()
    for _ in range(2):
        OUTCOME.update(error=ValueError())
        repository.get_job("flaky").execute_in_process(instance=instance, raise_on_error=False, tags={".dagster/repository": label})
    context: Any = SimpleNamespace(code_location_origin=location, repository_name="__repository__")
    assert label_of(context) == label
    assert streaks(instance, repository, label, 2, NOW_S)["job flaky"].is_failing
    assert label_of(SimpleNamespace(code_location_origin=None, repository_name=None)) is None  # pyright: ignore[reportArgumentType]


def test_a_check_alerts_after_failures_in_a_row(instance, repository, tick) -> None:
    _run(repository, instance, "checks", passed=False)
    _run(repository, instance, "checks", passed=False, severity=dg.AssetCheckSeverity.WARN)
    _run(repository, instance, "checks", passed=False)
    assert tick()[0] == [], "a warning lies between the failures"
    _run(repository, instance, "checks", passed=False)
    [text], reason = tick()
    assert text.startswith("Tidemark: check unique of rows has failed 2 times in a row")
    assert "2 of 4 rows fail" in text
    assert reason == "1 sent; failing: check unique of rows"
    _run(repository, instance, "checks", passed=True)
    assert tick()[0][0].startswith("Tidemark: check unique of rows succeeds again")


@pytest.fixture
def start(instance) -> Callable[[float], dg.DagsterRun]:
    """Starts a run of the stream, as if some seconds ago. Such a run never ends with a success."""

    def start(lasts_s: float = 0.0) -> dg.DagsterRun:
        run = instance.create_run_for_job(stream, status=dg.DagsterRunStatus.STARTED)
        event = dg.DagsterEvent(dg.DagsterEventType.PIPELINE_START.value, "stream")
        instance.report_dagster_event(event, run_id=run.run_id, timestamp=time.time() - lasts_s)
        return run

    return start


def test_a_stream_that_has_run_for_ten_minutes_has_recovered(instance, start, tick) -> None:
    for _ in range(2):
        instance.report_run_failed(start())
    [text], _ = tick()
    assert text.startswith("Tidemark: job stream has failed 2 times in a row")
    begun = start()
    assert tick() == ([], "failing: job stream"), "the run has only begun"
    instance.report_run_canceled(begun)
    healthy = start(601.0)
    [text], _ = tick()
    assert text.startswith("Tidemark: job stream succeeds again")
    assert tick() == ([], "no alert is open")
    instance.report_run_failed(healthy)
    [text], _ = tick()
    assert text.startswith("Tidemark: job stream has failed 2 times in a row"), "it fails every ten minutes"


def test_failures_before_a_run_of_a_day_are_not_counted_however_it_ended(instance, start, tick) -> None:
    instance.report_run_failed(start())
    instance.report_run_canceled(start(86_401.0))
    instance.report_run_failed(start())
    assert tick() == ([], "no alert is open"), "one failure since the run of a day"
    instance.report_run_failed(start(86_401.0))
    assert tick() == ([], "no alert is open"), "the failure of the run itself is the first one"
    instance.report_run_failed(start())
    [text], _ = tick()
    assert text.startswith("Tidemark: job stream has failed 2 times in a row")


def test_a_stream_that_violates_the_law_alerts_at_its_first_failure(instance, repository, tick) -> None:
    _run(repository, instance, "stream", error=LakeError("orders has another writer"))
    assert tick() == ([], "no alert is open")
    _run(repository, instance, "stream")
    _run(repository, instance, "stream", error=LawError("windows breaks the conservation law"))
    [text], reason = tick()
    assert "windows breaks the conservation law" in text
    assert reason == "1 sent; failing: job stream"


def test_the_days_of_a_long_backfill_do_not_hide_the_failures_before_it(instance, repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has more days than are read at once."""
    monkeypatch.setattr("platform_defs.monitoring.outcomes._AT_ONCE", 20)
    for _ in range(3):
        run_id = _run(repository, instance, "checks", passed=False)
        for day in range(25):
            evaluation = AssetCheckEvaluation(dg.AssetKey("rows"), "unique", False, {}, partition=f"day {day}")
            event = dg.DagsterEvent(dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, "checks", event_specific_data=evaluation)
            instance.report_dagster_event(event, run_id=run_id)
    assert streaks(instance, repository, None, 3, NOW_S)["check unique of rows"].failures == 3


def test_a_later_result_of_a_day_in_the_same_run_replaces_the_earlier_one(instance, repository) -> None:
    run_id = _run(repository, instance, "checks", passed=False)
    evaluation = AssetCheckEvaluation(dg.AssetKey("rows"), "unique", True, {})
    event = dg.DagsterEvent(dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, "checks", event_specific_data=evaluation)
    instance.report_dagster_event(event, run_id=run_id)
    assert streaks(instance, repository, None, 1, NOW_S)["check unique of rows"].failures == 0


def test_a_failure_is_as_old_as_its_evaluation_not_as_the_first_one_of_the_day(instance, repository) -> None:
    """A stream evaluates the days of its only run again and again."""

    def evaluate(day: int, passed: bool, at_s: float) -> None:
        evaluation = AssetCheckEvaluation(dg.AssetKey("rows"), "unique", passed, {}, partition=f"2026-03-0{day}")
        event = dg.DagsterEvent(dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, "stream", event_specific_data=evaluation)
        instance.report_dagster_event(event, run_id="the stream", timestamp=at_s)

    for day, passed, at_s in ((1, True, 100.0), (2, True, 150.0), (1, False, 200.0), (3, False, 300.0), (2, True, 350.0)):
        evaluate(day, passed, at_s)
    found = streaks(instance, repository, None, 1, NOW_S)["check unique of rows"]
    assert (found.failures, found.since_s) == (1, 200.0)
    evaluate(1, True, 400.0)
    evaluate(3, True, 450.0)
    found = streaks(instance, repository, None, 1, NOW_S)["check unique of rows"]
    assert (found.failures, found.since_s) == (0, 450.0)


def test_several_days_of_one_run_are_one_failure(instance, repository) -> None:
    run_id = _run(repository, instance, "checks", passed=False)
    for day in ("2026-03-01", "2026-03-02", "2026-03-03"):
        evaluation = AssetCheckEvaluation(dg.AssetKey("rows"), "unique", False, {}, partition=day)
        event = dg.DagsterEvent(dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, "checks", event_specific_data=evaluation)
        instance.report_dagster_event(event, run_id=run_id)
    assert streaks(instance, repository, None, 2, NOW_S)["check unique of rows"].failures == 1


def test_a_check_that_a_sensor_evaluates_alerts_at_its_first_failure(instance, repository, tick) -> None:
    def report(passed: bool) -> None:
        instance.report_runless_asset_event(AssetCheckEvaluation(dg.AssetKey("rows"), "unique", passed, {}, description="it waits"))

    report(False)
    [text], _ = tick()
    assert text.startswith("Tidemark: check unique of rows has failed, since 20")
    assert text.endswith("\nit waits")
    report(True)
    assert tick()[0][0].startswith("Tidemark: check unique of rows succeeds again")


def test_an_alert_that_could_not_be_delivered_is_sent_at_the_next_tick(instance, repository, tick, webhook) -> None:
    for _ in range(2):
        _run(repository, instance, error=ValueError())
    webhook.status = 503
    texts, reason = tick()
    assert len(texts) == 1
    assert "failing: job flaky (not delivered by every hook); the webhook at 127.0.0.1 failed: it answered 503" in reason
    webhook.status = 200
    assert len(tick()[0]) == 1
    _run(repository, instance)
    webhook.status = 503
    assert "succeeds again: job flaky (not delivered by every hook); the webhook" in tick()[1]
    webhook.status = 200
    texts, reason = tick()
    assert "succeeds again" in texts[0]
    assert reason == "1 sent; no alert is open"


def test_a_hook_that_works_gets_each_alert_once_while_another_one_does_not(instance, repository, webhook, tmp_path) -> None:
    for _ in range(2):
        _run(repository, instance, error=ValueError())
    file = tmp_path / "alerts"
    sensor = alert_sensor(Settings(alert_after=2, alert_webhook=webhook.url, alert_command=f"cat >> '{file}'; echo >> '{file}'"))
    cursor, webhook.status = None, 500
    for _ in range(2):
        with dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=repository) as context:
            cursor = sensor.evaluate_tick(context).cursor
    assert len(file.read_text("utf-8").splitlines()) == 1
    assert len(webhook.posts) == 2


def test_failures_after_a_success_that_one_hook_did_not_report_are_a_new_alert(instance, repository, webhook, tmp_path) -> None:
    """Both hooks report the first failures, only the command reports the success, and both report the next failures."""
    file, cursor = tmp_path / "alerts", None
    sensor = alert_sensor(Settings(alert_after=1, alert_webhook=webhook.url, alert_command=f"cat >> '{file}'; echo >> '{file}'"))
    for error, status in ((ValueError(), 200), (None, 503), (ValueError(), 200)):
        _run(repository, instance, error=error)
        webhook.status = status
        with dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=repository) as context:
            cursor = sensor.evaluate_tick(context).cursor
    alerts = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [alert["state"] for alert in alerts] == ["failing", "recovered", "failing"]
    assert alerts[0]["since_s"] < alerts[2]["since_s"]
    assert ["succeeds again" in body["text"] for _, _, body in webhook.posts] == [False, True, False]


def test_what_takes_too_long_for_one_tick_is_sent_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster ends a tick after 60 s and then forgets which alerts were sent."""
    now_s, sent = 0.0, list[str]()

    def hook(alert: Alert) -> None:
        nonlocal now_s
        now_s += 9.0
        sent.append(alert.subject)

    monkeypatch.setattr(sensor_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    failing, cursor = {f"job {n}": FailureStreak(1, True, 0.0) for n in range(6)}, dict[str, Any]()
    for _ in range(3):
        delivery = Delivery({"command": hook}, cursor)
        begun_s = now_s
        delivery.send(failing)
        assert now_s - begun_s < 40.0
    assert sent == [*failing]
    assert delivery.summary == "; ".join(f"failing: {subject}" for subject in failing)


def test_what_went_wrong_with_a_delivered_message_is_in_the_tick() -> None:
    delivery = Delivery({"mail": lambda _: "one address is refused"}, {})
    delivery.send({f"job {n}": FailureStreak(1, True, 0.0) for n in range(2)})
    assert delivery.summary == "2 sent; failing: job 0; failing: job 1; one address is refused"


def test_without_a_hook_the_sensor_states_how_to_set_one(instance, repository) -> None:
    with dg.build_sensor_context(instance=instance, repository_def=repository) as context:
        result = alert_sensor(Settings()).evaluate_tick(context)
    assert result.skip_message == (
        "no hook is set; legal: TIDEMARK_ALERT_WEBHOOK, TIDEMARK_ALERT_COMMAND, or TIDEMARK_ALERT_MAIL with TIDEMARK_ALERT_SMTP"
    )


def test_the_sensor_is_off_by_default() -> None:
    assert alert_sensor(Settings()).default_status == dg.DefaultSensorStatus.STOPPED
