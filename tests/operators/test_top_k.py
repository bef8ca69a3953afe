"""The Top-K of a window: a total order, groups, nulls, and refused parameters."""

import random
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from operators import ColumnError, OperatorError, TopK
from operators._support.ordering import Ordering

RESULTS = pa.schema({"s": pa.int64(), "k": pa.string(), "g": pa.string(), "n": pa.int64(), "note": pa.string()})
Result = tuple[int, str | None, str | None, int | None, str | None]


def _frame(spark: SparkSession, rows: Sequence[Result]) -> DataFrame:
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), RESULTS, strict=True)]
    frame = spark.createDataFrame(pa.table(columns, schema=RESULTS))
    start, end = F.timestamp_millis("s").alias("window_start"), F.timestamp_millis(F.col("s") + 10).alias("window_end")
    return frame.select("k", "g", start, end, "n", "note", F.timestamp_millis(F.col("s") + 9).alias("event_time"))


def _ranks(rows: DataFrame) -> list[tuple[Any, ...]]:
    short = rows.select(F.unix_millis("window_start").alias("s"), "g", "rank", "k", "n")
    return sorted((tuple(r) for r in short.collect()), key=lambda r: (r[0], r[1] or "", r[2]))


def _rows(seed: int) -> list[Result]:
    rng = random.Random(seed)
    made = {
        (rng.randrange(0, 30, 5), rng.choice(["a", "b", "c", "d", None]), rng.choice(["x", "y", None])): (
            rng.choice([None, 1, 2, 3]),
            rng.choice([None, "p", "q"]),
        )
        for _ in range(120)
    }
    return [(*key, *value) for key, value in made.items()]


def _nulls_first(value: Any) -> tuple[bool, Any]:
    """A null is the smallest value."""
    return (value is not None, value or 0) if not isinstance(value, str) else (True, value)


def _text(value: str | None) -> tuple[bool, str]:
    return (value is not None, value or "")


@pytest.mark.parametrize("grouped", [False, True])
def test_ranks_are_positions_in_the_sorted_group(spark: SparkSession, grouped: bool) -> None:
    rows = _rows(5)
    top = TopK(k=3, order_by=["n DESC", "k"], by="g" if grouped else ())
    wanted = []
    for group in {(r[0], r[2]) if grouped else (r[0],) for r in rows}:
        inside = [r for r in rows if ((r[0], r[2]) if grouped else (r[0],)) == group]
        inside.sort(key=lambda r: (_text(r[1]), _text(r[2]), _text(r[4])))
        inside.sort(key=lambda r: _nulls_first(r[3]), reverse=True)
        wanted += [(r[0], r[2], n, r[1], r[3]) for n, r in enumerate(inside[:3], 1)]
    found = _ranks(top(_frame(spark, rows)))
    assert found == sorted(wanted, key=lambda r: (r[0], r[1] or "", r[2]))


def test_ties_are_broken_by_the_other_columns_in_any_row_order(spark: SparkSession) -> None:
    rows: list[Result] = [(0, k, g, 1, note) for k in "ab" for g in "xy" for note in "pq"]
    rankings = set()
    for seed in range(3):
        shuffled = random.Random(seed).sample(rows, len(rows))
        frame = _frame(spark, shuffled).repartition(1 + seed)
        rankings.add(tuple(sorted((r["rank"], r.k, r.g, r.note) for r in TopK(k=5, order_by="n DESC")(frame).collect())))
    assert rankings == {((1, "a", "x", "p"), (2, "a", "x", "q"), (3, "a", "y", "p"), (4, "a", "y", "q"), (5, "b", "x", "p"))}


def test_maps_do_not_break_ties(spark: SparkSession) -> None:
    """Spark cannot order maps and variants."""
    unordered = {"m": F.create_map("k", "n"), "variant": F.parse_json(F.lit("1"))}
    rows = _frame(spark, [(0, k, "x", 1, None) for k in "cab"]).withColumns(unordered)
    assert [r.k for r in TopK(k=2, order_by="n")(rows).orderBy("rank").collect()] == ["a", "b"]
    arrived = rows.withColumns({"seq": F.lit(1), "arrival": F.ascii("k") * -1})
    assert [r.k for r in TopK(k=2, order_by="n")(arrived).orderBy("rank").collect()] == ["c", "b"]


