"""The rows of a frame as text, which is comparable for every type."""

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"  # by default, `to_json` writes times in milliseconds


def json_rows(frame: DataFrame) -> list[str]:
    """Each row as a JSON object with its nulls, in order."""
    return sorted(row[0] for row in frame.select(_as_json()).collect())


def json_rows_of(frames: Mapping[str, DataFrame]) -> dict[str, list[str]]:
    """The rows of several frames, as `json_rows` returns them. They are collected by one query, which takes less time than one for each."""
    found: dict[str, list[str]] = {name: [] for name in frames}
    for name, row in reduce(DataFrame.union, [frame.select(F.lit(name), _as_json()) for name, frame in frames.items()]).collect():
        found[name].append(row)
    return {name: sorted(rows) for name, rows in found.items()}


def values_of(frames: Mapping[str, DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of several frames as tuples, sorted for comparison, read by one query; a time that is not selected as a number is text."""
    return {name: sorted((tuple(json.loads(row).values()) for row in rows), key=repr) for name, rows in json_rows_of(frames).items()}


def _as_json() -> Column:
    return F.to_json(F.struct("*"), {"ignoreNullFields": "false", "timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS})
