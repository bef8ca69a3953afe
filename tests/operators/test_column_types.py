"""What a type contains, and what follows for its values."""

from dataclasses import dataclass

import pytest
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, LongType, MapType, NullType, StringType, StructType, VariantType

from operators.column_types import can_be_compared, can_be_ordered, types_within

MAP = MapType(StringType(), LongType())


@dataclass(frozen=True)
class Case:
    id: str
    kind: DataType
    can_be_compared: bool
    can_be_ordered: bool


CASES = [
    Case("atomic", LongType(), True, True),
    Case("struct without fields", StructType(), True, True),
    Case("struct of an array", StructType().add("a", ArrayType(StringType())), True, True),
    Case("map", MAP, False, False),
    Case("map in an array in a struct", StructType().add("v", LongType()).add("a", ArrayType(MAP)), False, False),
    Case("variant", VariantType(), False, False),
    Case("variant in a struct", StructType().add("v", VariantType()), False, False),
    Case("interval in an array", ArrayType(CalendarIntervalType()), True, False),
    Case("void", NullType(), True, False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_nested_type_has_the_properties_of_the_types_in_it(case: Case) -> None:
    assert (can_be_compared(case.kind), can_be_ordered(case.kind)) == (case.can_be_compared, case.can_be_ordered)


def test_the_parts_of_a_type_are_itself_and_then_those_of_each_type_in_it() -> None:
    kind = StructType().add("m", MapType(StringType(), ArrayType(LongType()))).add("v", VariantType())
    names = ["map<string,array<bigint>>", "string", "array<bigint>", "bigint", "variant"]
    assert [part.simpleString() for part in types_within(kind)] == [kind.simpleString(), *names]
