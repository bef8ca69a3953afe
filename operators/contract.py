"""The contract between operators and the engine. The engine depends on this contract, not on particular operators.

An operator is a frozen, checked value. Calling it on frames gives the whole result for complete input, with `result_time` (the
result's event time) and `final_at` (the watermark from which the result can no longer change). An operator also declares what a step
must read, how its results are written and which rows are late. A user's own operator implements the same contract.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame

from operators.steps import Emits, Reads

if TYPE_CHECKING:
    from operators.triggers import Trigger

PROMISE_VIOLATED = "rows violate the promise of their input"
"""The text of Spark's error if `fold` of a `Promised` operator meets rows for which its result could be wrong."""
NO_EXACT_SUM = (
    "a sum of doubles has a value of 2e37 or more, for which it depends on the order of the rows; leave such values out, as in "
    "sum(if(abs(v) < 1e37, v, null))"
)
"""The text of Spark's error if an aggregate cannot be computed independently of the order of its rows."""
ASIDE = "aside"
"""Metadata key of an operator's field on which no result depends: a table stays valid when the field's value changes."""
FORMER_NAME = "former_name"
"""Metadata key of an operator's field that was renamed. The value is the field's name in lakes and in YAML of earlier versions."""
CANONICAL = "canonical"
"""Metadata key of an operator's field whose texts have several notations. The value is a function that writes a text in one of them."""


@runtime_checkable
class Operator(Protocol):
    """What the engine must know about an operator: what to read, how to write the results, and which rows are late."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs, in the order of a call."""
        ...

    @property
    def reads(self) -> Reads:
        """What a step must read."""
        ...

    @property
    def emits(self) -> Emits:
        """How its results are written to its table."""
        ...

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether a row is late, given the operator's watermark before the row's batch; false if that watermark is null."""
        ...

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The whole result for complete input.

        Args:
            frames: the rows of each input, in the order of `inputs`.

        Returns:
            The result's columns, with `result_time` and `final_at` if results become final.
        """
        ...


@runtime_checkable
class NamesColumns(Operator, Protocol):
    """An operator that derives its result's columns from its inputs' columns, so that they are checked before any row is read."""

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...] | None:
        """The names of the result's columns, for inputs with the given columns; None if they are known only from its rows.

        Raises:
            OperatorError: the operator cannot read inputs with these columns.
        """
        ...


NEVER_LATE = -(1 << 63)
"""The bound of `BoundsLateness` for which no row is late."""


@runtime_checkable
class BoundsLateness(Operator, Protocol):
    """An operator for which a row is late if its event time is before a bound, so that late rows are found without a Spark session."""

    def late_before(self, watermark: int) -> int | None:
        """The bound, in epoch ms: `late` is true for `event_time < bound`, for event times in whole ms.

        Args:
            watermark: the operator's watermark before the row's batch, in epoch ms.

        Returns:
            The bound; `NEVER_LATE` if no row is late; None if lateness depends on more than a bound, as for sessions and for windows with
            gaps between them.
        """
        ...


def late_before(operator: Operator, watermark: int) -> int | None:
    """The bound before which rows are late for an operator at a watermark; None if the operator gives none (see `BoundsLateness`).

    The result is also None if a subclass overrides `late` alone, because the inherited bound may differ from the new method.
    """
    if not isinstance(operator, BoundsLateness) or not are_overridden_together(operator, "late_before", "late"):
        return None
    return operator.late_before(watermark)


def are_overridden_together(operator: Operator, derived: str, method: str) -> bool:
    """Whether `derived` still describes `method`: false if the most derived class with one of the two defines `method` alone."""
    members = next(vars(c) for c in type(operator).__mro__ if method in vars(c) or derived in vars(c))
    return derived in members


