"""Which aggregates give the same result each time: results are computed again, and compared with those that are held."""

import re
from collections.abc import Mapping

from operators.errors import OperatorError

_BY_ORDER = ("first", "first_value", "last", "last_value", "any_value")
_IN_ORDER = ("collect_list", "collect_set", "array_agg", "listagg", "string_agg")
_BY_CHANCE = ("rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "now", "current_timestamp", "current_date", "curdate")
_SORTS = ("sort_array", "array_sort", "array_size", "size", "cardinality")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALL = re.compile(r"(?:(\w+)\s*)?\(|\)|(\w+)", re.ASCII)


def check_deterministic(aggregates: Mapping[str, str]) -> None:
    """Raise `OperatorError` where an aggregate depends on the order in which Spark meets rows, or on chance or the clock.

    >>> check_deterministic({"rows": "sort_array(collect_list(v))"})
    >>> check_deterministic({"v": "first(v)"})
    Traceback (most recent call last):
    operators.errors.OperatorError: `aggregates` is 'first(v)'; legal: aggregates that do not depend on the order in which Spark meets \
rows; in place of first use min_by(v, struct(event_time, seq, arrival)), or max_by
    """
    for sql in aggregates.values():
        if legal := _instead(sql):
            raise OperatorError.bad_value("aggregates", sql, f"aggregates that do not depend on {legal}")


def _instead(sql: str) -> str | None:
    """What an aggregate must not depend on, and what to use in place of it; None where it is deterministic."""
    for name, around, call in _calls(sql):
        if name in _BY_ORDER and call:
            return f"the order in which Spark meets rows; in place of {name} use min_by(v, struct(event_time, seq, arrival)), or max_by"
        if name in _IN_ORDER and call and not {*_SORTS} & {*around} and not re.search(r"within\s+group", sql, re.IGNORECASE):
            return f"the order in which Spark meets rows; sort what {name} gives: sort_array(collect_list(v))"
        if name in _BY_CHANCE and (call or name.startswith("current_")):
            return f"chance or the clock, as {name} does; take a time from a column of the rows"
    return None


def _calls(sql: str) -> list[tuple[str, tuple[str, ...], bool]]:
    """Each name in an expression, the functions whose brackets it stands in, and whether it is a function."""
    found: list[tuple[str, tuple[str, ...], bool]] = []
    around: list[str] = []
    for match in _CALL.finditer(_QUOTED.sub(" ", sql)):
        if match[0] == ")":
            around = around[:-1]
        elif match[2]:
            found.append((match[2].lower(), tuple(around), False))
        else:
            name = (match[1] or "").lower()
            found.append((name, tuple(around), True))
            around.append(name)
    return found
