"""What an operator tells the engine, which knows no operator by name.

An operator is a frozen, checked value. Calling it on frames gives the whole answer for complete input, with
`result_time` (the result's event time) and `final_at` (the watermark from which the result cannot change).
Beside that it says what it reads, what it emits and which rows come too late; a user's own operator plugs in
the same way.

The engine's frames hold the source's columns and `event_time` (timestamp, whole milliseconds), `seq` (the
ledger entry that brought the row) and `arrival` (its place in the entry); (`seq`, `arrival`) names a row for good.
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
"""In the frames of an operator that reads `judged` rows: its watermark before a row's entry, null where that was behind the row."""


SESSION = temporary("session")
"""In the frames of an operator of `recorded` verdicts: the session a row stays in, `start` and `end` in epoch ms; null for most."""
SESSION_TYPE = "struct<start:bigint,end:bigint>"
NEW = temporary("new")
"""In the frames that verdicts are given on: whether a row is of the entry that is judged."""


CAME_AT = temporary("came_at")
"""In the frames of an operator whose keys live for a processing time: when the row's entry was made (timestamp)."""
TimeKind = Literal["event", "processing"]


ASIDE = "aside"
"""In the metadata of an operator's field: no result of its table depends on it, so it may change while the table stays."""
WHICH = temporary("which")
"""The index of the input that a row is of."""
SETTLED = temporary("settled")


def plain(frame: DataFrame) -> DataFrame:
    """A frame's own columns."""
    return frame.drop(WATERMARK, SESSION, NEW, CAME_AT)


def tie_breakers(rows: DataFrame) -> list[Column]:
    """The columns that order rows of equal time: `seq` and `arrival`, or if a frame has none, every column of an atomic type."""
    if {SEQ, ARRIVAL} <= {*rows.columns}:
        return [F.col(SEQ), F.col(ARRIVAL)]
    return [
        F.col(f"`{f.name}`") for f in rows.schema.fields if isinstance(f.dataType, AtomicType) and not isinstance(f.dataType, VariantType)
    ]


@dataclass(frozen=True)
class Closed:
    """Read by closed range: to close `after < final_at <= upto`, the rows with `after - reach <= event_time <= upto`.

    Args:
        reach: for each input, how far before a range it must be read, in ms.
        delay: the largest `final_at - result_time`, in ms; a reader of the results sees its watermark that much later.
        judged: whether the frames hold `WATERMARK` too, for an operator that judges a row for each of its windows.
        lateness: how long after a range was closed a row may still correct its results, in ms of the watermark.
        results: whether every input must be a derived table, its `event_time` being the results' own.
        recorded: whether verdicts depend on what was there when an entry came, so that they are given and kept entry by entry (see
            `Judging`); frames hold `SESSION`.
    """

    reach: tuple[int, ...]
    delay: int = 0
    judged: bool = False
    lateness: int = 0
    results: bool = False
    recorded: bool = False


@dataclass(frozen=True)
class Entries:
    """Read the rows of new ledger entries only, and fold them into the operator's own table (see `Folding`).

    Args:
        touches: the columns whose values tell which rows of the table a new row may change; None for the key it upserts by.
        change: the column that tells what a row is (`+I`, `-U`, `+U`, `-D`), without which no upserted table can be read; of such a
            table a step gets the last change of each key.
    """

    touches: tuple[str, ...] | None = None
    change: str | None = None


@dataclass(frozen=True)
class Touched:
    """Read every row, old or new, of the keys that new ledger entries hold.

    Args:
        key: the columns of the key, by the same names in every input; none for all rows.
        through: columns by whose values a row may leave its key for another: every key that such a row ever had is touched, and of the
            rows of touched keys every row with the same values is read. An upserted table's changes tell both keys by themselves.
        change: the column that tells what a row is, without which no upserted table can be read; the rows of such a table, as it
            is, say `+I`.
        lives: how long after its newest row a key lives, in ms; then its rows leave the table. None for ever.
        lives_by: whether that is event time, by the asset's watermark, or processing time, by the ledger's clock. Frames hold `CAME_AT`
            where it is the latter.
    """

    key: tuple[str, ...]
    through: tuple[str, ...] = ()
    change: str | None = None
    lives: int | None = None
    lives_by: TimeKind = "event"


@dataclass(frozen=True)
class Append:
    """Results are only ever added; where late rows are allowed, or an input is corrected, they are corrected too.

    Args:
        key: the columns that name a result, so that a correction is an update of it; none where only the whole row does,
            and a correction deletes and inserts.
    """

    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Upsert:
    """Results replace each other by key; the changes are kept as a changelog.

    Args:
        key: the columns of the key; a null is an ordinary key.
    """

    key: tuple[str, ...]


Reads = Closed | Entries | Touched
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
        """How its results reach its table."""
        ...

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether a row is late, `watermark` being the operator's before the row's entry; false where that is null."""
        ...

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The whole answer for complete input."""
        ...


@runtime_checkable
class NamesColumns(Operator, Protocol):
    """An operator whose result's columns follow from its inputs' columns, so that they are checked before any row is read."""

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns, for inputs with these columns."""
        ...


@runtime_checkable
class Folding(Operator, Protocol):
    """An operator that reads `Entries`: it folds new rows into its own current rows."""

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The rows of the touched keys after the step, from those before it and the new entries' rows."""
        ...


@runtime_checkable
class Judging(Operator, Protocol):
    """An operator that reads `recorded` verdicts, and gives them."""

    def verdicts(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """Judge the rows of an entry that lie behind the watermark before it.

        Args:
            watermark: the operator's before the entry, in epoch ms.
            frames: each input's rows up to and with the entry, those judged late left out; with `SESSION` and `NEW`.

        Returns:
            `which` (int, the input), `seq`, `arrival` and `SESSION`: null for a row that is late, or the session that an older row
            stays in. Rows that nothing was found out about are left out.
        """
        ...


@runtime_checkable
class Early(Operator, Protocol):
    """An operator that may show what windows hold that are still open."""

    @property
    def early(self) -> "Trigger | None":
        """When; None for never."""
        ...

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The results of the rows that are there, with `ROWS_SEEN` (bigint): how many each was made of."""
        ...


@runtime_checkable
class Settling(Operator, Protocol):
    """An operator that tells when nothing more can become of a row, so that its rows can be counted."""

    def settles(self, *frames: DataFrame) -> DataFrame:
        """When the last result that may hold a row is final.

        Args:
            frames: each input's rows that are not late, with `event_time`, and `WATERMARK` or `SESSION` where the operator asks.

        Returns:
            A row for each: `which` (int, the input), `event_time`, and `SETTLED` (timestamp; null where no result ever holds the row).
        """
        ...


@runtime_checkable
class Accountable(Operator, Protocol):
    """An operator whose results name the input rows they were made of, so that each can be accounted for."""

    def traced(self, column: str) -> tuple[str, ...]:
        """The result's name, for each input, of a column that every input holds."""
        ...

    def expires(self, which: int, event_time: Column) -> Column:
        """The `final_at` of input `which`'s row should nothing match it."""
        ...

    def pads(self, which: int) -> bool:
        """Whether a row of input `which` that nothing matches is in the result."""
        ...
