"""Changelogs: applying a difference to the older table gives the newer one, and no change is superfluous."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from operators import ColumnError, OperatorError, difference, fold
from operators.changelog import bag_changes, bag_difference, keyed_upserts, last_changes
from tests.operators.frames import by_tag, frame, frame_of, tagged

KEYED = pa.schema({"case_id": pa.string(), "k": pa.string(), "v": pa.int32(), "w": pa.string()})
KEY = ("case_id", "k")
Keyed = dict[tuple[str, str | None], tuple[int | None, str | None]]

BEFORE: Keyed = {
    ("insert", "other"): (0, "x"),
    ("update", "a"): (1, "x"),
    ("update one of two", "a"): (1, "x"),
    ("value to null", "a"): (1, "x"),
    ("null to value", "a"): (None, "x"),
    ("delete", "a"): (1, "x"),
    ("delete a row of nulls", None): (None, None),
    ("equal", "a"): (1, "x"),
    ("equal nulls", None): (None, None),
    ("null key changes", None): (1, "x"),
    ("a null key is a separate key", None): (1, "x"),
    ("a null key is a separate key", "a"): (1, "x"),
}
AFTER: Keyed = {
    ("insert", "other"): (0, "x"),
    ("insert", "a"): (1, "x"),
    ("insert a row of nulls", None): (None, None),
    ("update", "a"): (2, "x"),
    ("update one of two", "a"): (1, "y"),
    ("value to null", "a"): (None, "x"),
    ("null to value", "a"): (1, "x"),
    ("equal", "a"): (1, "x"),
    ("equal nulls", None): (None, None),
    ("null key changes", None): (2, "x"),
    ("a null key is a separate key", None): (2, "x"),
    ("a null key is a separate key", "a"): (1, "x"),
}
CHANGES = {
    "insert": {("a", 1, "x", "+I")},
    "insert a row of nulls": {(None, None, None, "+I")},
    "update": {("a", 1, "x", "-U"), ("a", 2, "x", "+U")},
    "update one of two": {("a", 1, "x", "-U"), ("a", 1, "y", "+U")},
    "value to null": {("a", 1, "x", "-U"), ("a", None, "x", "+U")},
    "null to value": {("a", None, "x", "-U"), ("a", 1, "x", "+U")},
    "delete": {("a", 1, "x", "-D")},
    "delete a row of nulls": {(None, None, None, "-D")},
    "equal": set(),
    "equal nulls": set(),
    "null key changes": {(None, 1, "x", "-U"), (None, 2, "x", "+U")},
    "a null key is a separate key": {(None, 1, "x", "-U"), (None, 2, "x", "+U")},
}


def _rows(keyed: Keyed) -> list[tuple[object, ...]]:
    return [(*key, *values) for key, values in keyed.items()]


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> dict[str, Counter[tuple[Any, ...]]]:
    return by_tag(difference(frame(spark, _rows(BEFORE), KEYED), frame(spark, _rows(AFTER), KEYED), key=KEY))


@pytest.mark.parametrize("case", CHANGES)
def test_a_difference_contains_the_changes_only(changes: dict[str, Counter[tuple[Any, ...]]], case: str):
    assert changes.get(case, Counter()) == Counter(CHANGES[case])


def _random(seed: int, cases: int = 30) -> list[Keyed]:
    """Three successive tables."""
    choose = random.Random(seed)
    keys = [(str(case), k) for case in range(cases) for k in (None, "a", "b")]
    values = [(v, w) for v in (None, 1, 2) for w in (None, "x")]
    return [{key: choose.choice(values) for key in keys if choose.random() < 0.6} for _ in range(3)]


def _count(before: Keyed, after: Keyed) -> int:
    both = before.keys() & after.keys()
    return len(before.keys() ^ after.keys()) + 2 * sum(before[key] != after[key] for key in both)


@settings(max_examples=3, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_applying_the_differences_gives_each_table_without_superfluous_changes(spark: SparkSession, seed: int):
    tables: list[Keyed] = [{}, *_random(seed)]
    frames = [frame(spark, _rows(t), KEYED) for t in tables]
    steps = [difference(before, after, key=KEY).withColumn("step", F.lit(n)) for n, (before, after) in enumerate(pairwise(frames), start=1)]
    log = steps[0].union(steps[1]).union(steps[2]).localCheckpoint()
    folded = {str(n): fold(log.where(F.col("step") <= n), key=KEY, order="step") for n in (1, 2, 3)}
    counts = dict(log.groupBy("step").count().collect())
    found = by_tag(tagged(folded))
    for n, (before, now) in enumerate(pairwise(tables), start=1):
        assert found[str(n)] == Counter(_rows(now))
        assert counts[n] == _count(before, now)


def test_last_changes_have_one_change_of_each_key_and_fold_the_current_rows(spark: SparkSession):
    schema = pa.schema({"k": pa.string(), "v": pa.int32(), "change": pa.string(), "step": pa.int32()})
    log = [
        ("added", 1, "+I", 1),
        ("updated", 1, "+I", 1),
        ("updated", 1, "-U", 2),
        ("updated", 2, "+U", 2),
        ("deleted", 1, "+I", 1),
        ("deleted", 1, "-D", 3),
        ("back", 1, "+I", 1),
        ("back", 1, "-D", 2),
        ("back", 3, "+I", 3),
        (None, None, "+I", 1),
        (None, None, "-U", 3),
        (None, 5, "+U", 3),
    ]
    rows = frame(spark, log, schema)
    last = last_changes(rows, key=["k"], order="step")
    assert last.columns == rows.columns
    kept = {("added", 1, "+I", 1), ("updated", 2, "+U", 2), ("deleted", 1, "-D", 3), ("back", 3, "+I", 3), (None, 5, "+U", 3)}
    assert {tuple(r) for r in last.collect()} == kept
    folded = fold(rows, key=["k"], order="step")
    assert {tuple(r) for r in folded.collect()} == {(k, v) for k, v, change, _ in kept if change != "-D"}
    assert folded.columns == ["k", "v"]


def test_bag_changes_turn_one_bag_of_rows_into_another_and_leave_equal_rows_out(spark: SparkSession):
    schema = pa.schema({"case_id": pa.string(), "v": pa.int32()})
    cases = {"same": (2, 2), "more": (1, 3), "new": (0, 2), "fewer": (3, 2), "gone": (2, 0)}
    before, after = ([(c, None) for c, n in cases.items() for _ in range(n[which])] for which in (0, 1))
    changes = bag_changes(frame(spark, before, schema), frame(spark, after, schema))
    found: dict[str, list[str]] = {}
    for row in changes.collect():
        assert row["v"] is None
        found.setdefault(row["case_id"], []).append(row["change"])
    assert {case: sorted(changes) for case, changes in found.items()} == {
        "more": ["+I", "+I"],
        "new": ["+I", "+I"],
        "fewer": ["+I", "+I", "-D"],
        "gone": ["-D"],
    }


def test_a_bag_difference_counts_copies_and_treats_nulls_as_equal(spark: SparkSession):
    schema = pa.schema({"k": pa.string(), "v": pa.int32()})
    before = [("equal", 1), ("fewer", 1), ("fewer", 1), ("fewer", 1), ("gone", 1), (None, None), (None, 1), ("moved", None)]
    after = [("equal", 1), ("fewer", 1), ("more", 1), ("more", 1), (None, None), (None, None), (None, 1), ("moved", 1)]
    found = bag_difference(frame(spark, before, schema), frame(spark, after, schema))
    copies = {("fewer", 1, -2), ("gone", 1, -1), ("more", 1, 2), (None, None, 1), ("moved", None, -1), ("moved", 1, 1)}
    assert {tuple(r) for r in found.collect()} == copies
    assert found.dtypes == [("k", "string"), ("v", "int"), ("copies", "bigint")]


def test_maps_and_variants_are_compared(spark: SparkSession):
    """Of two variants, the order in which their text has the fields does not matter."""
    values = ["map('a', {n}, 'b', 0) AS m", """parse_json('{{"x": {n}, "y": [null]}}') AS v""", "array(parse_json('{n}'), null) AS a"]
    before, one, other = (spark.range(1).selectExpr("id", *[value.format(n=n) for value in values]) for n in (1, 1, 2))
    swapped = one.selectExpr("id", "map('b', 0, 'a', 1) AS m", """parse_json('{"y": [null], "x": 1}') AS v""", "a")
    frames = {"difference": difference(before, other, key=["id"]), "equal": difference(before, swapped, key=["id"])}
    frames |= {"bag": bag_changes(before, other), "equal bags": bag_difference(before, swapped).withColumn("change", F.lit("+I"))}
    kinds = by_tag(tagged({name: rows.select("change", F.to_json("v")) for name, rows in frames.items()}))
    one_json, other_json = '{"x":1,"y":[null]}', '{"x":2,"y":[null]}'
    assert kinds == {
        "difference": Counter([("-U", one_json), ("+U", other_json)]),
        "bag": Counter([("-D", one_json), ("+I", other_json)]),
    }


def test_the_column_order_of_the_later_table_does_not_matter(spark: SparkSession):
    before = frame(spark, [("1", "a", 1, "x")], KEYED)
    after = frame(spark, [("1", "a", 1, "x")], KEYED).select("w", "v", "k", "case_id")
    assert difference(before, after, key=KEY).collect() == []
    assert bag_difference(before, after).collect() == []


def test_illegal_keys_and_frames_are_refused(spark: SparkSession):
    rows = frame(spark, [], KEYED)
    with pytest.raises(ColumnError, match="`key` names the column 'nope', which the frame does not have; its columns: case_id, k, v, w"):
        difference(rows, rows, key=["nope"])
    with pytest.raises(ColumnError, match="`after` names the column 'w', which the frame does not have"):
        difference(rows, rows.drop("w"), key=KEY)
    with pytest.raises(ColumnError, match="`after` names the column 'w', which the frame does not have"):
        bag_difference(rows, rows.drop("w"))
    with pytest.raises(OperatorError, match=r"`key` is .*; legal: at least one column"):
        difference(rows, rows, key=[])
    taken = rows.withColumnRenamed("v", "change")
    with pytest.raises(ColumnError, match="the result adds a column with the name 'change'; rename the input column"):
        difference(taken, taken, key=KEY)
    counted = rows.withColumnRenamed("v", "copies")
    with pytest.raises(ColumnError, match="the result adds a column with the name 'copies'; rename the input column"):
        bag_difference(counted, counted)
    reserved = rows.withColumnRenamed("v", "__tm_v")
    with pytest.raises(ColumnError, match="the column '__tm_v' starts with '__tm_', which is reserved"):
        difference(reserved, reserved, key=KEY)


def test_keys_a_microsecond_apart_are_different(spark: SparkSession) -> None:
    at = "timestamp'2026-03-01 10:00:00.000001Z'"
    changelog = spark.sql(f"SELECT {at} AS t, '+I' AS change, 1 AS step UNION ALL SELECT {at} + interval '1 microsecond', '+I', 1")
    found = [r.key for r in keyed_upserts(changelog, key=("t",), order="step").collect()]
    assert sorted(found) == [f'{{"t":"2026-03-01T10:00:00.00000{n}Z"}}' for n in (1, 2)]


def test_upserts_contain_the_newest_value_of_a_key_or_a_tombstone(spark: SparkSession) -> None:
    changes = [
        ("a", 1, "+I", 1),
        (None, 2, "+I", 1),
        ("a", 1, "-U", 2),
        ("a", 5, "+U", 2),
        (None, 2, "-D", 2),
        ("a", 5, "-U", 3),
        ("b", 5, "+U", 3),
        ("b", 5, "-D", 4),
        ("b", 6, "+I", 4),
    ]
    changelog = frame_of(spark, changes, "k string, v int, change string, step long")
    found = sorted(map(tuple, keyed_upserts(changelog, key=("k",), order="step").collect()))
    assert found == sorted(
        [
            (1, '{"k":"a"}', '{"k":"a","v":1}'),
            (1, '{"k":null}', '{"k":null,"v":2}'),
            (2, '{"k":"a"}', '{"k":"a","v":5}'),
            (2, '{"k":null}', None),
            (3, '{"k":"a"}', None),
            (3, '{"k":"b"}', '{"k":"b","v":5}'),
            (4, '{"k":"b"}', '{"k":"b","v":6}'),
        ],
        key=lambda row: row[:2],
    )
