"""What an operator declares for the engine's steps: what a step must read, and how its results are written."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, cast

from operators.errors import OperatorError, is_whole
from operators.timing import FOREVER, TimeKind


def _check_names(parameter: str, names: object) -> None:
    """Raise `OperatorError` unless a parameter is a sequence of names; a text alone would count as a sequence of its letters."""
    values = cast(Sequence[object], names)
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(value, str) for value in values):
        raise OperatorError.bad_value(parameter, values, "a tuple of names of columns, such as ('k',)")


def _is_list(value: object) -> bool:
    """Whether a value is a sequence; a text is not."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_length(value: object) -> bool:
    """Whether a value is a length of time: whole milliseconds of at least 0."""
    return is_whole(value) and value >= 0


class Reads:
    """What a step must read. The values here are the defaults of its subclasses.

    Attributes:
        closes_ranges: whether a step closes a range of results, up to a watermark; if not, it handles batches of sources, or the
            changed rows of a table.
        merges_rows: whether a step merges new rows into rows of the table; if not, it computes its results from all rows that these need.
        watermark_delay: the largest `final_at - result_time`, in ms.
        with_watermark: whether the frames have `WATERMARK`.
        lateness: how long after a range was closed a row may still correct its results, in ms of the watermark.
        results: whether every input must be a derived table.
        recorded: whether lateness is decided and recorded batch by batch.
        change: the column with a row's change kind.
        ttl: the time to live (TTL) of a key after its newest row, in ms.
        ttl_by: whether the TTL is event time or processing time.
    """

    closes_ranges: ClassVar[bool] = False
    merges_rows: ClassVar[bool] = False
    watermark_delay: int = 0
    with_watermark: bool = False
    lateness: int = 0
    results: bool = False
    recorded: bool = False
    change: str | None = None
    ttl: int | None = None
    ttl_by: TimeKind = "event"

    def lookback_of(self, index: int) -> int | None:
        """How far before a closed range input `index` must be read, in ms; None for all of its rows."""
        return 0

    @property
    def longest_lookback(self) -> int:
        """How far before a closed range any input must be read, in ms. Inputs of versions do not count."""
        return 0

    def is_versioned(self, index: int) -> bool:
        """Whether the rows of input `index` are versions, which rows of the other inputs look up."""
        return False

    def is_by_arrival(self, index: int) -> bool:
        """Whether the rows of input `index` are versions that are looked up by arrival."""
        return False

    def span_of(self, index: int, after: int | None, upto: int | None = None) -> tuple[int | None, int | None]:
        """The first and the last event time of input `index` that the range `after < final_at <= upto` needs; None for no end."""
        if self.is_by_arrival(index):
            return None, None
        lookback = self.lookback_of(index)
        first = None if after is None or lookback is None else after - lookback
        return first, upto

    def wait_of(self, index: int) -> int:
        """How long after its event time a row of input `index` may be pending, in ms of the watermark."""
        return self.watermark_delay + (0 if self.is_versioned(index) else self.lookback_of(index) or 0)

    def influence_of(self, index: int) -> int:
        """How long after its event time a row of input `index` may change results, by their `final_at`, in ms."""
        lookback = self.lookback_of(index)
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
        versions: the indexes of the inputs whose rows are versions, which rows of the other inputs look up. A version can be looked up for
            as long as the lookback. A version is counted as matched when the watermark reaches its time plus `watermark_delay`, because
            from then on every row can look up the version.
        by_arrival: the indexes of the inputs of versions that are looked up by arrival. A step reads all of their rows up to its last
            batch, whatever their event times. No row of them is late, and the watermark does not wait for them. They must be sources.

    Raises:
        OperatorError: a time is not a number of ms of at least 0; `versions` or `by_arrival` is not a list of indexes of inputs; or an
            input that is not in `versions` is read from its beginning, or is looked up by arrival.
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
        if not _is_list(self.lookback) or not all(value is None or _is_length(value) for value in self.lookback):
            legal = "a number of ms of at least 0, or None, for each input, such as (1000,)"
            raise OperatorError.bad_value("lookback", self.lookback, legal)
        for parameter, length in (("watermark_delay", self.watermark_delay), ("lateness", self.lateness)):
            if not _is_length(length):
                raise OperatorError.bad_value(parameter, length, "a number of ms of at least 0")
        for parameter, indexes in (("versions", self.versions), ("by_arrival", self.by_arrival)):
            if not (_is_list(indexes) or isinstance(indexes, Set)) or not all(
                is_whole(index) and 0 <= index < len(self.lookback) for index in indexes
            ):
                legal = f"a tuple of indexes of inputs; `lookback` has {len(self.lookback)}, and the first has the index 0"
                raise OperatorError.bad_value(parameter, indexes, legal)
        endless = [index for index, lookback in enumerate(self.lookback) if lookback is None and index not in self.versions]
        if endless:
            legal = f"a number of ms for input {endless[0]}: only inputs in `versions` can be read from their beginning at each step"
            raise OperatorError.bad_value("lookback", self.lookback, legal)
        if not {*self.by_arrival} <= {*self.versions}:
            raise OperatorError.bad_value("by_arrival", self.by_arrival, f"inputs that are in `versions` too, which is {self.versions}")

    def lookback_of(self, index: int) -> int | None:
        """How far before a closed range input `index` must be read, in ms; None for all of its rows."""
        return self.lookback[index]

    @property
    def longest_lookback(self) -> int:
        """How far before a closed range any input must be read, in ms. Inputs of versions do not count."""
        return max((lookback or 0 for index, lookback in enumerate(self.lookback) if not self.is_versioned(index)), default=0)

    def is_versioned(self, index: int) -> bool:
        """Whether the rows of input `index` are versions."""
        return index in self.versions

    def is_by_arrival(self, index: int) -> bool:
        """Whether the rows of input `index` are looked up by arrival."""
        return index in self.by_arrival


