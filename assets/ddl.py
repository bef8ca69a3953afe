"""Schemas as DDL text, such as `zone STRING NOT NULL, fare DECIMAL(8,2) COMMENT 'in euros'`, read without a Spark session."""

from typing import Any, cast

import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)
from sqlglot import exp
from sqlglot.errors import SqlglotError

_ATOMIC: dict[exp.DType, type[DataType]] = {
    exp.DType.TEXT: StringType,
    exp.DType.BOOLEAN: BooleanType,
    exp.DType.TINYINT: ByteType,
    exp.DType.SMALLINT: ShortType,
    exp.DType.INT: IntegerType,
    exp.DType.BIGINT: LongType,
    exp.DType.FLOAT: FloatType,
    exp.DType.DOUBLE: DoubleType,
    exp.DType.BINARY: BinaryType,
    exp.DType.DATE: DateType,
    exp.DType.TIMESTAMPTZ: TimestampType,
    exp.DType.TIMESTAMPLTZ: TimestampType,
    exp.DType.TIMESTAMPNTZ: TimestampNTZType,
    exp.DType.VARIANT: VariantType,
}
_SIZED = {exp.DType.DECIMAL: DecimalType, exp.DType.VARCHAR: VarcharType, exp.DType.CHAR: CharType}


def schema_of(ddl: str) -> StructType | None:
    """The schema that a DDL text describes, as Spark reads it; None if the text is not valid.

    Types that the parser does not know are read by Spark if a session runs, and are not valid otherwise.
    """
    try:
        made = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
        return StructType([_field(column) for column in made.this.expressions])
    except (SqlglotError, KeyError, AttributeError, TypeError, ValueError):
        return _by_spark(ddl)


def _by_spark(ddl: str) -> StructType | None:
    from pyspark.errors import PySparkException

    if SparkSession.getActiveSession() is None:
        return None
    try:
        found = StructType.fromDDL(ddl)
    except PySparkException:
        return None
    return found if isinstance(found, StructType) else None


def _field(column: Any) -> StructField:
    nullable, metadata = True, {}
    for constraint in column.args.get("constraints") or ():
        if isinstance(constraint.kind, exp.NotNullColumnConstraint) and not constraint.kind.args.get("allow_null"):
            nullable = False
        elif isinstance(constraint.kind, exp.CommentColumnConstraint):
            metadata = {"comment": constraint.kind.this.this}
        else:
            raise ValueError(constraint)
    return StructField(column.name, _type(column.kind), nullable, metadata)


def _type(kind: exp.DataType) -> DataType:
    inner: list[Any] = kind.expressions
    match kind.this:
        case exp.DType.STRUCT:
            return StructType([_field(column) for column in inner])
        case exp.DType.ARRAY:
            return ArrayType(_type(inner[0]))
        case exp.DType.MAP:
            return MapType(_type(inner[0]), _type(inner[1]))
        case name if name in _SIZED:
            return _SIZED[name](*[int(cast(Any, size).this.this) for size in inner])
        case name:
            return _ATOMIC[name]()
