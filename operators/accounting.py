"""What an operator reports of its input rows, so that each row can be accounted for: when it is finalized, and whether it is matched."""

from typing import Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame

from operators.contract import Operator, are_overridden_together


@runtime_checkable
class ReportsFinality(Operator, Protocol):
    """An operator that reports when each row is finalized: when the row can no longer be part of a new result. So rows can be counted."""

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When the last result that may contain a row is final.

        Args:
            frames: the rows of each input that are not late, with `event_time`, and with `WATERMARK` or `SESSION` if the operator reads
                these columns.

        Returns:
            One row for each row: `which` (int, the input), `event_time`, and `FINALIZED_AT` (timestamp; null if no result ever contains the
            row).
        """
        ...


@runtime_checkable
class FinalizesByTime(ReportsFinality, Protocol):
    """An operator that computes from a row's event time alone when the row is finalized. The engine then counts its rows in one pass."""

    def finalized_by_time(self, which: int, event_time: Column) -> Column | None:
        """The `FINALIZED_AT` of a row of input `which`, as in `finalized_at`; None if it depends on more than the row's event time."""
        ...


def finalized_by_time(operator: Operator, which: int, event_time: Column) -> Column | None:
    """When a row of an input is finalized, as an expression over its event time; None if the operator gives none (see `FinalizesByTime`).

    The result is also None if a subclass overrides `finalized_at` alone, because the inherited expression may differ from the new method.
    """
    if not isinstance(operator, FinalizesByTime) or not are_overridden_together(operator, "finalized_by_time", "finalized_at"):
        return None
    return operator.finalized_by_time(which, event_time)


@runtime_checkable
class ReportsMatches(ReportsFinality, Protocol):
    """A join that reports which rows of its inputs match, so that these can be counted even if its results do not name input rows."""

    def matches(self, *frames: DataFrame) -> DataFrame:
        """Which rows are in a result with a row of another input.

        Args:
            frames: as for `finalized_at`.

        Returns:
            The rows of `finalized_at`, with `MATCHED` (boolean).
        """
        ...


@runtime_checkable
class TracesInputs(Operator, Protocol):
    """An operator whose results name the input rows from which they were computed, so that each row can be accounted for."""

    def traced(self, column: str) -> tuple[str | None, ...]:
        """For each input, the result's name of a column that every input has; None if results do not name rows of that input."""
        ...

    def finalized_at_if_unmatched(self, which: int, event_time: Column) -> Column:
        """The `final_at` of a row of input `which` if no row matches it."""
        ...

    def keeps_unmatched(self, which: int) -> bool:
        """Whether the result keeps the unmatched rows of input `which`."""
        ...


@runtime_checkable
class FindsPairs(TracesInputs, Protocol):
    """An operator whose results may leave out the rows of an input. It also gives the pairs, so that these rows can be counted too."""

    @property
    def pairs(self) -> TracesInputs:
        """The operator whose results name the rows of every input that are in a pair."""
        ...
