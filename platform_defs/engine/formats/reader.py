"""Input files read as raw rows, each with its place in the entry."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import Any, cast

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StructField

from assets.contracts import SourceContract
from platform_defs.engine.formats.files import COMPRESSIONS, File
from platform_defs.engine.formats.opening import hadoop_path, opened
from platform_defs.engine.formats.raw_rows import MALFORMED, PATH, RAW, arrival, brings, whole_files
from platform_defs.engine.formats.text import csv_rows, json_rows

READER_VERSION = 3
"""One more for each change that makes other rows of the same files: rows that an older version left uncommitted are not reused then."""
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"
_JSON = {"ignoreNullFields": "false", "timestampFormat": f"{_MICROSECONDS}[XXX]", "timestampNTZFormat": _MICROSECONDS}


def is_columnar(files: Sequence[File]) -> bool:
    """Whether all files have a format of which a reader may take single columns."""
    return all(f.suffix == ".parquet" for f in files)


def read(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> DataFrame:
    """The files' rows, not judged yet.

    Returns:
        The contract's columns (atomic ones as string, or with their declared type where the file has it), `_raw` (the
        row as it came), `_path`, `_malformed` (why the row cannot be parsed, or null) and `arrival` (bigint: by
        modification time, path and position).
    """
    ordered = sorted(files)
    frames = [
        whole_files(spark, contract, list(group), ordered, fault) if fault else _FORMATS[suffix](spark, contract, list(group), ordered)
        for (fault, suffix), group in groupby(sorted(map(_of_known_format, ordered), key=_kind), key=_kind)
    ]
    return reduce(_union, frames)


def _of_known_format(file: File) -> File:
    legal = f"{', '.join(_FORMATS)}, nor one of these packed as {', '.join(COMPRESSIONS)}"
    return file if file.fault or file.suffix in _FORMATS else replace(file, fault=f"the file is not {legal}")


def _kind(file: File) -> tuple[str, str]:
    return file.fault or "", file.suffix


def _parquet(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """Parquet files, those of one schema together."""
    schemas = {f: _parquet_schema(spark, f) for f in files}
    alike = groupby(sorted(files, key=lambda f: schemas[f]), key=lambda f: schemas[f])
    return reduce(_union, [_parquet_rows(spark, contract, list(group), ordered) for _, group in alike])


def _parquet_schema(spark: SparkSession, file: File) -> str:
    """What a file's footer says of its columns. No Spark job.

    Raises:
        Py4JJavaError: there is no footer to read.
    """
    parquet = cast(Any, spark._jvm).org.apache.parquet.hadoop
    reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(*hadoop_path(spark, file)))
    try:
        return str(reader.getFileMetaData().getSchema())
    finally:
        reader.close()


def _parquet_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of files of one schema. A column of the declared type stays as it is; any other is text, to be cast and judged."""

    def read_rows(reader: DataFrameReader, paths: list[str]) -> DataFrame:
        rows = reader.parquet(*paths)
        names = {c.lower(): c for c in rows.columns}
        columns = [_as_declared(names.get(f.name.lower()), f, rows).alias(f.name) for f in contract.struct.fields]
        position = arrival(files, ordered, F.col("_metadata.row_index"))
        malformed = F.lit(brings(contract, rows.columns)).cast("string").alias(MALFORMED)
        return rows.select(*columns, _as_json(contract, rows.columns), F.col("_metadata.file_path").alias(PATH), malformed, position)

    return opened(spark, files, read_rows)


def _as_json(contract: SourceContract, columns: Sequence[str]) -> Column:
    """A row as a JSON object that the JSON reader takes for the same row: with the contract's names, and all digits of its times."""
    declared = {name.lower(): name for name in contract.struct.fieldNames()}
    named = [F.col(f"`{c}`").alias(declared.get(c.lower(), c)) for c in columns]
    return F.to_json(F.struct(*named), _JSON).alias(RAW)


def _as_declared(name: str | None, declared: StructField, rows: DataFrame) -> Column:
    if name is None:
        return F.lit(None).cast(declared.dataType)
    if rows.schema[name].dataType == declared.dataType:
        return F.col(f"`{name}`")
    return F.col(f"`{name}`").cast("string" if isinstance(declared.dataType, AtomicType) else declared.dataType)


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    """The rows of two frames; a column that one of them has as text is text."""
    differing = {f.name for f, g in zip(one.schema, other.schema, strict=True) if f.dataType != g.dataType}
    return _with_text(one, differing).union(_with_text(other, differing))


def _with_text(frame: DataFrame, columns: Collection[str]) -> DataFrame:
    return frame.select(*[F.col(c).cast("string").alias(c) if c in columns else F.col(c) for c in frame.columns]) if columns else frame


_FORMATS: dict[str, Callable[[SparkSession, SourceContract, Sequence[File], Sequence[File]], DataFrame]] = {
    ".csv": csv_rows,
    ".json": json_rows,
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".parquet": _parquet,
}
