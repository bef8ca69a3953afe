"""The types of columns: what a type contains, and whether Spark can order its values."""

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, AtomicType, DataType, MapType, StructType, VariantType


def types_within(kind: DataType) -> Iterator[DataType]:
    """A type and every type that it contains, at any depth.

    >>> [contained.simpleString() for contained in types_within(StructType().add("values", ArrayType(VariantType())))]
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
    for contained_type in contained:
        yield from types_within(contained_type)


def has_map(kind: DataType) -> bool:
    """Whether a type is a map, or contains one."""
    return any(isinstance(contained, MapType) for contained in types_within(kind))


def can_be_ordered(kind: DataType) -> bool:
    """Whether Spark can order values of a type: it cannot if there is a map or a variant in it."""
    return all(
        isinstance(contained, ArrayType | StructType | AtomicType) and not isinstance(contained, VariantType)
        for contained in types_within(kind)
    )
