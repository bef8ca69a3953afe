"""All that a lake holds, read without Spark, and how two lakes differ."""

from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.chaos.stream import ASSETS, CONTRACTS

TABLES = (
    "ledger",
    *[t for c in CONTRACTS.values() for t in (c.log, c.quarantine)],
    "wide",
    ASSETS["takings"].changelog,
    "takings",
    "visits",
    ASSETS["visits"].early,
)
Content = dict[str, Counter[tuple[Any, ...]]]


def content(lake: str, home: Path) -> Content:
    """Every row of every table with every column, as often as it is there; only the life's own folder is left out of paths."""
    return {table: _rows(f"{lake}/{table}", str(home)) for table in TABLES}


def _rows(table: str, home: str) -> Counter[tuple[Any, ...]]:
    try:
        rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    except TableNotFoundError:
        return Counter()
    return Counter(tuple((name, repr(row[name]).replace(home, "")) for name in sorted(row)) for row in rows)


def differences(wanted: Content, found: Content) -> list[str]:
    """Each table that differs, with how many rows it lacks and has too many, and one of each."""
    told: list[str] = []
    for table in TABLES:
        lacks, extra = wanted[table] - found[table], found[table] - wanted[table]
        if lacks or extra:
            shown = f"e.g. lacks {next(iter(lacks), None)}, has {next(iter(extra), None)}"
            told.append(f"{table}: {lacks.total()} rows missing, {extra.total()} too many; {shown}")
    return told
