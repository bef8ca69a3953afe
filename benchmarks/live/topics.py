"""Create the topics of a benchmark or a test on a broker that may be busy, or that has just started again."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

_WAIT_S = 60.0
_REQUEST_S = 10.0
_PAUSE_S = 0.2
_BUSY = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
}
"""The errors of a broker that did not answer in time, renew its session with the controller, or open a new topic yet."""


def create_topics(client: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create topics, and wait until the broker answers requests about each of their partitions.

    A topic that exists already counts as created: an earlier request whose answer was late may have created it.

    Raises:
        KafkaException: the broker refuses a topic, or does not create it within a minute.
        ValueError: a topic exists with another number of partitions, so something else has created it.
    """
    deadline = time.monotonic() + _WAIT_S
    while topics := [topic for topic in topics if not _is_created(client, topic, can_wait=time.monotonic() < deadline)]:
        time.sleep(_PAUSE_S)


def _is_created(client: AdminClient, topic: NewTopic, *, can_wait: bool) -> bool:
    """Create a topic; False if the broker is not ready and there is time to ask again."""
    try:
        _create(client, topic)
    except KafkaException as error:
        if can_wait and error.args[0].code() in _BUSY:
            return False
        raise
    try:
        _check_leaders(client, topic)
    except KafkaException:  # many kinds of errors, some of them the client's own, say that a partition has no leader yet
        if can_wait:
            return False
        raise
    return True


def _create(client: AdminClient, topic: NewTopic) -> None:
    """Create a topic, or check the number of partitions of an existing one."""
    try:
        client.create_topics([topic], request_timeout=_REQUEST_S)[topic.topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        existing = client.list_topics(topic.topic, _REQUEST_S).topics[topic.topic]
        if existing.error is not None:
            raise KafkaException(existing.error) from None
        if len(existing.partitions) != topic.num_partitions:
            found = f"its number of partitions is {len(existing.partitions)} instead of {topic.num_partitions}"
            raise ValueError(f"the topic {topic.topic!r} exists, but {found}; delete it, or use another broker") from None


def _check_leaders(client: AdminClient, topic: NewTopic) -> None:
    """Ask for the offsets of each partition: a broker lists a new topic some time before it is the leader of its partitions."""
    wanted: dict[TopicPartition, Any] = {TopicPartition(topic.topic, n): OffsetSpec.latest() for n in range(topic.num_partitions)}
    for offsets in client.list_offsets(wanted, request_timeout=_REQUEST_S).values():
        offsets.result()
