"""The event times of a source's Kafka partitions, from which its watermark follows.

Partitions are read in parallel, and one can be far behind another. As in Flink, the source's watermark is the lowest of the watermarks of
its partitions. A partition without records for longer than the source's idle timeout does not hold the watermark back, nor does a partition
that never had a record. The ledger has the state of all partitions in each row of the source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.engine_columns import EVENT_TIME
from operators.timing import Duration, length_ms, millis
from platform_defs.engine.formats.files import TOPIC, File
from platform_defs.engine.formats.reader import PATH
from platform_defs.engine.formats.topics import Partition
from platform_defs.engine.ingest.batch_counts import is_good
from platform_defs.engine.lake.small_queries import collect


@dataclass(frozen=True)
class _Times:
    """The times of a partition, in epoch ms.

    Args:
        newest: its newest event time.
        active: when the newest batch with rows of it was ingested, by the wall clock.
    """

    newest: int
    active: int


@dataclass(frozen=True)
class PartitionTimes:
    """The event times of a source's partitions.

    Args:
        times_by_path: the times of each partition with records, by its path in the ledger.
    """

    times_by_path: Mapping[str, _Times]

    @classmethod
    def read(cls, entries: Sequence[str]) -> Self:
        """The state that the ledger records: `path|newest event time|newest batch` for each partition, with times in epoch ms."""
        fields = [entry.rsplit("|", 2) for entry in entries]
        return cls({path: _Times(int(newest), int(active)) for path, newest, active in fields})

    @property
    def recorded(self) -> tuple[str, ...]:
        """The state as the ledger records it."""
        return tuple(f"{path}|{times.newest}|{times.active}" for path, times in sorted(self.times_by_path.items()))

    def after_batch(self, validated: DataFrame, files: Sequence[File], newest: int | None, now: int) -> "PartitionTimes":
        """The state after a batch, without the partitions of topics that are no longer read; see `newest_by_partition`."""
        topics = next((file.topics for file in files if file.topics), None)
        if topics is None:
            return self
        still_read = PartitionTimes({path: times for path, times in self.times_by_path.items() if topics.reads(Partition.of(path).topic)})
        return still_read.after(newest_by_partition(validated, files, newest), now)

    def after(self, newest: Mapping[str, int], now: int) -> "PartitionTimes":
        """The state after a batch. If a topic was created again, the partitions of the earlier topic are removed.

        Args:
            newest: the newest event time in the batch of each partition with rows in it.
            now: the wall clock in epoch ms. If a recorded time is later, the clock was wrong then, and the time becomes `now`.
        """
        ids = {partition.topic: partition.topic_id for partition in map(Partition.of, newest)}
        remaining = {
            path: replace(times, active=min(times.active, now))
            for path, times in self.times_by_path.items()
            if ids.get((p := Partition.of(path)).topic, p.topic_id) == p.topic_id
        }
        updated = {path: _Times(max(time, remaining[path].newest if path in remaining else time), now) for path, time in newest.items()}
        return PartitionTimes(remaining | updated)

    def lowest(self, now: int, idle_timeout: Duration | None) -> int | None:
        """The lowest of the newest event times of the partitions that are not idle; None if there are none.

        Args:
            now: the wall clock in epoch ms.
            idle_timeout: after how long without records a partition is idle; None for never.
        """
        idle_ms = None if idle_timeout is None else length_ms(idle_timeout, "idle_timeout")
        return min(
            (times.newest for times in self.times_by_path.values() if idle_ms is None or now - times.active <= idle_ms), default=None
        )


def newest_by_partition(validated: DataFrame, files: Sequence[File], newest: int | None) -> dict[str, int]:
    """The newest event time of each partition with accepted rows, in epoch ms.

    Args:
        validated: a batch's validated rows.
        files: the batch's inputs.
        newest: the newest event time of all rows.
    """
    if len(files) == 1:
        return {} if newest is None else {files[0].path: newest}
    of_topics = validated.where(is_good() & F.startswith(PATH, F.lit(TOPIC)))
    return dict(collect(of_topics.groupBy(PATH).agg(F.max(millis(F.col(EVENT_TIME))))))  # pyright: ignore[reportArgumentType]
