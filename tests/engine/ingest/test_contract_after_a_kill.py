"""The first ingest of a source is killed and its contract is then corrected: the uncommitted rows determine no column's type."""

import pytest
from pyspark.sql.types import StructType

from platform_defs.engine.inputs.stored_rows import read_log
from tests.conftest import MakeEngine
from tests.support.kills import run_and_die
from tests.support.small_sources import Event, land, rows_of, source


@pytest.mark.parametrize("killed_at", ["ingest.after_log", "ingest.before_ledger"])
def test_a_columns_type_may_change_until_a_batch_has_rows(make_engine: MakeEngine, killed_at: str) -> None:
    first = make_engine([source("l", unique_key=("v",)), source("r")], [])
    for name in ("l", "r"):
        land(first, name, "1.jsonl", [Event("a", 1, 0).line, "no JSON"])
    run_and_die(first.ingest, killed_at)
    corrected = StructType().add("k", "string").add("v", "string").add("ts", "timestamp").add("n", "timestamp_ntz")
    after = make_engine([source("l", schema=corrected, unique_key=("v",)), source("r")], [])
    [batch] = after.ingest()
    assert {(s.accepted, s.quarantined) for s in batch} == {(1, 1)}
    assert rows_of(after.views.table("events/l"), "seq", "k", "v", "n") == [(1, "a", "1", None)]
    land(after, "l", "2.jsonl", [Event("a", 1, 0).line, Event("b", 2, 0).line])
    [batch] = after.ingest()
    assert [(s.accepted, s.duplicate) for s in batch] == [(1, 1)]
    assert not [m for m in after.maintain(small_files=2) if m.failed]
    assert rows_of(read_log(after.workspace, "l", 2), "k", "v") == [("a", "1"), ("b", "2")]
