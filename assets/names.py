"""The legal names of sources and tables, and the legal types of columns. `*_fault` returns None for a legal name."""

import keyword
import re
from collections.abc import Iterator, Sequence

from pyspark.sql.types import (
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    NullType,
    StructType,
    TimeType,
    UserDefinedType,
    VarcharType,
    YearMonthIntervalType,
)

from operators.column_types import types_within

MAX_NAME_LENGTH, MAX_COLUMNS = 128, 1_000
RESERVED = frozenset({"events", "ledger", "quarantine", "landing", "changelog", "early", "verdicts", "kept_rows", "maintenance"})
"""Names of the lake's own folders and locks (`verdicts` has the lateness decisions); names that start with `_` are reserved too."""
NAMES_REFUSED_BY_DAGSTER = frozenset(
    {"arg_dict", "bool", "conf", "config", "context", "dict", "float", "input", "input_arg_dict", "int", "meta", "output"}
    | {"output_arg_dict", "str", "type", *keyword.kwlist}
)
"""Names that Dagster does not accept for a step."""
JOBS_AND_CHECKS = frozenset(
    {"advance", "event_logs", "export", "export_table", "fresh_tables", "full_checks", "ingest", "land_changes", "land_versions"}
    | {"maintain", "run_stream", "stream"}
)
"""Names of jobs, their steps and checks that every code location has, in addition to those of its tables."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NOT_STORED = (NullType, CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType, TimeType, UserDefinedType)


def name_fault(name: object) -> str | None:
    """A description of the legal names of sources and tables, for an error; None if the name is legal."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        return f"at most {MAX_NAME_LENGTH} characters: a letter from a to z or A to Z, then such letters, digits or '_'"
    if name.lower() in RESERVED:
        return f"a name other than {', '.join(sorted(RESERVED))}, which are the lake's own; choose another, such as {name + '_rows'!r}"
    return None


def table_name_fault(name: object) -> str | None:
    """A description of the legal names of tables, for an error; None if the name is legal. A table's step in Dagster has its name."""
    if fault := name_fault(name):
        return fault
    if name in NAMES_REFUSED_BY_DAGSTER:
        return f"a name other than Python's keywords, and the names that Dagster refuses; choose another, such as {f'{name}_rows'!r}"
    if name in JOBS_AND_CHECKS:
        others = ", ".join(sorted(JOBS_AND_CHECKS))
        return f"a name other than {others}, which are jobs and steps in Dagster; choose another, such as {f'{name}_rows'!r}"
    return None


def fold_case(name: str) -> str:
    """A name in the form that Java's case-insensitive comparison uses: each letter to upper case, then to lower case."""
    if name.isascii():
        return name.lower()
    upper = "".join(u if len(u := letter.upper()) == 1 else letter for letter in name)
    return "".join(low if len(low := letter.lower()) == 1 else letter for letter in upper)


def folded_name(expression: str) -> str:
    """The column's name if an expression is only a column: without backticks, in the form of `fold_case`."""
    return fold_case(expression.strip().strip("`"))


def first_duplicate(names: Sequence[str]) -> str | None:
    """The first name that equals an earlier one, ignoring case; None if all differ."""
    earlier_names: set[str] = set()
    return next((name for name in names if fold_case(name) in earlier_names or earlier_names.add(fold_case(name))), None)


def nested_structs(kind: DataType) -> Iterator[StructType]:
    """Every struct in a type, at any depth; the type itself if it is one."""
    return (part for part in types_within(kind) if isinstance(part, StructType))


def is_storable(kind: DataType) -> bool:
    """Whether a Delta table can store values of a type.

    A char or varchar column is stored as a string; a char or varchar within another type cannot be stored.
    """
    return not any(
        isinstance(part, _NOT_STORED)
        or (isinstance(part, CharType | VarcharType) and part is not kind)
        or (isinstance(part, StructType) and not part.fields)
        or (isinstance(part, DecimalType) and part.precision == 0)
        for part in types_within(kind)
    )
