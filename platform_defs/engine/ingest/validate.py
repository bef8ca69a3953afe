"""Validates raw rows against a source's contract: each row gets its types and event time, or a reason for its rejection."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DatetimeType, StringType, StructField

from assets.contracts import EVENT_TIME_RAW, Punctuated, SourceContract
from assets.names import fold_case, folded_name
from operators.columns import parameter
from operators.engine_columns import ARRIVAL, EVENT_TIME
from operators.timing import instant, length_ms, millis, timestamp
from platform_defs.engine.formats.built_once import built_once
from platform_defs.engine.formats.raw_rows import TYPE_FAULT, record_of, type_fault
from platform_defs.engine.formats.reader import MALFORMED, PATH, RAW
from platform_defs.engine.formats.values import parsed_text, parsed_time
from platform_defs.engine.ingest.row_expressions import fails, is_violated, without_errors

REASON, VIOLATED, ROW_WATERMARK, IS_MARKER = "_reason", "_violated_rules", "_watermark", "_is_marker"
_TEXT = "_text_"
_FAILS = "its expression fails"
FIRST_TIME, LAST_TIME = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999


def classify(raw: DataFrame, contract: SourceContract, now: int, clock: int | None = None) -> DataFrame:
    """Cast and validate raw rows.

    Args:
        raw: the result of `reader.read`.
        contract: the source's contract.
        now: the ledger's clock in epoch ms, which is the event time of sources that use processing time.
        clock: the wall clock in epoch ms, with which future times are compared; by default `now`. It has no effect on sources that use
            processing time, whose times are compared with `now`.

    Returns:
        `arrival`, `event_time` (floored to 1 ms), `event_time_raw`, the contract's columns with their types, `_raw`,
        `_path`, `_reason` (string; null for a good row), `_violated_rules` (the rules with another action than
        `quarantine` that the row violates), `_watermark` (the row's watermark, timestamp) and `_is_marker`; and `_record`, if `raw` has it.
    """
    struct, types = contract.struct, {f.name: f.dataType for f in raw.schema.fields}
    text = tuple(f.name for f in struct.fields if isinstance(types[f.name], StringType) and not isinstance(f.dataType, StringType))
    columns = _columns_of(raw.sparkSession, contract, text)
    with_text = raw.select(ARRIVAL, RAW, PATH, MALFORMED, *record_of(raw), *columns.typed)
    event_time = timestamp(parameter(now, ARRIVAL)) if columns.event_time is None else columns.event_time
    with_time = with_text.withColumn(EVENT_TIME_RAW, event_time)
    with_watermark = with_time.withColumns({ROW_WATERMARK: columns.watermark, IS_MARKER: columns.is_marker})
    reason = columns.reason(contract, now if clock is None or contract.by_ingest_time else clock).alias(REASON)
    names = struct.fieldNames()
    checked = columns.floored_time, EVENT_TIME_RAW, *names, RAW, PATH, reason, columns.violated, ROW_WATERMARK, IS_MARKER
    return with_watermark.select(ARRIVAL, *checked, *record_of(raw))


@dataclass(frozen=True)
class _Columns:
    """The columns that validate the rows of a source, without what depends on the clock.

    Args:
        typed: the columns of the contract, and those that are cast from text also as text.
        event_time: the event time; None for processing time.
        floored_time: the event time, floored to 1 ms.
        watermark: the row's watermark.
        is_marker: whether the row only has a watermark.
        violated: the rules that the row violates, and that do not reject it.
        first_faults: the reasons that precede all others.
        faults_of_marker: the reasons to reject a marker; used for punctuated watermarks only.
        faults_before_clock: the reasons to reject an event that precede a time too far ahead of the clock: a missing column, an event
            time that is missing, no timestamp, or out of range.
        faults_after_clock: the reasons that follow it.
    """

    typed: Sequence[Column]
    event_time: Column | None
    floored_time: Column
    watermark: Column
    is_marker: Column
    violated: Column
    first_faults: Column
    faults_of_marker: Column
    faults_before_clock: Column
    faults_after_clock: Column

    def reason(self, contract: SourceContract, now: int) -> Column:
        """The first reason to reject a row; a marker must only be well-formed and have a watermark in range.

        Args:
            contract: the source's contract.
            now: the wall clock in epoch ms.
        """
        too_far_ahead = _future_fault(contract, EVENT_TIME_RAW, now, "event time")
        of_event = F.coalesce(self.faults_before_clock, *too_far_ahead, self.faults_after_clock)
        if not isinstance(contract.watermark, Punctuated):
            return F.coalesce(self.first_faults, of_event)
        of_watermark = _future_fault(contract, ROW_WATERMARK, now, "watermark")
        by_kind = F.when(F.col(IS_MARKER), self.faults_of_marker).otherwise(of_event)
        return F.coalesce(self.first_faults, *of_watermark, by_kind)


@built_once
def _columns_of(spark: SparkSession, contract: SourceContract, text: tuple[str, ...]) -> _Columns:
    """The columns for a contract.

    Args:
        spark: the session.
        contract: the source's contract.
        text: the columns that are cast from text.
    """
    fields = contract.struct.fields
    typed = [parsed_text(F.col(f.name), f.dataType).alias(f.name) if f.name in text else F.col(f.name) for f in fields]
    unreadable = [_unreadable(f) for f in fields if f.name in text]
    event_time = None if contract.by_ingest_time else _time(spark, contract, contract.event_time)
    not_a_time = [] if contract.by_ingest_time else [_not_a_time(spark, contract, contract.event_time, "event time")]
    no_time = F.coalesce(*not_a_time, F.lit("event time: missing"))
    time_faults = F.when(F.isnull(EVENT_TIME_RAW), no_time), _year_fault(EVENT_TIME_RAW, "event time")
    return _Columns(
        typed=[*[F.col(name).alias(_TEXT + name) for name in text], *typed],
        event_time=event_time,
        floored_time=timestamp(millis(F.col(EVENT_TIME_RAW))).alias(EVENT_TIME),
        watermark=_row_watermark(spark, contract),
        is_marker=_is_marker(spark, contract),
        violated=_violated_rules(spark, contract).alias(VIOLATED),
        first_faults=F.coalesce(_malformed(), *unreadable, *_watermark_faults(spark, contract)),
        faults_of_marker=F.when(F.isnull(ROW_WATERMARK), F.lit("watermark: a marker row carries none")),
        faults_before_clock=F.coalesce(*[_missing(f) for f in fields if not f.nullable], *time_faults),
        faults_after_clock=F.coalesce(F.lit(None).cast("string"), *_year_faults(contract), *_rule_faults(spark, contract)),
    )


def _time(spark: SparkSession, contract: SourceContract, sql: str) -> Column:
    """The time that an expression gives; null if its value is no time, or it raises an error."""
    time = parsed_time(F.expr(sql))
    return time if _is_column(contract, sql) else without_errors(spark, time)


def _not_a_time(spark: SparkSession, contract: SourceContract, sql: str, name: str) -> Column:
    """The fault of an expression that gives a value that is no time, or raises an error; null if it gives null."""
    given, not_a_time = F.expr(sql), F.lit(f"{name}: not a timestamp")
    if _is_column(contract, sql):
        return F.when(given.isNotNull(), not_a_time)
    return F.when(fails(spark, given), F.lit(f"{name}: {_FAILS}")).when(without_errors(spark, given).isNotNull(), not_a_time)


def _is_column(contract: SourceContract, sql: str) -> bool:
    """Whether SQL is a column of the source alone, which raises no error."""
    return folded_name(sql) in {fold_case(name) for name in contract.struct.fieldNames()}


def _row_watermark(spark: SparkSession, contract: SourceContract) -> Column:
    strategy = contract.watermark
    return _time(spark, contract, strategy.watermark) if isinstance(strategy, Punctuated) else F.lit(None).cast("timestamp")


def _watermark_faults(spark: SparkSession, contract: SourceContract) -> list[Column]:
    """The faults of a row's watermark, which may be missing, and of the expression that decides whether the row is a marker."""
    strategy = contract.watermark
    if not isinstance(strategy, Punctuated):
        return []
    not_a_time = F.when(F.isnull(ROW_WATERMARK), _not_a_time(spark, contract, strategy.watermark, "watermark"))
    unknown = [] if strategy.marker is None else [F.when(fails(spark, F.expr(strategy.marker)), F.lit(f"marker: {_FAILS}"))]
    return [not_a_time, _year_fault(ROW_WATERMARK, "watermark"), *unknown]


def _is_marker(spark: SparkSession, contract: SourceContract) -> Column:
    strategy = contract.watermark
    if not isinstance(strategy, Punctuated) or strategy.marker is None:
        return F.lit(False)
    return F.coalesce(without_errors(spark, F.expr(strategy.marker)), F.lit(False)) & F.col(MALFORMED).isNull()


def _malformed() -> Column:
    """The reader's reason to reject a row: a value of another type, or a row or a file that cannot be parsed."""
    fault = F.col(MALFORMED)
    return F.when(F.startswith(fault, F.lit(TYPE_FAULT)), fault).otherwise(F.concat(F.lit("malformed: "), fault))


def _unreadable(field: StructField) -> Column:
    is_unreadable = F.col(_TEXT + field.name).isNotNull() & F.col(field.name).isNull()
    return F.when(is_unreadable, F.lit(type_fault(field)))


def _missing(field: StructField) -> Column:
    return F.when(F.col(field.name).isNull(), F.lit(f"missing: {field.name}"))


def _year_fault(column: str, name: str) -> Column:
    """The fault of an event time or a watermark that is not in the years 1 to 9999."""
    return F.when(~millis(F.col(column)).between(FIRST_TIME, LAST_TIME), F.lit(f"{name}: not in the years 1 to 9999"))


def _future_fault(contract: SourceContract, column: str, now: int, name: str) -> list[Column]:
    """The fault of an event time or a watermark that is too far ahead of the clock; empty if the contract sets no limit."""
    if contract.future_skew is None:
        return []
    bound = instant(now + length_ms(contract.future_skew, "future_skew"), column)
    return [F.when(F.col(column) > bound, F.lit(f"{name}: more than {contract.future_skew} ahead of the clock"))]


def _year_faults(contract: SourceContract) -> list[Column]:
    """The faults of times in other columns than the event time: few readers support years of five digits."""
    dated = [f.name for f in contract.struct.fields if isinstance(f.dataType, DatetimeType)]
    return [F.when(~F.year(name).between(1, 9999), F.lit(f"type: {name} is not in the years 1 to 9999")) for name in dated]


def _rule_faults(spark: SparkSession, contract: SourceContract) -> list[Column]:
    rules = [rule for rule in contract.rules if rule.action == "quarantine"]
    return [F.when(is_violated(spark, rule.condition), F.lit(f"rule: {rule.name}")) for rule in rules]


def _violated_rules(spark: SparkSession, contract: SourceContract) -> Column:
    violated = [F.when(is_violated(spark, r.condition), F.lit(r.name)) for r in contract.rules if r.action != "quarantine"]
    return F.array_compact(F.array(*violated)) if violated else F.array().cast("array<string>")
