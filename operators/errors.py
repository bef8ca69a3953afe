"""The one error tree. Each error says what was wrong, what is legal, and the way out; the words live here."""

from typing import Self


class OperatorError(ValueError):
    """An operator, or a value given to it, is not usable as it stands."""

    @classmethod
    def bad_value(cls, parameter: str, value: object, legal: str) -> Self:
        """`parameter` holds a value that is not legal."""
        return cls(f"`{parameter}` is {value!r}; legal: {legal}")


def is_count(value: object) -> bool:
    """Whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_count(parameter: str, value: object) -> None:
    """Raise `OperatorError` unless a number of rows is a whole number of at least 1."""
    if not is_count(value):
        raise OperatorError.bad_value(parameter, value, "a whole number of at least 1")


class DurationError(OperatorError):
    """A duration cannot be read, or is finer than the platform's resolution of 1 ms."""

    @classmethod
    def unreadable(cls, parameter: str, value: object) -> Self:
        """The value is not a duration."""
        legal = "whole milliseconds as an int, a timedelta of whole milliseconds, or words such as '24 hours', '90 s', '-250 ms'"
        return cls.bad_value(parameter, value, legal)

    @classmethod
    def negative(cls, parameter: str, value: object) -> Self:
        """The value lies below zero where only a length makes sense."""
        return cls.bad_value(parameter, value, "a duration of zero or more")


class WindowError(OperatorError):
    """A window cannot be as it is described."""

    @classmethod
    def empty(cls, parameter: str, value: object) -> Self:
        """A length is zero, or below."""
        return cls.bad_value(parameter, value, "a duration of more than zero; a window of no length would hold no row")


class ColumnError(OperatorError):
    """A frame lacks a column, holds it with another type, or holds a reserved name."""

    @classmethod
    def missing(cls, parameter: str, column: str, present: list[str]) -> Self:
        """The named column is not in the frame."""
        return cls(f"`{parameter}` names the column {column!r}, which is not there; present: {', '.join(present)}")

    @classmethod
    def not_a_time(cls, parameter: str, column: str, found: str) -> Self:
        """The time column is no timestamp."""
        legal = "legal: timestamp (for epoch milliseconds use timestamp_millis(...))"
        return cls(f"`{parameter}` names the column {column!r} of type {found}; {legal}")

    @classmethod
    def not_whole(cls, parameter: str, column: str, found: str) -> Self:
        """The column holds no whole numbers."""
        return cls(f"`{parameter}` names the column {column!r} of type {found}; legal: a whole number (tinyint, smallint, int or bigint)")

    @classmethod
    def key_types(cls, column: str, left: str, right: str) -> Self:
        """The two sides hold a key column with different types."""
        found = f"which is {left} on the left and {right} on the right"
        return cls(
            f"`on` names the column {column!r}, {found}; cast one side, or keys would match by a cast that loses digits, or not at all"
        )

    @classmethod
    def reserved(cls, column: str, prefix: str) -> Self:
        """A user's column has the prefix of the operators' temporary columns."""
        return cls(f"the column {column!r} starts with {prefix!r}, which is reserved for temporary columns; rename it")

    @classmethod
    def taken(cls, column: str) -> Self:
        """The input holds a column that the result adds."""
        return cls(f"the column {column!r} is one that the result adds; rename it")

    @classmethod
    def collision(cls, columns: list[str], way_out: str) -> Self:
        """The result would hold a name twice."""
        return cls(f"the result would hold {', '.join(columns)} twice; {way_out}")


class StreamingError(OperatorError):
    """Spark's own streaming operator would be wrong, or refuses."""

    @classmethod
    def refused(cls, operator: str, why: str, way_out: str) -> Self:
        """Name what would go wrong and what to do instead."""
        return cls(f"{operator} on streaming frames: {why}; {way_out}")
