"""The bounds and rows of windows equal a model that tries every start."""

import random
import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from operators import (
    CoGroup,
    Cumulative,
    Deduplicate,
    OperatorError,
    ProcessWindow,
    Sliding,
    TopK,
    Tumbling,
    WindowedAggregate,
    WindowError,
    WindowJoin,
)
from operators._support.panes import pane_of
from operators.windows import Aligned
from tests.support.windows_model import WINDOWS, windows_at

DAY = 86_400_000


def _times(window: Aligned) -> list[int]:
    """Every edge near 0 and near the present, and random times before and after 1970."""
    rng = random.Random(7)
    edges = [base + n * window.pane + window.origin + d for base in (0, -5 * DAY) for n in range(-12, 13) for d in (-1, 0, 1)]
    return [*edges, *(rng.randrange(-20 * window.longest, 20 * window.longest) for _ in range(50)), 1_772_323_200_000, -(2**41)]


def test_each_row_is_in_exactly_the_windows_that_contain_its_time(spark: SparkSession) -> None:
    failures: dict[str, Any] = {}
    frames = []
    for name, window in WINDOWS.items():
        rows = spark.createDataFrame(pa.table({"t": pa.array(_times(window), pa.int64())}))
        pane = pane_of(window, F.col("t"))
        spans = F.transform(window.windows_of_pane(pane), lambda w: F.array(w["start"], w["end"]))
        frames.append(
            rows.select(F.lit(name).alias("name"), "t", pane.alias("pane"), spans.alias("spans"), window.last_end(pane).alias("last"))
        )
    every = frames[0]
    for frame in frames[1:]:
        every = every.unionByName(frame)
    for row in every.collect():
        window = WINDOWS[row.name]
        wanted = windows_at(window, row.t)
        inside = row.pane <= row.t < row.pane + window.pane and all(
            start <= row.pane and row.pane + window.pane <= end for start, end in wanted
        )
        if [tuple(s) for s in row.spans] != wanted or row.last != max((e for _, e in wanted), default=None) or not inside:
            failures[f"{row.name} at {row.t}"] = (row.pane, row.spans, row.last, wanted)
    assert not failures


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tumbling(size=0), "`size` is 0; legal: a duration of more than zero"),
        (lambda: Sliding(size="10 s", slide=0), "`slide` is 0; legal: a duration of more than zero"),
        (lambda: Tumbling(size="-1 s"), "`size` is '-1 s'; legal: a duration of more than zero"),
        (lambda: Tumbling(size="an hour"), "`size` is 'an hour'; legal: whole milliseconds"),
        (lambda: Tumbling(size=1, offset="noon"), "`offset` is 'noon'; legal: whole milliseconds"),
        (lambda: Cumulative(size=1_000, step=300), "`step` is 300; legal: a length that divides `size` (1000)"),
    ],
)
def test_an_illegal_window_is_refused(make: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda window: WindowedAggregate(window=window, aggregates={"n": "count(*)"}),
        lambda window: WindowJoin(on="k", window=window),
        lambda window: CoGroup(on="k", window=window),
        lambda window: ProcessWindow(by="k", window=window),
        lambda window: TopK(k=1, order_by="n", window=window),
        lambda window: Deduplicate(by="k", window=window),
    ],
)
@pytest.mark.parametrize("window", ["1 hour", 3_600_000, Tumbling])
def test_a_parameter_that_is_no_window_is_refused(make: Any, window: Any) -> None:
    with pytest.raises(OperatorError, match=re.escape(f"`window` is {window!r}; legal: windows, such as Tumbling(size='1 hour')")):
        make(window)


def test_a_window_that_is_required_is_not_none() -> None:
    with pytest.raises(OperatorError, match=r"`window` is None; legal: windows, such as Tumbling"):
        WindowJoin(on="k", window=None)  # pyright: ignore[reportArgumentType]


def test_a_window_without_a_length_has_its_own_error() -> None:
    with pytest.raises(WindowError, match=r"`step` is 0; legal: a duration of more than zero$"):
        Cumulative(size=1_000, step=0)
