"""Converts values that Arrow has read to the plain data that Spark's `to_json` writes for them."""

import base64
import json
import math
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import numpy as np
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from operators.column_types import types_within
from platform_defs.engine.formats.values import COMMON_TYPES

_KEYS = StringType | IntegralType
_SMALLEST_FLOAT, _LARGEST_FLOAT = 2.0**-126, 1e7
"""Between these bounds, every version of Java writes a float with the fewest digits that identify it, as NumPy does, except some powers of
two up to `_LARGEST_LONG_POWER`: Java 17 writes 2**-27 as 7.4505806E-9, and later versions as 7.450581E-9."""
_LARGEST_LONG_POWER = 2.0**-27


def has_json_value(kind: DataType) -> bool:
    """Whether `json_value` converts the values of a type. It does not for a map whose keys are neither text nor whole numbers."""
    return all(
        isinstance(part, COMMON_TYPES) and (not isinstance(part, MapType) or isinstance(part.keyType, _KEYS)) for part in types_within(kind)
    )


def json_value(value: Any, kind: DataType) -> Any:
    """A value as Spark's `to_json` writes it, in UTC, with null fields.

    Args:
        value: the value as Arrow's `to_pylist` gives it.
        kind: its type, for which `has_json_value` is true.

    Raises:
        ValueError: the value is a float whose digits depend on the version of Java.

    >>> json_value({"at": datetime(2026, 3, 1, 12), "n": Decimal("1.50")}, StructType().add("at", "timestamp").add("n", "decimal(5,2)"))
    {'at': '2026-03-01T12:00:00.000Z', 'n': 1.5}
    """
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: json_value(value[field.name], field.dataType) for field in kind.fields}
    if isinstance(kind, ArrayType):
        return [json_value(element, kind.elementType) for element in value]
    if isinstance(kind, MapType):
        return {str(key): json_value(inner, kind.valueType) for key, inner in value}
    return _atomic(value, kind)


def from_json(text: str) -> Any:
    """JSON as plain data, with all digits of its numbers.

    >>> from_json('[1.50, 0.12345678901234567890]')
    [1.5, Decimal('0.12345678901234567890')]
    """
    return json.loads(text, parse_float=_number)


def to_json(value: Any, **options: Any) -> str:
    """Plain data as JSON, with all digits of its decimals; values of other types are their text.

    `json.dumps` cannot write a decimal as a number. So a decimal is first a text with a mark, which is then removed with its quotes.

    Args:
        value: the data.
        options: options of `json.dumps`.

    >>> to_json([1.5, Decimal("0.12345678901234567890")])
    '[1.5, 0.12345678901234567890]'
    """
    mark = uuid4().hex
    text = json.dumps(value, default=lambda other: f"{mark}{other}" if isinstance(other, Decimal) else str(other), **options)
    return re.sub(rf'"{mark}([^"]*)"', r"\1", text)


def _number(text: str) -> float | Decimal:
    """A number that is not whole: a float, or a decimal if a float has other digits."""
    number, exact = float(text), Decimal(text)
    return number if Decimal(repr(number)) == exact else exact


def _atomic(value: Any, kind: DataType) -> Any:
    if isinstance(value, float):
        return _json_number(_with_java_digits(value) if isinstance(kind, FloatType) else value)
    if isinstance(value, Decimal):
        return int(value) if isinstance(kind, DecimalType) and kind.scale == 0 else _number(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        zone = "" if isinstance(kind, TimestampNTZType) else "Z"
        return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}{zone}"
    return value.isoformat() if isinstance(value, date) else value


def _with_java_digits(value: float) -> float:
    """A float with the digits that Java writes.

    Java 17 writes more digits than needed for large floats, such as 1.15805232E8, and for some small powers of two.
    """
    size = abs(value)
    is_small_power_of_two = size <= _LARGEST_LONG_POWER and math.frexp(size)[0] == 0.5
    if value and math.isfinite(value) and (is_small_power_of_two or not _SMALLEST_FLOAT <= size < _LARGEST_FLOAT):
        raise ValueError(value)
    return float(str(np.float32(value)))


def _json_number(value: float) -> float | str:
    """A number; text for a number that JSON cannot express, such as NaN."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
