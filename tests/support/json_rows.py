"""The rows of a frame as text, which is comparable for every type."""

import json
from collections.abc import Hashable, Mapping
from functools import reduce
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Name = TypeVar("Name", bound=Hashable)
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"  # by default, `to_json` writes times in milliseconds


def json_rows(frame: DataFrame) -> list[str]:
    """Each row as a JSON object with its nulls, sorted."""
    return sorted(row[0] for row in frame.select(_as_json()).collect())


def json_rows_of(frames: Mapping[Name, DataFrame], frames_of_a_query: int = 1_000) -> dict[Name, list[str]]:
    """The rows of several frames, as `json_rows` returns them. One query collects many frames, which takes less time than one for each."""
    names, found = [*frames], {name: list[str]() for name in frames}
    for first in range(0, len(names), frames_of_a_query):
        part = range(first, min(first + frames_of_a_query, len(names)))
        for number, row in reduce(DataFrame.union, [frames[names[n]].select(F.lit(n), _as_json()) for n in part]).collect():
            found[names[number]].append(row)
    return {name: sorted(rows) for name, rows in found.items()}


def dicts_of(frames: Mapping[Name, DataFrame], frames_of_a_query: int = 1_000) -> dict[Name, list[dict[str, Any]]]:
    """The rows of several frames by column, collected as `json_rows_of` does it; a time is text."""
    return {name: [*map(json.loads, rows)] for name, rows in json_rows_of(frames, frames_of_a_query).items()}


def values_of(frames: Mapping[str, DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of several frames as tuples, sorted for comparison, read by one query; a time that is not selected as a number is text."""
    return {name: sorted((tuple(row.values()) for row in rows), key=repr) for name, rows in dicts_of(frames).items()}


def _as_json() -> Column:
    return F.to_json(F.struct("*"), {"ignoreNullFields": "false", "timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS})
