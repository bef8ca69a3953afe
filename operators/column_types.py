"""The types of columns: what a type contains, and whether Spark can order its values."""

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, AtomicType, DataType, MapType, StructType, VariantType


def parts(kind: DataType) -> Iterator[DataType]:
    """A type and every type that it contains, at any depth.

    >>> [part.simpleString() for part in parts(StructType().add("values", ArrayType(VariantType())))]
    ['struct<values:array<variant>>', 'array<variant>', 'variant']
    """
    yield kind
    match kind:
        case StructType():
            contained = [field.dataType for field in kind.fields]
        case ArrayType():
            contained = [kind.elementType]
        case MapType():
            contained = [kind.keyType, kind.valueType]
        case _:
            contained = []
    for one in contained:
        yield from parts(one)


def has_map(kind: DataType) -> bool:
    """Whether a type is a map, or contains one."""
    return any(isinstance(part, MapType) for part in parts(kind))


def can_be_ordered(kind: DataType) -> bool:
    """Whether Spark can order values of a type: it cannot if there is a map or a variant in it."""
    return all(isinstance(part, ArrayType | StructType | AtomicType) and not isinstance(part, VariantType) for part in parts(kind))
