"""Looking for new records without Spark agrees with an ingest. With a real broker."""

from uuid import uuid4

from tests.support.kafka import Kafka, Record
from tests.support.small_sources import Event, source
from tests.support.topics import TopicEngines


def test_a_look_finds_records_until_an_ingest_has_read_them(engines: TopicEngines, kafka: Kafka) -> None:
    prefix = f"look-{uuid4().hex[:8]}"
    topics = [kafka.create(f"{prefix}-{n}", 2) for n in range(8)]  # so many that an id has a character that Java writes differently
    engine = engines.make([source("l")], l={"options": {"subscribePattern": f"{prefix}-.*", "kafka.isolation.level": "read_committed"}})
    assert engine.ingestion.new_records().ends == {}, "no topic has a record"
    for number, topic in enumerate(topics):
        kafka.produce(topic, [Record(None, Event("k", number, 0).line.encode(), number % 2)])
    found = engine.ingestion.new_records()
    assert sorted(found.ends.values()) == [1] * 8
    assert found.unlisted == {}
    engine.ingest()
    assert engine.ledger.topic_ends("l") == found.ends, "the paths are those of the ingest"
    assert engine.ingestion.new_records().ends == {}
    kafka.produce(topics[0], [Record(None, Event("k", 9, 0).line.encode(), 0)])
    [(path, end)] = engine.ingestion.new_records().ends.items()
    assert (path.rpartition("@")[0], end) == (f"kafka:{topics[0]}/0", 2)


def test_a_topic_that_does_not_exist_has_no_records(engines: TopicEngines) -> None:
    topic = f"none-{uuid4().hex[:8]}"
    engine = engines.make([source("l")], l={"options": {"subscribe": topic}})
    found = engine.ingestion.new_records()
    assert (found.ends, found.unlisted, found.missing) == ({}, {}, [f"kafka:{topic}"])
