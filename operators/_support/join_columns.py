"""The kinds of a join, and the column names of its result: the key once, and a prefix for a name that both sides have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import check_distinct, check_present, check_same_types, names, quoted_name, temporary
from operators.errors import ColumnError, OperatorError
from operators.parameters import check_columns, check_prefix

How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class JoinColumns:
    """The names of the columns of both sides during a join, and in its result. The left side has the index 0, the right side 1.

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
    def read(cls, on: str | Sequence[str], left_prefix: str, right_prefix: str, added: Sequence[str]) -> "JoinColumns":
        """Read the key and the prefixes of a join.

        Raises:
            OperatorError: the key is empty or no list of names, or the prefixes are equal or no texts.
        """
        check_columns("on", on, why_needed="a join without a key would compare every row with every other")
        check_prefix("left_prefix", left_prefix)
        check_prefix("right_prefix", right_prefix)
        if left_prefix == right_prefix:
            raise OperatorError.bad_value("right_prefix", right_prefix, "a prefix other than `left_prefix`")
        return cls(names(on), left_prefix, right_prefix, tuple(added))

    def check(self, left: DataFrame, right: DataFrame) -> None:
        """Raise `ColumnError` unless both sides have the key, its types compare exactly, and all names of the result differ."""
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
            self._result_name(c, other_columns, index)
            for index, (side_columns, other_columns) in enumerate(((left, right), (right, left)))
            for c in side_columns
            if c not in self.key
        ]
        result = (*self.key, *payload, *self.added)
        check_distinct(result, "choose other `left_prefix` / `right_prefix`, or rename the input columns")
        return result

    def payload(self, left: DataFrame, right: DataFrame) -> list[str]:
        """The result's names of both sides' columns other than the key."""
        return [*self.payload_of(left, right, 0), *self.payload_of(right, left, 1)]

    def payload_of(self, frame: DataFrame, other_frame: DataFrame, index: int) -> list[str]:
        """The result's names of a side's columns other than the key."""
        return [self.result_name(c, other_frame, index) for c in frame.columns if c not in self.key]

    def result_name(self, column: str, other_frame: DataFrame, index: int) -> str:
        """The result's name of a side's column that is not part of the key."""
        return self._result_name(column, other_frame.columns, index)

    def _result_name(self, column: str, other_columns: Sequence[str], index: int) -> str:
        """As `result_name`, from the names of the other side's columns."""
        is_shared = column in other_columns or column in self.added
        return (self.left_prefix, self.right_prefix)[index] + column if is_shared else column

    def left_only_name(self, column: str) -> str:
        """The name of a left column in a result that has left columns alone."""
        return self.left_prefix + column if column in self.added else column

    def joined_name(self, column: str, other_frame: DataFrame, index: int) -> str:
        """A column's name during the join: the result's name, or a temporary one for the right side's key."""
        if column in self.key:
            return right_key(column) if index else column
        return self.result_name(column, other_frame, index)

    def side_columns(self, columns: Sequence[str], other_frame: DataFrame, index: int) -> list[Column]:
        """A side's columns with their names during the join."""
        return [F.col(quoted_name(c)).alias(self.joined_name(c, other_frame, index)) for c in columns]

    def key_pairs(self) -> list[tuple[Column, Column]]:
        """Each key column of the left side with that of the right side."""
        return [(F.col(c), F.col(right_key(c))) for c in self.key]

    def key_columns(self) -> list[Column]:
        """The result's key, from a side that has a row."""
        return [F.coalesce(F.col(c), F.col(right_key(c))).alias(c) for c in self.key]

    def traced_names(self, column: str) -> tuple[str, str]:
        """The result's names of a column that both sides have."""
        return (column, column) if column in self.key else (self.left_prefix + column, self.right_prefix + column)


def right_key(column: str) -> str:
    """The name of the right side's key column during the join."""
    return temporary(f"right_{column}")
