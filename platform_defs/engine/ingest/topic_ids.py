"""Checks that the records of a batch were read from the topics whose offsets were looked up."""

from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.kafka_client import SharedAdmin, described_topic, error_reason
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition
from platform_defs.engine.formats.unreadable_files import Unread


def changed_ranges(spark: SparkSession, files: Sequence[File]) -> list[Unread]:
    """The ranges whose topic was deleted or created again since its offsets were looked up, or cannot be described now.

    Kafka's client fetches records by the name of a topic, not by its id, so records of a topic that was created again would be read as
    records of the old topic. Kafka never uses an id twice: if the id is the same after the read, all records were read from that topic.

    Args:
        spark: the session.
        files: the inputs of a source that were read.
    """
    ranges = [(Partition.of(file.path), file) for file in files if file.is_range]
    if not ranges or (topics := ranges[0][1].topics) is None:
        return []
    try:
        ids = _ids(spark, topics, {partition.topic for partition, _ in ranges})
    except Py4JError as error:
        return [Unread(file, f"the id of its topic cannot be checked: {error_reason(error)}") for _, file in ranges]
    return [Unread(file, _change_reason(ids[p.topic]), is_replaced=True) for p, file in ranges if ids[p.topic] != p.topic_id]


def _ids(spark: SparkSession, topics: Topics, names: set[str]) -> dict[str, str | None]:
    """The ids of topics; None for a topic that does not exist."""
    with SharedAdmin(spark._jvm, topics.client) as admin:
        descriptions = {name: described_topic(spark._jvm, admin, name) for name in sorted(names)}
    return {name: None if description is None else str(description.topicId().toString()) for name, description in descriptions.items()}


def _change_reason(topic_id: str | None) -> str:
    if topic_id is None:
        return "the topic was deleted while it was read"
    return f"the topic was deleted and created again, and has the id {topic_id} now"
