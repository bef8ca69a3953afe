"""Reads Parquet files by the schema of their columns, and ignores the schema in the footer's key-value metadata."""

import json
from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, BinaryType, StructField, StructType

from assets.contracts import SourceContract
from assets.names import is_stored
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.opening import hadoop_path, opened
from platform_defs.engine.formats.raw_rows import MALFORMED, PATH, RAW, arrival, new_column_fault, type_fault, union
from platform_defs.engine.formats.values import converted, is_lost, nullable, to_text

_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"
_JSON = {"ignoreNullFields": "false", "timestampFormat": f"{_MICROSECONDS}[XXX]", "timestampNTZFormat": _MICROSECONDS}


def parquet_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of Parquet files; files with the same schema are read together."""
    schemas = {f: _schema_json(spark, f) for f in files}
    alike = groupby(sorted(files, key=lambda f: schemas[f]), key=lambda f: schemas[f])
    return reduce(union, [_rows(spark, contract, _struct(schema), list(group), ordered) for schema, group in alike])


def parquet_schema(spark: SparkSession, file: File) -> StructType:
    """A file's columns with the types of Spark's reader, without a Spark job.

    Spark itself prefers the schema in the footer's key-value metadata. The writer of a file controls that schema, and it may name a
    Python or JVM class as a column's type, which PySpark would import.

    Raises:
        Py4JJavaError: the file has no footer.
        AnalysisException: Spark does not support the columns.
    """
    return _struct(_schema_json(spark, file))


def _schema_json(spark: SparkSession, file: File) -> str:
    jvm = cast(Any, spark._jvm)
    parquet = jvm.org.apache.parquet.hadoop
    convert = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter
    reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(*hadoop_path(spark, file)))
    try:
        columns = reader.getFileMetaData().getSchema()
    finally:
        reader.close()
    return str(convert(cast(Any, spark._jsparkSession).sessionState().conf()).convert(columns).json())


def _struct(schema: str) -> StructType:
    try:
        return StructType.fromJson(json.loads(schema))
    except RecursionError:
        raise AnalysisException("[PARQUET_TYPE_ILLEGAL] columns are nested too deep") from None


def _rows(spark: SparkSession, contract: SourceContract, schema: StructType, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of files with one schema.

    A column of the declared type is unchanged. Another one becomes text, to be cast and validated; if the declared type is nested, the
    column is converted here, part by part. A column that the contract does not name, of a type that no table stores (a time of day), is
    not read: Spark refuses files by it.
    """
    own = {name.lower() for name in contract.struct.fieldNames()}
    stored = StructType([f for f in schema.fields if f.name.lower() in own or is_stored(f.dataType)])
    names = {c.lower(): c for c in schema.names}

    def read_rows(reader: DataFrameReader, paths: list[str]) -> DataFrame:
        rows = reader.schema(stored).parquet(*paths)
        metadata = rows.metadataColumn("_metadata")  # a file may have a column of that name, so not by name
        path = metadata.getField("file_path")
        columns = [_as_declared(names.get(f.name.lower()), f, schema).alias(f.name) for f in contract.struct.fields]
        position = arrival(files, ordered, path, metadata.getField("row_index"))
        brings = F.lit(new_column_fault(contract, schema.names)).cast("string")
        faults = [_type_fault(names.get(f.name.lower()), f, schema) for f in contract.struct.fields]
        malformed = F.coalesce(brings, *[f for f in faults if f is not None]).alias(MALFORMED)
        return rows.select(*columns, _as_json(contract, stored.names), path.alias(PATH), malformed, position)

    return opened(spark, files, read_rows)


def _as_json(contract: SourceContract, columns: Sequence[str]) -> Column:
    """A row as a JSON object that the JSON reader reads as the same row: with the contract's names and all digits of times."""
    declared = {name.lower(): name for name in contract.struct.fieldNames()}
    named = [_column(c).alias(declared.get(c.lower(), c)) for c in columns]
    return F.to_json(F.struct(*named), _JSON).alias(RAW)


def _as_declared(name: str | None, declared: StructField, schema: StructType) -> Column:
    target = nullable(declared.dataType)
    if name is None:
        return F.lit(None).cast(target)
    if schema[name].dataType == target:
        return _column(name)
    given = nullable(schema[name].dataType)
    return to_text(_column(name), given) if isinstance(target, AtomicType) else converted(_column(name), given, target).cast(target)


def _type_fault(name: str | None, declared: StructField, schema: StructType) -> Column | None:
    """Why a row is rejected if `_as_declared` loses its value; None if it cannot lose one: text keeps every value."""
    if name is None:
        return None
    given, target = nullable(schema[name].dataType), nullable(declared.dataType)
    is_text = isinstance(target, AtomicType) and not isinstance(given, BinaryType)
    if given == target or (is_text and not SourceContract.is_added(declared)):
        return None
    return F.when(is_lost(_column(name), given, target), F.lit(type_fault(declared, given)))


def _column(name: str) -> Column:
    """A column by its name, which may contain any character."""
    return F.col(f"`{name.replace('`', '``')}`")
