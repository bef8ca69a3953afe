"""The aggregate without windows equals a naive model after each batch, also in the position of the row that last changed a result."""

import random
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from operators import Aggregate, ByKey, ColumnError, NewRows, OperatorError, StreamingError, Upsert
from tests.operators.frames import frame

CASES, BATCHES = 300, 3
SCHEMA = pa.schema(
    {"case_id": pa.int32(), "k": pa.string(), "v": pa.int32(), "price": pa.decimal128(12, 2), "seq": pa.int64(), "arrival": pa.int64()}
)
Row = dict[str, Any]
Model = Callable[[list[Row]], tuple[Any, ...]]


def _non_null(rows: list[Row]) -> list[int]:
    return [r["v"] for r in rows if r["v"] is not None]


def _sum(values: list[Any]) -> Any:
    return sum(values) if values else None


AGGREGATES: dict[str, tuple[dict[str, str], Model]] = {
    "count": (
        {"n": "count(*)", "spent": "sum(price * 2)"},
        lambda r: (len(r), _sum([2 * x["price"] for x in r if x["price"] is not None])),
    ),
    "sum": ({"total": "sum(v)"}, lambda r: (_sum(_non_null(r)),)),
    "money": ({"total": "SUM(price)"}, lambda r: (_sum([x["price"] for x in r if x["price"] is not None]),)),
    "max": ({"most": "max(v)", "known": "count(v)"}, lambda r: (max(_non_null(r), default=None), len(_non_null(r)))),
    "extremes": ({"most": "max(v)", "least": "min(v)"}, lambda r: (max(_non_null(r), default=None), min(_non_null(r), default=None))),
    "every": ({"all_small": "bool_and(v < 3)"}, lambda r: (all(v < 3 for v in _non_null(r)) if _non_null(r) else None,)),
}


def _model(rows: list[Row], model: Model) -> tuple[Any, ...]:
    """The values, and the position of the last row that changed them."""
    position, values = (0, 0), None
    for n, row in enumerate(rows, 1):
        now = model(rows[:n])
        if now != values:
            position, values = (row["seq"], row["arrival"]), now
    return (*(values or ()), *position)


def _batches(seed: str) -> list[list[Row]]:
    rng, arrivals = random.Random(seed), count()
    prices = [None, 0, 1, 2]
    return [
        [
            {"case_id": case, "k": rng.choice(["a", "b", None]), "v": rng.choice([None, 0, 1, 2, -2, 3]), "seq": seq}
            | {"price": rng.choice(prices), "arrival": next(arrivals)}
            for case in range(CASES)
            for _ in range(rng.randrange(4))
        ]
        for seq in range(1, BATCHES + 1)
    ]


def _rows(found: DataFrame) -> dict[Any, tuple[Any, ...]]:
    rows = [tuple(r) for r in found.collect()]
    by_key = {r[:2]: r[2:] for r in rows}
    assert len(by_key) == len(rows)
    return by_key


@pytest.mark.parametrize("name", AGGREGATES)
def test_each_batch_gives_the_result_of_the_model(spark: SparkSession, name: str) -> None:
    aggregates, model = AGGREGATES[name]
    operator = Aggregate(by=("case_id", "k"), aggregates=aggregates)
    assert operator.reads == NewRows()
    rows_by_key: dict[Any, list[Row]] = {}
    current: DataFrame | None = None
    for batch in _batches(name):
        for row in batch:
            rows_by_key.setdefault((row["case_id"], row["k"]), []).append(row)
        new = spark.createDataFrame(pa.Table.from_pylist(batch, SCHEMA))
        merged = operator(new) if current is None else operator.fold(current, new)
        wanted = {key: _model(rows, model) for key, rows in rows_by_key.items()}
        assert _rows(merged) == wanted
        current = frame(spark, [(*key, *values) for key, values in wanted.items()], to_arrow_schema(merged.schema))
    at_once = operator(spark.createDataFrame(pa.Table.from_pylist([r for rows in rows_by_key.values() for r in rows], SCHEMA)))
    assert _rows(at_once) == wanted
    assert at_once.schema.simpleString() == current.schema.simpleString()
    assert len(wanted) > CASES


def test_an_aggregate_that_cannot_be_merged_is_recomputed_and_has_the_position_of_its_newest_row(spark: SparkSession) -> None:
    operator = Aggregate(by="k", aggregates={"different": "count(DISTINCT v)", "mean": "avg(v)"})
    assert operator.reads == ByKey(("k",))
    assert operator.emits == Upsert(("k",))
    rows = spark.sql("SELECT * FROM VALUES ('a', 1, 1L, 0L), ('a', 1, 2L, 3L), (null, 4, 1L, 1L) AS t(k, v, seq, arrival)")
    assert sorted(map(tuple, operator(rows).collect()), key=repr) == [("a", 1, 1.0, 2, 3), (None, 1, 4.0, 1, 1)]
    assert operator(rows.drop("seq", "arrival")).columns == ["k", "different", "mean"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"by": ()}, "`by` is (); legal: at least one column; for a total of all rows"),
        ({"aggregates": {}}, "`aggregates` is {}; legal: at least one, such as"),
        ({"aggregates": "count(*)"}, "`aggregates` is 'count(*)'; legal: a mapping of names to SQL, such as {'rows': 'count(*)'}"),
        ({"aggregates": {"n": 1}}, "`aggregates` is {'n': 1}; legal: a mapping of names to SQL, such as {'rows': 'count(*)'}"),
        (
            {"aggregates": {1: "count(*)"}},
            "`aggregates` is {1: 'count(*)'}; legal: a mapping of names to SQL, such as {'rows': 'count(*)'}",
        ),
        ({"aggregates": ["a"]}, "`aggregates` is ['a']; legal: a mapping of names to SQL, such as {'rows': 'count(*)'}"),
        ({"aggregates": {"seq": "count(*)"}}, "seq"),
    ],
)
def test_illegal_parameters_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        Aggregate(**{"by": "k", "aggregates": {"n": "count(*)"}, **spec})


def test_illegal_frames_are_refused(spark: SparkSession) -> None:
    operator = Aggregate(by="k", aggregates={"n": "count(*)"})
    with pytest.raises(ColumnError, match="`by` names the column 'k', which the frame does not have"):
        operator(spark.range(1))
    with pytest.raises(OperatorError, match="a sum of floats depends on the order of the rows; cast to a decimal"):
        Aggregate(by="k", aggregates={"n": "sum(x)"})(spark.sql("SELECT 1 AS k, 1.5D AS x"))
    with pytest.raises(StreamingError, match="Spark would keep the state of every key forever"):
        operator(spark.readStream.format("rate").load().withColumnRenamed("value", "k"))
