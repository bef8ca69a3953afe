"""A process that Dagster Pipes starts: what its messages become in the run."""

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from assets.contract_checks import ContractError
from platform_defs.cli.cluster import NotLaunchedError, pipes
from platform_defs.engine import LawError
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.settings import Settings
from platform_defs.stream.pipes import log_reported, run_launched
from platform_defs.stream.run import StreamError

EVENT = dg.AssetMaterialization("windows", partition="2026-03-01", metadata={"rows": 3})


def _run(instance: dg.DagsterInstance, messages: Sequence[object]) -> dg.ExecuteInProcessResult:
    completed = cast(Any, SimpleNamespace(get_custom_messages=lambda: messages))

    @dg.op
    def launch(context: dg.OpExecutionContext) -> None:
        log_reported(context, completed)

    @dg.job
    def launched() -> None:
        launch()

    return launched.execute_in_process(instance=instance, raise_on_error=False)


def test_events_keep_their_partition_and_other_messages_are_ignored():
    with dg.DagsterInstance.ephemeral() as instance:
        assert _run(instance, ["a text", {"other": 1}, {"tidemark.event": dg.serialize_value(EVENT)}]).success
        assert instance.get_materialized_partitions(dg.AssetKey("windows")) == {"2026-03-01"}


@pytest.mark.parametrize(
    ("error", "text", "can_retry"),
    [
        (LawError("windows: 1 row is missing"), "windows: 1 row is missing", False),
        (StreamError.behind(["totals"]), "totals could not be advanced", True),
        (UnreadError([], [], {}, {"rides": "topic rides was recreated"}), "topic rides was recreated", True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_of_the_process_fails_the_run_after_its_events(
    error: Exception, text: str, can_retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process itself ends without an error."""
    sent = list[object]()

    def fail(*_: object) -> None:
        sent.append({"tidemark.event": dg.serialize_value(EVENT)})
        raise error

    reports = SimpleNamespace(stored_at_end=nullcontext)
    monkeypatch.setattr("platform_defs.stream.pipes.DagsterReports", lambda *_, **__: reports)
    monkeypatch.setattr("platform_defs.stream.pipes.StreamRun", lambda *_: SimpleNamespace(run=fail))
    run_launched(Settings(), cast(Any, None), cast(Any, SimpleNamespace(report_custom_message=sent.append)))
    with dg.DagsterInstance.ephemeral() as instance:
        run = _run(instance, sent)
        assert not run.success
        failure = run.failure_data_for_node("launch")
        assert failure is not None
        assert failure.user_failure_data is not None
        assert text in str(failure.user_failure_data.description)
        [logged] = [event for event in run.all_events if event.is_step_failure]
        assert logged.step_failure_data.user_failure_data == failure.user_failure_data
        assert instance.get_materialized_partitions(dg.AssetKey("windows")) == {"2026-03-01"}


def test_an_error_of_the_pipeline_or_of_its_partitions_is_sent_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ContractError("`last_day` is before the first event")

    monkeypatch.setattr("platform_defs.stream.pipes.daily_partitions", fail)
    sent = list[object]()
    run_launched(Settings(), cast(Any, None), cast(Any, SimpleNamespace(report_custom_message=sent.append)))
    assert sent == [{"tidemark.error": "`last_day` is before the first event"}]


def test_the_command_says_who_must_start_it():
    with pytest.raises(NotLaunchedError, match="was not started by Dagster Pipes"):
        pipes()
