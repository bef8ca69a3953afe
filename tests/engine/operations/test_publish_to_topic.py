"""Publishing to Kafka, with a real broker: a compacted topic read back equals the table, whatever is killed."""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from operators import Aggregate, TopN, Tumbling, WindowedAggregate
from operators.changelog import OWN_CHANGE
from platform_defs.engine import Engine, faults
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.operations import topic_changes
from platform_defs.engine.operations.sink import Sink, SinkError
from platform_defs.engine.operations.topic import CHANGE, COPY, STEP, TABLE
from tests.conftest import CopyEngine, MakeEngine, engine_maker
from tests.support.clock import Clock
from tests.support.kafka import COMPACT_SOON, Kafka, Record
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, Event, join, replay, source

KAFKA_POINTS = [name for name in faults.POINTS if name.startswith("kafka.")]
TOP = DerivedAsset(name="top", inputs=("l",), operator=TopN(order_by="v DESC", by="k", rank_end=1))
SUMS = DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))
COUNTS = DerivedAsset(
    name="counts",
    inputs=("l",),
    operator=WindowedAggregate(window=Tumbling(size="1 minute"), by="k", aggregates={"n": "count(*)"}, allowed_lateness="1 hour"),
)


def _engine(make_engine: MakeEngine, *assets: DerivedAsset) -> Engine:
    return make_engine([source("l"), source("r")], assets)


def _with_sink(engine: Engine, asset: str, kafka: Kafka, topic: str, **more: Any) -> Engine:
    sink = Sink(topic=topic, options={"kafka.bootstrap.servers": kafka.address}, **more)
    return replace(engine, sinks={asset: sink})


def _steps(engine: Engine, asset: str, batches: Iterable[Iterable[Event]]) -> None:
    for batch in batches:
        replay(engine, [{"l": [*batch]}])
        engine.advance(asset)


def _newest(records: Iterable[Record]) -> dict[str, Any]:
    """The rows of a reader that keeps the newest version of each key."""
    found = dict[bytes | None, tuple[int, bytes | None]]()
    for record in records:
        step = int(record.headers[STEP] or b"")
        if step >= found.get(record.key, (0, None))[0]:
            found[record.key] = (step, record.value)
    return {json.loads(key or b"")["k"]: json.loads(value) for key, (_, value) in found.items() if value is not None}


def _table(engine: Engine, asset: str) -> dict[str, Any]:
    return {row["k"]: json.loads(row["json"]) for row in engine.views.table(asset).selectExpr("k", "to_json(struct(*)) json").collect()}


def _same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether both have the same rows. Spark's own JSON has times in another format, so only the other columns are compared."""
    return {k: (v["k"], v["v"]) for k, v in found.items()} == {k: (v["k"], v["v"]) for k, v in wanted.items()}


FIRST = ([Event("a", 1, 1), Event("b", 1, 2)], [Event("a", 2, 3)], [Event("c", 5, 4), Event("b", 7, 5)])


