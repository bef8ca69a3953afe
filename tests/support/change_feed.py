"""Checks the change feeds of result tables."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from platform_defs.engine import Engine
from tests.support.json_rows import values_of


def check_change_feeds(engine: Engine, tables: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Assert that each table's change feed yields its content and contains net changes only; returns the number of updates and deletes."""
    feeds, contents = {}, {}
    for table in tables:
        contents[table] = engine.views.table(table).select(F.struct("*").alias("row"))
        feed = engine.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(engine.lake.path(table))
        row = F.struct(*engine.views.table(table).columns).alias("row")
        feeds[f"feed of {table}"] = feed.select("_commit_version", "_change_type", row)
    found = values_of(contents | feeds)
    return {table: _check(found[table], found[f"feed of {table}"]) for table in tables}


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
