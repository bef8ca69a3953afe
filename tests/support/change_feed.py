"""Checks the change feed of a result table."""

from collections import Counter
from typing import Any

from platform_defs.engine import Engine


def check_change_feed(engine: Engine, table: str) -> tuple[int, int]:
    """Assert that a table's change feed yields its content and contains net changes only; returns the number of its updates and deletes."""
    feed = engine.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(engine.lake.path(table))
    columns = engine.views.table(table).columns
    rebuilt: Counter[tuple[Any, ...]] = Counter()
    kinds: Counter[str] = Counter()
    by_version: dict[int, tuple[Counter[Any], Counter[Any]]] = {}
    for row in feed.select("_commit_version", "_change_type", *columns).collect():
        version, kind, *values = row
        added, removed = by_version.setdefault(version, (Counter(), Counter()))
        (added if kind in ("insert", "update_postimage") else removed)[repr(values)] += 1
        kinds[kind] += 1
    for _, (added, removed) in sorted(by_version.items()):
        assert not added & removed
        rebuilt += added
        rebuilt -= removed
    assert rebuilt == Counter(repr(list(row)) for row in engine.views.table(table).select(*columns).collect())
    return kinds["update_preimage"], kinds["delete"]
