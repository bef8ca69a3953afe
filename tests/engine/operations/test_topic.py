"""The topic of a sink, with a real broker, and Kafka's clients in the session's JVM; nothing else of the session is used."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_defs.engine import faults
from platform_defs.engine.operations import publish_to_topic
from platform_defs.engine.operations.sink import Sink, SinkError
from platform_defs.engine.operations.topic import SINCE, STEP, STEP_ID, TABLE, Topic, WrittenStep
from platform_defs.engine.operations.topic_changes import Write
from tests.support.kafka import Kafka, Record


@pytest.fixture(scope="module")
def jvm(spark: SparkSession) -> Any:
    """An object in place of a session, of which only the JVM is used."""
    return SimpleNamespace(_jvm=spark._jvm)


def _headers(step: int, since: int, table: str = "t#1") -> dict[str, bytes]:
    return {TABLE: table.encode(), STEP: b"%d" % step, SINCE: b"%d" % since, STEP_ID: b"i%d" % step}


def _sink(kafka: Kafka, topic: str, **more: Any) -> Sink:
    return Sink(topic=topic, options={"kafka.bootstrap.servers": kafka.address}, **more)


def _newest(jvm: Any, sink: Sink) -> WrittenStep | None:
    with Topic(jvm, sink, sink.topic, compacted=True) as topic:
        return topic.newest()


def test_the_newest_step_is_that_of_the_newest_records_until_it_is_committed(jvm: Any, kafka: Kafka):
    sink = _sink(kafka, kafka.create("newest", 12))
    assert _newest(jvm, sink) is None
    kafka.produce("newest", [Record(b"a", b"1", 7, headers=_headers(1, 0)), Record(b"b", None, 2, headers=_headers(3, 1))])
    assert _newest(jvm, sink) == WrittenStep("t#1", 3, "i3", 1, complete=False)
    with Topic(jvm, sink, "newest", compacted=True) as topic:
        topic.commit("t#1", 3, "i3")
        assert topic.records() == 2
    assert _newest(jvm, sink) == WrittenStep("t#1", 3, "i3", 3, complete=True)
    kafka.produce("newest", [Record(b"a", b"2", 11, headers=_headers(4, 3))])
    assert _newest(jvm, sink) == WrittenStep("t#1", 4, "i4", 3, complete=False)
    kafka.forget_group("tidemark.newest")
    assert _newest(jvm, sink) == WrittenStep("t#1", 4, "i4", 3, complete=False)


def test_records_of_another_table_hide_no_commit_of_the_first(jvm: Any, kafka: Kafka):
    sink = _sink(kafka, kafka.create("other", 1))
    with Topic(jvm, sink, "other", compacted=True) as topic:
        topic.commit("t#1", 9, "i9")
    kafka.produce("other", [Record(b"a", b"1", headers=_headers(2, 0, "u#1"))])
    assert _newest(jvm, sink) == WrittenStep("u#1", 2, "i2", 0, complete=False)


def test_a_commit_of_a_deleted_topic_is_not_that_of_a_new_one(jvm: Any, kafka: Kafka):
    sink = _sink(kafka, kafka.create("deleted", 2))
    with Topic(jvm, sink, "deleted", compacted=True) as topic:
        topic.commit("t#1", 5, "i5")
    kafka.delete("deleted")
    with pytest.raises(SinkError, match=r"there is no topic 'deleted'; legal: an existing topic\. Create it"):
        _newest(jvm, sink)
    kafka.create("deleted", 2)
    assert _newest(jvm, sink) is None


def test_a_record_of_another_program_is_refused(jvm: Any, kafka: Kafka):
    sink = _sink(kafka, kafka.create("foreign", 2))
    kafka.produce("foreign", [Record(b"k", b"v", 1)])
    with pytest.raises(SinkError, match=r"in partition 1 of the topic 'foreign' has no header 'tidemark\.step', so another program"):
        _newest(jvm, sink)


def test_a_partition_whose_records_are_deleted_has_no_newest_record(jvm: Any, kafka: Kafka):
    sink = _sink(kafka, kafka.create("emptied", 2))
    kafka.produce("emptied", [Record(b"a", b"1", 0, headers=_headers(1, 0)), Record(b"b", b"1", 1, headers=_headers(2, 1))])
    kafka.delete_records("emptied", 1, before=1)
    assert _newest(jvm, sink) == WrittenStep("t#1", 1, "i1", 0, complete=False)


@pytest.mark.parametrize(("compacted", "policy"), [(True, "compact"), (False, "delete")])
def test_a_missing_topic_is_created_if_the_sink_has_partitions(jvm: Any, kafka: Kafka, compacted: bool, policy: str):
    sink = _sink(kafka, f"made-{policy}", partitions=3)
    with Topic(jvm, sink, "made", compacted=compacted) as topic:
        assert topic.newest() is None
    assert len(kafka.offsets(sink.topic)) == 3
    assert kafka.configuration(sink.topic)["cleanup.policy"] == policy
    with Topic(jvm, replace(sink, partitions=8), "made", compacted=compacted) as topic:
        assert topic.records() == 0
    assert len(kafka.offsets(sink.topic)) == 3


def test_a_broker_that_cannot_be_reached_is_an_error_with_the_topic(jvm: Any, kafka: Kafka):
    away = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.default.api.timeout.ms": "500", "kafka.request.timeout.ms": "400"}
    with pytest.raises(SinkError, match=r"the topic 'x' cannot be used: .*Check the options `kafka\.\*` of the connections"):
        Topic(jvm, Sink(topic="x", options=away), "x", compacted=True)


class Killed(Exception):
    """A kill at a point."""


RECORDS = {1: 2, 2: 1, 4: 2}
"""The records of each step; the steps 3 and 5 have no changes."""


def _writes(_: Any, __: Any, ___: Any, done: int, _____: int, ____: int | None) -> Iterator[Write]:
    for step in RECORDS:
        if step > done:
            yield Write(done, step, SimpleNamespace())  # pyright: ignore[reportArgumentType]
            done = step


@pytest.mark.parametrize("at", ["kafka.before_write", "between records", "kafka.after_write", "kafka.after_commit"])
def test_a_killed_publish_goes_on_with_the_step_that_is_not_committed(jvm: Any, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, at: str):
    """Run n is killed when it passes the point for the nth time. The next run writes all records of the interrupted step again."""
    name = kafka.create(f"resumed-{at.replace(' ', '-').replace('_', '-')}", 3)
    sink, lake = _sink(kafka, name), SimpleNamespace(writer=lambda _: nullcontext())
    workspace = SimpleNamespace(lake=lake, spark=jvm, take_snapshot=lambda _: workspace)
    asset = SimpleNamespace(name=name, operator=SimpleNamespace(emits=SimpleNamespace(upserts=True)))

    def write(_: Sink, write: Write, table: str, identity: str) -> None:
        faults.point("kafka.before_write")
        headers = _headers(write.step, write.since, table) | {STEP_ID: identity.encode()}
        for n in range(RECORDS[write.step]):
            kafka.produce(name, [Record(b"k%d" % n, b"%d" % write.step, headers=headers)])
            faults.point("between records")
        faults.point("kafka.after_write")

    stands_for = {"writes": _writes, "_write": write, "table_identity": lambda *_: "t", "step_id": lambda _, __, step: f"i{step}"}
    for function, value in {**stands_for, "progress": lambda *_: SimpleNamespace(step=5)}.items():
        monkeypatch.setattr(publish_to_topic, function, value)
    for which in range(1, 5):
        faults.install(_killer(at, which))
        with suppress(Killed):
            publish_to_topic.publish_to_topic(workspace, asset, sink)  # pyright: ignore[reportArgumentType]
    faults.install(None)
    done = publish_to_topic.publish_to_topic(workspace, asset, sink)  # pyright: ignore[reportArgumentType]
    assert (done.step, done.steps, done.records) == (5, 0, 0)
    with Topic(jvm, sink, name, compacted=True) as topic:
        newest = topic.newest()
        assert topic._reader is None, "no record is read if none is newer than the commit"
        assert newest is not None
        assert newest.step == 5
    records = kafka.read(name)
    assert len({(r.key, r.headers[STEP], r.headers[SINCE], r.value) for r in records}) == sum(RECORDS.values())
    assert (len(records) > sum(RECORDS.values())) == (at in ("between records", "kafka.after_write"))
    assert {r.key: r.value for r in records} == {b"k0": b"4", b"k1": b"4"}


def _killer(at: str, which: int) -> Callable[[str], None]:
    seen = list[str]()

    def handler(name: str) -> None:
        seen.append(name)
        if name == at and seen.count(at) == which:
            raise Killed

    return handler
