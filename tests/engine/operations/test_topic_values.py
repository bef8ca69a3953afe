"""The columns that cannot be encoded as Avro; needs no session."""

from typing import Any, cast

import pytest
from pyspark.sql.types import ArrayType, DataType, DateType, IntegerType, MapType, StringType, StructType

from platform_defs.engine.operations.sink import Sink, SinkError
from platform_defs.engine.operations.topic_values import Encoding

INTEGER, TEXT = IntegerType(), StringType()
FIRST = StructType().add("1st", INTEGER)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param(StructType().add("a-b", TEXT), "the columns a-b of pairs cannot be fields of an Avro record", id="a field"),
        pytest.param(ArrayType(MapType(TEXT, FIRST)), "the columns 1st of pairs cannot be fields", id="a deeper field"),
        pytest.param(MapType(INTEGER, TEXT), "the columns c of pairs have maps whose keys are no strings; legal", id="a map"),
        pytest.param(ArrayType(MapType(DateType(), TEXT)), "the columns c of pairs have maps whose keys are no strings", id="a nested map"),
    ],
)
def test_nested_fields_that_avro_does_not_allow_are_refused(kind: DataType, message: str) -> None:
    rows = StructType().add("k", TEXT).add("c", kind)
    encoding = Encoding(cast(Any, None), Sink(topic="t", options={}, format="avro"), "pairs")
    with pytest.raises(SinkError, match=message):
        encoding("value", rows, ["k", "c"])