@runtime_checkable
class SplitsKeys(Operator, Protocol):
    """An operator that compares the rows of a key with each other, and can do so within time buckets, for keys with very many rows."""

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, which both inputs have."""
        ...

    @property
    def bucket_ms(self) -> int:
        """The length of a bucket in ms. A row is compared with the rows of its key within about that time."""
        ...

    def in_time_buckets(self) -> "SplitsKeys":
        """The operator that compares rows within time buckets only. Its results are the same."""
        ...


@runtime_checkable
class Incremental(Operator, Protocol):
    """An operator that reads `NewRows`: it merges new rows into its own current rows."""

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """Merge the rows of new batches into the table's rows.

        Args:
            current: the table's rows that the new rows may change.
            frames: the rows of new batches, for each input.

        Returns:
            The rows that replace `current`.
        """
        ...


@runtime_checkable
class KeepsRows(Operator, Protocol):
    """An operator of one input that reads `ByKey` with `keeps`: it says which rows later steps need."""

    def still_needed(self, rows: DataFrame, oldest: int | None) -> DataFrame:
        """The rows that later steps need.

        Later rows follow in the order of `seq` and `arrival`. Calling the operator on the returned rows and the later rows gives the same
        result as calling it on all rows. `still_needed` too returns the same rows for both.

        Args:
            rows: every row of some keys, or the rows that an earlier call returned and all later rows; with `seq` and `arrival`.
            oldest: a time in ms, in event or processing time as `ByKey.ttl_by` says. The rows of a key are forgotten if its newest row is
                before that time. None to forget no rows.

        Returns:
            Some of the rows, or rows that stand for several of them, with their columns except `BATCH_TIME`; if keys have a TTL, with
            `PERIOD_START` and `PERIOD_END`.
        """
        ...


@runtime_checkable
class KeepsVersions(Operator, Protocol):
    """An operator with an input of versions. Of the older versions of a key, later rows can look up only the newest."""

    def newest_versions(self, rows: DataFrame) -> DataFrame:
        """The newest version of each key, with the columns of the rows; none of a key that has no valid version."""
        ...


@runtime_checkable
class Promised(Incremental, Protocol):
    """An operator whose `fold` is right only if its input keeps a promise; `fold` fails with `PROMISE_VIOLATED` if the input breaks it."""

    @property
    def monotonic(self) -> bool:
        """Whether a user gave the promise; if not, it was derived from the input."""
        ...

    def keys_moving_back(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The keys of new rows that break the promise."""
        ...


@runtime_checkable
class DecidesLateness(Operator, Protocol):
    """An operator that decides lateness batch by batch, and reads the decisions that the engine recorded."""

    def lateness_decisions(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """Decide the lateness of the rows of a batch that are behind the watermark before it.

        Args:
            watermark: the operator's watermark before the batch, in epoch ms.
            frames: the rows of each input up to and including the batch, without late rows; with `SESSION` and `NEW`.

        Returns:
            `which` (int, the input), `seq`, `arrival` and `SESSION`: null for a late row, else the closed session in which an older row
            stays. A row without either decision is not in the result.
        """
        ...


@runtime_checkable
class Early(Operator, Protocol):
    """An operator that can show early results: those of windows that are still open, or pairs that are not final."""

    @property
    def early(self) -> "Trigger | None":
        """When early results are shown; None for never."""
        ...

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The results of the rows so far, with `ROWS_SEEN` (bigint): the number of rows of each result's window."""
        ...


@runtime_checkable
class EarlyByWindow(Early, Protocol):
    """An operator that can show early results, and may have several results in a window: a trigger fires for a window as a whole.

    Without this, a trigger fires for each value of the result's key.
    """

    @property
    def window_key(self) -> tuple[str, ...]:
        """The columns of a result that identify its window: the operator's key, `window_start` and `window_end`."""
        ...


@runtime_checkable
class RunsAsQuery(Operator, Protocol):
    """An operator of closed ranges that a streaming query computes too, with Spark's own state and the engine's watermark."""

    def check_query(self) -> None:
        """Raise `StreamingError` if a query's results would differ from those of closed ranges."""
        ...

    def query_watermark(self, closed_to: int) -> int:
        """Spark's watermark at which the query has emitted exactly the results with `final_at <= closed_to`; it may emit pairs earlier.

        Args:
            closed_to: the operator's watermark, in epoch ms. A row that is not late at this watermark is not late for Spark either.
        """
        ...

    def as_query(self, *frames: DataFrame) -> DataFrame:
        """The results as a streaming frame, to be written in append mode.

        Args:
            frames: the rows of each input that are not late, as streaming frames; with `WATERMARK` if the operator reads that.
        """
        ...


def has_query(operator: Operator) -> bool:
    """Whether a streaming query computes an operator (see `RunsAsQuery`).

    A subclass that overrides only `__call__` has no query, because the inherited query computes the inherited `__call__`.
    """
    return isinstance(operator, RunsAsQuery) and are_overridden_together(operator, "as_query", "__call__")
