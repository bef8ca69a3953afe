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


def can_be_compared(kind: DataType) -> bool:
    """Whether Spark can compare, group by and hash values of a type: not if there is a map or a variant in it."""
    return not any(isinstance(contained, MapType | VariantType) for contained in types_within(kind))


def can_be_ordered(kind: DataType) -> bool:
    """Whether Spark can order values of a type: not if there is a map, a variant or a calendar interval in it.

    Void, whose values are all null, counts as a type without an order.
    """
    return all(
        isinstance(contained, ArrayType | StructType | AtomicType) and not isinstance(contained, VariantType)
        for contained in types_within(kind)
    )
