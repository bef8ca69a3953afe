"""Finds the partitions with records that the ledger does not list, for given offsets. No test starts Spark or a broker."""

from types import SimpleNamespace
from typing import Any

import pytest

from platform_defs.connections.values import Secret, topic_options
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topic_offsets import TopicLookError
from platform_defs.engine.formats.topics import Partition
from platform_defs.engine.ingest import new_records as module
from platform_defs.engine.ingest.new_records import new_records

ONE, TWO = Partition("orders", 0, "id"), Partition("orders", 1, "id")
AGAIN = Partition("orders", 0, "new-id")


def _ledger(**ends: dict[str, int]) -> Any:
    return SimpleNamespace(topic_ends=lambda source: ends.get(source, {}))


def _topics(**options: str) -> Topics:
    return Topics(options={"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", **options})


@pytest.mark.parametrize(
    ("offsets", "known", "options", "expected"),
    [
        ({ONE: (0, 5), TWO: (0, 3)}, {ONE.path: 5, TWO.path: 2}, {}, {TWO.path: 3}),
        ({ONE: (0, 5), TWO: (0, 3)}, {ONE.path: 5, TWO.path: 3}, {}, {}),
        ({ONE: (2, 2), TWO: (0, 1)}, {}, {}, {TWO.path: 1}),
        ({ONE: (0, 0)}, {}, {"startingOffsets": "latest"}, {ONE.path: 0}),
        ({ONE: (0, 0)}, {ONE.path: 0}, {"startingOffsets": "latest"}, {}),
        ({ONE: (0, 3)}, {ONE.path: 5}, {}, {ONE.path: 3}),
        ({AGAIN: (0, 5)}, {ONE.path: 5}, {}, {AGAIN.path: 5}),
    ],
    ids=["new", "nothing new", "emptied and a new partition", "start is not recorded", "start is recorded", "lost", "created again"],
)
def test_a_partition_has_new_records_if_it_ends_elsewhere_than_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
    offsets: dict[Partition, tuple[int, int]],
    known: dict[str, int],
    options: dict[str, str],
    expected: dict[str, int],
) -> None:
    monkeypatch.setattr(module, "topic_offsets", lambda _: offsets)
    found = new_records({"o": _topics(**options)}, _ledger(o=known))
    assert (found.ends, found.unlisted) == (expected, {})


def test_a_silent_broker_is_asked_once_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def look(topics: Topics) -> dict[Partition, tuple[int, int]]:
        asked.append(topics.name)
        if topics.client["bootstrap.servers"] == "b:9092":
            raise TopicLookError.no_answer(TimeoutError("timed out"))
        return {ONE: (0, 5)}

    monkeypatch.setattr(module, "topic_offsets", look)
    found = new_records(
        {"a": _topics(subscribe="a"), "b": _topics(subscribe="b"), "c": _topics(**{"kafka.bootstrap.servers": "c:9092"})}, _ledger()
    )
    assert asked == ["a", "orders"]
    assert found.ends == {ONE.path: 5}
    assert found.unlisted == dict.fromkeys(["kafka:a", "kafka:b"], "the broker gave no offsets: timed out")


def test_a_pattern_that_only_java_can_match_hides_no_other_topic_of_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(topics: Topics) -> dict[Partition, tuple[int, int]]:
        if topics.option("subscribePattern"):
            raise TopicLookError.no_pattern(topics.name)
        return {ONE: (0, 5)}

    monkeypatch.setattr(module, "topic_offsets", look)
    pattern = Topics(options={"kafka.bootstrap.servers": "b:9092", "subscribePattern": r"\\p{Lower}+"})
    found = new_records({"a": pattern, "b": _topics(subscribe="orders, ordres")}, _ledger())
    assert found.ends == {ONE.path: 5}
    assert [*found.unlisted] == [f"kafka:{pattern.name}"]
    assert found.missing == ["kafka:ordres"]


@pytest.mark.parametrize("option", ["subscribe", "kafka.sasl.jaas.config", "startingTimestamp"])
def test_a_secret_that_is_not_set_hides_no_other_source(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.delenv("THE_KEY", raising=False)
    monkeypatch.setattr(module, "topic_offsets", lambda _: {ONE: (0, 5)})
    secret = Topics(options=topic_options({"subscribe": "payments", option: Secret(env="THE_KEY")}))
    found = new_records({"a": secret, "b": _topics()}, _ledger())
    assert found.ends == {ONE.path: 5}
    assert [*found.unlisted] == ["kafka:a"]
    assert found.unlisted["kafka:a"].startswith("the connections read the environment variable THE_KEY, which is not set")