@dataclass(frozen=True)
class NewRows(Reads):
    """A step reads only the rows of new batches, and merges them into the operator's own table (see `Incremental`).

    Args:
        key: columns of the table and of the rows: a new row can change only rows of the table with equal values in them. None for the
            key of the operator's upserts.
        change: the column with a row's change kind (`+I`, `-U`, `+U`, `-D`). With it, a step over an upserted table reads the last change
            of each key; without it, the keys of changed rows are computed again. None if rows have no kinds.
    """

    merges_rows: ClassVar[bool] = True
    key: tuple[str, ...] | None = None
    change: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            _check_names("key", self.key)

    @property
    def affected_by(self) -> tuple[str, ...]:
        """The columns that decide which rows a new row may change."""
        return self.key or ()

    def recomputing(self, key: tuple[str, ...]) -> "ByKey":
        """What a step reads if it computes the affected rows from all rows of their keys, instead of merging the new rows.

        Args:
            key: the key of the operator's upserts.
        """
        return ByKey(key if self.key is None else self.key, change=self.change)


@dataclass(frozen=True)
class Kept:
    """The engine keeps the rows that later steps need beside the table (see `KeepsRows`).

    Args:
        ttl: how long after the newest row of a key its rows can be needed, in ms; None for ever. It is measured by `ByKey.ttl_by`.
    """

    ttl: int | None = None


@dataclass(frozen=True)
class ByKey(Reads):
    """A step reads every row, old or new, of the keys that new batches contain.

    Args:
        key: the columns of the key, with the same names in every input; empty for all rows.
        row_key: columns that identify a row that can move from one key to another. Every key that such a row ever had is
            read again, with every row of these keys. `row_key` has no effect over an upserted table whose key consists of some of its
            columns, because the table's changes name the old and the new key.
        change: the column with a row's change kind; rows of tables are read as `+I`. None if rows have no kinds.
        ttl: the time to live (TTL) of a key after its newest row, in ms; then the key's rows are removed from the table. None for no limit.
        ttl_by: whether the TTL is event time, by the asset's watermark, or processing time, by the ledger's clock. Over a table of final
            results event time is measured by how far that table is closed. For processing time the frames have `BATCH_TIME`.
        keeps: set if the operator says which rows later steps need (see `KeepsRows`). A step over a source then reads only these rows
            and its new rows. None if a step needs every row.
    """

    key: tuple[str, ...]
    row_key: tuple[str, ...] = ()
    change: str | None = None
    ttl: int | None = None
    ttl_by: TimeKind = "event"
    keeps: Kept | None = None

    def __post_init__(self) -> None:
        _check_names("key", self.key)
        _check_names("row_key", self.row_key)
        if self.keeps and self.keeps.ttl is not None and self.row_key:
            raise OperatorError.bad_value("keeps", self.keeps, "no `ttl` with `row_key`: a row may move to a key whose rows are forgotten")

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

    def __post_init__(self) -> None:
        _check_names("key", self.key)


@dataclass(frozen=True)
class Upsert(Emits):
    """Results replace each other by key; the changes are recorded in a changelog.

    Args:
        key: the columns of the key; a null is an ordinary key.
    """

    upserts: ClassVar[bool] = True
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_names("key", self.key)
