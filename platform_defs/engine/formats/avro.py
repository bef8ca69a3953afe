"""Decodes the Avro values of Kafka records. Each value is decoded with its writer schema: the schema that it was written with.

Either all values of a source have one schema, and a value is the Avro encoding alone. Or values are in Confluent's wire format: a zero
byte, the id of the schema in a registry as four bytes, and the encoding.
"""

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import DataType, StructType

from assets.contracts import SourceContract
from assets.names import first_duplicate, nested_structs
from operators.columns import temporary
from operators.engine_columns import ARRIVAL
from platform_defs.engine.formats.kafka_client import error_reason
from platform_defs.engine.formats.kafka_options import Avro
from platform_defs.engine.formats.raw_rows import HEX, MALFORMED, PATH, RAW, as_text, record_of, union
from platform_defs.engine.formats.read_errors import read_error
from platform_defs.engine.formats.schema_registry import RegisteredSchema, schema_reader
from platform_defs.engine.formats.typed_rows import TypedRows
from platform_defs.safe_text import printable, shortened

_PARSED, _ENCODED, _ID = temporary("parsed"), temporary("encoded"), temporary("schema_id")
_HEAD_BYTES = 5
"""The length of the header of Confluent's wire format, in bytes: the zero byte and the id of the schema."""
_MOST_SCHEMAS = 200
"""The largest number of schemas for one batch; the most frequent ones are used. Damaged records may contain any id, and each id costs a
request to the registry."""
_MANY_SCHEMAS = (
    f"too many Avro schemas: only the {_MOST_SCHEMAS} most frequent ones of a batch are read; send this record again, whose schema id is "
)
_UNREADABLE = "its Avro schema cannot be read: "
_NO_HEADER = "not Confluent's wire format: no zero byte and id of a schema before the value"


def avro_rows(records: DataFrame, contract: SourceContract, avro: Avro, columns_of_parts: Mapping[str, Column], fault: Column) -> DataFrame:
    """The raw rows of Avro values.

    Args:
        records: the records, with the columns `value` (binary), `_path` and `arrival`.
        contract: the source's contract.
        avro: how the values are written.
        columns_of_parts: by name, the raw values of columns that are read from another part of the record than its value.
        fault: the reason to reject a record before its value is read, or null.

    Raises:
        RegistryError: the registry cannot be reached.
    """
    if avro.schema is not None:
        encoded = records.withColumn(_ENCODED, F.col("value"))
        return _rows_with_schema(encoded, contract, avro.schema, columns_of_parts, fault)
    assert avro.registry is not None
    schema_of = schema_reader(avro.registry)
    headed = F.when(F.substring("value", 1, 1) == F.lit(b"\0"), F.conv(F.hex(F.substring("value", 2, 4)), 16, 10).cast("bigint"))
    rows = records.withColumn(_ID, F.when(F.octet_length("value") >= _HEAD_BYTES, headed))
    most = rows.where(F.col(_ID).isNotNull() & fault.isNull()).groupBy(_ID).count().orderBy(F.desc("count"), _ID).limit(_MOST_SCHEMAS)
    schemas_by_id = {schema_id: schema_of(schema_id) for schema_id, _ in most.collect()}
    schemas = {schema_id: schema for schema_id, schema in sorted(schemas_by_id.items()) if schema is not None}
    decoded = [
        _rows_with_registered_schema(
            rows.where(_has_schema_id(schema_id)).withColumn(_ENCODED, F.expr(f"substring(value, {_HEAD_BYTES + 1})")),
            contract,
            schema,
            columns_of_parts,
            fault,
        )
        for schema_id, schema in schemas.items()
    ]
    unknown = F.concat(F.lit("no Avro schema with the id "), F.col(_ID).cast("string"), F.lit(" in the registry"))
    if len(schemas_by_id) == _MOST_SCHEMAS:
        unknown = F.when(F.col(_ID).isin(*schemas_by_id), unknown).otherwise(F.concat(F.lit(_MANY_SCHEMAS), F.col(_ID).cast("string")))
    reason = F.coalesce(fault, F.when(F.col(_ID).isNull(), F.lit(_NO_HEADER)), unknown)
    undecoded = rows.where(F.col(_ID).isNull() | ~F.col(_ID).isin(*schemas)) if schemas else rows
    return reduce(union, [*decoded, _rejected_records(undecoded, contract, reason)])


def _has_schema_id(schema_id: int) -> Column:
    return F.col(_ID) == schema_id


def _rejected_records(records: DataFrame, contract: SourceContract, reason: Column) -> DataFrame:
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in as_text(contract.struct).fields]
    return records.select(*columns, _raw_as_hex(), PATH, reason.alias(MALFORMED), ARRIVAL, *record_of(records))


