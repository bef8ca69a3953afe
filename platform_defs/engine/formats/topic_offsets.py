"""Looks up the offsets of Kafka's topics without Spark, by Confluent's Python client, for sensors.

The client is an optional dependency, and its options differ from those of the Java client that Spark's reader uses. A security option
without a counterpart, such as a Java key store, is an error: without it the client could not reach the broker.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from operators.errors import TidemarkError
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition
from platform_defs.safe_text import printable, shortened

_TIMEOUT_S = 10.0
_SAME = {"bootstrap.servers": "bootstrap.servers", "security.protocol": "security.protocol", "sasl.mechanism": "sasl.mechanisms"}
_OF_SECURITY = ("sasl.", "ssl.", "security.")
_LOGIN = re.compile(r"\s*[\w.]+\.(?:Plain|Scram)LoginModule\s+required\b(.*);\s*", re.DOTALL)
_PART = re.compile(r'(username|password)\s*=\s*"([^"\\]*)"')
_LIKE_JAVA = str.maketrans("+/", "-_")
"""Converts a topic's id: Confluent's client writes it in standard base64, Java's client in URL-safe base64."""
_WAY_OUT = "To read the records, run the stream, or schedule the job `ingest`"


class TopicLookError(TidemarkError, RuntimeError):
    """The offsets of a source's topics cannot be looked up without Spark; other sources are not affected.

    Args:
        text: the reason.
        of_client: whether the reason holds for all topics that are read with the same options of the client.
    """

    def __init__(self, text: str, *, of_client: bool = True) -> None:
        super().__init__(text)
        self.of_client = of_client

    @classmethod
    def no_client(cls) -> "TopicLookError":
        """Confluent's client is not installed."""
        return cls(f"Confluent's client is not installed; install Tidemark with the extra `kafka`. {_WAY_OUT}")

    @classmethod
    def no_counterpart(cls, option: str) -> "TopicLookError":
        """An option exists in Java only."""
        return cls(f"`kafka.{option}` can only be used by Java's client. {_WAY_OUT}")

    @classmethod
    def no_pattern(cls, pattern: str) -> "TopicLookError":
        """A pattern is not a regular expression of Python."""
        return cls(f"`subscribePattern` is {shortened(pattern)!r}, which only Java can match. {_WAY_OUT}", of_client=False)

    @classmethod
    def no_answer(cls, error: Exception) -> "TopicLookError":
        """The broker does not answer, or refuses."""
        return cls(f"the broker gave no offsets: {shortened(printable(str(error) or type(error).__name__))}")


def python_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options of Confluent's client that correspond to options of the Java client; options that do not affect a look-up are left out.

    Raises:
        TopicLookError: a security option has no counterpart.
    """
    converted: dict[str, Any] = {"log_level": 0}
    remaining = dict(options)
    converted |= _login(remaining.pop("sasl.jaas.config", "")) | _authorities(remaining)
    for name, value in remaining.items():
        if name in _SAME:
            converted[_SAME[name]] = value
        elif name.startswith(_OF_SECURITY):
            raise TopicLookError.no_counterpart(name)
    return converted


def _login(jaas: str) -> dict[str, str]:
    """The user name and the password in the configuration text of a Java login module."""
    if not jaas:
        return {}
    credentials = dict(_PART.findall(match[1])) if (match := _LOGIN.fullmatch(jaas)) else {}
    if credentials.keys() != {"username", "password"}:
        raise TopicLookError.no_counterpart("sasl.jaas.config")
    return {"sasl.username": credentials["username"], "sasl.password": credentials["password"]}


def _authorities(options: dict[str, str]) -> dict[str, str]:
    """The option for CA certificates in the format PEM. The Java options that it replaces are removed from `options`."""
    if options.get("ssl.truststore.type", "").upper() != "PEM":
        return {}
    del options["ssl.truststore.type"]
    names = {"ssl.truststore.location": "ssl.ca.location", "ssl.truststore.certificates": "ssl.ca.pem"}
    return {same: options.pop(name) for name, same in names.items() if name in options}


def topic_offsets(topics: Topics) -> dict[Partition, tuple[int, int]]:
    """By partition, the earliest offset and the offset after the newest record that can be read; a topic that does not exist is left out.

    Raises:
        TopicLookError: the broker cannot be reached, the options work only with the Java client, or Confluent's client is not installed.
    """
    try:
        from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition  # an optional dependency
        from confluent_kafka.admin import AdminClient, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]  # it is documented there
    except ImportError as error:
        raise TopicLookError.no_client() from error
    try:
        admin = AdminClient(python_options(topics.client))
        names = _names(topics, lambda: admin.list_topics(timeout=_TIMEOUT_S).topics)
        futures = admin.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT_S) if names else {}
        partitions = [partition for name, future in futures.items() for partition in _partitions(topics, name, future, KafkaException)]
        committed = topics.client.get("isolation.level") == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        ends = list[dict[Any, int]]()
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            specs_by_partition: dict[Any, Any] = {TopicPartition(partition.topic, partition.number): spec for partition in partitions}
            answers = (
                admin.list_offsets(specs_by_partition, isolation_level=level, request_timeout=_TIMEOUT_S) if specs_by_partition else {}
            )
            ends.append({(key.topic, key.partition): answer.result(_TIMEOUT_S + 1).offset for key, answer in answers.items()})
    except (KafkaException, ValueError, TypeError, TimeoutError) as error:
        raise TopicLookError.no_answer(error) from error
    return {partition: (ends[0][partition.topic, partition.number], ends[1][partition.topic, partition.number]) for partition in partitions}


def _names(topics: Topics, listed: Callable[[], Any]) -> list[str]:
    if topics.subscribed:
        return topics.subscribed
    pattern = topics.option("subscribePattern")
    try:
        matcher = re.compile(pattern)
    except re.error:
        raise TopicLookError.no_pattern(pattern) from None
    return sorted(name for name in listed() if matcher.fullmatch(name))


def _partitions(topics: Topics, name: str, future: Any, error_class: type[Exception]) -> list[Partition]:
    """The partitions of a topic; none if it does not exist, or if it is a topic of Kafka itself, which a pattern never matches."""
    try:
        description = future.result(_TIMEOUT_S + 1)
    except error_class as error:
        if "UNKNOWN_TOPIC_OR_PART" in str(error):
            return []
        raise
    if description.is_internal and not topics.subscribed:
        return []
    topic_id = str(description.topic_id).translate(_LIKE_JAVA)
    return [Partition(name, partition.id, topic_id) for partition in description.partitions]
