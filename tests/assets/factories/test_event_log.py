"""The event logs as assets: every ingested source is materialized, even if some files cannot be read."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from assets.contracts import SourceContract
from assets.factories.event_log import batch_metadata, event_logs
from assets.factories.metadata import ENGINE_DESCRIPTIONS, time_metadata
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ledger.ledger import Batch
from tests.engine.source_batches import source_batch
from tests.support.small_sources import source

BATCH: Batch = (source_batch("l", 1, rows_read=2, accepted=2, watermark=5),)


class _Engine:
    """An engine whose ingest returns one batch, or fails."""

    def __init__(self, failed: Exception | None = None) -> None:
        self.failed = failed

    def ingest(self) -> list[Batch]:
        if self.failed is not None:
            raise self.failed
        return [BATCH]


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as in_memory:
        yield in_memory


def _run(instance: dg.DagsterInstance, failed: Exception | None = None) -> tuple[bool, dict[str, Any]]:
    """Materialize the event logs; returns whether the run succeeded, and the accepted rows of each materialized source."""
    resources = {"engine": dg.ResourceDefinition.hardcoded_resource(_Engine(failed))}
    done = dg.materialize([event_logs([source("l"), source("r")])], resources=resources, raise_on_error=False, instance=instance)
    accepted: dict[str, Any] = {}
    for event in done.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        accepted[materialization.asset_key.path[-1]] = materialization.metadata["accepted"].value
    return done.success, accepted


def test_every_ingested_source_is_materialized(instance: dg.DagsterInstance) -> None:
    assert _run(instance) == (True, {"l": 2, "r": 0})


def test_a_source_without_a_batch_shows_no_watermark() -> None:
    assert batch_metadata(BATCH)["watermark"] == time_metadata(5)
    assert "watermark" not in batch_metadata([])


def test_a_column_of_a_source_has_no_description_of_an_operators_column() -> None:
    [spec] = event_logs([SourceContract(name="runs", schema="id INT, step INT, at TIMESTAMP", event_time="at")]).specs
    described = {column.name: column.description for column in spec.metadata["dagster/column_schema"].columns}
    assert {"step", "seq"} <= described.keys()
    assert {name for name, description in described.items() if description} == {*ENGINE_DESCRIPTIONS}


def test_the_description_of_a_log_has_the_whole_retention() -> None:
    [spec] = event_logs([source("l", retention="1590 minutes")]).specs
    assert "more than 1 d 2 h 30 min behind the watermark" in str(spec.description)


def test_unreadable_files_fail_the_run_after_the_ingested_sources_are_materialized(instance: dg.DagsterInstance) -> None:
    unread = [Unread(File(1, "file:/in/r/1.jsonl", 3, "r"), "the store is away")]
    assert _run(instance, UnreadError(unread, [BATCH])) == (False, {"l": 2, "r": 0})
    assert _run(instance, UnreadError(unread, [])) == (False, {})
    assert _run(instance, OSError("the store is away")) == (False, {})
