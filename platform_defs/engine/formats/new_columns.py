"""Finds new columns: columns in a source's files that its contract does not name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, IntegralType, LongType, StringType

from assets.contracts import SourceContract
from operators.engine_columns import ARRIVAL
from platform_defs.engine.formats.csv_style import CsvStyle, header_names
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.parquet import parquet_schema
from platform_defs.engine.formats.raw_rows import PATH
from platform_defs.engine.formats.text import header, json_options, lines, object_keys

_MOST_JSON_COLUMNS = 1_000
"""The largest number of new columns that are read from JSON files, in case the keys of JSON objects are data."""


@dataclass(frozen=True)
class NewColumn:
    """A column of a file that the contract does not name.

    Args:
        name: its name.
        type: its type, for a number the widest of its kind; string if the format has no types, or if files have different types.
        path: the first file of its format that has it, in order of arrival.
    """

    name: str
    type: DataType
    path: str


def new_columns(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> list[NewColumn]:
    """The columns that the contract does not name, ordered by name; one column for names that differ only in case.

    JSON files must be read to their end for this, because the names are in the rows.
    """
    declared = {c.lower() for c in contract.struct.fieldNames()}
    columns_by_name: dict[str, NewColumn] = {}
    for suffix, of_format in _FORMATS.items():
        for column in of_format(spark, contract, [f for f in sorted(files) if f.suffix == suffix and f.fault is None]):
            first = columns_by_name.setdefault(column.name.lower(), column)
            if first.type != column.type:
                columns_by_name[column.name.lower()] = NewColumn(first.name, StringType(), first.path)
    return [columns_by_name[name] for name in sorted(columns_by_name.keys() - declared)]


def _columns_in_json(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> Iterable[NewColumn]:
    if not files:
        return []
    declared = F.array(*map(F.lit, contract.struct.fieldNames()))
    new_keys = F.array_except(object_keys(json_options(contract)), declared)
    keys = lines(spark, files, files).select(PATH, ARRIVAL, F.explode(new_keys).alias("name"))
    paths_by_column = keys.groupBy("name").agg(F.min_by(PATH, ARRIVAL).alias("path")).orderBy("name").limit(_MOST_JSON_COLUMNS).collect()
    return [NewColumn(name, StringType(), path) for name, path in paths_by_column]


def _columns_in_csv(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> Iterable[NewColumn]:
    named = files if CsvStyle.of(contract.options).has_header else []
    return [NewColumn(name, StringType(), f.path) for f in named for name in header_names(contract, header(spark, contract, f).line)]


def _columns_in_parquet(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> Iterable[NewColumn]:
    return [NewColumn(c.name, _widest(c.dataType), f.path) for f in files for c in parquet_schema(spark, f).fields]


def _widest(type_: DataType) -> DataType:
    """The widest type of the same kind of number, so that values of later files fit in a column that the first file declares."""
    if isinstance(type_, IntegralType):
        return LongType()
    return DoubleType() if isinstance(type_, FloatType) else type_


_FORMATS: Mapping[str, Callable[[SparkSession, SourceContract, Sequence[File]], Iterable[NewColumn]]] = {
    ".json": _columns_in_json,  # first, so that the spelling in JSON files wins: only JSON names are case-sensitive
    ".jsonl": _columns_in_json,
    ".ndjson": _columns_in_json,
    ".csv": _columns_in_csv,
    ".parquet": _columns_in_parquet,
}
