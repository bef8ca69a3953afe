"""A process that sends events to a topic at a steady rate, and records how many the broker has acknowledged.

Its producer is idempotent and keeps what it cannot send for ten minutes, so that an outage of the broker loses and repeats nothing.
"""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

_TICK_S = 0.01
_WRITE_EVERY_S = 0.5
_FLUSH_S = 120


@dataclass(frozen=True)
class Order:
    """What to send.

    Args:
        address: the address of the broker.
        topic: the topic.
        partitions: its partitions; an event is in the partition of its key.
        rate: events per second.
        seconds: for how long.
        keys: the number of keys.
        first_id: the id of the first event; ids are consecutive.
        progress: the file that has the counts.
    """

    address: str
    topic: str
    partitions: int
    rate: float
    seconds: float
    keys: int
    first_id: int
    progress: str

    def as_json(self) -> str:
        """The argument of the process."""
        return json.dumps(asdict(self))


def options(address: str) -> dict[str, Any]:
    """The options of a producer that loses and repeats nothing."""
    return {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "linger.ms": 5,
        "delivery.timeout.ms": 600_000,
        "queue.buffering.max.messages": 5_000_000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }


class _Sender:
    def __init__(self, order: Order) -> None:
        self._order, self._producer = order, Producer(options(order.address))
        self.sent, self.acked, self.failed = 0, 0, 0

    def send(self, upto: int) -> None:
        """Send the events up to a number."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        while self.sent < upto:
            number = self._order.first_id + self.sent
            key = number % self._order.keys
            value = json.dumps({"id": number, "k": f"k{key}", "at": now, "v": number % 100})
            where = key % self._order.partitions
            self._producer.produce(self._order.topic, value, f"k{key}", partition=where, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is None:
            self.acked += 1
        else:
            self.failed += 1

    def wait(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def end(self) -> None:
        self._producer.flush(_FLUSH_S)

    def record(self, *, ended: bool = False) -> None:
        """Replace the file of counts."""
        counts = {"sent": self.sent, "acked": self.acked, "failed": self.failed, "ended": ended, "at": time.time()}
        draft = Path(f"{self._order.progress}.draft")
        draft.write_text(json.dumps(counts))
        draft.replace(self._order.progress)


def main(order: Order) -> None:
    """Send all events; if the process is slower than the rate, it sends what is behind at once."""
    sender, began, recorded = _Sender(order), time.monotonic(), 0.0
    while (passed := time.monotonic() - began) < order.seconds:
        sender.send(round(passed * order.rate))
        if passed - recorded >= _WRITE_EVERY_S:
            sender.record()
            recorded = passed
        sender.wait(_TICK_S)
        if os.getppid() == 1:  # the process that started it was killed
            return
    sender.send(round(order.seconds * order.rate))
    sender.end()
    sender.record(ended=True)


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
