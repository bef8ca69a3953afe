"""The topic of a sink: its id, and the newest step of its table that it has.

The headers of each record name the table and the step that it belongs to. When all records of a step are written, the
step is committed to Kafka as the metadata of a consumer group's offset. A step without this commit is written again.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.formats.kafka_client import (
    SharedAdmin,
    described_topic,
    properties,
    with_timeouts,
)
from platform_defs.engine.operations.sink import NamingTopicErrors, Sink, SinkError

HEADER = "tidemark."
TABLE, STEP, SINCE, STEP_ID, CHANGE, COPY = (f"{HEADER}{name}" for name in ("table", "step", "since", "id", "change", "copy"))
"""The headers: the table's Delta id and generation; the step; the step after which the write began; the step's id; the change kind; the
number of the record among equal ones of its step."""
_POLL_MS, _POLLS = 250, 80
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


@dataclass(frozen=True)
class WrittenStep:
    """A step of a table that a topic has.

    Args:
        table: the table's Delta id and generation.
        step: the step.
        id: the step's id; empty if the table's log did not have it.
        since: the step after which its write began.
        complete: whether all of its records are known to be written.
    """

    table: str
    step: int
    id: str
    since: int
    complete: bool


class Topic:
    """A topic, by Kafka's clients in the JVM of a session.

    Args:
        spark: the session.
        sink: the sink.
        asset: the table's name, which names the consumer group.
        compacted: whether a topic that is created is compacted.
    """

    def __init__(self, spark: SparkSession, sink: Sink, asset: str, *, compacted: bool) -> None:
        self._jvm, self._sink, self._group = cast(Any, spark._jvm), sink, f"tidemark.{asset}"
        self._reader: Any = None
        with NamingTopicErrors(sink.topic):
            self._use = SharedAdmin(self._jvm, sink.client)
            self._admin = self._use.client
            try:
                self._id, self._partitions = self._describe_or_create(compacted)
            except BaseException:
                self._use.close()
                raise

    def __enter__(self) -> "Topic":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._reader is not None:
                self._reader.close()
        finally:
            self._use.close()

    @property
    def _consumer(self) -> Any:
        """The client that reads records, made when it is first needed: not if the topic has no records after the last commit."""
        if self._reader is None:
            consumer_options = {"key.deserializer": _BYTES, "value.deserializer": _BYTES, "enable.auto.commit": "false"}
            options = with_timeouts(self._sink.client) | consumer_options | {"allow.auto.create.topics": "false"}
            self._reader = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties(self._jvm, options))
        return self._reader

    def newest(self) -> WrittenStep | None:
        """The newest step that the topic has; None if it has none.

        Raises:
            SinkError: another program wrote to the topic, or it cannot be read.
        """
        with NamingTopicErrors(self._sink.topic):
            committed, ends = self._committed()
            if committed is not None and ends == self.records():
                return committed
            last_written = self._last_records()
        newest = max(last_written, key=lambda written: written.step, default=None)
        if newest is None or (committed is not None and committed.step >= newest.step and committed.table == newest.table):
            return committed
        return newest

    def commit(self, table: str, step: int, step_id: str) -> None:
        """Record that all records up to a step are written."""
        value = json.dumps({"topic": self._id, "table": table, "step": step, "id": step_id, "ends": self.records()})
        offsets = self._jvm.java.util.HashMap()
        offsets.put(self._partition(0), self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(0, value))
        with NamingTopicErrors(self._sink.topic):
            self._admin.alterConsumerGroupOffsets(self._group, offsets).all().get()

    def records(self) -> int:
        """The sum of the end offsets of all partitions."""
        with NamingTopicErrors(self._sink.topic):
            return sum(self._ends("latest").values())

    def _describe_or_create(self, compacted: bool) -> tuple[str, int]:
        """The topic's id and its number of partitions. A missing topic is created if the sink has `partitions`."""
        description = described_topic(self._jvm, self._admin, self._sink.topic)
        if description is not None:
            return description.topicId().toString(), description.partitions().size()
        if self._sink.partitions is None:
            raise SinkError.no_topic(self._sink.topic)
        return self._create(self._sink.partitions, compacted), self._sink.partitions

    def _create(self, partitions: int, compacted: bool) -> str:
        optional, new_topics, config = self._jvm.java.util.Optional, self._jvm.java.util.ArrayList(), self._jvm.java.util.HashMap()
        config.put(*(("cleanup.policy", "compact") if compacted else ("retention.ms", "-1")))
        new_topic = self._jvm.org.apache.kafka.clients.admin.NewTopic(self._sink.topic, optional.of(partitions), optional.empty())
        new_topics.add(new_topic.configs(config))
        return self._admin.createTopics(new_topics).topicId(self._sink.topic).get().toString()

    def _committed(self) -> tuple[WrittenStep | None, int | None]:
        """The step that was committed for this topic, and the sum of the partitions' end offsets at that time.

        The step is None if none was committed for a topic with this id: a topic that was created again has another id. The sum is also None
        for a commit of an earlier version, which did not record it.
        """
        offsets = self._admin.listConsumerGroupOffsets(self._group).partitionsToOffsetAndMetadata().get()
        offset = offsets.get(self._partition(0))
        try:
            value = json.loads(offset.metadata()) if offset is not None else {}
            if value.get("topic") == self._id:
                return WrittenStep(value["table"], value["step"], value["id"], value["step"], complete=True), value.get("ends")
        except (ValueError, KeyError, AttributeError):  # another program committed it
            pass
        return None, None

    def _last_records(self) -> list[WrittenStep]:
        """The step of the newest record of each partition that has records."""
        first, ends = self._ends("earliest"), self._ends("latest")
        unread = {p for p, end in ends.items() if end > first[p]}
        self._assign(unread)
        for partition in unread:
            self._consumer.seek(self._partition(partition), ends[partition] - 1)
        written_by_partition = dict[int, WrittenStep]()
        for _ in range(_POLLS):
            if not unread:
                break
            records = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(_POLL_MS))
            for partition in unread:
                if records_of_partition := records.records(self._partition(partition)):
                    written_by_partition[partition] = self._written(partition, records_of_partition[len(records_of_partition) - 1])
            unread = {p for p in unread if self._consumer.position(self._partition(p)) < ends[p]}
        if unread:
            raise SinkError.not_read(self._sink.topic, sorted(unread), _POLL_MS * _POLLS // 1000)
        return [*written_by_partition.values()]

    def _written(self, partition: int, record: Any) -> WrittenStep:
        headers = {name: record.headers().lastHeader(name) for name in (TABLE, STEP, SINCE, STEP_ID)}
        if any(header is None for header in headers.values()):
            raise SinkError.foreign(self._sink.topic, partition, STEP)
        text = {name: bytes(header.value()).decode() for name, header in headers.items()}
        return WrittenStep(text[TABLE], int(text[STEP]), text[STEP_ID], int(text[SINCE]), complete=False)

    def _ends(self, position: Literal["earliest", "latest"]) -> dict[int, int]:
        """For each partition, its first offset, or the offset after its newest record."""
        spec, specs_by_partition = getattr(self._jvm.org.apache.kafka.clients.admin.OffsetSpec, position)(), self._jvm.java.util.HashMap()
        partitions = {number: self._partition(number) for number in range(self._partitions)}
        for partition in partitions.values():
            specs_by_partition.put(partition, spec)
        answer = self._admin.listOffsets(specs_by_partition).all().get()
        return {number: int(answer.get(partition).offset()) for number, partition in partitions.items()}

    def _assign(self, partitions: set[int]) -> None:
        self._consumer.assign(self._java_partitions(partitions))

    def _java_partitions(self, partitions: Any) -> Any:
        java_list = self._jvm.java.util.ArrayList()
        for number in partitions:
            java_list.add(self._partition(number))
        return java_list

    def _partition(self, number: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(self._sink.topic, number)


@contextmanager
def kept_clients(spark: SparkSession, sinks: Iterable[Sink]) -> Iterator[None]:
    """While the block runs, keep an admin client open for each sink, which all publishes to the sink share.

    If the client of a sink cannot be made, because an address cannot be resolved or a secret is not set, each publish tries it again.
    """
    with ExitStack() as stack:
        for sink in sinks:
            with suppress(Py4JError, ConnectionsError):
                stack.enter_context(SharedAdmin(spark._jvm, sink.client))
        yield
