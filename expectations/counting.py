"""Translates an expectation into the conditions of the rows that decide it.

The conditions have the semantics of Great Expectations' Spark engine, with its nulls and defaults. A condition is SQL: equal conditions of
several expectations are equal strings, and are counted once. An expectation has no conditions here if its type, one of its
parameters or the type of a column is not supported, or if Great Expectations could refuse it.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import ExpectColumnPairValuesAToBeGreaterThanB
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_be_unique import ExpectColumnValuesToBeUnique
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.expect_compound_columns_to_be_unique import ExpectCompoundColumnsToBeUnique
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import NullityCondition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

ALL = "true"
PLAIN = (NumericType, StringType, BooleanType, DateType, TimestampType, TimestampNTZType, BinaryType)
"""Types whose values Spark compares and groups."""

_NAME, _TEXT = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*"), re.compile(r"[^'\\]*")
Types = Mapping[str, DataType]


@dataclass(frozen=True)
class CountConditions:
    """The rows whose number decides whether an expectation holds; each condition is SQL.

    Args:
        evaluated: the condition of the evaluated rows.
        base: the condition of the rows of which `mostly` is a share.
        unexpected: the condition of the unexpected rows. For an expectation with a key: of the rows among which a key must occur once.
        key: the columns that must be unique together, in alphabetical order; empty for an expectation on single rows.
        mostly: the share of the `base` rows that must be as expected.
    """

    evaluated: str
    base: str
    unexpected: str
    key: tuple[str, ...] = ()
    mostly: float = 1.0


def counting(expectation: Expectation, types: Types) -> CountConditions | None:
    """The rows that decide an expectation; None if only Great Expectations can evaluate it.

    Args:
        expectation: any expectation.
        types: the columns that conditions may name, and their types; see `column_types`.
    """
    translate = _TRANSLATE.get(type(expectation))  # a subclass may mean something else
    if translate is None:
        return None
    untyped: Any = expectation
    rows = _row_condition(untyped, types)
    if rows is None or not isinstance(untyped.mostly, int | float):
        return None
    translated = translate(untyped, rows, types)
    return translated and replace(translated, mostly=float(untyped.mostly))


def column_types(schema: StructType) -> dict[str, DataType]:
    """The types of the columns that a condition may name.

    These are columns of plain values. Their names are ASCII, do not start with `__`, and do not differ only in case.
    """
    names = [name.lower() for name in schema.names]
    fields = [f for f in schema.fields if _NAME.fullmatch(f.name) and names.count(f.name.lower()) == 1]
    return {f.name: f.dataType for f in fields if isinstance(f.dataType, PLAIN)}


def _row_condition(expectation: Any, types: Types) -> str | None:
    """The condition of the rows that the expectation is about; None if only Great Expectations can evaluate it."""
    condition = expectation.row_condition
    if expectation.batch_id is not None or expectation.condition_parser is not None or expectation.windows:
        return None
    if condition is None:
        return ALL
    if type(condition) is not NullityCondition or condition.column.name not in types:
        return None
    return _is_null(condition.column.name) if condition.is_null else _is_not_null(condition.column.name)


def _not_null(expectation: Any, rows: str, types: Types) -> CountConditions | None:
    return CountConditions(rows, rows, _all_of(rows, _is_null(expectation.column))) if expectation.column in types else None


def _between(expectation: Any, rows: str, types: Types) -> CountConditions | None:
    bounds = [b for b in (expectation.min_value, expectation.max_value) if b is not None]
    if not isinstance(types.get(expectation.column), NumericType) or not all(isinstance(b, float) and math.isfinite(b) for b in bounds):
        return None
    if bounds != sorted(bounds) or not isinstance(expectation.strict_min, bool) or not isinstance(expectation.strict_max, bool):
        return None
    least = (
        []
        if expectation.min_value is None
        else [f"`{expectation.column}` {'>' if expectation.strict_min else '>='} {expectation.min_value!r}D"]
    )
    most = (
        []
        if expectation.max_value is None
        else [f"`{expectation.column}` {'<' if expectation.strict_max else '<='} {expectation.max_value!r}D"]
    )
    base = _all_of(rows, _is_not_null(expectation.column))
    return CountConditions(rows, base, _all_of(base, f"NOT ({_all_of(*least, *most)})"))


def _in_set(expectation: Any, rows: str, types: Types) -> CountConditions | None:
    values = _literals(expectation.value_set, types.get(expectation.column)) if isinstance(expectation.value_set, list) else None
    if not values:
        return None
    base = _all_of(rows, _is_not_null(expectation.column))
    return CountConditions(rows, base, _all_of(base, f"`{expectation.column}` NOT IN ({', '.join(values)})"))


def _literals(values: list[Any], kind: DataType | None) -> list[str] | None:
    if kind == StringType() and all(isinstance(v, str) and _TEXT.fullmatch(v) for v in values):
        return [f"'{v}'" for v in values]
    if isinstance(kind, IntegralType) and all(type(v) is int and abs(v) < 2**31 for v in values):
        return [str(v) for v in values]
    return None


def _greater(expectation: Any, rows: str, types: Types) -> CountConditions | None:
    ignored = {"both_values_are_missing": " AND ", "either_value_is_missing": " OR ", "neither": None}
    if not _comparable(types.get(expectation.column_A), types.get(expectation.column_B)) or expectation.or_equal not in (None, True, False):
        return None
    if not isinstance(expectation.ignore_row_if, str) or expectation.ignore_row_if not in ignored:
        return None
    base = _all_of(rows, _not_ignored([expectation.column_A, expectation.column_B], ignored[expectation.ignore_row_if]))
    a, b = f"`{expectation.column_A}`", f"`{expectation.column_B}`"
    return CountConditions(rows, base, _all_of(base, f"NOT ({a} >= {b} OR {a} <=> {b})" if expectation.or_equal else f"NOT ({a} > {b})"))


def _comparable(a: DataType | None, b: DataType | None) -> bool:
    return a is not None and (a == b or (isinstance(a, NumericType) and isinstance(b, NumericType)))


def _unique(expectation: Any, rows: str, types: Types) -> CountConditions | None:
    base = _all_of(rows, _is_not_null(expectation.column))
    return CountConditions(rows, base, base, key=(expectation.column,)) if expectation.column in types else None


def _compound(expectation: Any, rows: str, types: Types) -> CountConditions | None:
    ignored = {"all_values_are_missing": " AND ", "any_value_is_missing": " OR ", "never": None}
    key = sorted(set(expectation.column_list))
    if not set(key) <= set(types) or len(key) != len(expectation.column_list):
        return None
    base = _all_of(rows, _not_ignored(key, ignored[expectation.ignore_row_if]))
    return CountConditions(rows, base, base, key=tuple(key))


_TRANSLATE: dict[type[Expectation], Callable[[Any, str, Types], CountConditions | None]] = {
    ExpectColumnValuesToNotBeNull: _not_null,
    ExpectColumnValuesToBeBetween: _between,
    ExpectColumnValuesToBeInSet: _in_set,
    ExpectColumnPairValuesAToBeGreaterThanB: _greater,
    ExpectColumnValuesToBeUnique: _unique,
    ExpectCompoundColumnsToBeUnique: _compound,
}


def _is_null(column: str) -> str:
    return f"`{column}` IS NULL"


def _is_not_null(column: str) -> str:
    return f"`{column}` IS NOT NULL"


def _not_ignored(columns: list[str], ignored: str | None) -> str:
    """The rows that `ignore_row_if` keeps; `ignored` joins the conditions of the columns that are null."""
    return ALL if ignored is None else f"NOT ({ignored.join(map(_is_null, columns))})"


def _all_of(*conditions: str) -> str:
    """All conditions; one that every row meets is omitted."""
    return " AND ".join(c for c in conditions if c != ALL) or ALL
