"""A Top-N with `monotonic`: rows that break the promise are found, and without such rows the kept rows give the right ranking."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from operators import TopN
from operators.contract import PROMISE_VIOLATED, Promised
from tests.support.json_rows import dicts_of
from tests.support.top_n_model import Row, TopNModel

CASES, BATCHES = 250, 3
SCHEMA = pa.schema(
    {
        "case_id": pa.int32(),
        "k": pa.string(),
        "id": pa.int32(),
        "v": pa.int32(),
        "seq": pa.int64(),
        "arrival": pa.int64(),
        "change": pa.string(),
    }
)
SPECS: dict[str, dict[str, Any]] = {
    "row numbers": {"order_by": "v DESC"},
    "no ranks": {"order_by": "v DESC NULLS FIRST", "with_rank": False},
    "no ties": {"order_by": ("v", "id DESC")},
    "ranks": {"order_by": ("v ASC NULLS LAST",), "function": "rank"},
}


def _batch(rng: random.Random, case: int, seq: int, arrivals: "count[int]") -> list[Row]:
    """Rows of a few keys, few of which are moved back or deleted."""
    rows = []
    for _ in range(rng.randrange(4)):
        kind = rng.choice(["+I", "+U", "+U", "+U", "-U", "-D"]) if rng.random() < 0.3 else "+U"
        v = rng.choice([None, 3 * seq, 3 * seq, 3 * seq + 1, rng.randrange(9)])
        row = {"case_id": case, "k": rng.choice(["a", None]), "id": rng.randrange(4), "v": v, "seq": seq}
        rows.append({**row, "arrival": next(arrivals), "change": kind})
    return rows


def _position(top: TopN, row: Row) -> tuple[Any, ...]:
    """A value that orders rows as `order_by` does."""
    parts: list[Any] = []
    for o in top.order:
        value = row[o.column]
        parts += [(value is None) != o.nulls_first, 0 if value is None else -value if o.descending else value]
    return tuple(parts)


def _keys_moving_back(top: TopN, model: TopNModel, rows: list[Row]) -> set[tuple[Any, ...]]:
    """The keys of kept rows that new rows move back or delete, one row after the other."""
    kept = [row for row, _ in model.ranks()]
    newest = {(row["k"], row["id"]): row for row in rows if row["change"] != "-U"}
    found = set()
    for row in kept:
        new = newest.get((row["k"], row["id"]))
        if new is None:
            continue
        own, full = _position(top, row), [other for other in kept if other["k"] == row["k"]]
        last = max(_position(top, other) for other in full)
        ties = top.function == "row_number" and len(top.order) == 1 and len(full) == top.rank_end and own == last
        is_behind = _position(top, new) > own or (_position(top, new) == own and ties)
        if new["change"] == "-D" or is_behind:
            found.add((row["case_id"], row["k"], row["id"]))
    return found


class _Run:
    """The cases of a spec, batch by batch: what Spark finds and ranks, and the models. Cases with a broken promise are left out later."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._rng, self._arrivals = spark, random.Random(name), count()
        self.top = TopN(by=("case_id", "k"), rank_end=2, unique_key=("case_id", "k", "id"), change="change", monotonic=True, **SPECS[name])
        order = [(o.column, o.descending, o.nulls_first) for o in self.top.order]
        self.models = {case: TopNModel(order, 2, 1, self.top.function, ("k",), ("k", "id"), has_changes=True) for case in range(CASES)}
        self._current: DataFrame | None = None
        self._schema, self._violating_keys = pa.schema([]), set[tuple[Any, ...]]()
        self.found = 0

    def frames(self, seq: int) -> dict[str, DataFrame]:
        """The leaderboard after a batch; after the first one also the keys that move back, whose cases are not in the leaderboard."""
        rows_by_case = {case: _batch(self._rng, case, seq, self._arrivals) for case in self.models}
        new, frames = self._frame([row for rows in rows_by_case.values() for row in rows]), dict[str, DataFrame]()
        if self._current is None:
            frames["leaderboard"] = self.top(new)
        else:
            frames["moving back"] = self.top.keys_moving_back(self._current, new)
            keys = [_keys_moving_back(self.top, self.models[case], rows) for case, rows in rows_by_case.items()]
            self._violating_keys = {key for of_case in keys for key in of_case}
            violating = {case for case, *_ in self._violating_keys}
            self.models = {case: model for case, model in self.models.items() if case not in violating}
            frames["leaderboard"] = self.top.fold(*(f.where(~F.col("case_id").isin([*violating])) for f in (self._current, new)))
        for case, model in self.models.items():
            for row in rows_by_case[case]:
                model.apply(row)
        self._schema = to_arrow_schema(frames["leaderboard"].schema)
        return frames

    def check(self, found: Mapping[str, list[dict[str, Any]]]) -> None:
        """Compare the rows of the frames with the models."""
        columns = ("case_id", "k", "id", "v", "seq", "arrival")
        ranked = Counter(tuple(row[c] for c in columns) for model in self.models.values() for row, _ in model.ranks())
        assert Counter(tuple(row[c] for c in columns) for row in found["leaderboard"]) == ranked
        if self._current is not None:
            assert {tuple(row.values()) for row in found["moving back"]} == self._violating_keys
            self.found += len(self._violating_keys)
        self._current = self._frame(found["leaderboard"], self._schema)

    def _frame(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA) -> DataFrame:
        return self._spark.createDataFrame(pa.Table.from_pylist([*rows], schema))


