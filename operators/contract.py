"""The contract between operators and the engine. The engine depends on this contract, not on particular operators.

An operator is a frozen, checked value. Calling it on frames gives the whole result for complete input, with `result_time` (the
result's event time) and `final_at` (the watermark from which the result can no longer change). An operator also declares what a step
must read, how its results are written and which rows are late. A user's own operator implements the same contract.

The engine's frames have the source's columns and three more: `event_time` (timestamp, whole milliseconds), `seq` (the number of the
batch that contained the row) and `arrival` (the row's position in the batch). (`seq`, `arrival`) identifies a row forever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, VariantType

from operators.columns import temporary
from operators.errors import OperatorError
from operators.timing import TimeKind

if TYPE_CHECKING:
    from operators.triggers import Trigger

EVENT_TIME, SEQ, ARRIVAL = "event_time", "seq", "arrival"
WATERMARK = temporary("watermark")
"""In frames of an operator with `ByTimeRange.with_watermark`: the watermark before a row's batch; null if it was below the row's time."""
SESSION = temporary("session")
"""In frames of an operator with `ByTimeRange.recorded`: the session recorded for a row (`start`, `end` in epoch ms), or null."""
SESSION_TYPE = "struct<start:bigint,end:bigint>"
FOREVER = 10_000 * 366 * 86_400_000
"""A duration, in ms, that is longer than from the first to the last timestamp (year 1 to 9999)."""
NEW = temporary("new")
"""In the frames of `DecidesLateness.lateness_decisions`: whether a row belongs to the batch whose lateness is decided."""
BATCH_TIME = temporary("batch_time")
"""In the frames of an operator with a processing-time TTL: the processing time of the row's batch (timestamp)."""

PROMISE_BROKEN = "rows break the promise of their input"
"""The text of Spark's error if `fold` of an operator with `Promised` meets rows for which its result could be wrong."""
NO_EXACT_SUM = (
    "a sum of doubles has a value of 2e37 or more, for which it depends on the order of the rows; leave such values out, as in "
    "sum(if(abs(v) < 1e37, v, null))"
)
"""The text of Spark's error if an aggregate cannot be computed independently of the order of its rows."""

ASIDE = "aside"
"""Metadata key of an operator's field on which no result depends: a table stays valid when the field's value changes."""
WHICH = temporary("which")
"""The index of the input that contains a row."""
FINALIZED_AT = temporary("finalized_at")
MATCHED = temporary("matched")
"""In the frame of `ReportsMatches.matches`: whether a row is in a result with a row of another input."""


def plain(frame: DataFrame) -> DataFrame:
    """A frame without the columns that the engine adds for an operator."""
    return frame.drop(WATERMARK, SESSION, NEW, BATCH_TIME)


def tie_breakers(rows: DataFrame) -> list[Column]:
    """The columns that order rows of equal time: `seq` and `arrival`, or if a frame has none, every column of an atomic type.

    Of these columns, `event_time` comes first: of two rows of a table, that with the later event time is the newer one.
    """
    if {SEQ, ARRIVAL} <= {*rows.columns}:
        return [F.col(SEQ), F.col(ARRIVAL)]
    atomic = [f.name for f in rows.schema.fields if isinstance(f.dataType, AtomicType) and not isinstance(f.dataType, VariantType)]
    return [F.col(f"`{name}`") for name in sorted(atomic, key=lambda name: name != EVENT_TIME)]


