"""Create the topics of a benchmark or a test on a broker that may be busy, or that has just started again."""

import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

_WAIT_S = 60.0
_REQUEST_S = 10.0
_PAUSE_S = 0.2
_BUSY = {KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
"""The errors of a broker that did not answer in time, or that has not renewed its session with the controller yet."""


def create_topics(client: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create topics, and wait until the broker has them.

    A topic that exists already counts as created: an earlier request whose answer was late may have created it.

    Raises:
        KafkaException: the broker refuses a topic, or does not create it within a minute.
        ValueError: a topic exists with another number of partitions, so something else has created it.
    """
    deadline = time.monotonic() + _WAIT_S
    while topics := [topic for topic in topics if not _create(client, topic, can_wait=time.monotonic() < deadline)]:
        time.sleep(_PAUSE_S)


def _create(client: AdminClient, topic: NewTopic, *, can_wait: bool) -> bool:
    """Create a topic; False if the broker is busy and there is time to ask again."""
    try:
        client.create_topics([topic], request_timeout=_REQUEST_S)[topic.topic].result()
    except KafkaException as error:
        code = error.args[0].code()
        if can_wait and code in _BUSY:
            return False
        if code != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        partitions = len(client.list_topics(topic.topic, _REQUEST_S).topics[topic.topic].partitions)
        if partitions != topic.num_partitions:
            found = f"{partitions} partitions instead of {topic.num_partitions}"
            raise ValueError(f"the topic {topic.topic!r} exists with {found}; delete it, or use another broker") from None
    return True
