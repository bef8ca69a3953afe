"""The keys and values of a topic's records, in the format of its sink.

With a registry, Avro keys and values are in Confluent's wire format: a zero byte, the id of the schema as four bytes, and the encoding. In
the registered schema, each column that may be null has the default null, so that a schema with one column more or less stays compatible.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from operators.changelog import as_json
from operators.columns import quoted
from platform_defs.engine.formats.schema_registry import schema_registrar
from platform_defs.engine.operations.sink import Sink, SinkError

Part = Literal["key", "value"]
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMESPACE = "tidemark"


@dataclass(frozen=True)
class Encoding:
    """Encodes columns of a table as the keys and values of records.

    Args:
        spark: the session.
        sink: the sink.
        asset: the table's name.
    """

    spark: SparkSession
    sink: Sink
    asset: str

    def __call__(self, part: Part, rows: StructType, columns: Sequence[str]) -> Column:
        """Columns as a key or a value.

        Args:
            part: the key or the value.
            rows: the schema of the rows.
            columns: the columns.

        Raises:
            SinkError: a column, or a field in it, has a name or a type that Avro does not allow.
            RegistryError: the registry cannot be reached, or refuses the schema.
        """
        if self.sink.format == "json":
            return as_json(columns)
        struct = StructType([rows[column] for column in columns])
        if illegal := [name for name in _field_names(struct) if not _AVRO_NAME.fullmatch(name)]:
            raise SinkError.no_avro_name(self.asset, illegal)
        if illegal := [column for column in columns if any(map(_is_no_avro_map, _types(rows[column].dataType)))]:
            raise SinkError.no_avro_map(self.asset, illegal)
        row = F.struct(*quoted(columns))
        if self.sink.registry is None:
            return to_avro(row)
        schema = self._schema(part, struct)
        schema_id = self._register(f"{self.sink.topic}-{part}", schema)
        return F.concat(F.lit(b"\0" + schema_id.to_bytes(4, "big")), to_avro(row, schema))

    @cached_property
    def _register(self) -> Callable[[str, str], int]:
        assert self.sink.registry is not None
        return schema_registrar(self.sink.registry)

    def _schema(self, part: Part, struct: StructType) -> str:
        """The Avro schema of a key or a value."""
        jvm = cast(Any, self.spark._jvm)
        spark_type = jvm.org.apache.spark.sql.types.DataType.fromJson(struct.json())
        name = f"{self.asset}_key" if part == "key" else self.asset
        converters = jvm.org.apache.spark.sql.avro.SchemaConverters
        return json.dumps(_add_null_defaults(json.loads(converters.toAvroType(spark_type, False, name, _NAMESPACE).toString())))


def _types(kind: DataType) -> Iterator[DataType]:
    """A type, and the types nested in it."""
    yield kind
    if isinstance(kind, StructType):
        parts = [nested.dataType for nested in kind]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    else:
        parts = [kind.keyType, kind.valueType] if isinstance(kind, MapType) else []
    for part in parts:
        yield from _types(part)


def _field_names(struct: StructType) -> list[str]:
    """The names of the fields of a struct, and of those nested in it."""
    return [field.name for kind in _types(struct) if isinstance(kind, StructType) for field in kind]


def _is_no_avro_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and not isinstance(kind.keyType, StringType)


def _add_null_defaults(schema: Any) -> Any:
    """Give the default null to each field of an Avro schema that may be null. Avro then requires null as the first type of the union."""
    if isinstance(schema, list):
        return [_add_null_defaults(part) for part in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    with_defaults = {
        name: _add_null_defaults(value) if name in ("type", "items", "values", "fields") else value for name, value in schema.items()
    }
    kinds = with_defaults.get("type")
    if "name" in with_defaults and isinstance(kinds, list) and "null" in kinds:
        return with_defaults | {"type": ["null", *[kind for kind in cast(list[Any], kinds) if kind != "null"]], "default": None}
    return with_defaults
