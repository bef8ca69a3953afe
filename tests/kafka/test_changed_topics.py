"""Topics that are deleted, created again, or lose records, with a real broker."""

from collections.abc import Sequence

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest import ingest
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.topic_ranges import TopicRanges
from tests.support.kafka import Kafka
from tests.support.small_sources import land, source
from tests.support.topics import LEFT, RIGHT, TopicEngines, accepted, lines, new_topic, send


class Ended(Exception):
    """The end of a stream."""


def end() -> None:
    raise Ended("quiet")


def test_a_topic_that_is_created_again_between_the_look_and_the_read_is_not_read_as_the_old_one(
    engines: TopicEngines, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
):
    topic, other = new_topic(kafka, 1), new_topic(kafka, 1)
    send(kafka, topic, lines(LEFT[:5]))
    send(kafka, other, lines(RIGHT[:3]))
    of = {"l": {"options": {"subscribe": topic}}, "r": {"options": {"subscribe": other}}}
    look, created = TopicRanges.new, list[str]()

    def look_and_create_again(self: TopicRanges, spark: SparkSession) -> list[File]:
        found = look(self, spark)
        if any(topic in file.path for file in found) and len(created) < 2:
            created.append(topic)
            kafka.delete(topic)
            kafka.create(topic, 1)
            send(kafka, topic, lines(LEFT[5:20]))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TopicRanges, "new", look_and_create_again)
        with pytest.raises(
            UnreadError, match=r"source 'l': 1 range .*: kafka:.*@.* \(the topic was deleted and created again, and has the id"
        ):
            engines.make([source("l"), source("r")], **of).ingest()
    engine = engines.make([source("l"), source("r")], **of)
    assert accepted(engine, "r") == [0, 1, 2], "the other source goes on"
    assert "l" not in engine.ledger.newest_rows()
    with monkeypatch.context() as patch:
        patch.setattr(TopicRanges, "new", look_and_create_again)
        with pytest.raises(Ended, match="quiet"):
            engine.ingest("100 milliseconds", on_quiet=end)
    assert engine.failures.of_source("l") is None, "the failure of the deleted topic's range is over"
    assert accepted(engine) == [*range(5, 20)], "nothing was read of the old topic, so the new topic is read from its beginning"


def test_records_that_retention_deleted_are_refused_or_skipped(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 1)
    send(kafka, topic, lines(LEFT[:5]))
    engines.make([source("l")], l={"options": {"subscribe": topic}}).ingest()
    send(kafka, topic, lines(LEFT[5:12]))
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for done in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
        done.result()
    with pytest.raises(UnreadError, match=r"starts at offset 8, and offset 5 is the next to be read: Kafka has deleted 3 records"):
        engines.make([source("l")], l={"options": {"subscribe": topic}}).ingest()
    engine = engines.make([source("l")], l={"options": {"subscribe": topic, "failOnDataLoss": "false"}})
    engine.ingest()
    assert accepted(engine) == [0, 1, 2, 3, 4, 8, 9, 10, 11]


def test_a_topic_that_is_created_again_fails_until_it_is_accepted_and_the_other_sources_go_on(engines: TopicEngines, kafka: Kafka):
    topic, other = new_topic(kafka, 1), new_topic(kafka, 1)
    of = {"l": {"options": {"subscribe": topic}}, "r": {"options": {"subscribe": other}}}
    send(kafka, topic, lines(LEFT[:5]))
    engines.make([source("l"), source("r")], **of).ingest()
    kafka.delete(topic)
    kafka.create(topic, 2)
    send(kafka, topic, lines(LEFT[5:20]))
    send(kafka, other, lines(RIGHT[:3]))
    engine = engines.make([source("l"), source("r")], **of)
    with pytest.raises(
        UnreadError, match=rf"the topic {topic} has the id .* deleted and created again.* All other input was ingested$"
    ) as raised:
        engine.ingest()
    assert [s.accepted for batch in raised.value.batches for s in batch if s.source == "r"] == [3]
    assert accepted(engine, "r") == [0, 1, 2]

    send(kafka, other, lines(RIGHT[3:4]))
    land(engine, "l", "file.jsonl", [LEFT[50].line])
    stream = engines.make([source("l"), source("r")], **of)
    with pytest.raises(Ended, match="quiet"):
        stream.ingest("100 milliseconds", on_quiet=end)
    assert (accepted(stream, "r"), accepted(stream)) == ([0, 1, 2, 3], [0, 1, 2, 3, 4, 50])
    failed = engine.snapshot().failures.of_source("l")
    assert failed is not None
    assert f"the topic {topic} has the id" in failed.message
    assert engine.failures.of_source("r") is None
    new_id = failed.message.split(" has the id ")[1].split(",")[0]
    again = engines.make([source("l"), source("r")], **of | {"l": {**of["l"], "accepted": (new_id,)}})
    again.ingest()
    assert engine.failures.of_source("l") is None
    assert accepted(again) == [*range(20), 50]
    engines.make([source("l"), source("r")], **of).ingest()  # the ledger knows the new topic


def test_a_partition_that_the_first_batch_could_not_read_keeps_its_chosen_start(
    engines: TopicEngines, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
):
    topic = new_topic(kafka, 2)
    of = {"l": {"options": {"subscribe": topic, "startingOffsets": "latest"}}}
    send(kafka, topic, lines(LEFT[:20]), partition=lambda n: n % 2)

    def of_one_partition(_: SparkSession, files: Sequence[File]) -> list[Unread]:
        return [Unread(file, "the leader has moved") for file in files if f"{topic}/1@" in file.path]

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "changed_ranges", of_one_partition)
        with pytest.raises(UnreadError, match=r"1 range .*the leader has moved"):
            engines.make([source("l")], **of).ingest()
    send(kafka, topic, lines(LEFT[20:24]), partition=lambda n: n % 2)
    next_process = engines.make([source("l")], **of)
    next_process.ingest()
    assert accepted(next_process) == [20, 21, 22, 23]
