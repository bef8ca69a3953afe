"""The rows of a small batch, which are selected in memory, are those that Spark selects."""

import random
from collections.abc import Sequence
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import EVENT_TIME_RAW, SourceContract
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from platform_defs.engine.ingest.appended_rows import log_rows, quarantine_rows
from platform_defs.engine.ingest.ingest import Ingest
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake import small_queries
from platform_defs.engine.lake.arrow_rows import all_nullable, arrow_rows
from platform_defs.engine.lake.lazy_frame import LazyFrame
from platform_defs.engine.lake.small_queries import fetch_arrow, materialize, rows_in_memory
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, join, land, source
from tests.support.spark_jobs import jobs_of

NOW = 1_772_452_800_123
NESTED = "k string, n bigint, tags array<string>, place struct<x: double, at: timestamp>"


def _validated(spark: SparkSession) -> DataFrame:
    """Random validated rows: good ones, markers, and rejected ones of both kinds."""
    values = random.Random(8)
    return spark.range(200).selectExpr(
        "id AS arrival",
        "timestamp_micros(id * 1000000) AS event_time",
        "timestamp_micros(id * 1000001) AS event_time_raw",
        "IF(id % 7 = 0, NULL, concat('é\\u0000', id % 5)) AS k",
        "IF(id % 3 = 0, NULL, id) AS n",
        "IF(id % 4 = 0, NULL, array('a', NULL)) AS tags",
        "IF(id % 5 = 0, NULL, named_struct('x', double(id), 'at', timestamp_micros(id))) AS place",
        "concat('raw ', id) AS _raw",
        "'file.jsonl' AS _path",
        f"element_at(array({', '.join(values.choice(['NULL', 'NULL', repr('missing: k'), repr('')]) for _ in range(200))}), int(id + 1)) "
        "AS _reason",
        f"element_at(array({', '.join(values.choice(['true', 'false', 'false']) for _ in range(200))}), int(id + 1)) AS _is_marker",
    )


def _by_arrival(rows: DataFrame, *, computed: bool) -> tuple[Sequence[object], object]:
    """A frame's rows, computed by a query, or as they are in memory; and their types."""
    found = arrow_rows(rows) if computed else rows_in_memory(rows)
    assert found is not None
    return found.sort_by(ARRIVAL).to_pylist(), found.schema


@pytest.mark.parametrize("has_duplicates", [False, True])
def test_rows_selected_in_memory_are_those_of_the_query(spark: SparkSession, has_duplicates: bool) -> None:
    contract = SourceContract(name="s", schema=NESTED, event_time="timestamp_millis(n)")
    in_memory = materialize(_validated(spark))
    duplicates = materialize(spark.range(0, 200, 3).withColumnRenamed("id", ARRIVAL)) if has_duplicates else None
    log, quarantine = log_rows(in_memory, duplicates, contract, 41), quarantine_rows(in_memory, 41, NOW, has_offsets=False)
    assert [cast(LazyFrame, frame)._made for frame in (in_memory, log, quarantine)] == [None] * 3, "Spark need not read them"
    for rows in (log, quarantine):
        assert all_nullable(rows) == all_nullable(DataFrame(cast(Any, rows)._jdf, spark)), "the types of the frame that Spark makes"
        known = _by_arrival(rows, computed=False)
        assert known == _by_arrival(rows, computed=True)
        assert len(known[0]) > 20
    with jobs_of(spark) as jobs:
        assert fetch_arrow(log) is not None
    assert jobs == []


def test_rows_of_topics_and_of_large_batches_are_left_to_spark(spark: SparkSession) -> None:
    contract, large = SourceContract(name="s", schema=NESTED, event_time="timestamp_millis(n)"), _validated(spark)
    assert rows_in_memory(log_rows(large, None, contract, 1)) is None
    assert rows_in_memory(quarantine_rows(large, 1, NOW, has_offsets=False)) is None
    few, many = materialize(large), spark.range(3).withColumnRenamed("id", ARRIVAL)
    assert rows_in_memory(log_rows(few, many, contract, 1)) is None, "the duplicates are not in memory"
    with_offsets = quarantine_rows(few, 1, NOW, has_offsets=True)
    assert rows_in_memory(with_offsets) is None, "offsets are computed by Spark"
    assert with_offsets.columns == [SEQ, ARRIVAL, "reason", "raw", "path", "ingested_at", "offset"]


def test_a_small_batch_is_one_job_for_each_source(make_engine: MakeEngine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job reads, validates and counts the rows of a source. Duplicates are found in memory."""
    monkeypatch.setattr(Ingest, "_in_parallel", lambda _, work, names: [work(name) for name in names])  # jobs are counted by thread
    engine = make_engine([source("l", unique_key=("k",)), source("r")], [join()])
    for batch in range(2):
        lines = [Event(f"{batch}{n}", n, batch * MINUTE).line for n in range(4)]
        for name in ("l", "r"):
            land(engine, name, f"{batch}.jsonl", [*lines, lines[0], Event("x", 7, MINUTE).line, '{"k": "without a time"}'])
        with jobs_of(spark) as jobs:
            [ingested] = engine.ingest()
        repeated = 1 if batch == 0 else 2
        counts = {row.source: (row.accepted, row.duplicate, row.quarantined) for row in ingested}
        assert counts == {"l": (6 - repeated, repeated, 1), "r": (6, 0, 1)}
        assert len(jobs) == 2
    assert small_queries.count(read_log(engine.workspace, "l", 2)) == 5 + 4


def test_the_log_of_a_large_batch_has_differences_of_times(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", -1)
    engine = make_engine([source("l", unique_key=("k",)), source("r")], [join()])
    land(engine, "l", "0.jsonl", [*[Event(f"k{n}", n, n * MINUTE).line for n in range(100)], '{"k": "without a time"}'])
    [[of_l]] = engine.ingest()
    assert (of_l.accepted, of_l.quarantined) == (100, 1)
    log = engine.lake.delta(engine.sources["l"].log)
    assert log is not None
    [file] = log.file_uris()
    row_group = pq.read_metadata(file).row_group(0)
    encodings = {row_group.column(n).path_in_schema: row_group.column(n).encodings for n in range(row_group.num_columns)}
    for name in (ARRIVAL, EVENT_TIME, EVENT_TIME_RAW):
        assert "DELTA_BINARY_PACKED" in encodings[name]
        assert not any("DICTIONARY" in encoding for encoding in encodings[name])
    read_by_spark = arrow_rows(read_log(engine.workspace, "l", 1)).sort_by(ARRIVAL)
    read_by_deltalake = log.to_pyarrow_table().sort_by(ARRIVAL).cast(read_by_spark.schema)
    assert read_by_deltalake == read_by_spark
    times = [time.timestamp() for time in read_by_spark[EVENT_TIME].to_pylist()]
    assert [time - times[0] for time in times] == [n * MINUTE / 1_000 for n in range(100)]
    [rejected] = arrow_rows(engine.lake.read(engine.spark, engine.sources["l"].quarantine)).to_pylist()
    assert rejected["raw"] == '{"k": "without a time"}'
