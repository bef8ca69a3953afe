"""The contract of a source, as a value that is checked when it is created."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

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
    check_owners,
    check_sql,
    check_tags,
    check_time,
)
from assets.ddl import misspelled_type, schema_of
from assets.derived_asset import CHANGELOGS, DerivedAsset
from assets.expressions import check_expression, check_row_by_row
from assets.names import first_duplicate, fold_case
from assets.preparation import Preparation
from assets.shape import Shape
from assets.watermark_strategies import (
    NO_DISORDER,
    STRATEGIES,
    Alignment,
    BatchExpression,
    BatchStatistics,
    BoundedOutOfOrderness,
    Generated,
    Punctuated,
    WatermarkGenerator,
)
from operators.engine_columns import ARRIVAL, EVENT_TIME
from operators.timing import Duration

INGESTED_AT = "ingested_at"
"""The event time of a source that uses processing time: the time at which a row's batch was ingested."""
_ADDED = "added"

__all__ = [
    "CHANGELOGS",
    "ENGINE_COLUMNS",
    "EVENT_TIME_RAW",
    "INGESTED_AT",
    "Alignment",
    "BatchExpression",
    "BatchStatistics",
    "BoundedOutOfOrderness",
    "ContractError",
    "DerivedAsset",
    "Generated",
    "NewColumns",
    "Preparation",
    "Punctuated",
    "RowRule",
    "Shape",
    "SourceContract",
    "WatermarkGenerator",
]

Action = Literal["warn", "quarantine", "fail"]
NewColumns = Literal["ignore", "quarantine", "refuse", "add"]


