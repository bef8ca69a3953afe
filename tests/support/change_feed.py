"""Checks the change feeds of result tables."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from platform_defs.engine import Engine
from tests.support.json_rows import values_of


def check_change_feeds(engine: Engine, tables: Sequence[str], by_spark: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Assert that each table's change feed yields its content and contains net changes only; returns the number of updates and deletes.

    deltalake reads the feeds, because the plan of a feed takes Spark a second. Spark also reads the feeds of the tables `by_spark`, and
    must get the same rows.
    """
    frames = dict[str, DataFrame]()
    for table in tables:
        content = engine.views.table(table)
        frames[table] = content.select(F.struct("*").alias("row"))
        feeds = {f"feed of {table}": _read_by_deltalake(engine, table, content.schema)}
        if table in by_spark:
            feeds[f"feed of {table} by Spark"] = _read_by_spark(engine, table)
        changes = "_commit_version", "_change_type", F.struct(*content.columns).alias("row")
        frames |= {name: feed.select(*changes) for name, feed in feeds.items()}
    found = values_of(frames)
    for table in by_spark:
        assert found[f"feed of {table} by Spark"] == found[f"feed of {table}"], table
    return {table: _check(found[table], found[f"feed of {table}"]) for table in tables}


def _read_by_spark(engine: Engine, table: str) -> DataFrame:
    return engine.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(engine.lake.path(table))


def _read_by_deltalake(engine: Engine, table: str, columns: StructType) -> DataFrame:
    """The change feed of a table, with the types of its columns that Spark reads."""
    feed = pa.table(DeltaTable(engine.lake.path(table)).load_cdf(starting_version=0))
    schema = StructType([*columns.fields]).add("_commit_version", "long").add("_change_type", "string")
    return engine.spark.createDataFrame(feed.select(schema.names).cast(to_arrow_schema(schema)), schema)


def _check(content: Sequence[tuple[Any, ...]], feed: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
    rebuilt, kinds = Counter[str](), Counter[str]()
    by_version: dict[int, tuple[Counter[str], Counter[str]]] = {}
    for version, kind, row in feed:
        added, removed = by_version.setdefault(version, (Counter(), Counter()))
        (added if kind in ("insert", "update_postimage") else removed)[repr(row)] += 1
        kinds[kind] += 1
    for _, (added, removed) in sorted(by_version.items()):
        assert not added & removed
        rebuilt += added
        rebuilt -= removed
    assert rebuilt == Counter(repr(row) for (row,) in content)
    return kinds["update_preimage"], kinds["delete"]
