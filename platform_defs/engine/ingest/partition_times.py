"""The event times of a source's Kafka partitions, from which its watermark follows.

Partitions are read in parallel, and one can be far behind another. As in Flink, the source's watermark is the lowest of the watermarks of
its partitions. Three kinds of partitions do not hold the watermark back: partitions without records for longer than the source's idle
timeout, partitions that never had a record, and partitions of topics that the source does not read any more. If a source has files too,
they hold the watermark back only while more files wait than a batch reads, as in Flink, where a file is a split that ends. If no partition
is active, the watermark follows from the files alone. The ledger has the state of all partitions in each row of the source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.engine_columns import EVENT_TIME
from operators.timing import Duration, length_ms, millis
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.formats.files import TOPIC, File
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.reader import PATH
from platform_defs.engine.formats.topics import Partition
from platform_defs.engine.ingest.batch_counts import is_good
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.lake.small_queries import collect

FILES = "files"
"""The name of all files of a batch together, in place of the path of a partition, which begins with `TOPIC`."""


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
        """The state that the ledger records: `path|newest|active` for each partition, with the times of `_Times` in epoch ms."""
        fields = [entry.rsplit("|", 2) for entry in entries]
        return cls({path: _Times(int(newest), int(active)) for path, newest, active in fields})

    @property
    def recorded(self) -> tuple[str, ...]:
        """The state as the ledger records it."""
        return tuple(f"{path}|{times.newest}|{times.active}" for path, times in sorted(self.times_by_path.items()))

    def after_batch(self, newest: Mapping[str, int], topics: Topics | None, now: int) -> "PartitionTimes":
        """The state after a batch, without the partitions of topics that are no longer read.

        Args:
            newest: the result of `newest_by_input`.
            topics: the topics that the source reads; None for none.
            now: the wall clock in epoch ms.
        """
        still_read = {path: times for path, times in self.times_by_path.items() if _is_read(Partition.of(path).topic, topics)}
        return PartitionTimes(still_read).after({path: time for path, time in newest.items() if path != FILES}, now)

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

    def lowest(
        self,
        now: int,
        idle_timeout: Duration | None,
        of_files: int | None = None,
        look: Look | None = None,
        *,
        has_more_files: bool = False,
    ) -> int | None:
        """The lowest of the newest event times of active partitions and of the batch's files; None if there are neither.

        A partition is active if it is not idle. The files count only if more of them wait, or if no partition is active.

        Args:
            now: the wall clock in epoch ms.
            idle_timeout: after how long without records a partition is idle; None for never.
            of_files: the newest event time of the batch's files, in epoch ms; None if they have no rows.
            look: the newest look for the source's input; None if the caller has not looked.
            has_more_files: whether more of the source's files wait than the batch reads.
        """
        idle_ms, look = None if idle_timeout is None else length_ms(idle_timeout, "idle_timeout"), look or Look(now)
        active = [times.newest for times in self.times_by_path.values() if idle_ms is None or look.silent_ms(times.active, now) <= idle_ms]
        if of_files is not None and (has_more_files or not active):
            active.append(of_files)
        return min(active, default=None)


def _is_read(topic: str, topics: Topics | None) -> bool:
    """Whether a source with these topics reads a topic. If an environment variable of the options is not set, each topic counts as read."""
    try:
        return topics is not None and topics.reads(topic)
    except ConnectionsError:
        return True


def newest_by_input(validated: DataFrame, files: Sequence[File], newest: int | None) -> dict[str, int]:
    """The newest event time of each partition with good rows, and of all files together as `FILES`, in epoch ms.

    Args:
        validated: a batch's validated rows.
        files: the batch's inputs.
        newest: the newest event time of all good rows; None if there are none.
    """
    inputs = {file.path if file.is_range else FILES for file in files}
    if len(inputs) == 1:
        return {} if newest is None else {inputs.pop(): newest}
    input_of_row = F.when(F.startswith(PATH, F.lit(TOPIC)), F.col(PATH)).otherwise(F.lit(FILES)).alias(PATH)
    times = validated.where(is_good()).groupBy(input_of_row).agg(F.max(millis(F.col(EVENT_TIME))))
    return dict(collect(times))  # pyright: ignore[reportArgumentType]
