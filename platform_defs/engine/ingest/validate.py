"""Validates raw rows against a source's contract: each row gets its types and event time, or a reason for its rejection."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DatetimeType, StringType, StructField

from assets.contracts import EVENT_TIME_RAW, Punctuated, SourceContract
from operators.columns import parameter
from operators.engine_columns import ARRIVAL, EVENT_TIME
from operators.timing import instant, length_ms, millis, timestamp
from platform_defs.engine.formats.raw_rows import TYPE_FAULT, record_of, type_fault
from platform_defs.engine.formats.reader import MALFORMED, PATH, RAW
from platform_defs.engine.formats.values import parsed_text

REASON, BROKEN, ROW_WATERMARK, IS_MARKER = "_reason", "_broken_rules", "_watermark", "_is_marker"
_TEXT = "_text_"
FIRST_TIME, LAST_TIME = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999


def classify(raw: DataFrame, contract: SourceContract, now: int, clock: int | None = None) -> DataFrame:
    """Cast and validate raw rows.

    Args:
        raw: the result of `reader.read`.
        contract: the source's contract.
        now: the ledger's clock in epoch ms, which is the event time of sources that use processing time.
        clock: the wall clock in epoch ms, with which future times are compared; by default `now`.

    Returns:
        `arrival`, `event_time` (floored to 1 ms), `event_time_raw`, the contract's columns with their types, `_raw`,
        `_path`, `_reason` (string; null for a good row), `_broken_rules` (the rules with another action than
        `quarantine` that the row violates), `_watermark` (the row's watermark, timestamp) and `_is_marker`; and `_record`, if `raw` has it.
    """
    fields = contract.struct.fields
    text = [f for f in fields if isinstance(raw.schema[f.name].dataType, StringType) and not isinstance(f.dataType, StringType)]
    typed = [parsed_text(F.col(f.name), f.dataType).alias(f.name) if f in text else F.col(f.name) for f in fields]
    with_text = raw.select(ARRIVAL, RAW, PATH, MALFORMED, *record_of(raw), *[F.col(f.name).alias(_TEXT + f.name) for f in text], *typed)
    ingested_at = timestamp(parameter(now, ARRIVAL))
    with_time = with_text.withColumn(
        EVENT_TIME_RAW, ingested_at if contract.by_ingest_time else F.expr(contract.event_time).cast("timestamp")
    )
    with_watermark = with_time.withColumns({ROW_WATERMARK: _row_watermark(contract), IS_MARKER: _is_marker(contract)})
    return with_watermark.select(
        ARRIVAL,
        timestamp(millis(F.col(EVENT_TIME_RAW))).alias(EVENT_TIME),
        EVENT_TIME_RAW,
        *contract.struct.fieldNames(),
        RAW,
        PATH,
        _reason(contract, text, now if clock is None or contract.by_ingest_time else clock).alias(REASON),
        _broken(contract).alias(BROKEN),
        ROW_WATERMARK,
        IS_MARKER,
        *record_of(raw),
    )


def _row_watermark(contract: SourceContract) -> Column:
    strategy = contract.watermark
    return F.expr(strategy.watermark).cast("timestamp") if isinstance(strategy, Punctuated) else F.lit(None).cast("timestamp")


def _is_marker(contract: SourceContract) -> Column:
    strategy = contract.watermark
    if not isinstance(strategy, Punctuated) or strategy.marker is None:
        return F.lit(False)
    return F.coalesce(F.expr(strategy.marker), F.lit(False)) & F.col(MALFORMED).isNull()


def _reason(contract: SourceContract, text: Sequence[StructField], now: int) -> Column:
    """The first reason to reject a row; a marker must only be well-formed and have a watermark in range.

    Args:
        contract: the source's contract.
        text: the columns that were cast from text.
        now: the wall clock in epoch ms.
    """
    time, watermark = F.col(EVENT_TIME_RAW), F.col(ROW_WATERMARK)
    missing = [_missing(f) for f in contract.struct.fields if not f.nullable]
    of_event = F.coalesce(*missing, *_time_faults(contract, time, now), *_year_faults(contract), *_rule_faults(contract))
    of_marker = F.when(watermark.isNull(), F.lit("watermark: a marker row carries none"))
    carried = [F.when(watermark.isNotNull(), fault) for fault in _range_faults(contract, watermark, now, "watermark")]
    unreadable = [_unreadable(f) for f in text]
    by_kind = F.when(F.col(IS_MARKER), of_marker).otherwise(of_event)
    return F.coalesce(_malformed(), *unreadable, *carried, by_kind)


def _malformed() -> Column:
    """The reader's reason to reject a row: a value of another type, or a row or a file that cannot be parsed."""
    fault = F.col(MALFORMED)
    return F.when(F.startswith(fault, F.lit(TYPE_FAULT)), fault).otherwise(F.concat(F.lit("malformed: "), fault))


def _unreadable(field: StructField) -> Column:
    is_unreadable = F.col(_TEXT + field.name).isNotNull() & F.col(field.name).isNull()
    return F.when(is_unreadable, F.lit(type_fault(field)))


def _missing(field: StructField) -> Column:
    return F.when(F.col(field.name).isNull(), F.lit(f"missing: {field.name}"))


def _time_faults(contract: SourceContract, time: Column, now: int) -> list[Column]:
    return [F.when(time.isNull(), F.lit("event time: missing")), *_range_faults(contract, time, now, "event time")]


def _range_faults(contract: SourceContract, time: Column, now: int, name: str) -> list[Column]:
    faults = [F.when(~millis(time).between(FIRST_TIME, LAST_TIME), F.lit(f"{name}: not in the years 1 to 9999"))]
    if contract.future_skew is not None:
        bound = instant(now + length_ms(contract.future_skew, "future_skew"), time)
        faults.append(F.when(time > bound, F.lit(f"{name}: more than {contract.future_skew} ahead of the clock")))
    return faults


def _year_faults(contract: SourceContract) -> list[Column]:
    """The faults of times in other columns than the event time: few readers support years of five digits."""
    dated = [f.name for f in contract.struct.fields if isinstance(f.dataType, DatetimeType)]
    return [F.when(~F.year(name).between(1, 9999), F.lit(f"type: {name} is not in the years 1 to 9999")) for name in dated]


def _rule_faults(contract: SourceContract) -> list[Column]:
    return [F.when(~F.expr(r.condition), F.lit(f"rule: {r.name}")) for r in contract.rules if r.action == "quarantine"]


def _broken(contract: SourceContract) -> Column:
    violated_rules = [F.when(~F.expr(r.condition), F.lit(r.name)) for r in contract.rules if r.action != "quarantine"]
    return F.array_compact(F.array(*violated_rules)) if violated_rules else F.array().cast("array<string>")