def _raw_as_hex() -> Column:
    """The column `RAW`: the original value in hexadecimal."""
    return F.concat(F.lit(HEX), F.coalesce(F.hex("value"), F.lit(""))).alias(RAW)


def _rows_with_registered_schema(
    records: DataFrame, contract: SourceContract, schema: RegisteredSchema, columns_of_parts: Mapping[str, Column], fault: Column
) -> DataFrame:
    """The rows of values with one schema of a registry. All are rejected if the schema is not Avro or Spark cannot read it."""
    if schema.kind != "AVRO":
        return _rejected_records(records, contract, F.coalesce(fault, F.lit(f"its schema is not Avro but {printable(schema.kind)}")))
    try:
        return _rows_with_schema(records, contract, schema.text, columns_of_parts, fault)
    except (AnalysisException, Py4JJavaError) as error:
        reason = _reason_of_schema(error)
    return _rejected_records(records, contract, F.coalesce(fault, F.lit(f"{_UNREADABLE}{reason}")))


def _reason_of_schema(error: AnalysisException | Py4JJavaError) -> str:
    """Why Spark cannot read a schema. Raises the error if the schema is not its cause."""
    if isinstance(error, AnalysisException):
        return shortened(printable(error.getCondition() or str(error)))
    if read_error(error).kind != "content":
        raise error
    return error_reason(error)


def schema_fault(spark: SparkSession, schema: str) -> str | None:
    """Why Spark cannot read values with an Avro schema of a record; None if it can. Runs no Spark job."""
    try:
        parsed: Any = spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema).alias(_PARSED)).schema[_PARSED].dataType
    except (AnalysisException, Py4JJavaError) as error:
        return _reason_of_schema(error)
    return _field_twice(parsed)


def _field_twice(kind: DataType) -> str | None:
    """The fault of a record, or of a nested record, with two fields whose names differ only in case; None if there is none.

    Spark cannot distinguish the two fields, and would read no value.
    """
    twice = next(filter(None, (first_duplicate(record.names) for record in nested_structs(kind))), None)
    return None if twice is None else f"it has the field {twice!r} twice, in different case"


def _rows_with_schema(
    records: DataFrame, contract: SourceContract, schema: str, columns_of_parts: Mapping[str, Column], fault: Column
) -> DataFrame:
    """The rows of values that were written with one schema."""
    parsed = records.withColumn(_PARSED, from_avro(_ENCODED, schema, {"mode": "PERMISSIVE"}))
    struct = parsed.schema[_PARSED].dataType
    if not isinstance(struct, StructType) or isinstance(json.loads(schema), list):  # for a union Spark has a struct too, but reads no value
        return _rejected_records(records, contract, F.coalesce(fault, F.lit("the Avro schema is no record")))
    if (twice := _field_twice(struct)) is not None:
        return _rejected_records(records, contract, F.coalesce(fault, F.lit(f"{_UNREADABLE}{twice}")))
    typed = TypedRows(contract, struct, lambda name: F.col(_PARSED).getField(name))
    damaged = F.when(_is_damaged(struct, schema), F.lit("the value cannot be read with its Avro schema"))
    malformed = F.coalesce(fault, damaged, *typed.faults)
    columns = [
        columns_of_parts[f.name].alias(f.name) if f.name in columns_of_parts else column
        for f, column in zip(contract.struct.fields, typed.columns, strict=True)
    ]
    as_json = F.when(damaged.isNotNull() | fault.isNotNull(), _raw_as_hex()).otherwise(typed.as_json(struct.names)).alias(RAW)
    return parsed.select(*columns, as_json, PATH, malformed.alias(MALFORMED), ARRIVAL, *record_of(records))


def _is_damaged(struct: StructType, schema: str) -> Column:
    """Whether a value cannot be read. Spark returns a record of nulls for it, so each record of nulls is encoded again and compared."""
    only_nulls = reduce(Column.__and__, [F.col(_PARSED).getField(name).isNull() for name in struct.names], F.lit(True))
    if not _may_all_be_null(schema):
        return only_nulls
    return only_nulls & (to_avro(_PARSED, schema) != F.col(_ENCODED))


def _may_all_be_null(schema: str) -> bool:
    """Whether all fields of a record's schema may be null.

    >>> _may_all_be_null('{"fields": [{"name": "k", "type": [{"type": "null"}, "string"]}]}')
    True
    >>> _may_all_be_null('{"fields": [{"name": "k", "type": {"type": "string"}}]}')
    False
    """
    return all(_may_be_null(f["type"]) for f in json.loads(schema).get("fields", []))


def _may_be_null(kind: Any) -> bool:
    """Whether a type of an Avro schema may be null."""
    if isinstance(kind, list):
        return any(_may_be_null(one) for one in kind)
    return _may_be_null(kind.get("type")) if isinstance(kind, dict) else kind == "null"
