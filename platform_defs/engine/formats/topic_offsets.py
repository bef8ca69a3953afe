"""The offsets of Kafka's topics without Spark, by Confluent's Python client, for sensors.

It is an optional dependency, and has other options than the client of Java, which Spark's reader uses. An option of security without a
counterpart, such as a key store of Java, is an error: a look without it could not reach the broker.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from operators.errors import TidemarkError
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition
from platform_defs.safe_text import printable, shortened

_TIMEOUT_S = 10.0
_INTERNAL = ("__consumer_offsets", "__transaction_state")
"""Topics of Kafka itself, which a pattern never matches."""
_SAME = {"bootstrap.servers": "bootstrap.servers", "security.protocol": "security.protocol", "sasl.mechanism": "sasl.mechanisms"}
_OF_SECURITY = ("sasl.", "ssl.", "security.")
_LOGIN = re.compile(r"\s*[\w.]+\.(?:Plain|Scram)LoginModule\s+required\b(.*);\s*", re.DOTALL)
_PART = re.compile(r'(username|password)\s*=\s*"([^"\\]*)"')
_LIKE_JAVA = str.maketrans("+/", "-_")
_WAY_OUT = "Run the stream, or schedule the job `ingest`, to read them"


class TopicLookError(TidemarkError, RuntimeError):
    """The offsets of topics are not known without Spark; the input of other sources is."""

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
        """A pattern is none of Python's."""
        return cls(f"`subscribePattern` is {shortened(pattern)!r}, which only Java can match. {_WAY_OUT}")

    @classmethod
    def no_answer(cls, error: Exception) -> "TopicLookError":
        """The broker does not answer, or refuses."""
        return cls(f"the broker gave no offsets: {shortened(printable(str(error) or type(error).__name__))}")


def python_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options of Confluent's client for those of Java's. Options that say how much is read at once have no effect on a look.

    Raises:
        TopicLookError: an option of security has no counterpart.
    """
    found: dict[str, Any] = {"log_level": 0}
    given = dict(options)
    found |= _login(given.pop("sasl.jaas.config", "")) | _authorities(given)
    for name, value in given.items():
        if name in _SAME:
            found[_SAME[name]] = value
        elif name.startswith(_OF_SECURITY):
            raise TopicLookError.no_counterpart(name)
    return found


def _login(jaas: str) -> dict[str, str]:
    """The user and the password of a login module, which Java's client has as text."""
    if not jaas:
        return {}
    parts = dict(_PART.findall(match[1])) if (match := _LOGIN.fullmatch(jaas)) else {}
    if parts.keys() != {"username", "password"}:
        raise TopicLookError.no_counterpart("sasl.jaas.config")
    return {"sasl.username": parts["username"], "sasl.password": parts["password"]}


def _authorities(given: dict[str, str]) -> dict[str, str]:
    """The certificates of authorities as PEM, which are removed from the given options."""
    if given.get("ssl.truststore.type", "").upper() != "PEM":
        return {}
    del given["ssl.truststore.type"]
    names = {"ssl.truststore.location": "ssl.ca.location", "ssl.truststore.certificates": "ssl.ca.pem"}
    return {same: given.pop(name) for name, same in names.items() if name in given}


def topic_offsets(topics: Topics) -> dict[Partition, tuple[int, int]]:
    """The earliest offset and the offset after the newest record of each partition of topics; none of a topic that does not exist.

    Raises:
        TopicLookError: the broker cannot be reached, or not by Confluent's client.
    """
    try:
        from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition  # an optional dependency
        from confluent_kafka.admin import AdminClient, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]  # it is documented there
    except ImportError as error:
        raise TopicLookError.no_client() from error
    try:
        admin = AdminClient(python_options(topics.client))
        names = _names(topics, lambda: admin.list_topics(timeout=_TIMEOUT_S).topics)
        described = admin.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT_S) if names else {}
        partitions = [found for name, future in described.items() for found in _partitions(name, future, KafkaException)]
        committed = topics.client.get("isolation.level") == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        ends = list[dict[Any, int]]()
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            asked: dict[Any, Any] = {TopicPartition(p.topic, p.number): spec for p in partitions}
            answers = admin.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT_S) if asked else {}
            ends.append({(key.topic, key.partition): answer.result(_TIMEOUT_S + 1).offset for key, answer in answers.items()})
    except (KafkaException, ValueError, TypeError, TimeoutError) as error:
        raise TopicLookError.no_answer(error) from error
    return {p: (ends[0][p.topic, p.number], ends[1][p.topic, p.number]) for p in partitions}


def _names(topics: Topics, listed: Callable[[], Any]) -> list[str]:
    if subscribed := topics.option("subscribe"):
        return [name.strip() for name in subscribed.split(",")]
    pattern = topics.option("subscribePattern")
    try:
        wanted = re.compile(pattern)
    except re.error:
        raise TopicLookError.no_pattern(pattern) from None
    return sorted(name for name in listed() if name not in _INTERNAL and wanted.fullmatch(name))


def _partitions(name: str, described: Any, error_class: type[Exception]) -> list[Partition]:
    try:
        found = described.result(_TIMEOUT_S + 1)
    except error_class as error:
        if "UNKNOWN_TOPIC_OR_PART" in str(error):
            return []
        raise
    topic_id = str(found.topic_id).translate(_LIKE_JAVA)
    return [Partition(name, partition.id, topic_id) for partition in found.partitions]
