"""Topics of a broker for tests: create and delete them, produce and read records."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benchmarks.live.processes import until
from benchmarks.live.topics import create_topics
from platform_defs.setup.broker import Broker

_WAIT_S = 30
_FETCH_WAIT_MS = 10
"""How long the broker waits for a new record before it reports the end of a partition; by default half a second."""
COMPACT_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "0",
}
"""The options of a topic that is compacted soon: within a second after a later record closes a segment."""


@dataclass(frozen=True)
class Record:
    """A record to produce, or one that was read.

    Args:
        value: None is a tombstone.
        partition: -1 lets the producer choose.
        offset: of a record that was read.
        timestamp: epoch ms; None for the present time.
    """

    key: bytes | None
    value: bytes | None
    partition: int = -1
    offset: int = -1
    timestamp: int | None = None
    headers: Mapping[str, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Kafka:
    """A client of a broker."""

    broker: Broker

    @property
    def address(self) -> str:
        return self.broker.address

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic; returns its name."""
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        create_topics(self._admin, [wanted])
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the broker has done so: until then, a new topic with this name could return its records."""
        self._admin.delete_topics([topic])[topic].result(_WAIT_S)

        def is_deleted() -> bool:
            return topic not in self._admin.list_topics(timeout=_WAIT_S).topics

        until(is_deleted, _WAIT_S, lambda: f"the broker lists the deleted topic {topic!r}", poll_s=0.02)

    def configure(self, topic: str, **config: str) -> None:
        """Set options of a topic; underscores in a name stand for dots."""
        entries = [ConfigEntry(k.replace("_", "."), v, incremental_operation=AlterConfigOpType.SET) for k, v in config.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(_WAIT_S)

    def configuration(self, topic: str) -> dict[str, str]:
        """The options of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in self._admin.describe_configs([resource])[resource].result(_WAIT_S).items()}

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as the end of their retention time does."""
        where = TopicPartition(topic, partition, before)
        self._admin.delete_records([where])[where].result(_WAIT_S)

    def forget_group(self, group: str) -> None:
        """Delete a consumer group, with its offsets."""
        self._admin.delete_consumer_groups([group])[group].result(_WAIT_S)

    def produce_each(self, topic: str, *headers: str) -> None:
        """Write two records with keys of their own to each partition, so that Kafka closes the earlier segments and compacts them."""
        for n in range(2):
            wanted = range(len(self.offsets(topic)))
            self.produce(topic, [Record(b"close%d" % n, b"", p, headers=dict.fromkeys(headers, b"0")) for p in wanted])
            time.sleep(0.3)

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Write records, and wait until the broker has them."""
        producer, errors = Producer(self._options()), list[Any]()
        for one in records:
            where = {"timestamp": one.timestamp} if one.timestamp is not None else {}
            where |= {"partition": one.partition, "headers": list(one.headers.items())}
            producer.produce(topic, key=one.key, value=one.value, on_delivery=lambda error, _: errors.append(error), **where)
        assert producer.flush(_WAIT_S) == 0
        assert not any(errors), errors

    def read(self, topic: str) -> list[Record]:
        """The records that the topic has now, by partition and offset."""
        at_once = {"enable.partition.eof": True, "fetch.wait.max.ms": _FETCH_WAIT_MS}
        consumer = Consumer(self._options() | {"group.id": "tests", "enable.auto.commit": False, **at_once})
        try:
            known = consumer.list_topics(topic, _WAIT_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in known])
            return sorted(_read_until_ends(consumer, len(known)), key=lambda r: (r.partition, r.offset))
        finally:
            consumer.close()

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        """The first and the next offset of each partition."""
        consumer = Consumer(self._options() | {"group.id": "tests"})
        try:
            known = consumer.list_topics(topic, _WAIT_S).topics[topic].partitions
            return [consumer.get_watermark_offsets(TopicPartition(topic, partition), _WAIT_S) for partition in sorted(known)]
        finally:
            consumer.close()

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._options())

    def _options(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, "log_level": 0}


def _read_until_ends(consumer: Consumer, partitions: int) -> Sequence[Record]:
    found, ended = list[Record](), set[int]()
    while len(ended) < partitions:
        message = consumer.poll(_WAIT_S)
        assert message is not None, f"no record and no end of a partition after {_WAIT_S} s"
        if message.error() is None:
            found.append(_record(message))
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(message.partition())
    return found


def _record(message: Message) -> Record:
    headers = dict(message.headers() or [])
    return Record(message.key(), message.value(), message.partition(), message.offset(), message.timestamp()[1], headers)
