"""Which rows of a join's inputs are in a result with a row of the other input, compared with a naive model."""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import AsOfJoin, CoGroup, IntervalJoin, Session, Sliding, Tumbling, WindowJoin
from operators.accounting import ReportsMatches
from operators.engine_columns import FINALIZED_AT, MATCHED, WHICH
from operators.windows import Aligned
from tests.operators.frames import by_tag, tagged
from tests.support.windows_model import windows_at

SCHEMA = pa.schema({"case_id": pa.int32(), "k": pa.string(), "v": pa.int32(), "event_time": pa.timestamp("ms", "UTC")})
ON: dict[str, Any] = {"on": ("case_id", "k")}
SLIDING, TUMBLING = Sliding(size=20, slide=10), Tumbling(size=15)


@dataclass(frozen=True)
class Row:
    """A row of one side."""

    case_id: int
    k: str | None
    v: int
    t: int


def _in_interval(left: Row, right: Row) -> bool:
    return left.t - 5 <= right.t <= left.t + 10


def _share(window: Aligned, left: Row, right: Row) -> bool:
    return bool({*windows_at(window, left.t)} & {*windows_at(window, right.t)})


SPECS: dict[str, tuple[ReportsMatches, Any]] = {
    "interval join": (IntervalJoin(lower=-5, upper=10, how="full", **ON), _in_interval),
    "inner interval join": (
        IntervalJoin(lower=-5, upper=10, residual="left_v < right_v", **ON),
        lambda a, b: _in_interval(a, b) and a.v < b.v,
    ),
    "window join": (WindowJoin(window=TUMBLING, how="left", **ON), lambda a, b: _share(TUMBLING, a, b)),
    "anti join": (WindowJoin(window=SLIDING, how="anti", **ON), lambda a, b: _share(SLIDING, a, b)),
    "as-of join": (AsOfJoin(how="left", **ON), None),
    "coGroup": (CoGroup(window=SLIDING, rows="array(named_struct('n', size(left)))", **ON), lambda a, b: _share(SLIDING, a, b)),
}


def _sides(seed: str, cases: int) -> list[list[Row]]:
    rng = random.Random(seed)
    keys = ["a", "b", None]
    return [
        [Row(case, rng.choice(keys), rng.randrange(3), rng.randrange(0, 60, 5)) for case in range(cases) for _ in range(rng.randrange(4))]
        for _ in range(2)
    ]


def _frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    values = [{"case_id": r.case_id, "k": r.k, "v": r.v, "event_time": r.t} for r in rows]
    return spark.createDataFrame(pa.Table.from_pylist(values, SCHEMA))


def _is_looked_up(partners: list[dict[tuple[int, str | None], list[Row]]], which: int, row: Row) -> bool:
    """Whether a left row has a version, or whether a left row uses a version: of versions of one time, the one with the largest `v`."""
    left, versions = (side.get((row.case_id, row.k), []) if row.k is not None else [] for side in partners)
    if which == 0:
        return any(version.t <= row.t for version in versions)
    used = [max((v.t, v.v) for v in versions if v.t <= one.t) for one in left if any(v.t <= one.t for v in versions)]
    return (row.t, row.v) in used


@pytest.fixture(scope="module", params=[300, pytest.param(1_000, marks=pytest.mark.soak)])
def cases(request: pytest.FixtureRequest) -> int:
    """The number of cases."""
    return request.param


@pytest.fixture(scope="module")
def found(spark: SparkSession, cases: int) -> dict[str, Counter[tuple[Any, ...]]]:
    """For each spec the rows with whether they are matched, and their finality; one query has all of them."""
    frames, nothing = dict[str, DataFrame](), [F.lit(None).cast("bigint").alias("t"), F.lit(None).cast("boolean").alias(MATCHED)]
    for name, (operator, _) in SPECS.items():
        sides = [_frame(spark, rows) for rows in _sides(name, cases)]
        matched, finality = operator.matches(*sides), operator.finalized_at(*sides)
        frames[f"{name}: matched"] = matched.select(WHICH, F.unix_millis("event_time").alias("t"), MATCHED, FINALIZED_AT)
        frames[f"{name}: finality"] = finality.select(WHICH, *nothing, FINALIZED_AT)
    return by_tag(tagged(frames))


@pytest.mark.parametrize("name", SPECS)
def test_matched_rows_are_those_of_the_model(found: dict[str, Counter[tuple[Any, ...]]], cases: int, name: str) -> None:
    """Equal rows of one input match alike, and count each."""
    _, matches = SPECS[name]
    sides = _sides(name, cases)
    partners: list[dict[tuple[int, str | None], list[Row]]] = [{}, {}]
    for which, rows in enumerate(sides):
        for row in rows:
            partners[which].setdefault((row.case_id, row.k), []).append(row)

    def is_matched(which: int, row: Row) -> bool:
        if matches is None:
            return _is_looked_up(partners, which, row)
        others = partners[1 - which].get((row.case_id, row.k), []) if row.k is not None else []
        return any(matches(row, other) if which == 0 else matches(other, row) for other in others)

    wanted = Counter((which, row.t, is_matched(which, row)) for which, rows in enumerate(sides) for row in rows)
    rows = [*found[f"{name}: matched"].elements()]
    assert Counter(row[:3] for row in rows) == wanted
    assert Counter((row[0], row[3]) for row in rows) == Counter((row[0], row[3]) for row in found[f"{name}: finality"].elements())
    assert min(sum(n for (_, _, matched), n in wanted.items() if matched is flag) for flag in (True, False)) > cases / 20


def test_sessions_of_both_sides_are_matched(spark: SparkSession) -> None:
    left = [Row(1, "a", 1, 0), Row(1, "a", 1, 100), Row(1, None, 1, 0)]
    right = [Row(1, "a", 2, 8), Row(1, "a", 3, 200), Row(1, None, 1, 0)]
    wanted = {(0, 0, True), (0, 100, False), (1, 8, True), (1, 200, False), (0, 0, False), (1, 0, False)}
    for operator in (WindowJoin(window=Session(gap=10), **ON), CoGroup(window=Session(gap=10), **ON)):
        found = operator.matches(_frame(spark, left), _frame(spark, right))
        assert {*map(tuple, found.select(WHICH, F.unix_millis("event_time"), MATCHED).collect())} == wanted
