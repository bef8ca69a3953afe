"""Small queries: they are one Spark job, and a table has the same rows whether Arrow or Spark writes them."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.util import inheritable_thread_target

from platform_defs.engine.ingest.appended_rows import PARQUET_V2
from platform_defs.engine.lake import plan_inputs, small_queries
from platform_defs.engine.lake.data_skipping import no_rows
from platform_defs.engine.lake.plans import analyzed_plan
from platform_defs.engine.lake.small_queries import (
    collect,
    count,
    fetch_arrow,
    is_arrow_type,
    materialize,
    materialize_and_count,
    materialize_and_measure,
    own_sessions,
    plan_if_small,
    small_session,
)
from platform_defs.engine.lake.tables import Lake
from tests.operators.frames import frame_of
from tests.support.json_rows import json_rows
from tests.support.spark_jobs import jobs_of

EVERY_TYPE = {
    "k": "id",
    "tiny": "cast(id as tinyint)",
    "small": "cast(id as smallint)",
    "number": "cast(id as int)",
    "flag": "id % 2 = 0",
    "single": "if(id = 1, cast('NaN' as float), cast(-0.0 as float))",
    "double": "if(id = 1, double('-Infinity'), id / 3)",
    "exact": "cast(id as decimal(38, 18))",
    "short_exact": "cast(id as decimal(4, 1))",
    "text": "if(id = 1, '', concat('é\\u0000', id))",
    "bytes": "cast(concat('x', id) as binary)",
    "day": "if(id = 1, date'0001-01-01', date'9999-12-31')",
    "time": "if(id = 1, timestamp'0001-01-01 00:00:00.000001Z', timestamp'9999-12-31 23:59:59.999999Z')",
    "local_time": "if(id = 1, timestamp_ntz'1582-10-04 00:00:00', timestamp_ntz'2026-03-29 02:30:00')",
    "numbers": "array(id, null)",
    "entries": "map('a', id, 'b', null)",
    "nested": "struct(id as n, array(struct(date'1582-10-04' as d)) as list)",
}


def test_the_own_sessions_are_found_while_a_thread_copies_one(spark: SparkSession) -> None:
    """The handler of Ctrl-C looks for them in another thread, and waits, while the interrupted thread may copy a session."""
    copy = small_queries.small_session(spark)
    with ThreadPoolExecutor() as pool, small_queries._ONE_AT_A_TIME:
        assert any(found is copy for found in pool.submit(own_sessions).result(timeout=10))


@pytest.fixture
def every_type(spark: SparkSession) -> DataFrame:
    """Three rows with a column of each type; in the last one, all but the key are null."""
    columns = [F.expr(sql if name == "k" else f"if(id = 2, null, {sql})").alias(name) for name, sql in EVERY_TYPE.items()]
    return spark.range(3).select(*columns)


@pytest.fixture(scope="module")
def folder_of_files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of Parquet files with ten rows."""
    path = str(tmp_path_factory.mktemp("read") / "files")
    spark.range(10).select("id", (F.col("id") % 3).alias("g")).write.parquet(path)
    return path


@pytest.fixture
def files(spark: SparkSession, folder_of_files: str) -> DataFrame:
    """A frame of the ten rows."""
    return spark.read.schema("id bigint, g bigint").parquet(folder_of_files)


