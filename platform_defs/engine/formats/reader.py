"""Reads input files of all formats as raw rows, each with its position in the batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assets.contracts import SourceContract
from platform_defs.engine.formats.csv_lines import csv_rows
from platform_defs.engine.formats.files import COMPRESSIONS, TOPIC, File
from platform_defs.engine.formats.json_lines import json_rows
from platform_defs.engine.formats.parquet import parquet_rows
from platform_defs.engine.formats.raw_rows import MALFORMED, PATH, RAW, RECORD, union, whole_files
from platform_defs.engine.formats.records import RECORDS, record_rows
from platform_defs.engine.formats.topics import topic_rows

__all__ = ["MALFORMED", "PATH", "RAW", "READER_VERSION", "RECORD", "File", "is_columnar", "is_text_file", "of_known_format", "read"]

READER_VERSION = 9
"""The version of the readers. Increment it if a change makes them read other rows from the same files, so that uncommitted rows of the
earlier version are not reused."""


def is_columnar(files: Sequence[File]) -> bool:
    """Whether all files have a columnar format."""
    return all(f.suffix == ".parquet" for f in files)


def is_text_file(file: File) -> bool:
    """Whether a file's rows are read from its lines."""
    return file.fault is None and file.suffix not in (".parquet", TOPIC)


def of_known_format(file: File) -> File:
    """The file, with a fault if it has no format that can be read."""
    legal = f"{', '.join(f for f in _FORMATS if f not in (TOPIC, RECORDS))}, nor one of these packed as {', '.join(COMPRESSIONS)}"
    return file if file.fault or file.suffix in _FORMATS else replace(file, fault=f"the file is not {legal}")


def read(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> DataFrame:
    """The raw rows of files, not validated yet. A file without a fault must be of a known format.

    Returns:
        The contract's columns (atomic ones as string, or with their declared type if the file has it), `_raw` (the original row), `_path`,
        `_malformed` (why the row cannot be parsed or has a value of another type, or null) and `arrival` (bigint: ordered by modification
        time, path and position). With records of topics also `_record` (their parts other than the value).
    """
    ordered = sorted(files)
    frames = [
        whole_files(spark, contract, list(group), ordered, fault) if fault else _FORMATS[suffix](spark, contract, list(group), ordered)
        for (fault, suffix), group in groupby(sorted(ordered, key=_kind), key=_kind)
    ]
    has_records = any(RECORD in frame.columns for frame in frames)
    return reduce(union, map(_with_record, frames) if has_records else frames)


def _with_record(rows: DataFrame) -> DataFrame:
    return rows if RECORD in rows.columns else rows.withColumn(RECORD, F.lit(None).cast("string"))


def _kind(file: File) -> tuple[str, str]:
    return file.fault or "", file.suffix


_FORMATS: dict[str, Callable[[SparkSession, SourceContract, Sequence[File], Sequence[File]], DataFrame]] = {
    ".csv": csv_rows,
    ".json": json_rows,
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".parquet": parquet_rows,
    RECORDS: record_rows,
    TOPIC: topic_rows,
}