def test_broken_promises_are_found_and_all_other_rankings_are_right(spark: SparkSession) -> None:
    """One query has the rows of all specs after a batch."""
    runs = {name: _Run(spark, name) for name in SPECS}
    for run in runs.values():
        assert run.top.strategy_used == "update"
        assert isinstance(run.top, Promised)
    for seq in range(1, BATCHES + 1):
        found = dicts_of({(name, kind): rows for name, run in runs.items() for kind, rows in run.frames(seq).items()})
        for name, run in runs.items():
            run.check({kind: rows for (spec, kind), rows in found.items() if spec == name})
    for name, run in runs.items():
        assert run.found > CASES / 10, name
        assert len(run.models) > CASES / 5, name


def test_a_fold_fails_if_a_kept_row_moves_back(spark: SparkSession) -> None:
    top = TopN(by="k", order_by="v DESC", rank_end=1, unique_key=("k", "id"), monotonic=True)
    rows = spark.sql("SELECT * FROM VALUES ('a', 1, 9, 1L, 0L), ('a', 2, 8, 1L, 1L) AS t(k, id, v, seq, arrival)")
    current = top(rows)
    better = rows.where("id = 1").selectExpr("k", "id", "v + 1 AS v", "2L AS seq", "arrival")
    assert [row.v for row in top.fold(current, better).collect()] == [10]
    worse = rows.where("id = 1").selectExpr("k", "id", "v - 2 AS v", "2L AS seq", "arrival")  # 8 would take the rank, and is not kept
    with pytest.raises(PySparkException, match=PROMISE_VIOLATED):
        top.fold(current, worse).collect()
    hidden = rows.where("id = 2").selectExpr("k", "id", "v - 2 AS v", "2L AS seq", "arrival")  # not kept, so its rank cannot change
    assert [row.v for row in top.fold(current, hidden).collect()] == [9]


def test_each_key_that_moved_back_at_any_time_is_found(spark: SparkSession) -> None:
    values = [(1, 5, "+I"), (1, 6, "+U"), (2, 5, "+I"), (2, 4, "+U"), (2, 9, "+U"), (3, 1, "+I"), (3, 1, "-U"), (3, 2, "+U"), (4, 3, "-D")]
    values += [(5, 1, "+I"), (5, 1, "+U"), (6, None, "+I"), (6, 1, "+U"), (7, 1, "+I"), (7, None, "+U"), (8, 9, "+I"), (8, 1, "?")]
    rows = [
        {"case_id": 0, "k": "a", "id": key, "v": v, "seq": 1, "arrival": n, "change": change} for n, (key, v, change) in enumerate(values)
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).repartition(2)
    top = TopN(by="k", order_by="v DESC", rank_end=1, unique_key=("k", "id"), change="change", monotonic=True)
    assert sorted(row.id for row in top.keys_moved_back(frame).collect()) == [2, 4, 7]