@pytest.mark.parametrize("writer_options", [None, PARQUET_V2], ids=["by default", "as in event logs"])
def test_arrow_and_spark_write_the_same_rows(
    spark: SparkSession, every_type: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer_options: dict[str, str] | None
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    lake.append(every_type, "by_arrow", {"m": 1}, pruned_by=["k", "time", "text"])
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", -1)
    lake.append(every_type, "by_spark", {"m": 1}, pruned_by=["k", "time", "text"], writer_options=writer_options)
    monkeypatch.undo()
    arrow, by_spark = (lake.delta(name) for name in ("by_arrow", "by_spark"))
    assert arrow is not None
    assert by_spark is not None
    assert arrow.schema().to_json() == by_spark.schema().to_json()
    assert json_rows(lake.read(spark, "by_arrow")) == json_rows(lake.read(spark, "by_spark")) == json_rows(every_type)
    assert lake.extent("by_arrow", ["k"], {}) == lake.extent("by_spark", ["k"], {}) == {"k": (0, 2)}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_arrow_creates_the_folder_of_a_new_table(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    lake = Lake(f"{scheme}{tmp_path}/a lake")
    assert lake.append(spark.range(3), "t", {"m": 1}) == 3
    assert count(lake.read(spark, "t")) == 3


def test_a_query_over_small_files_is_one_job(spark: SparkSession, files: DataFrame) -> None:
    joined = files.join(files.groupBy("g").agg(F.max("id").alias("most")), "g").groupBy("most").count()
    assert small_queries.is_small(joined)
    with jobs_of(spark) as jobs:
        rows = collect(joined)
    assert len(jobs) == 1
    assert sorted(tuple(row) for row in rows) == [(7, 3), (8, 3), (9, 4)]
    assert count(files) == 10


def test_jobs_of_small_queries_have_a_name_in_each_thread(spark: SparkSession, files: DataFrame) -> None:
    """Without it, Spark names a job by its own caller, for which it walks the stack. PySpark's own `collect` removes the name."""
    assert len(files.collect()) == 10

    def job() -> int:
        with jobs_of(spark) as jobs:
            assert count(files) == 10
        [number] = jobs
        return number

    with ThreadPoolExecutor(1) as pool:
        numbers = [job(), pool.submit(inheritable_thread_target(spark)(job)).result()]
    context: Any = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    assert [context.statusStore().job(number).name() for number in numbers] == ["tidemark"] * 2


def test_tables_and_rows_in_memory_are_joined_without_a_shuffle(files: DataFrame) -> None:
    groups = materialize(files.groupBy("g").agg(F.max("id").alias("most")))
    of_odd = files.join(groups.where("most > 7"), "g", "left_semi")
    ranked = of_odd.join(groups, "g").select("*", F.row_number().over(Window.partitionBy("g").orderBy("id")).alias("rank"))
    for frame in (ranked, groups.join(materialize(files), "g")):
        plan = plan_if_small(frame)
        executed: Any = plan._jdf.queryExecution().executedPlan()
        assert "Exchange" not in executed.toString()
        assert sorted(map(str, plan.collect())) == sorted(map(str, frame.collect()))


def test_rules_that_a_user_excludes_stay_excluded(spark: SparkSession) -> None:
    session, rule = spark.newSession(), "org.apache.spark.sql.catalyst.optimizer.ReorderJoin"
    session.conf.set("spark.sql.optimizer.excludedRules", rule)
    excluded = str(small_session(session).conf.get("spark.sql.optimizer.excludedRules")).split(",")
    assert excluded[0] == rule
    assert len(excluded) == len({*excluded}) == 26
    assert session.conf.get("spark.sql.optimizer.excludedRules") == rule


def test_each_excluded_rule_exists_and_may_be_excluded(spark: SparkSession) -> None:
    session: Any = spark
    loader = session._jvm.Thread.currentThread().getContextClassLoader()
    optimizer = session._jsparkSession.sessionState().optimizer()
    required = {optimizer.nonExcludableRules().apply(n) for n in range(optimizer.nonExcludableRules().size())}
    for rule in str(small_session(spark).conf.get("spark.sql.optimizer.excludedRules")).split(","):
        assert any(_has_class(loader, name) for name in (rule, f"{rule}$")), f"{rule} has another name in this version"
        assert rule not in required


def _has_class(loader: Any, name: str) -> bool:
    try:
        return loader.loadClass(name) is not None
    except Py4JJavaError:
        return False


def test_a_join_with_a_table_without_rows_reads_no_file(files: DataFrame) -> None:
    empty = no_rows(files.sparkSession, files.schema)
    plan = plan_if_small(files.join(empty, "id"))
    executed: Any = cast(Any, plan)._jdf.queryExecution().executedPlan()
    assert "FileScan" not in executed.toString()
    assert plan.collect() == []


def test_a_query_over_larger_files_stays_in_its_own_session(files: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", 10)
    assert plan_if_small(files) is files
    assert fetch_arrow(files) is None
    assert count(files) == 10
    assert materialize_and_count(files)[1] == 10


def test_compressed_text_counts_more_than_its_size(spark: SparkSession, tmp_path: Path) -> None:
    for suffix, is_small in ((".json", True), (".json.gz", False)):
        path = tmp_path / f"f{suffix}"
        path.write_bytes(b"\n" * (small_queries.SMALL_INPUT_BYTES // 10))
        assert small_queries.is_small(spark.read.text(str(path))) == is_small


def test_rows_in_memory_are_not_fetched_again(spark: SparkSession, files: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, found = materialize_and_count(files.where("g = 0")), fetch_arrow(files.where("g = 0"))
    assert found is not None
    with jobs_of(spark) as jobs:
        again = fetch_arrow(rows[0])
    assert again is not None
    assert (again.to_pylist(), again.schema, jobs) == (found.to_pylist(), found.schema, [])
    changed = fetch_arrow(rows[0].where("id > 3"))
    assert changed is not None
    assert sorted(changed["id"].to_pylist()) == [6, 9], "a frame of other rows is queried"
    monkeypatch.setattr(small_queries, "MOST_FETCHED_ROWS", 4)
    assert fetch_arrow(rows[0]) is None


def test_rows_whose_size_is_unknown_are_not_small(files: DataFrame) -> None:
    assert not small_queries.is_small(files.localCheckpoint())


def test_more_rows_than_can_be_fetched_are_left_to_spark(files: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    many = files.crossJoin(files.select("id").toDF("other"))
    monkeypatch.setattr(small_queries, "MOST_FETCHED_ROWS", 50)
    assert fetch_arrow(many) is None
    assert materialize(many).count() == 100
    monkeypatch.setattr(small_queries, "MOST_FETCHED_ROWS", 101)
    found = fetch_arrow(many)
    assert found is not None
    assert found.num_rows == 100


@pytest.mark.parametrize(
    ("text", "is_raised"), [("bigger than spark.driver.maxResultSize (1024.0 MiB)", False), ("division by zero", True)]
)
def test_too_many_bytes_are_left_to_spark_and_other_errors_raised(
    files: DataFrame, monkeypatch: pytest.MonkeyPatch, text: str, is_raised: bool
) -> None:
    def failing(*_: object) -> DataFrame:
        raise PySparkException(text)

    monkeypatch.setattr(small_queries, "arrow_rows", failing)
    if is_raised:
        with pytest.raises(PySparkException, match=text):
            fetch_arrow(files)
    else:
        assert fetch_arrow(files) is None


def test_a_small_session_is_made_once_and_is_its_own(spark: SparkSession) -> None:
    copy = small_session(spark)
    assert copy is not spark
    assert small_session(spark) is copy
    assert small_session(copy) is copy
    assert copy.conf.get("spark.sql.session.timeZone") == "UTC"


def test_kept_rows_are_those_of_the_frame(every_type: DataFrame) -> None:
    assert materialize(every_type).schema.simpleString() == every_type.schema.simpleString()
    assert json_rows(materialize(every_type)) == json_rows(every_type)
    nothing = every_type.where("k < 0")
    assert materialize(nothing).schema.simpleString() == every_type.schema.simpleString()
    assert materialize_and_count(nothing)[1] == 0


def test_rows_are_materialized_and_measured_in_one_job(spark: SparkSession, every_type: DataFrame, files: DataFrame) -> None:
    measures = [F.count("*").alias("n"), F.max("text").alias("text"), F.max("day").alias("day"), F.stddev_pop("k").alias("deviation")]
    assert materialize_and_measure(every_type.where("k > 5"), measures[:2]) is not None
    found = materialize_and_measure(every_type, measures)
    assert found is not None
    assert json_rows(found[0]) == json_rows(every_type)
    [wanted] = every_type.agg(*measures).collect()
    assert found[1] == {**wanted.asDict(), "day": str(wanted["day"])}
    with jobs_of(spark) as jobs:
        materialize_and_measure(files, [F.sum("id").alias("ids")])
    assert len(jobs) == 1


def test_rows_that_are_many_or_of_types_that_arrow_writes_otherwise_are_not_kept(
    spark: SparkSession, files: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures = [F.count("*").alias("n")]
    assert materialize_and_measure(spark.range(1).select(F.expr("parse_json('{}') AS v")), measures) is None
    size = plan_inputs.text_bytes(analyzed_plan(files))
    assert size is not None
    monkeypatch.setattr(small_queries, "MATERIALIZED_INPUT_BYTES", size)
    assert materialize_and_measure(files, measures) is not None
    monkeypatch.setattr(small_queries, "MATERIALIZED_INPUT_BYTES", size - 1)
    assert materialize_and_measure(files, measures) is None
    monkeypatch.setattr(small_queries, "MATERIALIZED_INPUT_BYTES", size)
    monkeypatch.setattr(small_queries, "MOST_FETCHED_ROWS", 2)
    assert materialize_and_measure(files, measures) is None


def test_kept_text_is_compared_by_its_collation(spark: SparkSession) -> None:
    frame = spark.range(1).select(F.expr("'A' COLLATE UTF8_LCASE AS s"))
    assert materialize(frame).schema["s"].dataType == frame.schema["s"].dataType
    assert materialize(frame).where("s = 'a'").count() == 1


def test_types_that_arrow_writes_otherwise_are_left_to_spark(spark: SparkSession) -> None:
    plain = spark.range(1).select(F.expr("named_struct('a', array(map('b', 1)))"))
    variant = spark.range(1).select(F.expr("array(parse_json('{}'))"))
    assert is_arrow_type(plain.schema)
    assert not is_arrow_type(variant.schema)


def test_joins_and_aggregations_of_tables_need_no_shuffle(files: DataFrame) -> None:
    joined = files.join(files.groupBy("g").agg(F.max("id").alias("most")), "g").groupBy("most").count()
    deadline = time.monotonic() + 60
    while "Exchange" in (plan := _plan(plan_if_small(joined))) and time.monotonic() < deadline:
        time.sleep(0.1)  # another process of the test run may have cached rows in the same JVM
    assert "Exchange" not in plan
    assert sorted(map(tuple, collect(joined))) == sorted(map(tuple, joined.collect()))


@pytest.mark.parametrize("distance", [2, pytest.param(7, marks=pytest.mark.soak)])
def test_the_rows_of_small_queries_are_those_of_the_session(files: DataFrame, distance: int) -> None:
    """Tables are read as one partition, and a union of them is one or several; the rows are the same in every combination.

    In `make test`, each kind of rows is combined with the kinds that are up to two places before or after it.
    """
    empty = files.where("id < 0")
    by_group = Window.partitionBy("g").orderBy("id")
    parts = {
        "files": files,
        "union": files.union(files),
        "union_with_none": empty.union(files).union(empty),
        "joined": files.alias("a").join(files.alias("b"), "g").select("a.id", "g"),
        "left": files.join(empty.select("g", F.lit(1).alias("one")), "g", "left").select("id", "g"),
        "few": files.groupBy("g").agg(F.sum("id").alias("id")).select("id", "g"),
        "numbered": files.select(F.row_number().over(by_group).cast("long").alias("id"), "g"),
        "memory": frame_of(files.sparkSession, [(1, 1), (2, None)], "id long, g long"),
    }
    found = dict[str, DataFrame]()
    for (m, (one, left)), (n, (other, right)) in combinations(enumerate(parts.items()), 2):
        if n - m > distance:
            continue
        both = left.union(right).groupBy("g").agg(F.count("*").alias("n"), F.sum("id").alias("id"))
        found[f"{one} with {other}"] = left.join(both.withColumnRenamed("id", "total"), "g", "full").select("id", "g", "n", "total")
    every = reduce(DataFrame.unionByName, (rows.withColumn("case_id", F.lit(name)) for name, rows in found.items()))
    expected = _rows(every)
    assert len(expected) >= len(found)
    small = plan_if_small(every)
    assert small is not every
    assert _rows(small) == expected


def test_an_aggregate_of_a_union_has_each_group_once(files: DataFrame) -> None:
    """In a query that reuses a shuffle of the union's inputs; also while rows are cached, so that tables are not read as one partition."""
    pairs = files.alias("a").join(files.alias("b"), "g").select("a.id", "g")
    sums = files.groupBy("g").agg(F.sum("id").alias("id")).select("id", "g")
    totals = pairs.union(sums).groupBy("g").agg(F.count("*").alias("n"))
    both = pairs.select(F.lit("pair").alias("kind"), "g", "id").union(totals.select(F.lit("total"), "g", "n"))
    joined = pairs.join(totals, "g", "full").select("id", "g", "n")
    cached = files.sparkSession.range(1).persist()
    try:
        for frame in (both, joined):
            small = plan_if_small(frame)
            assert small is not frame
            assert _rows(small) == _rows(frame) != []
        groups = [row.g for row in both.collect() if row.kind == "total"]
        assert len(groups) == len({*groups}) > 1
    finally:
        cached.unpersist()


def _plan(frame: DataFrame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def _rows(frame: DataFrame) -> list[str]:
    return sorted(str(tuple(row)) for row in frame.collect())


def test_the_size_of_records_is_estimated_by_those_that_were_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_inputs, "_RECORD_BYTES", {})
    ends = "start=SpecificOffsetRangeLimit(Map(a-b-0 -> 5, c-1 -> 0)), end=SpecificOffsetRangeLimit(Map(a-b-0 -> 15, c-1 -> 2)))"
    relation = f"KafkaRelation(strategy=Assign[a-b-0, c-1], {ends}"
    large = plan_inputs.LARGE_RECORD_BYTES
    assert plan_inputs._topic_bytes(relation) == 12 * large
    plan_inputs.record_sizes(["a-b"], 100)
    assert plan_inputs._topic_bytes(relation) == 10 * 100 + 2 * large
    assert plan_inputs._topic_bytes("KafkaRelation(strategy=Subscribe[a], start=Earliest, end=Latest)") is None