def test_ties_are_in_order_of_arrival_then_of_all_columns_that_can_be_ordered() -> None:
    """The results of a join can have equal `seq` and `arrival`."""
    kinds = {
        "k": StringType(),
        "m": MapType(StringType(), StringType()),
        **dict.fromkeys(("arrival", "window_start", "n", "seq"), LongType()),
    }
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    ordered_columns = [o.column for o in TopK(k=1, order_by="n")._total_order(cast(DataFrame, SimpleNamespace(schema=schema)))]
    assert ordered_columns == ["n", "seq", "arrival", "k"]


def test_the_result_has_the_columns_of_the_frame_the_rank_and_the_result_times(spark: SparkSession) -> None:
    found = TopK(k=1, order_by="n")(_frame(spark, [(20, "a", None, 1, None)]))
    assert found.columns == ["k", "g", "window_start", "window_end", "n", "note", "rank", "result_time", "final_at"]
    assert [tuple(r) for r in found.select(F.unix_millis("result_time"), F.unix_millis("final_at")).collect()] == [(29, 29)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n", ("n", False, True)),
        ("n ASC", ("n", False, True)),
        (" n  desc ", ("n", True, False)),
        ("n DESC NULLS FIRST", ("n", True, True)),
        ("n nulls last", ("n", False, False)),
        ("`a name` DESC", ("a name", True, False)),
    ],
)
def test_an_order_is_parsed_like_sql(text: str, wanted: tuple[str, bool, bool]) -> None:
    assert Ordering.read(text, "order_by") == Ordering(*wanted)


@pytest.mark.parametrize("text", ["", "n DOWN", "n DESC NULLS", "a, b", "sum(n)", "n de\u017fc", "n NULLS F\u0130RST"])
def test_an_illegal_order_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(f"`order_by` is {text!r}; legal: a column, then ASC or DESC")):
        TopK(k=1, order_by=[text])


@pytest.mark.parametrize("order", ["n", "n DESC", "n NULLS LAST", "n DESC NULLS FIRST"])
def test_nulls_are_sorted_as_the_order_specifies(spark: SparkSession, order: str) -> None:
    rows: list[Result] = [(0, k, None, n, None) for k, n in (("a", 1), ("b", None), ("c", 2))]
    wanted = {"n": "bac", "n DESC": "cab", "n NULLS LAST": "acb", "n DESC NULLS FIRST": "bca"}[order]
    assert "".join(r[3] for r in _ranks(TopK(k=3, order_by=order)(_frame(spark, rows)))) == wanted


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"k": 0}, "`k` is 0; legal: a whole number of at least 1"),
        ({"k": True}, "`k` is True; legal: a whole number of at least 1"),
        ({"k": 2.5}, "`k` is 2.5; legal: a whole number of at least 1"),
        ({"k": "2"}, "`k` is '2'; legal: a whole number of at least 1"),
        ({"order_by": ()}, "`order_by` is (); legal: at least one column"),
    ],
)
def test_illegal_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        TopK(**{"k": 1, "order_by": "n", **parameters})


def test_illegal_frames_are_refused(spark: SparkSession) -> None:
    rows = _frame(spark, [(0, "a", None, 1, None)])
    with pytest.raises(ColumnError, match="`order_by` names the column 'm', which the frame does not have"):
        TopK(k=1, order_by="m")(rows)
    with pytest.raises(ColumnError, match="`window_start` names the column 'window_start', which the frame does not have"):
        TopK(k=1, order_by="n")(rows.drop("window_start"))
    with pytest.raises(ColumnError, match="the result would have rank twice; rename one of them"):
        TopK(k=1, order_by="n")(rows.withColumnRenamed("note", "rank"))
