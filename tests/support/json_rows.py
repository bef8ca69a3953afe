"""The rows of a frame as text, which is comparable for every type."""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def json_rows(frame: DataFrame) -> list[str]:
    """Each row as a JSON object with its nulls, in order."""
    return sorted(row[0] for row in frame.select(_as_json()).collect())


def json_rows_of(frames: Mapping[str, DataFrame]) -> dict[str, list[str]]:
    """The rows of several frames, as `json_rows` returns them. They are collected by one query, which takes less time than one for each."""
    named = reduce(DataFrame.union, [frame.select(F.lit(name), _as_json()) for name, frame in frames.items()]).collect()
    return {name: sorted(row for found, row in named if found == name) for name in frames}


def _as_json() -> Column:
    return F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