@pytest.fixture(scope="module")
def three_steps(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A leaderboard of three steps, which have five changes."""
    engine = _engine(engine_maker(spark, tmp_path_factory.mktemp("three_steps"), Clock()), TOP, SUMS)
    _steps(engine, "top", FIRST)
    engine.advance("sums")
    return engine


@pytest.fixture
def engine(three_steps: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake with the leaderboard."""
    return copy_engine(three_steps)


@pytest.fixture(scope="module")
def one_window(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Counts of windows after two steps, of which the second closes a window."""
    engine = _engine(engine_maker(spark, tmp_path_factory.mktemp("one_window"), Clock()), COUNTS)
    _steps(engine, "counts", [[Event("a", 1, 1)], [Event("a", 1, 3 * MINUTE)]])
    return engine


@pytest.fixture
def counts(one_window: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake with the counts."""
    return copy_engine(one_window)


@pytest.fixture(scope="module")
def closed_pairs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A full join with its results."""
    engine, ends = _engine(engine_maker(spark, tmp_path_factory.mktemp("closed_pairs"), Clock()), join()), [Event("z", 1, 90 * MINUTE)]
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 2, 0)], "r": [Event("a", 2, 1)]}, {"l": ends, "r": ends}])
    engine.advance("pairs")
    return engine


def test_each_step_is_published_once_and_only_new_steps_later(engine: Engine, tmp_path: Path, kafka: Kafka):
    topic = kafka.create("top-once", 3)
    engine = _with_sink(engine, "top", kafka, topic)
    assert replace(engine, lake=Lake(str(tmp_path / "empty"))).views.publish_to_topic("top").step == 0, "there is no table yet"
    bounded = engine.views.publish_to_topic("top", 2)
    assert (bounded.step, bounded.steps, bounded.records) == (2, 2, 3), "a stream has not checked step 3 yet"
    done = engine.views.publish_to_topic("top")
    assert (done.step, done.steps, done.records) == (3, 1, 2)
    behind = engine.views.publish_to_topic("top", 1)
    assert (behind.step, behind.steps) == (3, 0), "another process has published further"
    again = engine.views.publish_to_topic("top")
    assert (again.step, again.steps, again.records) == (3, 0, 0)
    assert _same(_newest(kafka.read(topic)), _table(engine, "top"))
    _steps(engine, "top", [[Event("a", 9, 6)]])
    later = engine.views.publish_to_topic("top")
    assert (later.step, later.steps, later.records) == (4, 1, 1)
    keys = [(r.key, r.headers[STEP]) for r in kafka.read(topic)]
    assert len(keys) == len({*keys}) == 6


KILLS = [
    ("kafka.before_write", 1, 0),
    ("kafka.after_write", 1, 2),
    ("kafka.after_commit", 2, 5),
]
"""For each of several publishes in turn: the point at which it is killed, the pass of the point, and the number of records that the topic
then has. Only a step that was written and not committed is written again. `test_topic.py` kills a publish in each step."""


def test_a_kill_repeats_at_most_records_with_the_same_key_step_and_value(engine: Engine, kafka: Kafka):
    assert {at for at, _, _ in KILLS} == {*KAFKA_POINTS}
    topic = kafka.create("killed", 3)
    engine = _with_sink(engine, "top", kafka, topic)
    for at, nth, written in KILLS:
        run_and_die(lambda: engine.views.publish_to_topic("top"), at, nth)
        assert len(kafka.read(topic)) == written, (at, nth)
    done = engine.views.publish_to_topic("top")
    assert (done.step, done.records) == (3, 2)
    records = kafka.read(topic)
    assert len(records) == 7
    distinct = {(r.key, r.headers[STEP], r.value) for r in records}
    assert len({(key, step) for key, step, _ in distinct}) == len(distinct) == 5
    assert _same(_newest(records), _table(engine, "top"))


def test_a_compacted_topic_read_back_equals_the_table(engine: Engine, kafka: Kafka):
    """Of the three keys, `a` and `b` have versions of two steps, and the kill repeats the step of `a`."""
    topic = kafka.create("compacted", 2, COMPACT_SOON)
    engine = _with_sink(engine, "top", kafka, topic)
    run_and_die(lambda: engine.views.publish_to_topic("top"), "kafka.after_write", 2)
    published = engine.views.publish_to_topic("top")
    assert published.records == 3
    kafka.produce_each(topic, STEP, TABLE)
    left, deadline = _rows(kafka, topic), time.monotonic() + 30
    while len(left) > 3 and time.monotonic() < deadline:
        time.sleep(0.2)
        left = _rows(kafka, topic)
    assert len(left) == 3
    assert _same({json.loads(r.key or b"")["k"]: json.loads(r.value or b"") for r in left if r.value}, _table(engine, "top"))


def _rows(kafka: Kafka, topic: str) -> list[Record]:
    """The records that a sink has written."""
    return [r for r in kafka.read(topic) if r.key and r.key.startswith(b"{")]


def test_without_its_commit_the_newest_step_is_written_again(engine: Engine, kafka: Kafka):
    topic = kafka.create("no-commit", 2)
    engine = _with_sink(engine, "top", kafka, topic)
    engine.views.publish_to_topic("top")
    kafka.forget_group("tidemark.top")
    done = engine.views.publish_to_topic("top")
    assert (done.step, done.steps, done.records) == (3, 1, 2)


def test_a_topic_that_is_deleted_and_created_again_gets_all_steps(engine: Engine, kafka: Kafka):
    topic = kafka.create("created-again", 2)
    engine = _with_sink(engine, "top", kafka, topic)
    engine.views.publish_to_topic("top")
    kafka.delete(topic)
    with pytest.raises(SinkError, match="there is no topic 'created-again'"):
        engine.views.publish_to_topic("top")
    kafka.create(topic, 4)
    assert engine.views.publish_to_topic("top").records == 5


def test_a_topic_of_another_table_is_refused(engine: Engine, kafka: Kafka):
    topic = kafka.create("taken", 1)
    _with_sink(engine, "top", kafka, topic).views.publish_to_topic("top")
    with pytest.raises(SinkError, match=r"'taken' has the steps of a table with the id .*, and the id of sums is .* to a new topic"):
        _with_sink(engine, "sums", kafka, topic).views.publish_to_topic("sums")


def test_one_process_at_a_time_publishes(engine: Engine, make_engine: MakeEngine, kafka: Kafka):
    topic = kafka.create("two-publishers", 1)
    engine, second = (_with_sink(each, "top", kafka, topic) for each in (engine, _engine(make_engine, TOP)))

    def publish_again(point: str) -> None:
        if point == "kafka.before_write":
            faults.install(None)
            with pytest.raises(LakeError, match="kafka-top has a writer already"):
                second.views.publish_to_topic("top")

    faults.install(publish_again)
    assert engine.views.publish_to_topic("top").records == 5


def test_a_missing_topic_is_created_if_the_sink_has_partitions(engine: Engine, kafka: Kafka):
    engine = _with_sink(engine, "top", kafka, "made-by-sink", partitions=3)
    assert engine.views.publish_to_topic("top").records == 5
    assert len(kafka.offsets("made-by-sink")) == 3
    assert kafka.configuration("made-by-sink")["cleanup.policy"] == "compact"


def _age(engine: Engine, asset: str) -> None:
    """Make the commits of a table ten days old."""
    old = time.time() - 10 * 86_400
    for commit in Path(engine.lake.path(asset), "_delta_log").glob("*.json"):
        os.utime(commit, (old, old))


def test_closed_results_are_records_and_a_correction_of_an_old_step_names_its_kind(counts: Engine, kafka: Kafka):
    """A correction is published as long as the files of the corrected step exist."""
    engine = _with_sink(counts, "counts", kafka, kafka.create("counts", 1), key=("k",))
    done = engine.views.publish_to_topic("counts")
    _age(engine, "counts")
    _steps(engine, "counts", [[Event("a", 2, 2)], [Event("b", 1, 5 * MINUTE)]])
    assert engine.views.publish_to_topic("counts", done.step).records == 0
    engine.views.publish_to_topic("counts")
    found = [(r.key, (r.headers[CHANGE] or b"").decode(), json.loads(r.value or b"")["n"]) for r in kafka.read("counts")]
    assert found == [(b'{"k":"a"}', "+I", 1), (b'{"k":"a"}', "+U", 2), (b'{"k":"a"}', "+I", 1)]


def test_a_step_whose_files_maintenance_has_deleted_is_refused(counts: Engine, kafka: Kafka):
    engine = _with_sink(counts, "counts", kafka, kafka.create("counts-deleted", 1), key=("k",))
    engine.views.publish_to_topic("counts")
    before = {*engine.lake.delta("counts").file_uris()}  # pyright: ignore[reportOptionalMemberAccess]
    _steps(engine, "counts", [[Event("a", 2, 2)]])
    for file in before - {*engine.lake.delta("counts").file_uris()}:  # pyright: ignore[reportOptionalMemberAccess]
        Path(file.removeprefix("file://")).unlink()
    with pytest.raises(SinkError, match=r"'counts-deleted' lacks step 3 of counts, and maintenance has deleted .* to a new topic"):
        engine.views.publish_to_topic("counts")


def test_a_record_that_cannot_be_written_is_an_error_with_the_topic(engine: Engine, kafka: Kafka):
    options = {"kafka.bootstrap.servers": kafka.address, "kafka.max.request.size": "100"}
    engine = replace(engine, sinks={"top": Sink(topic=kafka.create("too-small"), options=options)})
    with pytest.raises(SinkError, match=r"the topic 'too-small' cannot be used: .*RecordTooLarge.* Check the options"):
        engine.views.publish_to_topic("top")


def test_rows_without_a_key_are_distinct_from_records_that_a_kill_repeats(closed_pairs: Engine, copy_engine: CopyEngine, kafka: Kafka):
    engine = _with_sink(copy_engine(closed_pairs), "pairs", kafka, topic := kafka.create("pairs", 2))
    rows = engine.views.table("pairs").count()
    for at, times in {"kafka.before_write": 0, "kafka.after_write": 1, "kafka.after_commit": 2}.items():
        run_and_die(lambda: engine.views.publish_to_topic("pairs"), at)
        assert len(kafka.read(topic)) == times * rows, at
    assert engine.views.publish_to_topic("pairs").records == 0
    records = kafka.read(topic)
    assert len({(r.value, r.headers[STEP], r.headers[CHANGE], r.headers[COPY]) for r in records}) == rows
    assert {r.key for r in records} == {None}


def test_equal_rows_without_a_key_are_numbered(spark: SparkSession):
    rows = spark.createDataFrame(pa.table({"k": ["a", "a", "a", "b"], OWN_CHANGE: ["+I", "+I", "-D", "+I"]}))
    encoding = topic_changes.Encoding(spark, Sink(topic="t", options={}), "pairs")
    records = topic_changes._records(join(), encoding, rows)
    found = sorted(tuple(r) for r in records.select("change", "value", "copy").collect())
    assert found == [("+I", '{"k":"a"}', 1), ("+I", '{"k":"a"}', 2), ("+I", '{"k":"b"}', 1), ("-D", '{"k":"a"}', 1)]


def test_avro_records_can_be_read_with_the_schema_of_the_table(engine: Engine, kafka: Kafka):
    from pyspark.sql.avro.functions import from_avro

    topic = kafka.create("avro", 1)
    engine = _with_sink(engine, "top", kafka, topic, format="avro")
    engine.views.publish_to_topic("top")
    schema = json.dumps({"type": "record", "name": "topLevelRecord", "fields": [{"name": "k", "type": ["string", "null"]}]})
    rows = engine.spark.createDataFrame(pa.table({"key": [r.key for r in kafka.read(topic)]}))
    assert {row.k for row in rows.select(from_avro("key", schema).alias("x")).select("x.k").collect()} == {"a", "b", "c"}
