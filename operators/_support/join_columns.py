"""The names of a join's result: the key once, a column that both sides hold under a prefix on each."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import check_distinct, check_present, check_same_types, names, temporary
from operators.errors import OperatorError


@dataclass(frozen=True)
class Sides:
    """How two sides are named while they are joined, and in the result.

    Args:
        key: the key columns, by the same names on both sides.
        left_prefix: put before a left column's name that the right side holds too, or that the result adds.
        right_prefix: the same for the right side.
        added: the columns that the result adds.
    """

    key: tuple[str, ...]
    left_prefix: str
    right_prefix: str
    added: tuple[str, ...]

    @classmethod
    def checked(cls, on: str | Sequence[str], left_prefix: str, right_prefix: str, added: Sequence[str]) -> "Sides":
        """The names, if they can be told apart.

        Raises:
            OperatorError: there is no key, or one prefix for both sides.
        """
        if not names(on):
            legal = "at least one column; a join without a key would compare every row with every other"
            raise OperatorError.bad_value("on", on, legal)
        if left_prefix == right_prefix:
            raise OperatorError.bad_value("right_prefix", right_prefix, "a prefix other than `left_prefix`")
        return cls(names(on), left_prefix, right_prefix, tuple(added))

    def check(self, left: DataFrame, right: DataFrame) -> None:
        """Raise `ColumnError` unless both sides hold the key with types that compare exactly, and no name comes twice."""
        check_present(left, self.key, "on")
        check_present(right, self.key, "on")
        check_same_types(left, right, self.key)
        way_out = "choose other `left_prefix` / `right_prefix`, or rename the input columns"
        check_distinct([*self.key, *self.payload(left, right), *self.added], way_out)

    def payload(self, left: DataFrame, right: DataFrame) -> list[str]:
        """The result's columns beside the key and those that it adds."""
        return [*self.of_side(left, right, 0), *self.of_side(right, left, 1)]

    def of_side(self, frame: DataFrame, other: DataFrame, which: int) -> list[str]:
        """The result's names of a side's columns beside the key."""
        return [self.renamed(c, other, which) for c in frame.columns if c not in self.key]

    def renamed(self, column: str, other: DataFrame, which: int) -> str:
        """The result's name of a column of the left (0) or right (1) side."""
        shared = column in other.columns or column in self.added
        return (self.left_prefix, self.right_prefix)[which] + column if shared else column

    def name(self, column: str, other: DataFrame, which: int) -> str:
        """A column's name while joining: the result's, but for the right side's key."""
        if column in self.key:
            return of_right(column) if which else column
        return self.renamed(column, other, which)

    def named(self, columns: Sequence[str], other: DataFrame, which: int) -> list[Column]:
        """A side's columns with their names while joining."""
        return [F.col(c).alias(self.name(c, other, which)) for c in columns]

    def key_pairs(self) -> list[tuple[Column, Column]]:
        """Each key column of the left with that of the right."""
        return [(F.col(c), F.col(of_right(c))) for c in self.key]

    def key_columns(self) -> list[Column]:
        """The result's key, of whichever side is there."""
        return [F.coalesce(F.col(c), F.col(of_right(c))).alias(c) for c in self.key]

    def traced(self, column: str) -> tuple[str, str]:
        """The result's names of a column that both sides hold."""
        return (column, column) if column in self.key else (self.left_prefix + column, self.right_prefix + column)


def of_right(key: str) -> str:
    """The right side's key while joining."""
    return temporary(f"right_{key}")
