"""What exists, as values: the contract of a source, and the recipe of a derived asset; both checked when they are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, cast, get_args

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from assets.contract_checks import (
    ENGINE_COLUMNS,
    EVENT_TIME_RAW,
    ContractError,
    check_columns,
    check_key,
    check_length,
    check_name,
    check_options,
    check_sql,
)
from assets.names import first_twice
from operators.contract import EVENT_TIME, ByTimeRange, NewRows, Operator
from operators.timing import Duration, length_ms

INGESTED_AT = "ingested_at"
"""What a source gives as its event time to have processing time: when the ledger let a row's entry in."""
CHANGELOGS = "changelog"
"""The folder of the lake that holds the changelogs of upserted tables."""
WIDE, WINDOWS, LEADERBOARDS = "wide", "windows", "leaderboards"
"""The groups of derived assets."""
_ADDED = "added"

__all__ = [
    "ENGINE_COLUMNS",
    "EVENT_TIME_RAW",
    "INGESTED_AT",
    "LEADERBOARDS",
    "WIDE",
    "WINDOWS",
    "BoundedOutOfOrderness",
    "ContractError",
    "DerivedAsset",
    "NewColumns",
    "Punctuated",
    "RowRule",
    "SourceContract",
]

Action = Literal["warn", "quarantine", "fail"]
NewColumns = Literal["ignore", "quarantine", "refuse", "add"]


@dataclass(frozen=True)
class RowRule:
    """A rule that each row of a source must keep.

    Args:
        name: the rule's name, as quarantine, ledger and reports show it.
        condition: SQL over the source's columns; a row breaks the rule where it is false (null keeps it).
        action: `warn` counts the row and lets it in, `quarantine` keeps it out with the reason, `fail` stops the
            ingest before anything of the micro-batch is committed.
    """

    name: str
    condition: str
    action: Action = "quarantine"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ContractError.bad_value("name", self.name, "printable text that is not blank, as quarantine and reports show it")
        check_sql("condition", self.condition)
        if self.action not in get_args(Action):
            raise ContractError.bad_value("action", self.action, ", ".join(get_args(Action)))


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """The watermark after an entry is `max(event_time) - bound - 1 ms`, and never goes back."""

    bound: Duration

    def __post_init__(self) -> None:
        check_length("out_of_orderness", self.bound)

    @cached_property
    def bound_ms(self) -> int:
        """The bound in ms."""
        return length_ms(self.bound, "out_of_orderness")


@dataclass(frozen=True)
class Punctuated:
    """The rows carry the watermark.

    Args:
        watermark: SQL for a row's watermark (a timestamp; null where it carries none).
        marker: SQL that is true for a row that only carries a watermark and is no event; such rows are counted
            as markers and do not reach the log.
    """

    watermark: str
    marker: str | None = None

    def __post_init__(self) -> None:
        check_sql("watermark", self.watermark)
        if self.marker is not None:
            check_sql("marker", self.marker)