class Reads:
    """What a step must read. The values here are the defaults of its subclasses.

    Attributes:
        closes_ranges: whether a step closes a range of results, up to a watermark; if not, it handles batches, or reads a changelog.
        watermark_delay: see `ByTimeRange`.
        with_watermark: see `ByTimeRange`.
        lateness: see `ByTimeRange`.
        results: see `ByTimeRange`.
        recorded: see `ByTimeRange`.
        change: see `NewRows` and `ByKey`.
        ttl: see `ByKey`.
        ttl_by: see `ByKey`.
    """

    closes_ranges: ClassVar[bool] = False
    watermark_delay: int = 0
    with_watermark: bool = False
    lateness: int = 0
    results: bool = False
    recorded: bool = False
    change: str | None = None
    ttl: int | None = None
    ttl_by: TimeKind = "event"

    def lookback_of(self, which: int) -> int | None:
        """How far before a closed range input `which` must be read, in ms; None for all of its rows."""
        return 0

    @property
    def longest_lookback(self) -> int:
        """How far before a closed range any input must be read, in ms. Inputs of versions do not count."""
        return 0

    def is_versioned(self, which: int) -> bool:
        """Whether the rows of input `which` are versions; see `ByTimeRange`."""
        return False

    def is_by_arrival(self, which: int) -> bool:
        """Whether the rows of input `which` are looked up by arrival; see `ByTimeRange`."""
        return False

    def span_of(self, which: int, after: int | None, upto: int | None = None) -> tuple[int | None, int | None]:
        """The first and the last event time of input `which` that the range `after < final_at <= upto` needs; None for no end."""
        if self.is_by_arrival(which):
            return None, None
        lookback = self.lookback_of(which)
        return None if after is None or lookback is None else after - lookback, upto

    def wait_of(self, which: int) -> int:
        """How long after its event time a row of input `which` may be pending, in ms of the watermark."""
        return self.watermark_delay + (0 if self.is_versioned(which) else self.lookback_of(which) or 0)

    def influence_of(self, which: int) -> int:
        """How long after its event time a row of input `which` may change results, by their `final_at`, in ms."""
        lookback = self.lookback_of(which)
        return FOREVER if lookback is None else lookback + self.watermark_delay

    @property
    def affected_by(self) -> tuple[str, ...]:
        """The columns whose values decide which rows of its upserted table a step may change, in addition to the table's key."""
        return ()


@dataclass(frozen=True)
class ByTimeRange(Reads):
    """A step reads a closed range: for `after < final_at <= upto`, the rows with `after - lookback <= event_time <= upto`.

    Args:
        lookback: for each input, how far before a range it must be read, in ms; None for all of its rows, if they are versions.
        watermark_delay: the largest `final_at - result_time`, in ms: the delay of the output watermark, which readers of the
            results see.
        with_watermark: whether the frames have `WATERMARK`, because the operator decides for each window of a row whether the row is late.
        lateness: how long after a range was closed a row may still correct its results, in ms of the watermark.
        results: whether every input must be a derived table, whose results' time is the `event_time`.
        recorded: whether lateness depends on the rows that were present when a batch arrived, so that it is decided and recorded batch
            by batch (see `DecidesLateness`). The frames have `SESSION`.
        versions: the indexes of the inputs whose rows are versions, which rows of the other inputs look up. A version may be looked up as
            long as the lookback says, and is counted as matched when the watermark reaches its time and `watermark_delay`: from then
            on every row can find it.
        by_arrival: the indexes of the inputs of versions that are looked up by arrival. A step reads all of their rows up to its last
            batch, whatever their event times. No row of them is late, and the watermark does not wait for them. They must be sources.

    Raises:
        OperatorError: an input that is not one of versions is read from its beginning, or is looked up by arrival.
    """

    closes_ranges: ClassVar[bool] = True
    lookback: tuple[int | None, ...]
    watermark_delay: int = 0
    with_watermark: bool = False
    lateness: int = 0
    results: bool = False
    recorded: bool = False
    versions: tuple[int, ...] = ()
    by_arrival: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        endless = [which for which, lookback in enumerate(self.lookback) if lookback is None and which not in self.versions]
        if endless:
            legal = f"a number of ms for input {endless[0]}: only inputs in `versions` can be read from their beginning at each step"
            raise OperatorError.bad_value("lookback", self.lookback, legal)
        if not {*self.by_arrival} <= {*self.versions}:
            raise OperatorError.bad_value("by_arrival", self.by_arrival, f"inputs that are in `versions` too, which is {self.versions}")

    def lookback_of(self, which: int) -> int | None:
        """How far before a closed range input `which` must be read, in ms; None for all of its rows."""
        return self.lookback[which]

    @property
    def longest_lookback(self) -> int:
        """How far before a closed range any input must be read, in ms. Inputs of versions do not count."""
        return max((lookback or 0 for which, lookback in enumerate(self.lookback) if not self.is_versioned(which)), default=0)

    def is_versioned(self, which: int) -> bool:
        """Whether the rows of input `which` are versions."""
        return which in self.versions

    def is_by_arrival(self, which: int) -> bool:
        """Whether the rows of input `which` are looked up by arrival."""
        return which in self.by_arrival


@dataclass(frozen=True)
class NewRows(Reads):
    """A step reads only the rows of new batches, and merges them into the operator's own table (see `Incremental`).

    Args:
        touches: a new row can change only the rows of the table with equal values in these columns; None for the key of its upserts.
        change: the column with a row's change kind (`+I`, `-U`, `+U`, `-D`), which is needed to read an upserted table; a step then
            reads the last change of each key.
    """

    touches: tuple[str, ...] | None = None
    change: str | None = None

    @property
    def affected_by(self) -> tuple[str, ...]:
        """The columns that decide which rows a new row may change."""
        return self.touches or ()


