"""The producer of the live benchmarks waits for the partitions of a broker that has just started."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from benchmarks.live import producer
from benchmarks.live.producer import Order


class _Client:
    """A client that does not know the topic's partitions at its third call, and acknowledges every other event."""

    def __init__(self, _: Any, code: int = KafkaError._UNKNOWN_PARTITION) -> None:
        self.calls, self.sent, self.code = 0, list[int](), code

    def produce(self, _: str, value: str, key: str, *, partition: int, on_delivery: Any) -> None:
        self.calls += 1
        if self.calls == 3:
            raise KafkaException(KafkaError(self.code))
        self.sent.append(json.loads(value)["id"])
        on_delivery(None, None)

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        return 0


def _order(tmp_path: Path) -> Order:
    return Order("no broker", "events", 2, rate=100_000, seconds=0.0001, keys=3, first_id=5, progress=str(tmp_path / "counts.json"))


def test_events_are_sent_once_and_in_order_when_the_partitions_are_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Client({})
    monkeypatch.setattr(producer, "Producer", lambda _: client)
    producer.main(_order(tmp_path))
    assert client.sent == list(range(5, 15))
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert (counts["sent"], counts["acked"], counts["failed"], counts["ended"]) == (10, 10, 0, True)


def test_other_errors_end_the_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "Producer", lambda _: _Client({}, KafkaError._MSG_TIMED_OUT))
    with pytest.raises(KafkaException, match="_MSG_TIMED_OUT"):
        producer.main(_order(tmp_path))
