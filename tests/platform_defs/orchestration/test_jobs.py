"""The jobs that a user launches with a configuration: their effects, and the errors of a wrong configuration."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from platform_defs.engine.formats.delta_change_feed import LandedVersion
from platform_defs.engine.operations.export import ExportFolderError, View, ViewError
from platform_defs.orchestration.jobs import ExportConfig, export_job, export_table, land_changes_job


def _export(**config: Any) -> tuple[dg.ExecuteInProcessResult, list[tuple[View, str]]]:
    exported: list[tuple[View, str]] = []

    def export(view: View, folder: str) -> dict[str, Any]:
        if view.table == "unknown":
            raise ViewError.no_table(view.table, ["total"])
        exported.append((view, folder))
        return {"folder": folder, "rows": 3}

    engine = SimpleNamespace(views=SimpleNamespace(export=export))
    run = {"ops": {"export_table": {"config": config}}}
    return export_job.execute_in_process(run_config=run, resources={"engine": engine}, raise_on_error=False), exported


def _failure(done: dg.ExecuteInProcessResult) -> str:
    [event] = [e for e in done.all_events if e.is_step_failure]
    return str(event.step_failure_data.user_failure_data)


def test_the_configured_view_is_exported() -> None:
    done, exported = _export(table="total", folder="out", as_of="1970-01-01T00:00:01Z")
    assert done.success
    assert exported == [(View("total", as_of=1_000), "out")]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"table": "unknown"}, "`table` is 'unknown'; legal: total"),
        ({"table": "total", "as_of": "soon"}, "`as_of` is 'soon'; legal: a time"),
    ],
)
def test_an_illegal_export_fails_without_a_retry_and_names_the_legal_values(config: dict[str, str], message: str) -> None:
    done, exported = _export(folder="out", **config)
    assert not done.success
    assert exported == []
    assert message in _failure(done)
    assert not [e for e in done.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]


def test_an_export_to_a_store_that_cannot_be_reached_is_no_failure_without_retries() -> None:
    def export(_: View, folder: str) -> dict[str, Any]:
        raise ExportFolderError.bad_folder(folder, "a folder that can be written to (Connection refused)")

    engine = SimpleNamespace(views=SimpleNamespace(export=export))
    with (
        dg.build_op_context(resources={"engine": engine}) as context,
        pytest.raises(ExportFolderError, match="Connection refused"),  # not a `Failure` that allows no retry
    ):
        export_table(context, ExportConfig(table="total", folder="s3a://bucket/copy"))


def test_changes_land_in_a_known_source_and_an_unknown_source_is_refused() -> None:
    ingestion = SimpleNamespace(land_changes=lambda table, source, first: [LandedVersion(first, 2), LandedVersion(first + 1, 3)])
    engine = SimpleNamespace(sources={"stock": object()}, ingestion=ingestion)

    def run(source: str) -> dg.ExecuteInProcessResult:
        config = {"ops": {"land_versions": {"config": {"table": "t", "source": source, "from_version": 4}}}}
        return land_changes_job.execute_in_process(run_config=config, resources={"engine": engine}, raise_on_error=False)

    done = run("stock")
    assert done.success
    refused = run("stick")
    assert not refused.success
    assert "`source` is 'stick'; legal: stock" in _failure(refused)
