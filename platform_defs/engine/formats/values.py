"""Converts values to a column's declared type. A value that cannot be converted becomes null; `is_lost` finds such values."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from operators.columns import combine_balanced

COMMON_TYPES = (
    StructType | ArrayType | MapType | NumericType | StringType | BinaryType | BooleanType | DateType | TimestampType | TimestampNTZType
)
"""The types whose values are the same in Arrow, Parquet and Spark."""
_HUGE_EXPONENT = r"[eE][+-]?\p{Nd}{5}"
_DATE_AND_NO_TIME = "[0-9][ T]+(?!(?:[01]?[0-9]|2[0-4])(?:$|[:Z+-]))[^ ]"
_BLANKS = "".join(map(chr, range(0x21))) + "\x7f"  # characters that Spark's cast from text to a time trims


def nullable(type_: DataType) -> DataType:
    """The type with nulls allowed in all of its parts, as the JSON parser returns it and a table stores it."""
    match type_:
        case StructType():
            return StructType([StructField(f.name, nullable(f.dataType)) for f in type_.fields])
        case ArrayType():
            return ArrayType(nullable(type_.elementType))
        case MapType():
            return MapType(nullable(type_.keyType), nullable(type_.valueType))
        case _:
            return type_


def parsed_text(text: Column, type_: DataType) -> Column:
    """A text as a value of an atomic type; null if it cannot be converted."""
    value = text.try_cast(type_)
    if isinstance(type_, DecimalType):  # Spark would need hours to divide by the power of ten of 1e-600000000
        return F.when(~F.rlike(text, F.lit(_HUGE_EXPONENT)), value)
    if isinstance(type_, DateType):  # Spark's cast ignores any text after the date
        value = F.when(~F.rlike(text, F.lit(_DATE_AND_NO_TIME)), value)
    return F.when(~(_is_time_of_day(text) | _is_number(text)), value) if isinstance(type_, DatetimeType) else value


def parsed_time(value: Column) -> Column:
    """A value of any type that Spark can cast to a timestamp, cast to it; null for a text that is no time, a time of day, or a number."""
    type_, text = F.typeof(value), value.cast("string")  # the type is a constant, so the plan of a timestamp has nothing of this
    is_time_of_day = F.rlike(type_, F.lit("^(string|variant)")) & _is_time_of_day(text)
    is_number = F.rlike(type_, F.lit("^string")) & _is_number(text)
    return F.when(~(is_time_of_day | is_number), value.try_cast("timestamp"))


def _is_time_of_day(text: Column) -> Column:
    """Whether a text is a time of day without a date, to which Spark's cast would add today's date."""
    return F.instr(F.ltrim(text, F.lit(_BLANKS)), ":").between(1, len("T12:"))


def _is_number(text: Column) -> Column:
    """Whether a text has no hyphen after a year. If it is a whole number, Spark's cast would read it as a year."""
    return F.locate("-", F.ltrim(text, F.lit(_BLANKS)), len("2026-")) == 0


def to_text(value: Column, type_: DataType) -> Column:
    """A value as text: JSON of a nested value, null for bytes that are not UTF-8."""
    if not isinstance(type_, AtomicType):
        return F.to_json(value)
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text) if isinstance(type_, BinaryType) else text


def convert(value: Column, stored_type: DataType, declared: DataType) -> Column:
    """A value converted to the declared type. Fields of structs are matched by name, ignoring case; fields without a match are left out.

    Args:
        value: the value.
        stored_type: the value's type, nullable in all of its parts.
        declared: the type of the result, nullable in all of its parts.
    """
    match stored_type, declared:
        case _ if stored_type == declared:
            return value
        case StructType(), StructType():
            names = _stored_names(stored_type, declared)
            fields = [
                convert(value[names[f.name]], stored_type[names[f.name]].dataType, f.dataType) if f.name in names else _null(f.dataType)
                for f in declared.fields
            ]
            return F.when(value.isNotNull(), F.struct(*[c.alias(f.name) for c, f in zip(fields, declared.fields, strict=True)]))
        case ArrayType(), ArrayType():
            return F.transform(value, lambda v: convert(v, stored_type.elementType, declared.elementType))
        case MapType(), MapType() if stored_type.keyType == declared.keyType:
            return F.transform_values(value, lambda _, v: convert(v, stored_type.valueType, declared.valueType))
        case _, StringType():
            return to_text(value, stored_type)
        case AtomicType(), AtomicType():
            return parsed_text(to_text(value, stored_type), declared)
        case _:
            return _null(declared)


def is_lost(value: Column, stored_type: DataType, declared: DataType) -> Column:
    """Whether a value, or a part of it that is not null, cannot be converted; never null."""
    match stored_type, declared:
        case _ if stored_type == declared:
            return F.lit(False)
        case StructType(), StructType():
            names = _stored_names(stored_type, declared)
            losses = [
                is_lost(value[names[f.name]], stored_type[names[f.name]].dataType, f.dataType) for f in declared.fields if f.name in names
            ]
            return combine_balanced(losses, lambda a, b: a | b, F.lit(False))
        case ArrayType(), ArrayType():
            return _or_false(F.exists(value, lambda v: is_lost(v, stored_type.elementType, declared.elementType)))
        case MapType(), MapType() if stored_type.keyType == declared.keyType:
            return _or_false(F.exists(F.map_values(value), lambda v: is_lost(v, stored_type.valueType, declared.valueType)))
        case _:
            return value.isNotNull() & convert(value, stored_type, declared).isNull()


def _stored_names(stored_type: StructType, declared: StructType) -> dict[str, str]:
    """By name of a declared field that a struct has, the field's name in that struct."""
    names = {name.lower(): name for name in reversed(stored_type.names)}
    return {f.name: names[f.name.lower()] for f in declared.fields if f.name.lower() in names}


def _or_false(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _null(type_: DataType) -> Column:
    return F.lit(None).cast(type_)
