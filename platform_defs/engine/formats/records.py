"""Reads released records: a release of a topic's rejected records writes them to a file of JSON lines, one line for each record.

A line has `value`, the record's value as text; or `hex`, the value's bytes in hexadecimal, if it is not text. If both are null, the record
has no value. A line also has `record`, an object of texts: the other parts of the record that the source reads, by column of the source.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType

from assets.contracts import SourceContract
from operators.columns import quoted_name, temporary
from operators.engine_columns import ARRIVAL
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.json_lines import json_rows_of
from platform_defs.engine.formats.raw_rows import HEX, PATH, RAW, RECORD
from platform_defs.engine.formats.text import lines
from platform_defs.engine.formats.topics import NO_VALUE

RECORDS = ".records"
"""The suffix of files of released records."""
_LINE, _FAULT, _PARTS = temporary("line"), temporary("fault"), temporary("parts")
_MAP = "map<string,string>"
_NO_RECORD = "the line is no released record: a JSON object with value or hex, and record"


def record_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of released records."""
    released = lines(spark, files, ordered).withColumn(_LINE, F.from_json("value", f"value string, hex string, record {_MAP}"))
    value, hexed = F.col(f"{_LINE}.value"), F.col(f"{_LINE}.hex")
    is_record = F.coalesce(F.arrays_overlap(F.json_object_keys("value"), F.array(*map(F.lit, ("value", "hex", "record")))), F.lit(False))
    fault = F.when(~is_record, F.lit(_NO_RECORD)).when(value.isNull() & hexed.isNull(), F.lit(NO_VALUE))
    rows = released.select(
        F.when(~is_record, F.col("value")).otherwise(F.coalesce(value, F.unhex(hexed).cast("string"), F.lit(""))).alias("value"),
        fault.alias(_FAULT),
        F.to_json(F.col(f"{_LINE}.record")).alias(RECORD),
        PATH,
        ARRIVAL,
    )
    parsed = json_rows_of(rows, contract, fault=F.col(_FAULT)).withColumn(_PARTS, F.from_json(RECORD, _MAP))
    columns = [
        _record_part_or_field(f.name) if isinstance(f.dataType, AtomicType) else F.col(quoted_name(f.name)) for f in contract.struct.fields
    ]
    return parsed.select(*columns, *parsed.columns[len(columns) : -1])


def _record_part_or_field(name: str) -> Column:
    """A column's text: a part of the record if the column contains one, otherwise a field of the value."""
    in_value = F.col(quoted_name(name))
    return F.when(F.map_contains_key(_PARTS, F.lit(name)), F.col(_PARTS)[name]).otherwise(in_value).alias(name)


def record_lines(rows: DataFrame, not_text: str) -> Column:
    """The JSON lines that release rejected records.

    Args:
        rows: rows of a quarantine.
        not_text: the reason in the quarantine for a value that is not text.
    """
    is_hex, raw = F.col("reason") == F.lit(not_text), F.col(RAW.removeprefix("_"))
    value = F.when(~is_hex & ~F.endswith("reason", F.lit(NO_VALUE)), raw).alias("value")
    hexed = F.when(is_hex, F.substr(raw, F.lit(len(HEX) + 1))).alias("hex")
    record_column = RECORD.removeprefix("_")
    record_parts = F.from_json(record_column, _MAP) if record_column in rows.columns else F.lit(None).cast(_MAP)
    return F.to_json(F.struct(value, hexed, record_parts.alias("record")), {"ignoreNullFields": "false"})