@dataclass(frozen=True, kw_only=True)
class SourceContract:
    """What a source promises, and what becomes of rows that break it.

    Args:
        name: the source's name: its folder in the landing zone, `events/<name>` and `quarantine/<name>` in the lake. Letters a to z,
            digits and `_`, the first a letter; the lake's own names (`events`, `ledger` and the like) are refused.
        schema: the columns, a `StructType`, or DDL where a Spark session runs; columns that are not nullable must hold a value. At most
            1,000, named by letters, digits, `_`, `-`, `@`, `$` and `:`, not starting with `_`; no two may differ in case alone, and
            none may be one of `ENGINE_COLUMNS` in any case.
        event_time: the event time, a timestamp column or SQL. Under Spark's ANSI mode an expression that raises on
            bad input stops the ingest: use `try_` functions. `ingested_at`, where no column has that name, is processing time: all rows
            of an entry have the time at which the ledger let it in, so none is ever late.
        watermark: how the watermark is found.
        unique_key: columns by which two rows are the same event; empty to let everything in.
        duplicate_horizon: how far apart in event time two rows of one key are still duplicates.
        idle_timeout: a source silent for this long in wall-clock time no longer holds the watermark; None for never.
        future_skew: rows further ahead of the wall clock go to quarantine; None to let them in.
        rules: row rules.
        options: options for Spark's `from_csv` / `from_json`. Columns are read as text and typed afterwards, in UTC, so
            those that tell the format of times and numbers say nothing here.
        new_columns: what becomes of columns that the schema does not name. `ignore` leaves them out; `quarantine` keeps
            the rows that have them out; `refuse` stops the ingest before anything of the micro-batch is committed; `add`
            takes them into the event log from then on, as text but for Parquet's own types (whole numbers as bigint, floats as
            double). Operators see the schema's columns alone.
    """

    name: str
    schema: str | StructType
    event_time: str
    watermark: BoundedOutOfOrderness | Punctuated = BoundedOutOfOrderness("0 ms")
    unique_key: tuple[str, ...] = ()
    duplicate_horizon: Duration = "7 days"
    idle_timeout: Duration | None = None
    future_skew: Duration | None = "24 hours"
    rules: tuple[RowRule, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    new_columns: NewColumns = "ignore"

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.new_columns not in get_args(NewColumns):
            raise ContractError.bad_value("new_columns", self.new_columns, ", ".join(get_args(NewColumns)))
        check_columns([f for f in self.struct.fields if not self.is_added(f)], self.struct.fieldNames())
        check_key(self.unique_key, self.struct)
        check_sql("event_time", self.event_time)
        if not isinstance(self.watermark, BoundedOutOfOrderness | Punctuated):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ContractError.bad_value("watermark", self.watermark, "BoundedOutOfOrderness(...) or Punctuated(...)")
        for parameter in ("duplicate_horizon", "idle_timeout", "future_skew"):
            check_length(parameter, getattr(self, parameter))
        if (again := first_twice([r.name for r in self.rules])) is not None:
            raise ContractError.bad_value("rules", again, "names that differ in more than case: rows are counted by them")
        check_options(self.options)

    @cached_property
    def struct(self) -> StructType:
        """The schema as a `StructType`."""
        if isinstance(self.schema, StructType):
            return self.schema
        try:
            return cast(StructType, StructType.fromDDL(self.schema))
        except PySparkException as error:
            raise ContractError.bad_value("schema", self.schema, "DDL such as 'order_id STRING NOT NULL, amount INT'") from error

    @property
    def by_ingest_time(self) -> bool:
        """Whether a row's time is the one at which it was ingested."""
        return self.event_time.strip() == INGESTED_AT and INGESTED_AT not in self.struct.fieldNames()

    def widened(self, columns: Sequence[StructField]) -> "SourceContract":
        """The contract with columns that its event log has gained, or is to gain. A file need not have them."""
        added = [StructField(c.name, c.dataType, metadata={_ADDED: True}) for c in columns]
        return replace(self, schema=StructType([*self.struct.fields, *added])) if added else self

    @staticmethod
    def is_added(column: StructField) -> bool:
        """Whether a column is none of the contract's own."""
        return _ADDED in column.metadata

    @property
    def log(self) -> str:
        """The event log's place in the lake."""
        return f"events/{self.name}"

    @property
    def quarantine(self) -> str:
        """The quarantine's place in the lake."""
        return f"quarantine/{self.name}"


def _times(operator: Operator) -> list[tuple[str, str]]:
    """The parameters by which an operator of closed ranges names an event time, and what they name; of `Consecutive` those of its first."""
    first = getattr(operator, "of", operator)
    named = {name: getattr(first, name, None) for name in ("time", "left_time", "right_time")}
    return [(name, column) for name, column in named.items() if isinstance(column, str)] if isinstance(operator.reads, ByTimeRange) else []


@dataclass(frozen=True, kw_only=True)
class DerivedAsset:
    """A table made of sources, or of other derived tables, by one operator.

    Args:
        name: the table's name, by the same rules as a source's.
        inputs: names of sources or derived assets, in the order of the operator's inputs.
        operator: the operator.
        shape: a pure function from the operator's result to the table's rows; it keeps the operator's own columns.
        description: what the table holds.
        group: the asset's group in Dagster.
        version: of what the engine cannot see into: the code of `shape`, and of an operator of one's own. A table made with another
            version is refused until it is made again.
    """

    name: str
    inputs: tuple[str, ...]
    operator: Operator
    shape: Callable[[DataFrame], DataFrame] | None = None
    description: str = ""
    group: str = WIDE
    version: str = ""

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if len(self.inputs) != len(self.operator.inputs):
            raise ContractError.bad_value(
                "inputs", self.inputs, f"one name for each of the operator's inputs: {', '.join(self.operator.inputs)}"
            )
        for time, column in _times(self.operator):
            if column != EVENT_TIME:
                legal = f"{EVENT_TIME!r}, by which rows are read, judged and accounted for; make it the source's `event_time`"
                raise ContractError.bad_value(time, column, legal)
        if self.shape and isinstance(self.operator.reads, NewRows):
            legal = f"None: {type(self.operator).__name__} folds new rows into its own, which a shape would alter"
            raise ContractError.bad_value("shape", self.shape, legal)

    def rows(self, *frames: DataFrame) -> DataFrame:
        """The table's rows for complete input."""
        result = self.operator(*frames)
        return self.shape(result) if self.shape else result

    @property
    def changelog(self) -> str:
        """The changelog's place in the lake, for an operator that upserts."""
        return f"{CHANGELOGS}/{self.name}"

    @property
    def verdicts(self) -> str:
        """The recorded verdicts' place in the lake, for an operator that gives them entry by entry."""
        return f"verdicts/{self.name}"

    @property
    def early(self) -> str:
        """The place in the lake of what open windows hold so far, for an operator with early results."""
        return f"early/{self.name}"
