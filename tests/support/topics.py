"""Engines whose sources read topics of a broker."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.lake.tables import Lake
from tests.support.clock import Clock
from tests.support.kafka import Kafka, Record
from tests.support.small_sources import MINUTE, Event

LEFT = [Event(f"k{n % 7}", n, n * MINUTE // 3) for n in range(120)]
RIGHT = [Event(f"k{n % 5}", n, n * MINUTE // 2 + 500) for n in range(90)]


def new_topic(kafka: Kafka, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """A new topic."""
    return kafka.create(f"topic-{uuid4().hex[:12]}", partitions, config)


def send(
    kafka: Kafka,
    topic: str,
    values: Sequence[str | bytes | None],
    partition: Callable[[int], int] = lambda _: -1,
    **parts: Any,
) -> None:
    """Write records; `partition` chooses the partition of the nth."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    kafka.produce(topic, [Record(value=value, partition=partition(n), **{"key": None, **parts}) for n, value in enumerate(encoded)])


class Lakes:
    """Makes engines that read topics, all on one lake; each engine stands for a new process."""

    def __init__(self, spark: SparkSession, folder: Path, address: str) -> None:
        self.spark, self.folder, self.address = spark, folder, address

    def engine(
        self, sources: Sequence[SourceContract], tables: Sequence[DerivedAsset] = (), clock: Clock | None = None, **of: dict[str, Any]
    ) -> Engine:
        """An engine whose sources read topics, given as fields of `Topics` by source."""
        servers = {"kafka.bootstrap.servers": self.address}
        topics = {name: Topics(**{**parts, "options": {**servers, **parts["options"]}}) for name, parts in of.items()}
        named = {s.name: s for s in sources}, {t.name: t for t in tables}
        folders = {s.name: str(self.folder / "landing" / s.name) for s in sources}
        clocked = {"clock": clock} if clock else {}
        return Engine(Lake(str(self.folder / "lake")), *named, lambda: self.spark, folders=folders, topics=topics, **clocked)


def rows(engine: Engine, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in engine.lake.read(engine.spark, table).select(*columns).collect())


def accepted(engine: Engine, name: str = "l") -> list[int]:
    return [value for (value,) in rows(engine, f"events/{name}", "v")]


def lines(events: Sequence[Event]) -> list[str]:
    return [event.line for event in events]
