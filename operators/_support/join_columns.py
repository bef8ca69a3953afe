"""The column names of a join's result: the key once, and a prefix for a name that both sides have."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import check_distinct, check_present, check_same_types, names, temporary
from operators.errors import ColumnError, OperatorError


@dataclass(frozen=True)
class JoinColumns:
    """The names of the left (0) and the right (1) side's columns during a join, and in its result.

    Args:
        key: the key columns, with the same names on both sides.
        left_prefix: added to a left column's name if the right side or the result has a column of that name.
        right_prefix: the same for the right side.
        added: the columns that the result adds.
    """

    key: tuple[str, ...]
    left_prefix: str
    right_prefix: str
    added: tuple[str, ...]

    @classmethod
    def checked(cls, on: str | Sequence[str], left_prefix: str, right_prefix: str, added: Sequence[str]) -> "JoinColumns":
        """The names of a join on a key.

        Raises:
            OperatorError: the key is empty, or the prefixes are equal.
        """
        if not names(on):
            legal = "at least one column; a join without a key would compare every row with every other"
            raise OperatorError.bad_value("on", on, legal)
        if left_prefix == right_prefix:
            raise OperatorError.bad_value("right_prefix", right_prefix, "a prefix other than `left_prefix`")
        return cls(names(on), left_prefix, right_prefix, tuple(added))

    def check(self, left: DataFrame, right: DataFrame) -> None:
        """Raise `ColumnError` unless both sides have the key, with types that compare exactly, and all names of the result differ."""
        check_present(left, self.key, "on")
        check_present(right, self.key, "on")
        check_same_types(left, right, self.key)
        self.result_columns(left.columns, right.columns)

    def result_columns(self, left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns, for sides with the given columns.

        Raises:
            ColumnError: a side lacks a key column, or two names of the result differ in no more than case.
        """
        for columns in (left, right):
            for column in self.key:
                if column not in columns:
                    raise ColumnError.missing("on", column, [*columns])
        payload = [
            self._result_name(c, other, n)
            for n, (own, other) in enumerate(((left, right), (right, left)))
            for c in own
            if c not in self.key
        ]
        columns_of_both = (*self.key, *payload, *self.added)
        check_distinct(columns_of_both, "choose other `left_prefix` / `right_prefix`, or rename the input columns")
        return columns_of_both

    def payload(self, left: DataFrame, right: DataFrame) -> list[str]:
        """The result's columns other than the key and those that it adds."""
        return [*self.payload_of(left, right, 0), *self.payload_of(right, left, 1)]

    def payload_of(self, frame: DataFrame, other: DataFrame, which: int) -> list[str]:
        """The result's names of a side's columns other than the key."""
        return [self.result_name(c, other, which) for c in frame.columns if c not in self.key]

    def result_name(self, column: str, other: DataFrame, which: int) -> str:
        """The result's name of a side's column that is not part of the key."""
        return self._result_name(column, other.columns, which)

    def _result_name(self, column: str, others: Sequence[str], which: int) -> str:
        is_shared = column in others or column in self.added
        return (self.left_prefix, self.right_prefix)[which] + column if is_shared else column

    def own_name(self, column: str) -> str:
        """The name of a left column in a result that has left columns alone."""
        return self.left_prefix + column if column in self.added else column

    def joined_name(self, column: str, other: DataFrame, which: int) -> str:
        """A column's name during the join: the result's name, or a temporary one for the right side's key."""
        if column in self.key:
            return right_key(column) if which else column
        return self.result_name(column, other, which)

    def renamed(self, columns: Sequence[str], other: DataFrame, which: int) -> list[Column]:
        """A side's columns with their names during the join."""
        return [F.col(c).alias(self.joined_name(c, other, which)) for c in columns]

    def key_pairs(self) -> list[tuple[Column, Column]]:
        """Each key column of the left side with that of the right side."""
        return [(F.col(c), F.col(right_key(c))) for c in self.key]

    def key_columns(self) -> list[Column]:
        """The result's key, from a side that has a row."""
        return [F.coalesce(F.col(c), F.col(right_key(c))).alias(c) for c in self.key]

    def traced(self, column: str) -> tuple[str, str]:
        """The result's names of a column that both sides have."""
        return (column, column) if column in self.key else (self.left_prefix + column, self.right_prefix + column)


def right_key(column: str) -> str:
    """The name of the right side's key column during the join."""
    return temporary(f"right_{column}")
