"""INTERVAL literals of SQL as milliseconds, and milliseconds as words."""

import re
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from operators.sql.dialect import Tree, spark_sql
from operators.sql.errors import SqlError
from operators.timing import DAY_MS

_UNITS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": DAY_MS, "WEEK": 7 * DAY_MS}
"""The length of each unit, in ms."""
_WORDS = (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))
_SPAN = {"DAY": (" ", 24), "HOUR": (":", 60), "MINUTE": (":", 60)}
"""By unit of an interval such as `DAY TO SECOND`: what separates it from the next smaller unit, and how many of these it has."""
_LENGTH = re.compile(r"[+-]?(?:\d+(?: +|:))*(?:\d+\.?\d*|\.\d+)", re.ASCII)
"""The text of an interval: numbers, of which only the first has a sign and only the last has a fraction."""


def interval_ms(tree: Tree) -> int:
    """The length of an INTERVAL literal, in ms.

    Raises:
        SqlError: it is no INTERVAL literal, has months or years, or is no whole number of milliseconds.

    >>> from operators.sql.dialect import parse_query
    >>> [interval_ms(e) for e in parse_query("SELECT INTERVAL '1.5' SECOND, INTERVAL '1:30' HOUR TO MINUTE, -INTERVAL '2' DAY").expressions]
    [1500, 5400000, -172800000]
    >>> [interval_ms(e) for e in parse_query("SELECT INTERVAL - '5' SECOND, INTERVAL '10 00:00:00.004' DAY TO SECOND(3)").expressions]
    [-5000, 864000004]
    """
    if isinstance(tree, exp.Neg):
        return -interval_ms(tree.this)
    if isinstance(tree, exp.Paren):
        return interval_ms(tree.this)
    if not isinstance(tree, exp.Interval) or tree.args.get("this") is None or tree.args.get("unit") is None:
        raise _unreadable(tree)
    value, unit = tree.this, tree.args["unit"]
    if isinstance(value, exp.Neg | exp.Paren):  # INTERVAL - '5' SECOND
        return interval_ms(type(value)(this=exp.Interval(this=value.this.copy(), unit=unit.copy())))
    try:
        if isinstance(unit, exp.IntervalSpan):
            return _span_ms(_text(value), _unit(unit.this), _unit(unit.expression))
        return _whole(Decimal(_text(value)) * _UNITS[_unit(unit)])
    except (InvalidOperation, KeyError, OverflowError, ValueError) as error:
        raise _unreadable(tree) from error


def _text(value: Tree) -> str:
    """The text of the literal in an interval. Raises `ValueError` if it is no literal, or has no such text."""
    text = str(value.name).strip()
    if not isinstance(value, exp.Literal) or not _LENGTH.fullmatch(text):
        raise ValueError(text)
    return text


def _whole(length: Decimal) -> int:
    """The length as an integer. Raises `ValueError` or `OverflowError` if it is no whole number."""
    if length != int(length):
        raise ValueError(length)
    return int(length)


def _unit(unit: Tree) -> str:
    """`DAY` for `DAY`, `DAYS` and `DAY(3)`."""
    name = (unit.name if isinstance(unit, exp.Var) else type(unit).__name__).upper()
    return name if name in _UNITS else name.removesuffix("S")


def _span_ms(text: str, first: str, last: str) -> int:
    """The length of an interval such as `'1 12:30:00' DAY TO SECOND`."""
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    total, unit, limit = Decimal(0), first, Decimal("Infinity")
    while unit != last:
        separator, size = _SPAN[unit]
        part, _, text = text.lstrip().partition(separator)
        total, limit = (total + _less_than(limit, part)) * size, Decimal(size)
        unit = {"DAY": "HOUR", "HOUR": "MINUTE", "MINUTE": "SECOND"}[unit]
    return sign * _whole((total + _less_than(limit, text)) * _UNITS[last])


def _less_than(limit: Decimal, part: str) -> Decimal:
    """A part of an interval as a number. Raises `ValueError` if it is a whole larger unit, as the minutes in `'1:90' HOUR TO MINUTE`."""
    if (number := Decimal(part)) >= limit:
        raise ValueError(part)
    return number


def _unreadable(tree: Tree) -> SqlError:
    legal = (
        "INTERVAL 'N' with WEEK, DAY, HOUR, MINUTE or SECOND, in whole milliseconds, such as INTERVAL '90' SECOND; "
        "a month has no fixed length"
    )
    return SqlError(f"{spark_sql(tree)} is no length of time; legal: {legal}")


def words(ms: int) -> str:
    """A duration in the largest unit in which it is a whole number.

    >>> words(14_400_000), words(-90_000), words(1_000), words(0)
    ('4 hours', '-90 seconds', '1 second', '0 ms')
    """
    for name, length in _WORDS:
        if ms and ms % length == 0:
            number = ms // length
            return f"{number} {name}{'' if abs(number) == 1 else 's'}"
    return f"{ms} ms"
