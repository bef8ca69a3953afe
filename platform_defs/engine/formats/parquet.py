"""Reads Parquet files by Parquet's own schema, and ignores the Spark schema in the footer's key-value metadata."""

import json
from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import SourceContract
from assets.names import is_storable
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.opening import hadoop_path, read_files
from platform_defs.engine.formats.raw_rows import MALFORMED, PATH, RAW, arrival, union
from platform_defs.engine.formats.typed_rows import TypedRows


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
        Py4JJavaError: the file cannot be opened, or has no footer.
        AnalysisException: Spark does not support the columns.
    """
    return _struct(_schema_json(spark, file))


def _schema_json(spark: SparkSession, file: File) -> str:
    jvm = cast(Any, spark._jvm)
    parquet = jvm.org.apache.parquet
    convert = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter
    path, conf = hadoop_path(spark, file)
    options = parquet.HadoopReadOptions.builder(conf, path).build()  # the default options parse Hadoop's configuration files again
    reader = parquet.hadoop.ParquetFileReader.open(parquet.hadoop.util.HadoopInputFile.fromPath(path, conf), options)
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

    A column of the declared type is unchanged. A column of another type becomes text, to be cast and validated; if the declared type is
    nested, the column is converted here, part by part. A column that the contract does not name is not read if no table can store its
    type (a time of day), because Spark refuses to read it.
    """
    declared = {name.lower() for name in contract.struct.fieldNames()}
    stored = StructType([f for f in schema.fields if f.name.lower() in declared or is_storable(f.dataType)])
    typed = TypedRows(contract, schema)

    def read_rows(reader: DataFrameReader, paths: list[str]) -> DataFrame:
        rows = reader.schema(stored).parquet(*paths)
        metadata = rows.metadataColumn("_metadata")  # not by name, as a file may have a column of that name
        path = metadata.getField("file_path")
        position = arrival(files, ordered, path, metadata.getField("row_index"))
        malformed = F.coalesce(*typed.faults).alias(MALFORMED)
        return rows.select(*typed.columns, typed.as_json(stored.names).alias(RAW), path.alias(PATH), malformed, position)

    return read_files(spark, files, read_rows)
