"""What an observer sees of a stream: when each record, each row of a table and each record of a sink became visible.

All times are epoch ms of the machine's clock. Topics have the broker's time of append. A commit of a Delta table is visible when its
file in the log is written.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_WAIT_S = 30


@dataclass(frozen=True)
class Seen:
    """A record of a topic.

    Args:
        partition: its partition.
        at: when the broker appended it.
        value: its JSON value.
    """

    partition: int
    at: int
    value: Mapping[str, Any]


def records(address: str, topic: str) -> Iterator[Seen]:
    """The records that a topic has now, in order within each partition.

    Raises:
        KafkaException: the broker refuses to return a partition.
        TimeoutError: the broker does not answer.
    """
    consumer = Consumer({"bootstrap.servers": address, "group.id": "observer", "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, _WAIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ended = set[int | None]()
        while len(ended) < len(partitions):
            messages = consumer.consume(10_000, _WAIT_S)
            if not messages:
                raise TimeoutError(f"the broker returned no record of {topic}, and no end of a partition, in {_WAIT_S} s")
            for message in messages:
                error = message.error()
                if error is None:
                    yield Seen(message.partition(), message.timestamp()[1], json.loads(message.value() or b"{}"))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def commits(table: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The rows of the files that each commit has added to a Delta table, with the time from which they are visible.

    Files of a compaction do not count. A rewritten file of an upserted table returns its unchanged rows again.
    """
    for log in sorted((table / "_delta_log").glob("*.json")):
        at, rows = log.stat().st_mtime_ns // 1_000_000, list[dict[str, Any]]()
        for line in log.read_text().splitlines():
            added = json.loads(line).get("add")
            if added and added["dataChange"]:
                rows += pq.ParquetFile(table / unquote(added["path"])).read(columns=[*columns]).to_pylist()
        yield at, rows


def steps(table: Path) -> list[tuple[int, int]]:
    """The time of the commit of each step of a table, in epoch ms, and the newest batch in it; of an upserted table, give the changelog."""
    found = list[tuple[int, int]]()
    for log in sorted((table / "_delta_log").glob("*.json")):
        for line in log.read_text().splitlines():
            progress = json.loads(json.loads(line).get("commitInfo", {}).get("userMetadata") or "{}").get("progress")
            if progress:
                found.append((log.stat().st_mtime_ns // 1_000_000, progress["seq"]))
    return found


def epoch_ms(time: str | datetime) -> int:
    """An instant as epoch ms."""
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True)
class Event:
    """An event of the input.

    Args:
        id: its id.
        k: its key.
        event_ms: its event time.
        at: when the broker appended its record.
    """

    id: int
    k: str
    event_ms: int
    at: int


class Input:
    """The events of the input topic, which are in the order of their event times in each partition."""

    def __init__(self, seen: Iterable[Seen]) -> None:
        self._times, self._events = defaultdict[int, list[int]](list), defaultdict[int, list[Event]](list)
        for one in seen:
            event = Event(one.value["id"], one.value["k"], epoch_ms(one.value["at"]), one.at)
            self._times[one.partition].append(event.event_ms)
            self._events[one.partition].append(event)

    @property
    def events(self) -> Iterator[Event]:
        """All events."""
        for of in self._events.values():
            yield from of

    def closing(self, end_ms: int, bound_ms: int) -> Event | None:
        """The record after which a window can be closed; None if a partition has no record with a time `>= end + bound`.

        Each partition has a first record with such a time. The window can be closed after the last of these records.
        """
        found = list[Event]()
        for partition, times in self._times.items():
            position = bisect_left(times, end_ms + bound_ms)
            if position == len(times):
                return None
            found.append(self._events[partition][position])
        return max(found, key=lambda event: event.at, default=None)


def window_latencies(
    given: Input, ends: Iterable[tuple[int, int]], bound_ms: int, phase_of: Callable[[int], int | None]
) -> dict[int, list[int]]:
    """Latencies of closed windows in ms, by phase: from the append of the record that closes a window until its row is visible.

    Args:
        given: the input.
        ends: the end of each row's window, and when it was visible.
        bound_ms: the bound of the watermark.
        phase_of: the phase of an event's id; None if it does not count.
    """
    found, known = defaultdict[int, list[int]](list), dict[int, Event | None]()
    for end_ms, at in ends:
        if end_ms not in known:
            known[end_ms] = given.closing(end_ms, bound_ms)
        closing = known[end_ms]
        phase = None if closing is None else phase_of(closing.id)
        if closing is not None and phase is not None:
            found[phase].append(at - closing.at)
    return found


def upsert_latencies(given: Input, newest: Iterable[tuple[str, int, int]], phase_of: Callable[[int], int | None]) -> dict[int, list[int]]:
    """Latencies of events in an upserted table in ms, by phase: from the append of an event's record until its key's row includes it.

    Args:
        given: the input.
        newest: for each version of a key's row: the key, the newest id in it, and when it was visible, in the order of the times.
        phase_of: the phase of an event's id; None if it does not count.
    """
    ids, times, found = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list), defaultdict[int, list[int]](list)
    for key, last_id, at in newest:
        if not ids[key] or last_id > ids[key][-1]:
            ids[key].append(last_id)
            times[key].append(at)
    for event in given.events:
        phase, position = phase_of(event.id), bisect_left(ids[event.k], event.id)
        if phase is not None and position < len(ids[event.k]):
            found[phase].append(times[event.k][position] - event.at)
    return found
