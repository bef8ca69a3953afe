"""Every reader option of this version of Spark is legal for a source, or is refused with the reason why it would have no effect."""

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from assets.reader_options import LEGAL, NO_EFFECT

_OF_SPARK = {
    "CSV": "org.apache.spark.sql.catalyst.csv.CSVOptions",
    "JSON": "org.apache.spark.sql.catalyst.json.JSONOptions",
    "Parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions",
}
_REFUSED_BY_THE_CONTRACT = {"columnNameOfCorruptRecord"}
_UNREGISTERED = {"maxNestingDepth", "maxNumLen", "maxStringLen"}
"""`JSONOptions` reads these without registering them."""


@pytest.mark.parametrize("kind", _OF_SPARK)
def test_every_option_of_spark_is_known(spark: SparkSession, kind: str) -> None:
    module: Any = getattr(getattr(cast(Any, spark)._jvm, f"{_OF_SPARK[kind]}$"), "MODULE$")
    options = module.getAllOptions().mkString(",").split(",")
    assert len(options) > 4
    assert {*options} - {*LEGAL, *NO_EFFECT} == _REFUSED_BY_THE_CONTRACT & {*options}


def test_an_option_is_either_legal_or_without_effect() -> None:
    assert {*LEGAL} > _UNREGISTERED
    assert {*LEGAL}.isdisjoint(NO_EFFECT)
    assert len({name.lower() for name in [*LEGAL, *NO_EFFECT]}) == len(LEGAL) + len(NO_EFFECT)
