"""The engine as a Dagster resource: a tick reads only batches and files that are new since the previous tick."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from platform_defs.engine import Engine
from platform_defs.resources.engine import engine_resource
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import Settings
from tests.engine.source_batches import source_batch


def _engine_of(resource: dg.ResourceDefinition) -> Engine:
    with resource(dg.build_init_resource_context(resources={"spark": SparkResource()})) as engine:
        return engine


@pytest.mark.parametrize(
    ("lake", "is_kept"),
    [
        pytest.param("", True, id="a disk"),
        pytest.param("s3a://bucket/lake", True, id="S3"),
        pytest.param("gs://bucket/lake", False, id="another store"),
    ],
)
def test_a_tick_reuses_the_ledger_and_files_of_the_previous_tick_on_a_disk_and_in_s3(tmp_path: Path, lake: str, is_kept: bool) -> None:
    values = Settings(lake=lake or str(tmp_path / "lake"))
    resource = engine_resource(values)
    one, other = _engine_of(resource), _engine_of(resource)
    assert one is not other
    assert (one.ledger is other.ledger, one.ingestion.file_finders is other.ingestion.file_finders) == (is_kept, is_kept)


def test_a_lake_deleted_between_two_ticks_is_detected(tmp_path: Path) -> None:
    resource = engine_resource(Settings(lake=str(tmp_path / "lake")))
    file = tmp_path / "lake/landing/orders/1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    first = _engine_of(resource)
    [found] = first.ingestion.new_files("orders")
    first.ledger.commit([(source_batch("orders", 1, offsets=(found.offset,)),)])
    assert _engine_of(resource).ingestion.new_files("orders") == []
    shutil.rmtree(tmp_path / "lake/ledger")
    assert _engine_of(resource).ingestion.new_files("orders") == [found]
    assert _engine_of(resource).ledger.head == 0
