"""Translates the residual of a case, SQL over `L.` and `R.` columns, to the result's names, and to a predicate for the model.

SQLite evaluates the predicate, so that Spark is not compared with itself.
"""

import re
import sqlite3
from functools import cache

from tests.support.model import Event, Predicate

_TOKEN = re.compile(r"'(?:[^']|'')*'|\b([LR])\s*\.\s*[`\"]?(\w+)[`\"]?|/")
_TEMPORAL = {"rt": "event_time"}
_COLUMNS = ("id", "k", "v", "ts", "rt")


class ResidualError(ValueError):
    """A residual cannot be read."""


def translated(residual: str) -> str:
    """The residual with the result's names: `L.v` becomes `left_v`, the key of a side `k`, and `/` a division of integers, as in Flink."""

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "/":
            return " DIV "
        if not found[1]:
            return found[0]
        column = _TEMPORAL.get(found[2], found[2])
        return column if column == "k" else {"L": "left_", "R": "right_"}[found[1]] + column

    return _TOKEN.sub(replacement, residual)


def predicate(residual: str) -> Predicate:
    """The residual as a predicate, for which null is no match.

    Raises:
        ResidualError: SQLite cannot read it.
    """
    base = sqlite3.connect(":memory:")
    base.execute("PRAGMA case_sensitive_like = ON")
    base.create_function("char_length", 1, lambda text: None if text is None else len(text), deterministic=True)
    base.create_function("mod", 2, _mod, deterministic=True)
    sides = [
        f"(SELECT {', '.join(f'?{n + first} AS {c}' for n, c in enumerate(_COLUMNS))}) AS {side}" for side, first in (("L", 1), ("R", 6))
    ]
    query = f"SELECT {residual} FROM {sides[0]}, {sides[1]}"

    @cache
    def holds(*values: object) -> bool:
        try:
            found = base.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise ResidualError(f"the model cannot read the residual {residual!r}: {error}") from error
        return bool(found[0])

    holds(*[None] * 2 * len(_COLUMNS))
    return lambda left, right: holds(*_values(left), *_values(right))


def _mod(one: int | None, other: int | None) -> int | None:
    if one is None or other is None or other == 0:
        return None
    return abs(one) % abs(other) * (-1 if one < 0 else 1)


def _values(row: Event) -> tuple[object, ...]:
    return row.id, row.key, row.v, row.ts, row.ts
