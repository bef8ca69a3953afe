"""Rows that later steps need, with a time to live: a call on the kept rows and the new rows gives the result of a call on all rows."""

import json
import random
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from operators import Aggregate, Deduplicate, TopN
from operators.contract import KeepsRows
from operators.engine_columns import PARTIAL, PERIOD_END, PERIOD_START
from tests.support.json_rows import json_rows_of

CASES, BATCHES, TTL = 1_000, 4, 10_000
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
    "added": TopN(rank_end=2, **RANKED),
    "added, rank": TopN(rank_start=2, rank_end=3, function="rank", **RANKED),
    "added, end of the first row": TopN(rank_end="n", **RANKED),
    "replaced": TopN(rank_end=2, **BY_ID),
    "deleted": TopN(rank_end=2, change="change", **BY_ID),
    "deleted, end of the first row": TopN(rank_end="n", change="change", **BY_ID),
}
Row = dict[str, Any]


def _batches() -> list[tuple[int, list[Row]]]:
    """Batches with the watermark before each: no row is more than the TTL behind it, and many are later than newer ones."""
    rng, arrivals, mark = random.Random(11), count(), 0
    batches: list[tuple[int, list[Row]]] = []
    for seq in range(1, BATCHES + 1):
        made = [
            {"case_id": case, "k": rng.choice(["a", None]), "id": rng.randrange(3), "v": rng.choice([None, 1, 2, 3])}
            | {"n": rng.choice([1, 1, 2, 0, None]), "change": rng.choice(["+I", "+I", "+U", "-U", "-D"])}
            | {"event_time": mark - TTL + rng.randrange(0, 4 * TTL, TTL // 4), "seq": seq, "arrival": next(arrivals)}
            for case in range(CASES)
            for _ in range(rng.randrange(4))
        ]
        batches.append((mark, made))
        mark = max(row["event_time"] for row in made) - TTL // 2
    return batches


def _frame(spark: SparkSession, rows: list[Row], schema: pa.Schema = SCHEMA) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


@pytest.mark.parametrize("name", OPERATORS)
def test_kept_rows_and_new_rows_give_the_result_of_all_rows(spark: SparkSession, name: str) -> None:
    operator, every, kept, batches = OPERATORS[name], list[Row](), list[Row](), _batches()
    for n, (_, new) in enumerate(batches):
        every += new
        schema = PARTIAL_SCHEMA if name == "merged" else KEPT_SCHEMA
        rows = _frame(spark, kept, schema).unionByName(_frame(spark, new), allowMissingColumns=True)
        keys = {(row["case_id"], row["k"]) for row in new}
        found = json_rows_of({"kept and new": operator(rows), "every": operator(_frame(spark, every))})
        results = {name: [json.loads(text) for text in texts] for name, texts in found.items()}
        of_keys = {name: [row for row in given if (row["case_id"], row["k"]) in keys] for name, given in results.items()}
        assert of_keys["kept and new"] == of_keys["every"]
        mark = batches[n + 1][0] if n + 1 < BATCHES else batches[n][0]
        kept = operator.still_needed(rows, mark - 2 * TTL).toArrow().to_pylist()
        assert set(kept[0]) == set(schema.names)
    assert 0 < len(kept) < len(every) * (0.75 if name == "not merged" else 0.5)
