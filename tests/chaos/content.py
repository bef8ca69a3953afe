"""The content of a lake and of its published folder, read without Spark, and the differences between two of them."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from tests.chaos.stream import ASSETS, CONTRACTS, PUBLISHED

TABLES = (
    "ledger",
    *[t for c in CONTRACTS.values() for t in (c.log, c.quarantine)],
    "wide",
    ASSETS["takings"].changelog,
    "takings",
    "visits",
    ASSETS["visits"].early,
    ASSETS["visits"].decisions,
)
COMPARED = (*TABLES, PUBLISHED)
"""The tables and folders that are compared."""
Content = dict[str, Counter[tuple[Any, ...]]]
_RELEASED = re.compile(r"(released-\w+)-\d+(?=-\d+\.)")
"""A file of released rows; its name has the version of the quarantine, which also counts the commits that kills have caused."""


def content(lake: str, home: Path) -> Content:
    """Every row of every table with every column, and every published line. The path of the trial's folder is removed."""
    return {table: _rows(f"{lake}/{table}", str(home)) for table in TABLES} | {PUBLISHED: _lines(home / PUBLISHED)}


def _lines(folder: Path) -> Counter[tuple[Any, ...]]:
    """The lines of each step in any order, since a key has one line in a step; and the marker file."""
    files = [*folder.glob("step=*/part-*"), *folder.glob("_published")]
    return Counter((path.parent.name, line) for path in files for line in path.read_text("utf-8").split("\n"))


def _rows(table: str, home: str) -> Counter[tuple[Any, ...]]:
    try:
        delta = DeltaTable(table)
    except TableNotFoundError:
        return Counter()
    rows = pa.table(QueryBuilder().register("t", delta).execute("SELECT * FROM t").read_all()).to_pylist()
    return Counter(tuple((name, _RELEASED.sub(r"\1", repr(row[name]).replace(home, ""))) for name in sorted(row)) for row in rows)


def differences(expected: Content, found: Content) -> list[str]:
    """One line for each table or folder that differs: how many rows are missing or superfluous, with an example of each."""
    found_differences: list[str] = []
    for table in COMPARED:
        lacks, extra = expected[table] - found[table], found[table] - expected[table]
        if lacks or extra:
            shown = f"e.g. lacks {next(iter(lacks), None)}, has {next(iter(extra), None)}"
            found_differences.append(f"{table}: {lacks.total()} rows missing, {extra.total()} too many; {shown}")
    return found_differences
