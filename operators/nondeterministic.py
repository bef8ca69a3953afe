"""SQL functions whose value depends on more than the row, by the reason, in lower case.

Results are computed again and compared, so an aggregate or the preparation of an input that calls one of them is refused.
"""

import re
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
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_WORD = re.compile(r"(\.\s*)?\b(\w+)(\s*\((\s*\))?)?")
_TIME_OF_THE_CLOCK = re.compile(r"(now|today|yesterday|tomorrow)[ \t]*(.*)", re.IGNORECASE | re.DOTALL)


def check_deterministic(parameter: str, expression: str) -> None:
    """Raise `OperatorError` if the value of an expression over rows depends on more than the rows.

    >>> check_deterministic("delta", "abs(row.v - rand())")
    Traceback (most recent call last):
    operators.errors.OperatorError: `delta` is 'abs(row.v - rand())'; legal: an expression whose value depends on the rows alone, and not \
on random numbers, files, the session or the clock, as rand does
    """
    if (part := nondeterministic_part(expression)) is not None:
        legal = "an expression whose value depends on the rows alone, and not on random numbers, files, the session or the clock"
        raise OperatorError.bad_value(parameter, expression, f"{legal}, as {part} does{way_out_of_text(part)}")


def way_out_of_text(part: str) -> str:
    """The end of an error for a text that is a time of the clock; empty for a function."""
    if part[0] not in "'\"":
        return ""
    find_text = "find a text that is such a word by column RLIKE '^today$'"
    return f"; read a time from a column, {find_text}, and write it as a result by concat('to', 'day')"


def nondeterministic_part(expression: str) -> str | None:
    """A function or a text of an expression whose value depends on more than the rows; None if there is none.

    >>> [nondeterministic_part(sql) for sql in ("max(unix_timestamp() - t)", "CAST('Today' AS DATE)", "max(now)")]
    ['unix_timestamp', "'Today'", None]
    """
    words = _WORD.findall(_QUOTED.sub(lambda quoted: " " if quoted[0][:2] in ("--", "/*") else " x ", expression))
    functions = (word.lower() for dot, word, bracket, empty in words if _depends_on_more(word.lower(), dot, bracket, empty))
    texts = (text for text in _QUOTED.findall(expression) if text[0] in "'\"" and is_time_of_the_clock(text[1:-1]))
    return next(chain(functions, texts), None)


def _depends_on_more(word: str, dot: str, bracket: str, empty_brackets: str) -> bool:
    """Whether a word is a call of a function that depends on more than the rows, or a name of the clock without brackets."""
    if word == "unix_timestamp":
        return bool(empty_brackets)
    if bracket:
        return word in CHANCE | CLOCK | FILES | SESSION
    return not dot and word in CLOCK and word.startswith("current_")


def is_time_of_the_clock(text: str) -> bool:
    """Whether Spark casts a text to a time of the query where it is compared with a time. All words but `now` may have a time zone.

    >>> [is_time_of_the_clock(text) for text in (" Now", "today UTC", "now UTC", "yesterday was bad news")]
    [True, True, False, False]
    """
    found = _TIME_OF_THE_CLOCK.fullmatch(text.strip())
    return found is not None and (not found[2] or (found[1].lower() != "now" and is_time_zone(found[2])))
