"""Duplicates of a small batch are found in memory: by the rule, and the same rows as Spark finds."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from operators.engine_columns import ARRIVAL, EVENT_TIME
from platform_defs.engine.ingest import duplicates_in_memory as module
from platform_defs.engine.ingest import ingest
from platform_defs.engine.ingest.batch_counts import ranged_key
from platform_defs.engine.ingest.duplicates import duplicates
from platform_defs.engine.ingest.duplicates_in_memory import duplicates_in_memory, duplicates_of_rows
from platform_defs.engine.lake import data_skipping
from platform_defs.engine.lake.arrow_rows import arrow_rows
from platform_defs.engine.lake.small_queries import MOST_FETCHED_ROWS, materialize
from tests.conftest import MakeEngine
from tests.operators.frames import frame_of
from tests.support.example_counts import example_count
from tests.support.small_sources import START, Event, iso, join, land, replay, source

HORIZON = 3
_KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]))
_ROWS = st.lists(st.tuples(_KEYS, st.integers(-5, 20)), max_size=25)
_ALL_TYPES = {
    "string": "element_at(array('', 'é\\u0000', cast(unhex('FFFE') AS string)), n + 1)",
    "binary": "unhex(concat('00FF', n))",
    "boolean": "n = 1",
    "date": "element_at(array(date'-4000-01-01', date'2026-03-01', date'99999-12-31'), n + 1)",
    "decimal(38,18)": "cast(n AS decimal(38, 18)) / 10",
    "bigint": "n - 9223372036854775807",
    "timestamp_ntz": "element_at(array(timestamp_ntz'0001-01-01', timestamp_ntz'2026-03-01', timestamp_ntz'12000-01-01'), n + 1)",
    "timestamp": "element_at(array(timestamp'-1000-01-01', timestamp_micros(1), timestamp'12000-01-01'), n + 1)",
}
"""By type, an expression over `n`, a number of 0 to 2. Python has no value for a text that is not UTF-8, and for some dates and times."""
Rows = Sequence[tuple[tuple[Any, ...], int]]


def _table(rows: Rows, arrivals: Sequence[int] | None) -> pa.Table:
    columns = {f"k{n}": pa.array([key[n] for key, _ in rows], kind) for n, kind in enumerate((pa.string(), pa.int64()))}
    columns[EVENT_TIME] = pa.array([time * 1_000 for _, time in rows], pa.timestamp("us", "UTC"))
    return pa.table(columns if arrivals is None else columns | {ARRIVAL: pa.array(arrivals, pa.int64())})


def _by_the_rule(new: Rows, arrivals: Sequence[int], logged: Rows) -> set[int]:
    """The rule of `duplicates.duplicates`, row by row in order of arrival."""
    ingested, repeated = [*logged], set[int]()
    for arrival, (key, time) in sorted(zip(arrivals, new, strict=True), key=lambda row: row[0]):
        if None not in key and any(key == other and abs(time - at) <= HORIZON for other, at in ingested):
            repeated.add(arrival)
        else:
            ingested.append((key, time))
    return repeated


def test_a_row_near_an_ingested_row_of_its_key_is_a_duplicate() -> None:
    rng, is_duplicate, has_null_key = random.Random(8), Counter[bool](), Counter[bool]()
    for _ in range(example_count(60)):
        new, logged = (
            [((rng.choice(["a", "b", None]), rng.choice([1, 2, None])), rng.randint(-5, 20)) for _ in range(rng.randrange(26))]
            for _ in range(2)
        )
        found = check_duplicates(new, logged, rng.sample(range(0, 7 * len(new), 7), len(new)))
        is_duplicate += Counter({True: len(found), False: len(new) - len(found)})
        has_null_key.update(None in key for key, _ in new)
    counts = [of[kind] for of in (is_duplicate, has_null_key) for kind in (True, False)]
    assert min(counts) > example_count(60), "a few rows of each kind in each example"


@pytest.mark.soak
@settings(max_examples=1_000)
@given(new=_ROWS, logged=_ROWS, data=st.data())
def test_in_many_examples_a_row_near_an_ingested_row_of_its_key_is_a_duplicate(new: Rows, logged: Rows, data: st.DataObject) -> None:
    check_duplicates(new, logged, data.draw(st.permutations([7 * n for n in range(len(new))])))


def check_duplicates(new: Rows, logged: Rows, arrivals: Sequence[int]) -> set[int]:
    """Compare the duplicates with those by the rule; returns them."""
    found = duplicates_of_rows(_table(new, arrivals), _table(logged, None), ["k0", "k1"], HORIZON)
    assert found is not None
    assert len(found) == len({*found})
    assert {*found} == _by_the_rule(new, arrivals, logged)
    return {*found}


@pytest.mark.parametrize("rows", [300, MOST_FETCHED_ROWS], ids=["a small query", "two queries"])
def test_spark_finds_the_same_rows_with_a_key_of_any_type(spark: SparkSession, rows: int) -> None:
    new_rows, logged_rows = _random_rows(spark, 300, 1), _random_rows(spark, 200, 2).drop(ARRIVAL)
    key = [c for c in logged_rows.columns if c != EVENT_TIME]
    found = duplicates(new_rows, logged_rows, key, HORIZON, rows)
    assert found is not None
    expected = sorted(row[ARRIVAL] for row in found[0].collect())
    in_memory = duplicates_of_rows(arrow_rows(new_rows), arrow_rows(logged_rows), key, HORIZON)
    assert in_memory is not None
    assert sorted(in_memory) == expected
    assert 20 < len(expected) == found[1] < 280


def _random_rows(spark: SparkSession, rows: int, seed: int) -> DataFrame:
    """Rows with a key of many types. Every other row has the same value in all but the first column, so that keys repeat."""
    values, numbers = random.Random(seed), list[tuple[int, list[int | None], int]]()
    for n in range(rows):
        of_key = [values.randrange(3) if values.random() < 0.9 else None for _ in _ALL_TYPES]
        numbers.append((n, of_key if n % 2 else [of_key[0], *[0] * (len(of_key) - 1)], values.randrange(2_000)))
    keys = [F.expr(f"transform(array(numbers[{i}]), n -> {sql})[0]").alias(f"k{i}") for i, sql in enumerate(_ALL_TYPES.values())]
    frame = frame_of(spark, numbers, f"{ARRIVAL} bigint, numbers array<int>, time bigint")
    return frame.select(*keys, F.timestamp_millis("time").alias(EVENT_TIME), ARRIVAL)


def test_a_key_may_have_any_name_and_many_repeated_rows_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ["count_all", "k1"]
    rows = _table([(("a", 1), 0), (("a", 1), 9)], [0, 1]).rename_columns([*key, EVENT_TIME, ARRIVAL])
    for most, found in ((4, [0, 1]), (3, None)):
        monkeypatch.setattr(module, "_MOST_SUSPECTS", most)
        assert duplicates_of_rows(rows, rows.drop_columns([ARRIVAL]), key, HORIZON) == found


def test_only_committed_rows_of_the_log_are_compared(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", unique_key=("k",)), source("r")], [join()])
    replay(engine, [{"l": [Event("a", 1, 0)]}, {"l": [Event("b", 1, 0)]}])
    columns = f"timestamp_millis({START}) AS event_time", "id AS arrival", "cast(NULL AS string) AS _reason", "false AS _is_marker"
    validated = materialize(engine.spark.range(2).selectExpr("IF(id = 0, 'a', 'b') AS k", *columns))
    contract = engine.sources["l"]
    for newest, found in ((0, []), (1, [0]), (engine.ledger.head, [0, 1])):
        assert sorted(duplicates_in_memory(engine.lake, validated, contract, {}, newest) or []) == found


def test_spark_reads_a_log_that_lacks_a_column_of_the_key(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], [join()])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    log, column = engine.sources["l"].log, pa.schema([("new", pa.string())])
    assert engine.lake.few_rows(log, column, {}) is None
    assert engine.lake.few_rows("no_table", column, {}) == column.empty_table()
    assert engine.lake.few_rows(log, pa.schema([("K", pa.string())]), {}) is None, "Spark's names ignore case"


@pytest.mark.parametrize(("key", "is_large"), [("f", False), ("k", True), ("k", False)], ids=["a float", "a large log", "a small log"])
def test_spark_finds_the_duplicates_of_float_keys_and_large_logs(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, key: str, is_large: bool
) -> None:
    """Spark treats -0.0 and 0.0 as equal; Arrow does not."""
    in_memory = list[bool]()

    def recorded(*arguments: Any) -> Sequence[int] | None:
        found = duplicates_in_memory(*arguments)
        in_memory.append(found is not None)
        return found

    monkeypatch.setattr(ingest, "duplicates_in_memory", recorded)
    if is_large:
        monkeypatch.setattr(data_skipping, "SMALL_INPUT_BYTES", 10)
    engine = make_engine([source("l", schema="k string, f double, ts timestamp", unique_key=(key,)), source("r")], [join()])
    for batch, zero in enumerate(("0.0", "-0.0")):
        values = {"a": zero, "b": "1.5", "c": "NaN", "d": f"1{batch}"}
        lines = [json.dumps({"k": name, "f": value, "ts": iso(START)}) for name, value in values.items()]
        land(engine, "l", f"{batch}.jsonl", lines)
        engine.ingest()
    counts = [batch[0].duplicate for batch in engine.ledger.batches()]
    assert counts == [0, 4 if key == "k" else 3]
    assert in_memory == [key == "k", key == "k" and not is_large]


def test_the_range_of_a_key_with_a_collation_leaves_out_no_file() -> None:
    """The statistics of a file order texts by their bytes: `C` is before `a` and `c`."""
    keys = {"plain": StringType(), "collated": StringType("UTF8_LCASE")}
    contracts = [source(name, schema=StructType().add("k", kind).add("ts", "timestamp"), unique_key=("k",)) for name, kind in keys.items()]
    assert {contract.name: ranged_key(contract) for contract in contracts} == {"plain": ["k"], "collated": []}
