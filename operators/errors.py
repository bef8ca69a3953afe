"""The errors of the operators. Each says what is wrong, what is legal and how to fix it; class methods contain the wording."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Self, TypeGuard

_MOST_ROWS = 10**18


class TidemarkError(Exception):
    """The base of every error that Tidemark raises for a reason that its user can act on."""


class OperatorError(TidemarkError, ValueError):
    """An operator, or a value given to it, is not usable."""

    @classmethod
    def bad_value(cls, parameter: str, value: object, legal: str) -> Self:
        """`parameter` has a value that is not legal."""
        return cls(f"`{parameter}` is {value!r}; legal: {legal}")


def did_you_mean(name: object, known_names: Iterable[str], other_names: Mapping[str, str] | None = None) -> str:
    """The end of an error for an unknown name. It suggests the most similar of the known names, ignoring case; empty if none is similar.

    Args:
        name: the unknown name.
        known_names: the known names.
        other_names: further names to compare with, each with the known name that it stands for.

    >>> did_you_mean("paymentz", ["orders", "Payments"])
    "; did you mean 'Payments'?"
    """
    by_lower_case = {alias.lower(): target for alias, target in (other_names or {}).items()} | {n.lower(): n for n in known_names}
    nearest = difflib.get_close_matches(str(name).lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[nearest[0]]!r}?" if nearest else ""


def is_instance(value: object, protocol: type) -> bool:
    """Whether a value implements a protocol. False for a class, although a class has the same members as its instances."""
    return isinstance(value, protocol) and not isinstance(value, type)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    """Whether a value is a whole number of at least 1, with which numbers of rows do not overflow."""
    return is_whole(value) and 1 <= value <= _MOST_ROWS


def check_count(parameter: str, value: object) -> None:
    """Raise `OperatorError` unless a number of rows is a whole number of at least 1."""
    if not is_count(value):
        raise OperatorError.bad_value(parameter, value, "a whole number of at least 1, and at most 10**18")


class DurationError(OperatorError):
    """A duration cannot be read, or is finer than the platform's resolution of 1 ms."""

    @classmethod
    def unreadable(cls, parameter: str, value: object) -> Self:
        """The value is not a duration."""
        legal = "whole milliseconds as an int, a timedelta of whole milliseconds, or words such as '24 hours', '90 s', '-250 ms'"
        return cls.bad_value(parameter, value, legal)

    @classmethod
    def too_long(cls, parameter: str, value: object) -> Self:
        """The value is longer than the time from the first to the last timestamp."""
        return cls.bad_value(parameter, value, "a duration of less than 10,000 years; timestamps are from year 1 to year 9999")

    @classmethod
    def negative(cls, parameter: str, value: object) -> Self:
        """The value is negative where only a length makes sense."""
        return cls.bad_value(parameter, value, "a duration of zero or more")


class WindowError(OperatorError):
    """The parameters of a window contradict each other or describe no window."""

    @classmethod
    def empty(cls, parameter: str, value: object) -> Self:
        """A length is zero or negative."""
        return cls.bad_value(parameter, value, "a duration of more than zero")


class ColumnError(OperatorError):
    """A frame lacks a column, has it with another type, or has a reserved name."""

    @classmethod
    def missing(cls, parameter: str, column: str, columns: list[str]) -> Self:
        """The frame does not have the named column."""
        hint = did_you_mean(column, columns)
        return cls(f"`{parameter}` names the column {column!r}, which the frame does not have; its columns: {', '.join(columns)}{hint}")

    @classmethod
    def not_a_time(cls, parameter: str, column: str, type_name: str) -> Self:
        """The time column is not a timestamp."""
        legal = "legal: timestamp (for epoch milliseconds use timestamp_millis(...))"
        return cls(f"`{parameter}` names the column {column!r} of type {type_name}; {legal}")

    @classmethod
    def not_whole(cls, parameter: str, column: str, type_name: str) -> Self:
        """The column does not contain whole numbers."""
        return cls(
            f"`{parameter}` names the column {column!r} of type {type_name}; legal: a whole number (tinyint, smallint, int or bigint)"
        )

    @classmethod
    def key_types(cls, column: str, left_type: str, right_type: str) -> Self:
        """The two sides have a key column with different types."""
        types = f"which is {left_type} on the left and {right_type} on the right"
        reason = "keys would match by a cast that loses digits, or not at all"
        return cls(f"`on` names the column {column!r}, {types}; cast one side, or {reason}")

    @classmethod
    def reserved(cls, column: str, prefix: str) -> Self:
        """An input column has the prefix of the operators' temporary columns."""
        return cls(f"the column {column!r} starts with {prefix!r}, which is reserved for temporary columns; rename it")

    @classmethod
    def added_by_result(cls, column: str) -> Self:
        """The input has a column that the result adds."""
        return cls(f"the result adds a column with the name {column!r}; rename the input column")

    @classmethod
    def collision(cls, columns: list[str], way_out: str) -> Self:
        """The result would have two columns of one name."""
        return cls(f"the result would have {', '.join(columns)} twice; {way_out}")


class StreamingError(OperatorError):
    """Spark's own streaming operator would give a wrong result, or has no equivalent."""

    @classmethod
    def refused(cls, operator: str, reason: str, way_out: str) -> Self:
        """The operator cannot compute the right result on streaming frames."""
        return cls(f"{operator} on streaming frames: {reason}; {way_out}")
