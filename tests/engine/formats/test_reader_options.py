"""Every reader option of this version of Spark is legal for a source, or is refused with the reason why it would have no effect."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assets.reader_options import LEGAL, NO_EFFECT, legal_values

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


_ZONES = [
    "UTC",
    "Europe/Berlin",
    "+01:00",
    "-3",
    "UTC+1",
    "GMT+01:00",
    "Z",
    "PST",
    "UT",
    "+7:3",
    "+730",
    "ROC",
    "",
    "+25",
    "+18:30",
    "+5:99",
]
_BOOLEANS = ["true", "FALSE", "maybe", " true", ""]
_WHOLE_NUMBERS = ["100", "+100", "1e3", " 5", "-1", "-2", "0", "2147483648", ""]
_VALUES: dict[str, dict[str, list[str]]] = {
    "CSV": {
        "ignoreLeadingWhiteSpace": _BOOLEANS,
        "comment": ["#", "", "##"],
        "charToEscapeQuoteEscaping": ["#", "", "##"],
        "quote": ["'", "", "''"],
        "maxColumns": _WHOLE_NUMBERS,
        "maxCharsPerColumn": _WHOLE_NUMBERS,
        "inputBufferSize": _WHOLE_NUMBERS,
        "unescapedQuoteHandling": ["skip_value", "RAISE_ERROR", "x", ""],
        "timeZone": _ZONES,
    },
    "JSON": {
        "allowComments": _BOOLEANS,
        "enableDateTimeParsingFallback": _BOOLEANS,
        "maxNestingDepth": _WHOLE_NUMBERS,
        "maxNumLen": _WHOLE_NUMBERS,
        "maxStringLen": _WHOLE_NUMBERS,
        "timeZone": _ZONES,
    },
}

_SOME = {
    "CSV": _VALUES["CSV"] | {"maxCharsPerColumn": ["-1", "-2", "0", "1e3"], "inputBufferSize": ["100", "0"]},
    "JSON": {
        "allowComments": _BOOLEANS,
        "enableDateTimeParsingFallback": ["FALSE", "maybe"],
        "maxNestingDepth": _WHOLE_NUMBERS,
        "maxNumLen": ["100", "0"],
        "maxStringLen": ["100", "0"],
        "timeZone": ["Europe/Berlin", "ROC", "+25"],
    },
}
"""Every value for one option of each kind, and some of them for the other options that have the same rule."""

ByOption = Mapping[tuple[str, str], Any]
"""Something for each option with a value."""


def _read_first_fields(rows: DataFrame, columns: ByOption) -> ByOption:
    """The first field that each column reads, or its error; the columns are read one by one if one query for all of them fails."""
    try:
        found = rows.select(*columns.values()).collect()[0]
    except (PySparkException, Py4JJavaError) as error:
        if len(columns) == 1:
            return dict.fromkeys(columns, error)
        return {value: first for value, column in columns.items() for first in _read_first_fields(rows, {value: column}).values()}
    return {value: row and row.a for value, row in zip(columns, found, strict=True)}


def test_some_values_are_legal_and_illegal_ones_of_every_option() -> None:
    for kind, options in _VALUES.items():
        assert _SOME[kind].keys() == options.keys()
        for option, some in _SOME[kind].items():
            assert {*some} <= {*options[option]}
            assert {legal_values(option, value) is None for value in some} == {True, False}, option


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        *[pytest.param(kind, _SOME[kind], id=kind) for kind in _SOME],
        *[pytest.param(kind, _VALUES[kind], id=f"{kind}, every value", marks=pytest.mark.soak) for kind in _VALUES],
    ],
)
def test_a_value_is_legal_if_spark_reads_a_row_with_it(spark: SparkSession, kind: str, values: dict[str, list[str]]) -> None:
    """One query reads a row with each legal value; for an illegal one, Spark needs a query of its own, since it may raise an error."""
    read, row = (F.from_csv, "a,1.5") if kind == "CSV" else (F.from_json, '{"a": "a", "b": 1.5}')
    rows = spark.sql(f"VALUES ('{row}') AS t(value)")
    columns = {
        (option, value): read("value", "a STRING, b STRING", {option: value}) for option, of_option in values.items() for value in of_option
    }
    legal = {value: column for value, column in columns.items() if legal_values(*value) is None}
    assert _read_first_fields(rows, legal) == dict.fromkeys(legal, "a")
    for value in [value for value in columns if value not in legal]:
        assert _read_first_fields(rows, {value: columns[value]}) != {value: "a"}
