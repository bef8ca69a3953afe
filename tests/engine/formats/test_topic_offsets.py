"""Offsets of topics without Spark: the options of Confluent's client, and a broker that does not answer."""

import builtins
import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topic_offsets import TopicLookError, python_options, topic_offsets

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="tide" password="s3cret";'


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"bootstrap.servers": "b:9092", "fetch.max.bytes": "7"}, {"bootstrap.servers": "b:9092"}),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN},
            {"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "tide", "sasl.password": "s3cret"},
        ),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
    ],
    ids=["plain", "login", "certificates"],
)
def test_options_of_java_have_their_counterparts(given: dict[str, str], expected: dict[str, str]) -> None:
    assert python_options(given) == {"log_level": 0, **expected}


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.truststore.location": "/etc/kafka/truststore.jks"},
        {"ssl.keystore.password": "s3cret"},
        {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab='s3cret';"},
        {"sasl.jaas.config": LOGIN.replace("s3cret", '\\"s3cret')},
    ],
    ids=["key store of Java", "client's key", "Kerberos", "escaped password"],
)
def test_an_option_of_security_without_a_counterpart_is_named_without_its_value(given: dict[str, str]) -> None:
    [name] = given
    expected = f"`kafka.{name}` can only be used by Java's client. To read the records, run the stream, or schedule the job `ingest`"
    with pytest.raises(TopicLookError, match=f"^{re.escape(expected)}$"):
        python_options(given)


def test_a_broker_that_does_not_answer_is_an_error_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_defs.engine.formats.topic_offsets._TIMEOUT_S", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        for option in ({"subscribe": "orders"}, {"subscribePattern": "ord.*"}):
            topics = Topics(options={"kafka.bootstrap.servers": f"127.0.0.1:{free.getsockname()[1]}", **option})
            with pytest.raises(TopicLookError, match=r"^the broker gave no offsets: KafkaError"):
                topic_offsets(topics)


class _Broker:
    """The answers of a broker that has one topic of its own, with the partition 0."""

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(topics={"orders": None, "__share_group_state": None})

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Any]:
        return {name: _answer(name) for name in ("orders", "__share_group_state")}

    def list_offsets(self, specs: dict[Any, Any], **_: Any) -> dict[Any, Any]:
        return {key: SimpleNamespace(result=lambda _: SimpleNamespace(offset=7)) for key in specs}


def _answer(name: str) -> Any:
    partitions = [SimpleNamespace(id=0)]
    description = SimpleNamespace(is_internal=name.startswith("__"), topic_id="id", partitions=partitions)
    return SimpleNamespace(result=lambda _: description)


@pytest.mark.parametrize(
    ("option", "found"),
    [({"subscribePattern": ".*"}, ["orders"]), ({"subscribe": "orders,__share_group_state"}, ["__share_group_state", "orders"])],
)
def test_a_pattern_matches_no_topic_of_kafka_itself(monkeypatch: pytest.MonkeyPatch, option: dict[str, str], found: list[str]) -> None:
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda _: _Broker())
    offsets = topic_offsets(Topics(options={"kafka.bootstrap.servers": "b:1", **option}))
    assert sorted(partition.topic for partition in offsets) == found


def test_a_pattern_that_only_java_can_match_is_refused() -> None:
    topics = Topics(options={"kafka.bootstrap.servers": "127.0.0.1:1", "subscribePattern": r"\p{Lower}+"})
    with pytest.raises(TopicLookError, match="which only Java can match"):
        topic_offsets(topics)


def test_without_the_client_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *more: Any, **options: Any) -> Any:
        if name.startswith("confluent_kafka"):
            raise ImportError(name)
        return real(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(TopicLookError, match="install Tidemark with the extra `kafka`"):
        topic_offsets(Topics(options={"subscribe": "orders"}))
