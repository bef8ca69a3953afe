"""The rows of a Top-N whose rank end differs from their partition's are counted, as Flink's `topn.invalidTopSize` counts them."""

import random
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from operators import TopN

CASES, TTL = 1_000, 10_000
SCHEMA = pa.schema(
    {"case_id": pa.int32(), "k": pa.string(), "v": pa.int32(), "n": pa.int32()}
    | {"event_time": pa.timestamp("ms", "UTC"), "seq": pa.int64(), "arrival": pa.int64()}
)
Row = dict[str, Any]


def test_a_row_with_another_rank_end_is_counted_and_has_no_effect(spark: SparkSession) -> None:
    values = [("a", 5, 2), ("a", 4, 2), ("a", 3, 1), ("a", 9, None), ("b", 1, None), ("b", 1, 0), ("b", 2, None), ("c", 7, 3)]
    rows = [{"case_id": 1, "k": k, "v": v, "n": n, "event_time": 0, "seq": 1, "arrival": at} for at, (k, v, n) in enumerate(values)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))
    top = TopN(by="k", order_by="v DESC", rank_end="n")
    assert sorted(map(tuple, top.other_rank_ends(frame).collect())) == [("a", 2), ("b", 1)]
    assert sorted((r.k, r.v) for r in top(frame).collect()) == [("a", 5), ("a", 9), ("c", 7)]
    assert top.other_rank_ends(frame).dtypes == [("k", "string"), ("rows", "bigint")]
    assert TopN(by="k", order_by="v DESC", rank_end=2).other_rank_ends(frame).collect() == []


def _differing(rows: list[Row], ttl: int | None) -> int:
    """The rows of a partition whose `n` is not that of the first row to arrive, in each period without a gap longer than the TTL."""
    in_time = sorted(rows, key=lambda r: r["event_time"])
    periods: list[list[Row]] = []
    for row in in_time:
        if not periods or (ttl is not None and row["event_time"] - periods[-1][-1]["event_time"] > ttl):
            periods.append([])
        periods[-1].append(row)
    firsts = [(min(period, key=lambda r: r["arrival"])["n"], period) for period in periods]
    return sum(row["n"] != first for first, period in firsts for row in period)


@pytest.mark.parametrize("ttl", [None, TTL], ids=["no ttl", "ttl"])
def test_generated_rows_are_counted_as_by_the_model(spark: SparkSession, ttl: int | None) -> None:
    rng, arrivals = random.Random(str(ttl)), count()
    rows: list[Row] = []
    for case in range(CASES):
        for _ in range(rng.randrange(1, 7)):
            row = {"case_id": case, "k": rng.choice(["a", None]), "v": rng.randrange(5), "n": rng.choice([1, 1, 2, 0, None])}
            rows.append({**row, "event_time": rng.randrange(0, 4 * TTL, TTL // 2), "seq": 1, "arrival": next(arrivals)})
    wanted: dict[Any, int] = {}
    for key in {(row["case_id"], row["k"]) for row in rows}:
        if differing := _differing([row for row in rows if (row["case_id"], row["k"]) == key], ttl):
            wanted[key] = differing
    top = TopN(by=("case_id", "k"), order_by="v", rank_end="n", ttl=ttl)
    frame = spark.createDataFrame(pa.Table.from_pylist(random.Random(1).sample(rows, len(rows)), SCHEMA)).repartition(3)
    assert {(case, k): rows for case, k, rows in top.other_rank_ends(frame).collect()} == wanted
    assert sum(wanted.values()) > CASES / 2