@dataclass(frozen=True)
class RowRule:
    """A rule that each row of a source must satisfy.

    Args:
        name: the rule's name, which is in the reason of a quarantined row and in errors.
        condition: SQL over the source's columns, `arrival`, `event_time` and `event_time_raw`. A row violates the rule if the condition is
            false or raises an error; null is no violation.
        action: what happens to a row that violates the rule: `warn` counts and ingests it, `quarantine` writes it to the quarantine with
            the rule as the reason, `fail` stops the ingest before anything of the micro-batch is committed.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.
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


@dataclass(frozen=True, kw_only=True)
class SourceContract:
    """The contract of a source: its columns, event time, watermark and key, and what happens to rows that violate it.

    Args:
        name: the source's name: its folder in the landing folder, `events/<name>` and `quarantine/<name>` in the lake. At most 128
            letters (a to z and A to Z), digits and `_`, the first a letter; the lake's own names (`events`, `ledger` and the like) are
            refused.
        schema: the columns, a `StructType` or DDL text. A few forms of DDL, such as `a: int`, need a Spark session. Columns that are
            not nullable must have a value. At most 1,000 columns, named by letters, digits, `_`, `-`, `@`, `$` and `:`, not starting with
            `_`; no two may differ in case alone, and none may be `seq`, `arrival`, `event_time`
            or `event_time_raw` in any case.
        event_time: the event time: a timestamp column, or SQL over the columns of one row and `arrival`. A row is quarantined if its event
            time is null, or a text or a number that is no time, or if the SQL raises an error. `ingested_at`, if no column has that name,
            is processing time: all rows of a batch have the time at which the batch was ingested, so no row is late unless a watermark
            ahead of the clock is set.
        watermark: how the watermark is computed.
        unique_key: the columns that identify an event; a second row with the same key is a duplicate. Empty to ingest every row.
        duplicate_horizon: two rows with one key are duplicates if their event times differ by at most this.
        idle_timeout: a source without rows for this long in wall-clock time no longer holds back the watermark; None for never. A source
            whose input waits to be read is not idle. Input that cannot be read does not count.
        alignment: the group of sources whose watermarks are kept together, so that a source that is ahead waits; it needs an
            `idle_timeout`. None to ingest the source as fast as its input arrives.
        retention: how long, at least, the event log keeps a row after the source's watermark has passed the row; None for ever.
            Maintenance removes older rows by whole days (UTC), and keeps what a table may still read. A table that reads rows of any
            age is refused.
        future_skew: rows whose event time is ahead of the wall clock by more than this are quarantined; None to ingest them.
        rules: row rules.
        options: options for Spark's `from_csv` / `from_json`. `header` is `"true"` by default: CSV columns are matched by the header's
            names. With `"false"`, the fields are the schema's columns, in its order. Columns are read as text and cast afterwards, in
            UTC, so options for the formats of times and numbers have an effect only on nested columns of JSON. An option that Spark
            does not have, or that does not concern the parsing of one line, such as `encoding` or `multiLine`, is refused.
        new_columns: what happens to columns that the schema does not name. `ignore` leaves them out; `quarantine` quarantines the rows
            that have them; `refuse` stops the ingest before anything of the micro-batch is committed; `add` adds them to the event log
            from then on, as text, or with Parquet's own types (whole numbers as bigint, floats as double). Operators see only the
            schema's columns.
        owners: the owners of the event log in Dagster: mail addresses, or `team:NAME`.
        tags: its tags in Dagster.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.
    """

    name: str
    schema: str | StructType
    event_time: str
    watermark: BoundedOutOfOrderness | Punctuated | BatchExpression | Generated = NO_DISORDER
    unique_key: tuple[str, ...] = ()
    duplicate_horizon: Duration = "7 days"
    idle_timeout: Duration | None = None
    alignment: Alignment | None = None
    future_skew: Duration | None = "24 hours"
    retention: Duration | None = None
    rules: tuple[RowRule, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    new_columns: NewColumns = "ignore"
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_owners(self.owners)
        check_tags(self.tags)
        if self.new_columns not in get_args(NewColumns):
            raise ContractError.bad_value("new_columns", self.new_columns, ", ".join(get_args(NewColumns)))
        check_columns([f for f in self.struct.fields if not self.is_added(f)], self.struct.fieldNames())
        check_key(self.unique_key, self.struct, f"source {self.name!r}")
        check_sql("event_time", self.event_time)
        if not isinstance(self.rules, list | tuple) or not all(isinstance(rule, RowRule) for rule in self.rules):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ContractError.bad_value("rules", self.rules, "a tuple of RowRule(...)")
        self._check_expressions()
        if not isinstance(self.watermark, STRATEGIES):  # pyright: ignore[reportUnnecessaryIsInstance]
            legal = "BoundedOutOfOrderness(...), Punctuated(...), BatchExpression(...) or Generated(...)"
            raise ContractError.bad_value("watermark", self.watermark, legal)
        self._check_alignment()
        check_length("duplicate_horizon", self.duplicate_horizon)
        for parameter in ("idle_timeout", "future_skew", "retention"):
            if (length := getattr(self, parameter)) is not None:
                check_length(parameter, length)
        if (duplicate := first_duplicate([r.name for r in self.rules])) is not None:
            raise ContractError.bad_value("rules", duplicate, "names that differ in more than case: rows are counted by rule name")
        check_options(self.options, f"source {self.name!r}")

    def __hash__(self) -> int:
        """A hash of the name alone, because the mappings `options` and `tags` have none. Contracts with one name can still be unequal."""
        return hash(self.name)

    def _check_alignment(self) -> None:
        """Raise `ContractError` if the source would hold back its alignment group for ever, or has no watermark of its own to align."""
        if self.alignment is None:
            return
        if not isinstance(self.alignment, Alignment):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ContractError.bad_value("alignment", self.alignment, "Alignment(group=..., max_drift=...), or None")
        if self.by_ingest_time:
            legal = f"None for source {self.name!r}: the watermark of processing time is the clock"
            raise ContractError.bad_value("alignment", self.alignment, legal)
        if self.idle_timeout is None:
            legal = f"an idle timeout for source {self.name!r}, which has an `alignment`: without one it would hold back its group for ever"
            raise ContractError.bad_value("idle_timeout", self.idle_timeout, legal)

    def _check_expressions(self) -> None:
        """Raise `ContractError` if an expression reads an unknown column or several rows, or is a column whose type cannot be a time."""
        columns, owner = self.struct.fieldNames(), f"source {self.name!r}"
        of_valid_row = (ARRIVAL, EVENT_TIME, EVENT_TIME_RAW)
        row_expressions: list[tuple[str, str, Sequence[str]]] = [("condition", rule.condition, of_valid_row) for rule in self.rules]
        if not self.by_ingest_time:
            row_expressions.insert(0, ("event_time", self.event_time, (ARRIVAL,)))
        if isinstance(self.watermark, Punctuated):
            of_any_row = (ARRIVAL, EVENT_TIME_RAW)
            row_expressions.append(("watermark", self.watermark.watermark, of_any_row))
            row_expressions.append(("marker", self.watermark.marker or "true", of_any_row))
        for parameter, expression, engine_columns in row_expressions:
            check_expression(parameter, expression, columns, owner, engine_columns)
            check_row_by_row(parameter, expression)
            if parameter in ("event_time", "watermark"):
                check_time(parameter, expression, self.struct)
        if isinstance(self.watermark, BatchExpression):
            check_expression("watermark", self.watermark.watermark, columns, owner, of_valid_row)

    @cached_property
    def struct(self) -> StructType:
        """The schema as a `StructType`."""
        if isinstance(self.schema, StructType):
            return self.schema
        parsed = schema_of(self.schema) if isinstance(self.schema, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if parsed is None:
            misspelling = misspelled_type(self.schema) if isinstance(self.schema, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance]
            legal = f"a StructType, or DDL such as 'order_id STRING NOT NULL, amount INT'{misspelling}"
            raise ContractError.bad_value("schema", self.schema, legal)
        return parsed

    @property
    def by_ingest_time(self) -> bool:
        """Whether a row's event time is the time at which it was ingested."""
        names = [fold_case(name) for name in self.struct.fieldNames()]
        return fold_case(self.event_time.strip()) == INGESTED_AT and INGESTED_AT not in names

    def with_added_columns(self, columns: Sequence[StructField]) -> "SourceContract":
        """The contract with columns that were added to its event log, or are being added. A file need not have them."""
        added = [StructField(c.name, c.dataType, metadata={_ADDED: True}) for c in columns]
        return replace(self, schema=StructType([*self.struct.fields, *added])) if added else self

    @staticmethod
    def is_added(column: StructField) -> bool:
        """Whether a column was added from files, and is not declared by the contract."""
        return _ADDED in column.metadata

    @property
    def log(self) -> str:
        """The event log's path in the lake."""
        return f"events/{self.name}"

    @property
    def quarantine(self) -> str:
        """The quarantine's path in the lake."""
        return f"quarantine/{self.name}"
