"""Kept rows with a time to live: an operator computes the same results from kept and new rows as from all rows."""

import json
import random
from functools import reduce
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import Aggregate, Deduplicate, TopN
from operators.contract import KeepsRows
from operators.engine_columns import PARTIAL, PERIOD_END, PERIOD_START
from tests.support.json_rows import json_rows_of

TTL = 10_000
ROW = {"case_id": pa.int32(), "k": pa.string(), "id": pa.int32(), "v": pa.int32(), "n": pa.int32(), "change": pa.string()}
SCHEMA = pa.schema({**ROW, "event_time": pa.timestamp("ms", "UTC"), "seq": pa.int64(), "arrival": pa.int64()})
KEPT_SCHEMA = pa.schema([*SCHEMA, pa.field(PERIOD_START, pa.int64()), pa.field(PERIOD_END, pa.int64())])
PARTIAL_SCHEMA = KEPT_SCHEMA.append(pa.field(PARTIAL, pa.struct({"n": pa.int64(), "most": pa.int32()})))
KEY: dict[str, Any] = {"by": ("case_id", "k"), "ttl": TTL}
RANKED: dict[str, Any] = {**KEY, "order_by": "v DESC"}
BY_ID: dict[str, Any] = {**RANKED, "unique_key": ("case_id", "k", "id")}
OPERATORS: dict[str, KeepsRows] = {
    "merged": Aggregate(aggregates={"n": "count(v)", "most": "max(v)"}, **KEY),
    "not merged": Aggregate(aggregates={"n": "count(DISTINCT v)"}, **KEY),
    "first": Deduplicate(order="arrival", **KEY),
    "last": Deduplicate(keep="last", **KEY),
    "top-n, appends": TopN(rank_end=2, **RANKED),
    "top-n, appends, rank": TopN(rank_start=2, rank_end=3, function="rank", **RANKED),
    "top-n, appends, rank_end column": TopN(rank_end="n", **RANKED),
    "top-n, upserts": TopN(rank_end=2, **BY_ID),
    "top-n, deletes": TopN(rank_end=2, change="change", **BY_ID),
    "top-n, deletes, rank_end column": TopN(rank_end="n", change="change", **BY_ID),
}
Row = dict[str, Any]


def _batches(cases: int, number: int) -> list[tuple[int, list[Row]]]:
    """Batches, each with the watermark before it. Rows are out of order, but at most the TTL behind it."""
    rng, arrivals, mark = random.Random(11), count(), 0
    batches: list[tuple[int, list[Row]]] = []
    for seq in range(1, number + 1):
        rows = [
            {"case_id": case, "k": rng.choice(["a", None]), "id": rng.randrange(3), "v": rng.choice([None, 1, 2, 3])}
            | {"n": rng.choice([1, 1, 2, 0, None]), "change": rng.choice(["+I", "+I", "+U", "-U", "-D"])}
            | {"event_time": mark - TTL + rng.randrange(0, 4 * TTL, TTL // 4), "seq": seq, "arrival": next(arrivals)}
            for case in range(cases)
            for _ in range(rng.randrange(4))
        ]
        batches.append((mark, rows))
        mark = max(row["event_time"] for row in rows) - TTL // 2
    return batches


def _frame(spark: SparkSession, rows: list[Row], schema: pa.Schema = SCHEMA) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


def _schema(name: str) -> pa.Schema:
    return PARTIAL_SCHEMA if name == "merged" else KEPT_SCHEMA


def _rows_of_keys(texts: list[str], keys: set[tuple[int, str | None]]) -> list[Row]:
    return [row for row in map(json.loads, texts) if (row["case_id"], row["k"]) in keys]


@pytest.mark.parametrize(("cases", "number"), [(250, 3), pytest.param(1_000, 4, marks=pytest.mark.soak)])
def test_kept_rows_and_new_rows_give_the_result_of_all_rows(spark: SparkSession, cases: int, number: int) -> None:
    """Each query covers all operators: one computes the results to test and the expected results, and one the kept rows.

    The first batch has no kept rows, the second those of the first, and the third rows that were kept once or twice. Results of 250 cases
    are compared after the last batch only.
    """
    batches, all_rows = _batches(cases, number), list[Row]()
    kept: dict[str, list[Row]] = {name: [] for name in OPERATORS}
    for n, (_, new) in enumerate(batches):
        all_rows += new
        new_rows, every_row = _frame(spark, new), _frame(spark, all_rows)
        rows = {name: _frame(spark, kept[name], _schema(name)).unionByName(new_rows, allowMissingColumns=True) for name in OPERATORS}
        if n + 1 == number or (n > 0 and cases > 250):  # no rows are kept before the first batch
            keys = {(row["case_id"], row["k"]) for row in new}
            from_kept_rows = {(name, "kept"): operator(rows[name]) for name, operator in OPERATORS.items()}
            found = json_rows_of(from_kept_rows | {(name, "all"): operator(every_row) for name, operator in OPERATORS.items()})
            for name in OPERATORS:
                assert _rows_of_keys(found[name, "kept"], keys) == _rows_of_keys(found[name, "all"], keys) != [], (name, n)
        if n + 1 < number:
            kept = _collect_kept_rows(
                {name: operator.still_needed(rows[name], batches[n + 1][0] - 2 * TTL) for name, operator in OPERATORS.items()}
            )
    rows_before_last_batch = len(all_rows) - len(batches[-1][1])
    for name, kept_rows in kept.items():  # `DISTINCT` needs each row within the TTL, the others only the best rows or a partial result
        limit = 0.75 if name == "not merged" else 0.5
        assert 0 < len(kept_rows) < limit * rows_before_last_batch, name


def _collect_kept_rows(frames: dict[str, DataFrame]) -> dict[str, list[Row]]:
    assert {name: {*rows.columns} for name, rows in frames.items()} == {name: {*_schema(name).names} for name in frames}
    tagged = [rows.withColumn("operator", F.lit(name)) for name, rows in frames.items()]
    found: dict[str, list[Row]] = {name: [] for name in frames}
    for row in reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tagged).toArrow().to_pylist():
        found[row["operator"]].append(row)
    return found
