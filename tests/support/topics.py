"""Engines whose sources read topics of a broker, and helpers that send records and read tables."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.engine import wall_clock
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.lake.tables import Lake
from tests.support.kafka import Kafka, Record
from tests.support.small_sources import MINUTE, Event

LEFT = [Event(f"k{n % 7}", n, n * MINUTE // 3) for n in range(120)]
RIGHT = [Event(f"k{n % 5}", n, n * MINUTE // 2 + 500) for n in range(90)]


def new_topic(kafka: Kafka, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Create a topic with a unique name; returns the name."""
    return kafka.create(f"topic-{uuid4().hex[:12]}", partitions, config)


def send(
    kafka: Kafka,
    topic: str,
    values: Sequence[str | bytes | None],
    partition: Callable[[int], int] = lambda _: -1,
    key: bytes | None = None,
    **fields: Any,
) -> None:
    """Send records. `partition(n)` is the partition of record n, -1 for any; all records have the key and the other fields of `Record`."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    kafka.produce(topic, [Record(key, value, partition(n), **fields) for n, value in enumerate(encoded)])


class TopicEngines:
    """Makes engines that read topics, all on one lake; each engine stands for a new process."""

    def __init__(self, spark: SparkSession, folder: Path, address: str) -> None:
        self.spark, self.folder, self.address = spark, folder, address

    def make(
        self,
        sources: Sequence[SourceContract],
        tables: Sequence[DerivedAsset] = (),
        clock: Callable[[], int] = wall_clock,
        **fields_by_source: dict[str, Any],
    ) -> Engine:
        """An engine whose sources read folders and topics.

        Args:
            sources: the sources.
            tables: the tables.
            clock: the wall clock.
            fields_by_source: the fields of each source's `Topics`, without the broker's address.
        """
        return Engine(
            lake=Lake(str(self.folder / "lake")),
            sources={source.name: source for source in sources},
            assets={table.name: table for table in tables},
            connect=lambda: self.spark,
            clock=clock,
            folders={source.name: str(self.folder / "landing" / source.name) for source in sources},
            topics={name: self._topics(**fields) for name, fields in fields_by_source.items()},
        )

    def _topics(self, options: Mapping[str, str], **fields: Any) -> Topics:
        return Topics(options={"kafka.bootstrap.servers": self.address, **options}, **fields)


def rows(engine: Engine, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in engine.lake.read(engine.spark, table).select(*columns).collect())


def accepted(engine: Engine, name: str = "l") -> list[int]:
    return [value for (value,) in rows(engine, f"events/{name}", "v")]


def lines(events: Sequence[Event]) -> list[str]:
    return [event.line for event in events]
