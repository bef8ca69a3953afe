"""The lineage of a table's columns, as Dagster shows it: also of columns that a preparation renames or computes."""

from types import SimpleNamespace
from typing import Any

from assets.contracts import DerivedAsset, Preparation, SourceContract
from assets.factories.lineage import column_lineage
from operators import IntervalJoin
from tests.support.small_sources import ROW

SOURCES = {name: SourceContract(name=name, schema=ROW, event_time="ts") for name in ("l", "r")}
JOIN = IntervalJoin(on="id", lower=0, upper="1 hour")


def lineage(derived: DerivedAsset, *columns: str) -> dict[str, list[tuple[str, str]]]:
    """Each column with the source and the source's column from which it is computed."""
    engine: Any = SimpleNamespace(sources=SOURCES)
    found = column_lineage(engine, derived, columns).deps_by_column
    return {column: [(dep.asset_key.path[-1], dep.column_name) for dep in deps] for column, deps in found.items()}


def test_a_column_of_both_inputs_has_its_sides_prefix_and_the_key_comes_from_both():
    join = DerivedAsset(name="pairs", inputs=("l", "r"), operator=IntervalJoin(on="k", lower=0, upper="1 hour"))
    found = lineage(join, "k", "left_v", "right_seq", "result_time")
    assert found == {"k": [("l", "k"), ("r", "k")], "left_v": [("l", "v")], "right_seq": [("r", "seq")]}


def test_a_prepared_column_comes_from_the_columns_that_its_sql_reads():
    prepare = {"l": Preparation(select="k AS id, v + 1 AS more"), "r": Preparation(select="concat(k, v) AS id, ts")}
    found = lineage(DerivedAsset(name="pairs", inputs=("l", "r"), operator=JOIN, prepare=prepare), "id", "more", "ts", "v")
    assert found == {"id": [("l", "k"), ("r", "k"), ("r", "v")], "more": [("l", "v")], "ts": [("r", "ts")]}