@dataclass(frozen=True)
class ByKey(Reads):
    """A step reads every row, old or new, of the keys that new batches contain.

    Args:
        key: the columns of the key, with the same names in every input; empty for all rows.
        through: the row key: columns that identify a row that can move from one key to another. Every key that such a row ever had is
            read again, with every row of these keys. The changes of an upserted table name both keys by themselves.
        change: the column with a row's change kind, which is needed to read an upserted table; the current rows of such a table are
            read as `+I`.
        ttl: the time to live (TTL) of a key after its newest row, in ms; then its rows are removed from the table. None for no limit.
        ttl_by: whether the TTL is event time, by the asset's watermark, or processing time, by the ledger's clock. For processing
            time the frames have `BATCH_TIME`.
    """

    key: tuple[str, ...]
    through: tuple[str, ...] = ()
    change: str | None = None
    ttl: int | None = None
    ttl_by: TimeKind = "event"

    @property
    def affected_by(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self.key


class Emits:
    """How results are written to their table.

    Attributes:
        upserts: whether results replace each other, so that the table has a changelog.
        key: the columns that identify a result; see `Append` and `Upsert`.
    """

    upserts: ClassVar[bool] = False
    key: tuple[str, ...]


@dataclass(frozen=True)
class Append(Emits):
    """Results are added once. If late rows are allowed, or an input is corrected, results are corrected too.

    Args:
        key: the columns that identify a result, so that a correction updates it; empty if only the whole row does, so that a
            correction deletes and inserts.
    """

    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Upsert(Emits):
    """Results replace each other by key; the changes are recorded in a changelog.

    Args:
        key: the columns of the key; a null is an ordinary key.
    """

    upserts: ClassVar[bool] = True
    key: tuple[str, ...]


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

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns, for inputs with the given columns."""
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
            The bound; `NEVER_LATE` if no row is late; None if lateness depends on more than a bound, as for sessions.
        """
        ...


def late_before(operator: Operator, watermark: int) -> int | None:
    """The bound before which rows are late for an operator at a watermark; None if it gives none (see `BoundsLateness`).

    A subclass that overrides only `late` gives none: the bound that it inherits is that of the other `late`.
    """
    if not isinstance(operator, BoundsLateness):
        return None
    first = next(vars(c) for c in type(operator).__mro__ if "late" in vars(c) or "late_before" in vars(c))
    return operator.late_before(watermark) if "late_before" in first else None


@runtime_checkable
class Incremental(Operator, Protocol):
    """An operator that reads `NewRows`: it merges new rows into its own current rows."""

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The rows after a step of the keys that change, from those keys' rows before it and the rows of new batches."""
        ...


@runtime_checkable
class Promised(Incremental, Protocol):
    """An operator whose `fold` is right only if its input keeps a promise; it fails with `PROMISE_BROKEN` if it does not."""

    @property
    def improving(self) -> bool:
        """Whether a user gave the promise; if not, it was derived from the input."""
        ...

    def moving_back(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
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
            `which` (int, the input), `seq`, `arrival` and `SESSION`: null for a late row, else the session that an older row is pinned
            to. A row without either decision is not in the result.
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
class ReportsFinality(Operator, Protocol):
    """An operator that reports when a row is finalized, that is, can no longer be part of a new result, so that its rows can be counted."""

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When the last result that may contain a row is final.

        Args:
            frames: the rows of each input that are not late, with `event_time`, and with `WATERMARK` or `SESSION` if the operator reads
                those.

        Returns:
            One row for each row: `which` (int, the input), `event_time`, and `FINALIZED_AT` (timestamp; null if no result ever contains the
            row).
        """
        ...


@runtime_checkable
class ReportsMatches(ReportsFinality, Protocol):
    """A join that reports which rows of its inputs match, so that its completeness is known also if its results do not name rows."""

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
        """The result's name, for each input, of a column that every input has; None for an input of which results name no row."""
        ...

    def finalized_at_if_unmatched(self, which: int, event_time: Column) -> Column:
        """The `final_at` of a row of input `which` if no row matches it."""
        ...

    def keeps_unmatched(self, which: int) -> bool:
        """Whether the result keeps the unmatched rows of input `which`."""
        ...


@runtime_checkable
class FindsPairs(TracesInputs, Protocol):
    """An operator whose results leave out the rows of an input, and that finds the pairs, so that these rows can be counted too."""

    @property
    def pairs(self) -> TracesInputs:
        """The operator whose results name the rows of every input that are in a pair."""
        ...
