"""A step's changes are applied to an upserted table from memory, but only if they are those of the newest step in the changelog."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType

from assets.contracts import DerivedAsset
from operators import Aggregate
from operators.changelog import CHANGE
from platform_defs.engine import Engine, faults
from platform_defs.engine.advance.upserted_table import UpsertedTable
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.lake.small_queries import from_arrow
from platform_defs.engine.lake.tables import Lake
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, land, replay, rows_of, source


class _StopError(Exception):
    """Stops a process between the commit of a step's changes and the table's."""


def _stop(name: str) -> None:
    if name == "advance.after_changelog":
        raise _StopError("after the changelog")


def _with_an_unapplied_step(make_engine: MakeEngine) -> Engine:
    total = Aggregate(by="k", aggregates={"total": "sum(v)"})
    engine = make_engine([source("s")], [DerivedAsset(name="t", inputs=("s",), operator=total)])
    for n in range(2):
        replay(engine, [{"s": [Event("x", 1 + n, n * MINUTE)]}])
        faults.install(_stop if n else None)
        if n == 0:
            list(engine.advance("t"))
    with pytest.raises(_StopError, match="after the changelog"):
        list(engine.advance("t"))
    faults.install(None)
    return engine


@pytest.mark.parametrize(("is_own_step", "total"), [(True, 100), (False, 3)])
def test_only_the_changes_of_the_committed_step_are_applied_from_memory(
    make_engine: MakeEngine, spark: SparkSession, is_own_step: bool, total: int
) -> None:
    """The rows in memory have another total than the changelog, so the table shows which of the two was applied."""
    engine = _with_an_unapplied_step(make_engine)
    asset = engine.assets["t"]
    now, changelog = progress(engine.lake, asset), engine.lake.read(spark, asset.changelog)
    newest = changelog.where(f"{CHANGE} = '+U'").toArrow()
    other = newest.set_column(newest.column_names.index("total"), "total", pa.array([100], newest.schema.field("total").type))
    changes = from_arrow(other, changelog)
    assert rows_of(engine.views.table("t"), "k", "total") == [("x", 1)]
    UpsertedTable(engine.workspace, asset)._apply(now.id if is_own_step else "another step", changes)
    assert rows_of(engine.views.table("t"), "k", "total") == [("x", total)]


def test_keys_with_a_collation_are_merged_into_a_large_table(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of the changelog compare texts by their bytes, from `B` to `a`. By the collation, no key is between these two."""
    monkeypatch.setattr(Lake, "is_large", lambda *_: True)
    schema = StructType().add("k", StringType("UTF8_LCASE")).add("v", "integer").add("ts", "timestamp")
    total = Aggregate(by="k", aggregates={"total": "sum(v)"})
    engine = make_engine([source("s", schema=schema)], [DerivedAsset(name="t", inputs=("s",), operator=total)])
    for n in range(2):
        land(engine, "s", f"{n}.jsonl", [Event(key, 1 + n, n * MINUTE).line for key in "Ba"])
        engine.ingest()
        list(engine.advance("t"))
    assert rows_of(engine.views.table("t"), "k", "total") == [("B", 3), ("a", 3)]
