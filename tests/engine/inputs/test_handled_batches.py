"""The newest batch that each table has handled: a table that cannot be read is left out."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import SparkSession

from platform_defs.engine.inputs import progress as stored
from platform_defs.engine.inputs.handled_batches import newest_handled_batches, require_handled_batches, tables_outside
from platform_defs.engine.inputs.progress import Progress, stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.lake.tables import Lake
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.small_sources import START, join, source


@pytest.mark.parametrize("progress", [5, "5", None, [5], {"step": 1, "seq": "5"}, {"seq": 5, "other": 1}], ids=repr)
def test_a_table_with_metadata_of_another_program_is_left_out(tmp_path: Path, progress: Any) -> None:
    engine = bare_engine(tmp_path, Clock(), [source("l"), source("r")], [join(), join("more", ("l", "r"))])
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    for name in engine.assets:
        commit_step(engine, name, closed_to=START)
    assert [*newest_handled_batches(engine.lake, engine.assets)] == [("pairs", 1), ("more", 1)]
    metadata = CommitProperties(custom_metadata={"userMetadata": json.dumps({"progress": progress})})
    table = engine.lake.delta("pairs")
    assert table is not None
    write_deltalake(table, pa.table({"result_time": pa.array([], pa.timestamp("us", "UTC"))}), mode="append", commit_properties=metadata)
    assert [*newest_handled_batches(engine.lake, engine.assets)] == [("more", 1)]
    require_handled_batches(engine.lake, engine.ledger, engine.assets)
    with pytest.raises(ProgressError, match="the newest commit of pairs has no progress in the engine's format"):
        stored_progress(engine.lake, engine.assets["pairs"])


def test_a_table_with_one_step_is_found_after_it_has_left_the_pipeline(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(str(tmp_path / "lake"))
    stored.commit_step(lake, join(), spark.range(1), Progress(step=1, seq=3), [])
    assert [*newest_handled_batches(lake, {})] == [("pairs", 3)]
    assert tables_outside(lake, {}) == ["pairs"]


def test_a_table_whose_step_has_no_number_is_found_too(tmp_path: Path) -> None:
    """Earlier versions did not record the number of the step that created a table."""
    engine = bare_engine(tmp_path, Clock(), [source("l"), source("r")], [join()])
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    write_deltalake(engine.lake.path("other"), pa.table({"a": [1]}))  # of another program
    assert [*newest_handled_batches(engine.lake, {})] == [("pairs", 1)]
    assert tables_outside(engine.lake, {}) == ["pairs"]
