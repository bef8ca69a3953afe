"""SQL functions whose value depends on more than the row, by the reason, in lower case.

Results are computed again and compared, so an aggregate or the preparation of an input that calls one of them is refused.
"""

import re

from operators.errors import OperatorError

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
SESSION = frozenset({"user", "session_user", "current_user", "version", "reflect", "try_reflect", "java_method"})
"""Functions of the process and its user."""
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_WORD = re.compile(r"(?<![\w.])(\w+)(\s*\()?")


def check_deterministic(parameter: str, expression: str) -> None:
    """Raise `OperatorError` if the value of an expression over rows depends on more than the rows.

    >>> check_deterministic("delta", "abs(row.v - rand())")
    Traceback (most recent call last):
    operators.errors.OperatorError: `delta` is 'abs(row.v - rand())'; legal: an expression whose value depends on the rows alone, and not \
on random numbers, files, the session or the clock, as rand does
    """
    for name, bracket in _WORD.findall(_QUOTED.sub(" ", expression)):
        word = name.lower()
        if (bracket and word in CHANCE | CLOCK | FILES | SESSION) or (word in CLOCK and word.startswith("current_")):
            legal = "an expression whose value depends on the rows alone, and not on random numbers, files, the session or the clock"
            raise OperatorError.bad_value(parameter, expression, f"{legal}, as {name} does")
