"""SQL functions, in lower case, whose value depends on more than the row; a set for each reason.

Results are computed again and compared, so an expression of an operator or of the preparation of an input may not call such a function.
"""

import re
from collections.abc import Iterable
from itertools import chain

from operators.errors import OperatorError
from operators.time_zones import is_time_zone

CHANCE = frozenset({"rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "aes_encrypt", "try_aes_encrypt"})
"""Functions of random numbers; encryption begins with a random vector."""
CLOCK = frozenset(
    {"now", "current_timestamp", "current_date", "current_time", "curdate", "getdate", "localtimestamp", "localtime", "current_timezone"}
)
"""Functions of the time of the query."""
FILES = frozenset(
    {"input_file_name", "input_file_block_start", "input_file_block_length", "monotonically_increasing_id", "spark_partition_id"}
)
"""Functions of how Spark reads rows."""
SESSION = frozenset(
    {"user", "session_user", "current_user", "current_catalog", "current_database", "current_schema"}
    | {"version", "reflect", "try_reflect", "java_method"}
)
"""Functions of the process and its user."""
WITHOUT_PARENTHESES = frozenset(
    {"user", "current_user", "session_user", "current_date", "current_timestamp", "current_time", "localtimestamp"}
)
"""Functions of the clock and the session that SQL calls without parentheses if no column has their name."""
_LIKELY_COLUMNS = frozenset({"user", "localtimestamp"})
"""The functions of `WITHOUT_PARENTHESES` that are taken for columns while the names of the columns are not known."""
_QUOTED = re.compile(
    r"""(?<!\w)[rR]'[^']*'|(?<!\w)[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\r\n]*|/\*.*?\*/""", re.DOTALL
)
"""A text, a name in backticks, or a comment. In a raw text, as `r'\\'`, a backslash does not escape a quote."""
_WORD = re.compile(r"(\.\s*|\bas\s+)?\b(\w+)(\s*\((\s*\))?)?", re.IGNORECASE)
"""A word with the dot or the `AS` before it, and its brackets."""
_PARAMETERS = re.compile(r"(?:\b(\w+)|\(([\w\s,]*)\))\s*->")
"""The parameters of a lambda."""
_TIME_OF_THE_CLOCK = re.compile(r"(now|today|yesterday|tomorrow)[ \t]*(.*)", re.IGNORECASE | re.DOTALL)


def check_deterministic(parameter: str, expression: str, columns: Iterable[str] | None = None) -> None:
    """Raise `OperatorError` if the value of an expression over rows depends on more than the rows.

    Args:
        parameter: the parameter that has the expression, for the error.
        expression: SQL.
        columns: the columns that the expression can read, to distinguish a function without parentheses from a column; None if they are
            not known.

    >>> check_deterministic("delta", "abs(row.v - rand())")
    Traceback (most recent call last):
    operators.errors.OperatorError: `delta` is 'abs(row.v - rand())'; legal: an expression whose value depends on the rows alone, and not \
on random numbers, files, the session or the clock, as rand does
    """
    if (part := nondeterministic_part(expression, columns)) is not None:
        legal = "an expression whose value depends on the rows alone, and not on random numbers, files, the session or the clock"
        raise OperatorError.bad_value(parameter, expression, f"{legal}, as {part} does{suggestion_for(part, columns)}")


def suggestion_for(part: str, columns: Iterable[str] | None = None) -> str:
    """The end of an error for a text that is a time of the clock, or a function that may be meant as a column; empty for others."""
    if part[0] not in "'\"":
        if part not in WITHOUT_PARENTHESES - CLOCK or part in map(str.lower, columns or ()):
            return ""
        return "; write the name of a column in backticks" if columns is None else f"; there is no column {part}"
    return "; take a time from a column; if the word itself is meant, compare by column RLIKE '^today$' and return concat('to', 'day')"


def nondeterministic_part(expression: str, columns: Iterable[str] | None = None) -> str | None:
    """A function or a text of an expression whose value depends on more than the rows; None if there is none.

    Args:
        expression: SQL.
        columns: the columns that it can read; None if they are not known.

    >>> [nondeterministic_part(sql) for sql in ("max(unix_timestamp() - t)", "CAST('Today' AS DATE)", "max(now)")]
    ['unix_timestamp', "'Today'", None]
    """
    code = _without_quotes(expression, before_name="." if columns is None else " ")  # a name after a dot is that of a column
    bare_functions = WITHOUT_PARENTHESES - (_LIKELY_COLUMNS if columns is None else {column.lower() for column in columns})
    bare_functions -= {name.lower() for names in _PARAMETERS.findall(code) for name in re.findall(r"\w+", " ".join(names))}
    functions = (
        word.lower()
        for before, word, bracket, empty in _WORD.findall(code)
        if (_depends_on_more(word.lower(), empty) if bracket else not before and word.lower() in bare_functions)
    )
    quoted = (text.lstrip("rR") for text in _QUOTED.findall(expression))
    texts = (text for text in quoted if text[0] in "'\"" and is_time_of_the_clock(text[1:-1]))
    return next(chain(functions, texts), None)


def _without_quotes(expression: str, before_name: str) -> str:
    """An expression without comments and backticks, and with `x` for a text. A name in backticks can call a function too."""

    def replacement(quoted: re.Match[str]) -> str:
        text = quoted[0]
        if text[:2] in ("--", "/*"):
            return " "
        return f"{before_name}{text[1:-1]} " if text[0] == "`" and text[1:-1].isidentifier() else " x "

    return _QUOTED.sub(replacement, expression)


def _depends_on_more(function: str, empty_brackets: str) -> bool:
    """Whether the value of a call depends on more than the rows."""
    return bool(empty_brackets) if function == "unix_timestamp" else function in CHANCE | CLOCK | FILES | SESSION


def is_time_of_the_clock(text: str) -> bool:
    """Whether Spark casts a text to the time of the query if it is compared with a time. A time zone may follow every word but `now`.

    >>> [is_time_of_the_clock(text) for text in (" Now", "today UTC", "now UTC", "yesterday was bad news")]
    [True, True, False, False]
    """
    found = _TIME_OF_THE_CLOCK.fullmatch(text.strip())
    return found is not None and (not found[2] or (found[1].lower() != "now" and is_time_zone(found[2])))
