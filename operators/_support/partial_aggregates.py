"""Which aggregates can be merged: an aggregate of all rows from aggregates of their parts."""

import re
from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

_MERGED = {"count": "sum", **{name: name for name in ("sum", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")}}
_CALL = re.compile(r"\s*(\w+)\s*\((?!\s*distinct\b)(.*)\)\s*", re.IGNORECASE | re.DOTALL)
_EVERY_ROW = re.compile(r"\s*count\s*\(\s*(\*|1)\s*\)\s*", re.IGNORECASE)


def merging(sql: str) -> str | None:
    """The aggregate that merges what an aggregate made of each part; None where there is none, or quotes may hide a bracket.

    >>> merging("count(*)"), merging("avg(price)")
    ('sum', None)
    """
    call = None if any(mark in sql for mark in ("'", '"', "`", "--", "/*")) else _CALL.fullmatch(sql)
    return _MERGED.get(call[1].lower()) if call and _closes_last(call[2]) else None


def merged(aggregates: Mapping[str, str]) -> list[Column]:
    """What merges parts that were aggregated under these names, in their order."""
    return [F.expr(f"{merging(sql)}(`{name}`)") for name, sql in aggregates.items()]


def counts_every_row(sql: str) -> bool:
    """Whether each row changes the aggregate."""
    return _EVERY_ROW.fullmatch(sql) is not None


def _closes_last(inside: str) -> bool:
    """Whether no bracket closes inside that was not opened there, as in `sum(a) + sum(b)`."""
    depth = 0
    for letter in inside:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return True
