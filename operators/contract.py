"""The contract between operators and the engine, which knows no operator by name.

An operator is a frozen, checked value. Calling it on frames gives the whole result for complete input, with `result_time` (the
result's event time) and `final_at` (the watermark from which the result can no longer change). An operator also declares what a step
must read, how its results are written and which rows are late. A user's own operator implements the same contract.

The engine's frames have the source's columns and three more: `event_time` (timestamp, whole milliseconds), `seq` (the number of the
batch that contained the row) and `arrival` (the row's position in the batch). (`seq`, `arrival`) identifies a row forever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, VariantType

from operators.columns import temporary

if TYPE_CHECKING:
    from operators.triggers import Trigger

EVENT_TIME, SEQ, ARRIVAL = "event_time", "seq", "arrival"
WATERMARK = temporary("watermark")
"""In the frames of an operator that reads `judged` rows: the watermark before a row's batch; null if that was behind the row."""
SESSION = temporary("session")
"""In the frames of an operator with `recorded` decisions: the session that a row is pinned to, `start` and `end` in epoch ms, or null."""
SESSION_TYPE = "struct<start:bigint,end:bigint>"
NEW = temporary("new")
"""In the frames that lateness is decided on: whether a row is in the batch that is decided."""
CAME_AT = temporary("came_at")
"""In the frames of an operator whose keys live for a processing time: when the row's batch was committed (timestamp)."""
TimeKind = Literal["event", "processing"]

ASIDE = "aside"
"""In the metadata of an operator's field: no result in its table depends on the field, so a change of it does not invalidate the table."""
WHICH = temporary("which")
"""The index of the input that contains a row."""
SETTLED = temporary("settled")


def plain(frame: DataFrame) -> DataFrame:
    """A frame without the columns that the engine adds for an operator."""
    return frame.drop(WATERMARK, SESSION, NEW, CAME_AT)


def tie_breakers(rows: DataFrame) -> list[Column]:
    """The columns that order rows of equal time: `seq` and `arrival`, or if a frame has none, every column of an atomic type."""
    if {SEQ, ARRIVAL} <= {*rows.columns}:
        return [F.col(SEQ), F.col(ARRIVAL)]
    return [
        F.col(f"`{f.name}`") for f in rows.schema.fields if isinstance(f.dataType, AtomicType) and not isinstance(f.dataType, VariantType)
    ]


@dataclass(frozen=True)
class ByTimeRange:
    """A step reads a closed range: for `after < final_at <= upto`, the rows with `after - reach <= event_time <= upto`.

    Args:
        reach: for each input, how far before a range it must be read (its lookback), in ms.
        delay: the largest `final_at - result_time`, in ms. The watermark of a reader of the results is behind by that much.
        judged: whether the frames have `WATERMARK`, for an operator whose rows are late or not for each of their windows.
        lateness: how long after a range was closed a row may still correct its results, in ms of the watermark.
        results: whether every input must be a derived table, whose results' time is the `event_time`.
        recorded: whether lateness depends on the rows that were present when a batch arrived, so that it is decided and recorded batch
            by batch (see `DecidesLateness`). The frames have `SESSION`.
    """

    reach: tuple[int, ...]
    delay: int = 0
    judged: bool = False
    lateness: int = 0
    results: bool = False
    recorded: bool = False


@dataclass(frozen=True)
class NewRows:
    """A step reads the rows of new batches only, and merges them into the operator's own table (see `Incremental`).

    Args:
        touches: the columns whose values decide which rows of the table a new row may change; None for the key of its upserts.
        change: the column with a row's change kind (`+I`, `-U`, `+U`, `-D`), which is needed to read an upserted table; a step then
            reads the last change of each key.
    """

    touches: tuple[str, ...] | None = None
    change: str | None = None


@dataclass(frozen=True)
class ByKey:
    """A step reads every row, old or new, of the keys that new batches contain.

    Args:
        key: the columns of the key, with the same names in every input; empty for all rows.
        through: the row key: columns that identify a row that can move from one key to another. Every key that such a row ever had is
            read again, with every row of these keys. The changes of an upserted table name both keys by themselves.
        change: the column with a row's change kind, which is needed to read an upserted table; the current rows of such a table are
            read as `+I`.
        lives: how long after its newest row a key lives, in ms; then its rows are removed from the table. None for no limit.
        lives_by: whether that is event time, by the asset's watermark, or processing time, by the ledger's clock. For processing time
            the frames have `CAME_AT`.
    """

    key: tuple[str, ...]
    through: tuple[str, ...] = ()
    change: str | None = None
    lives: int | None = None
    lives_by: TimeKind = "event"


@dataclass(frozen=True)
class Append:
    """Results are added once. If late rows are allowed, or an input is corrected, results are corrected too.

    Args:
        key: the columns that identify a result, so that a correction updates it; empty if only the whole row does, so that a
            correction deletes and inserts.
    """

    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Upsert:
    """Results replace each other by key; the changes are recorded in a changelog.

    Args:
        key: the columns of the key; a null is an ordinary key.
    """

    key: tuple[str, ...]


Reads = ByTimeRange | NewRows | ByKey
Emits = Append | Upsert


@runtime_checkable
class Operator(Protocol):
    """The operator contract."""

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
        """Whether a row is late, by the operator's watermark before the row's batch; false if that is null."""
        ...

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The whole result for complete input."""
        ...


@runtime_checkable
class NamesColumns(Operator, Protocol):
    """An operator that derives its result's columns from its inputs' columns, so that they are checked before any row is read."""

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns, for inputs with the given columns."""
        ...


@runtime_checkable
class Incremental(Operator, Protocol):
    """An operator that reads `NewRows`: it merges new rows into its own current rows."""

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The rows of the keys that change, after a step, from those before it and the rows of new batches."""
        ...


@runtime_checkable
class DecidesLateness(Operator, Protocol):
    """An operator that decides lateness itself and reads the `recorded` decisions."""

    def verdicts(self, watermark: int, *frames: DataFrame) -> DataFrame:
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
    """An operator that can show early results: those of windows that are still open."""

    @property
    def early(self) -> "Trigger | None":
        """When early results are shown; None for never."""
        ...

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The results of the rows so far, with `ROWS_SEEN` (bigint): the number of rows in each."""
        ...


@runtime_checkable
class ReportsFinality(Operator, Protocol):
    """An operator that reports when a row is finalized, that is, can no longer be part of a new result, so that its rows can be counted."""

    def settles(self, *frames: DataFrame) -> DataFrame:
        """When the last result that may contain a row is final.

        Args:
            frames: the rows of each input that are not late, with `event_time`, and with `WATERMARK` or `SESSION` if the operator reads
                those.

        Returns:
            One row for each row: `which` (int, the input), `event_time`, and `SETTLED` (timestamp; null if no result ever contains the
            row).
        """
        ...


@runtime_checkable
class TracesInputs(Operator, Protocol):
    """An operator whose results name the input rows that they were made of, so that each row can be accounted for."""

    def traced(self, column: str) -> tuple[str, ...]:
        """The result's name, for each input, of a column that every input has."""
        ...

    def expires(self, which: int, event_time: Column) -> Column:
        """The `final_at` of a row of input `which` if no row matches it."""
        ...

    def pads(self, which: int) -> bool:
        """Whether the result keeps the unmatched rows of input `which`."""
        ...
