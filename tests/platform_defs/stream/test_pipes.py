"""A process that Dagster Pipes starts: what its messages become in the run."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from platform_defs.cli.cluster import NotLaunchedError, pipes
from platform_defs.stream.pipes import log_reported

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


def test_a_conservation_law_that_does_not_hold_fails_the_run_after_its_events():
    with dg.DagsterInstance.ephemeral() as instance:
        run = _run(instance, [{"tidemark.event": dg.serialize_value(EVENT)}, {"tidemark.law": "windows: 1 row is missing"}])
        assert not run.success
        failure = run.failure_data_for_node("launch")
        assert failure is not None
        assert "windows: 1 row is missing" in str(failure.error)
        assert instance.get_materialized_partitions(dg.AssetKey("windows")) == {"2026-03-01"}


def test_the_command_says_who_must_start_it():
    with pytest.raises(NotLaunchedError, match="was not started by Dagster Pipes"):
        pipes()
