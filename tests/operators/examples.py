"""Examples as text tables: the rows of each input, and the result.

    k | time  | v:int
    a | 10:00 | 1
    - | 10:05 | -

`-` is a null. A column is a string unless its header says `:int`. Times are times of 1970-01-01, to the minute or to the millisecond.

Inputs: `time` is the `event_time`. `watermark` is the watermark before the row's batch, so that rows can be late. `window`, such as
`10:00-10:05`, sets `window_start` and `window_end` of a windowed operator's result. `batch` is the `seq`; the `arrival` of a
row is its line.

Results: `window` is `window_start` and `window_end`. A list is in brackets. The order of the rows does not matter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators.contract import Operator
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ, WATERMARK
from tests.operators.frames import tagged

_NULL = "-"
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)\.(\d\d\d))?")
_TIMES = {"time": EVENT_TIME, "watermark": WATERMARK}
Table = tuple[list[str], list[list[str]]]


@dataclass(frozen=True)
class Example:
    """An operator, the rows of each input, and the result.

    Args:
        id: a sentence about what the example shows.
        operator: the operator.
        inputs: one text table for each input.
        result: the result as a text table.
    """

    id: str
    operator: Operator
    inputs: tuple[str, ...]
    result: str


def check(spark: SparkSession, example: Example) -> None:
    """Assert that the operator gives the example's result."""
    found = example.operator(*[read(spark, text) for text in example.inputs])
    header, expected = parse(example.result)
    assert sorted(cells_of(found, header)) == sorted(expected)


def parse(text: str) -> Table:
    """Parse the header and the rows of a text table."""
    header, *rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return header, rows


def read(spark: SparkSession, text: str, batches: int | None = None) -> DataFrame:
    """The rows of a text table as a frame; `batches` limits it to the first batches."""
    header, rows = parse(text)
    columns: dict[str, pa.Array] = {}
    for n, title in enumerate(header):
        columns |= _column(title, [row[n] for row in rows])
    if "batch" in header:
        columns[ARRIVAL] = pa.array(range(len(rows)), pa.int64())
    frame = spark.createDataFrame(pa.table(columns))
    return frame if batches is None else frame.where(F.col(SEQ) <= batches)


def _column(title: str, cells: list[str]) -> dict[str, pa.Array]:
    name, _, kind = title.partition(":")
    if name == "window":
        bounds = [cell.split("-") for cell in cells]
        starts, ends = [_ms(start) for start, _ in bounds], [_ms(end) for _, end in bounds]
        last = [None if end is None else end - 1 for end in ends]
        return {"window_start": _timestamps(starts), "window_end": _timestamps(ends), EVENT_TIME: _timestamps(last)}
    if name in _TIMES:
        return {_TIMES[name]: _timestamps([_ms(cell) for cell in cells])}
    if name == "batch":
        return {SEQ: pa.array([int(cell) for cell in cells], pa.int64())}
    values = [None if cell == _NULL else cell for cell in cells]
    return {name: pa.array([value and int(value) for value in values], pa.int32()) if kind == "int" else pa.array(values, pa.string())}


def _ms(cell: str) -> int | None:
    if cell == _NULL:
        return None
    found = _TIME.fullmatch(cell)
    assert found, f"{cell!r} is no time"
    hours, minutes, seconds, ms = (int(part or 0) for part in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000 + ms


def _timestamps(times: list[int | None]) -> pa.Array:
    return pa.array([None if ms is None else ms * 1_000 for ms in times], pa.timestamp("us", tz="UTC"))


def cells_of(result: DataFrame, header: list[str]) -> list[list[str]]:
    """A result's columns as the cells of a text table."""
    return cells_of_each({"": result}, {"": header})[""]


def cells_of_each(results: Mapping[str, DataFrame], headers: Mapping[str, list[str]]) -> dict[str, list[list[str]]]:
    """The columns of results of one operator as the cells of text tables; one query reads all."""
    in_ms = {name: F.unix_millis(name) for name, kind in next(iter(results.values())).dtypes if kind == "timestamp"}
    found: dict[str, list[list[str]]] = {tag: [] for tag in results}
    for row in tagged({tag: result.withColumns(in_ms) for tag, result in results.items()}).collect():
        found[row.tag].append([_cell(row, title, {*in_ms}) for title in headers[row.tag]])
    return found


def _cell(row: Any, title: str, times: set[str]) -> str:
    if title == "window":
        return f"{_clock(row['window_start'])}-{_clock(row['window_end'])}"
    name, _, field = title.partition(".")
    value = row[_TIMES.get(name, name)]
    if field:
        return f"[{' '.join(str(item[field]) for item in value)}]"
    return _NULL if value is None else _clock(value) if _TIMES.get(name, name) in times else str(value)


def _clock(ms: int) -> str:
    """A time in the format of the text tables."""
    minutes, rest = divmod(ms, 60_000)
    clock = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{clock}:{rest // 1_000:02}.{rest % 1_000:03}" if rest else clock
