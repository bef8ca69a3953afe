"""Finds new records in Kafka's topics: the ranges of offsets that the ledger does not have yet."""

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from platform_defs.engine.formats.avro import schema_fault
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.formats.files import TOPIC, File
from platform_defs.engine.formats.kafka_client import SharedAdmin, described_topic, error_reason
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import OFFSET_MASK, Partition, offset_range
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.safe_text import one_line

_EARLIEST, _LATEST, _WRITTEN = "earliest", "latest", "written"
_log = logging.getLogger(__name__)


class TopicError(IngestError):
    """A topic does not continue what was ingested, or does not fit the options. No topic of the source is read until a user decides."""

    @classmethod
    def created_again(cls, source: str, topic: str, ids: Iterable[str], topic_id: str) -> "TopicError":
        """The topic was deleted and created again."""
        return cls(
            f"source {source!r}: the topic {topic} has the id {topic_id}, and the ledger has records of {topic} with the id "
            f"{', '.join(ids)}: the topic was deleted and created again. Legal: a topic that keeps its records. To read the new topic "
            f"from its beginning, after all that was read of the old one, add {topic_id} to the source's list `accepted` of topic ids"
        )

    @classmethod
    def lost(cls, source: str, partition: Partition, offset: int, earliest: int) -> "TopicError":
        """Kafka has deleted records that were not read."""
        return cls(
            f"source {source!r}: partition {partition.number} of the topic {partition.topic} starts at offset {earliest}, and offset "
            f"{offset} is the next to be read: Kafka has deleted {earliest - offset} records that were not read. Legal: a retention time "
            "longer than the longest pause of the ingest. To go on without them, set the option `failOnDataLoss` to false"
        )

    @classmethod
    def no_schema(cls, source: str, file: str | None, reason: str) -> "TopicError":
        """Spark cannot read the Avro schema of the topics."""
        return cls(
            f"source {source!r}: the Avro schema of its topics, in the file {file!r}, cannot be read: {one_line(reason)}. Nothing was "
            "read. Legal: the schema of a record, without recursion and without references to other files. Correct the file (`schema_file`)"
        )

    @classmethod
    def no_start(cls, source: str, partition: Partition, offset: int, legal: tuple[int, int]) -> "TopicError":
        """The partition does not have the offset at which it is to be read first."""
        return cls(
            f"source {source!r}: partition {partition.number} of the topic {partition.topic} is to be read from offset {offset}; "
            f"legal: {legal[0]} to {legal[1]}. Correct the option `startingOffsets`"
        )

    @classmethod
    def shortened(cls, source: str, partition: Partition, end: int, latest: int) -> "TopicError":
        """The partition has fewer records than were read."""
        return cls(
            f"source {source!r}: partition {partition.number} of the topic {partition.topic} ends at offset {latest}, but was read up to "
            f"offset {end}: Kafka has lost records, and new records would have offsets that the ledger has already. Send new records to a "
            "new topic, and let the source read that topic too (option `subscribe`)"
        )


class Broker:
    """Kafka's administration client, in the JVM of a session, with the options that Spark's reader has.

    Args:
        spark: the session.
        options: the options of Kafka's client.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._read_committed = options.get("isolation.level") == "read_committed"
        self._use = SharedAdmin(self._jvm, options)
        self._admin = self._use.client

    def partitions(self, topics: Topics) -> tuple[list[Partition], list[str]]:
        """The partitions of the topics, and the names of topics that do not exist."""
        partitions, missing = list[Partition](), list[str]()
        for name in self._names(topics):
            description = described_topic(self._jvm, self._admin, name)
            if description is None:
                missing.append(name)
                continue
            topic_id = description.topicId().toString()
            partitions += [Partition(name, number, topic_id) for number in range(description.partitions().size())]
        return partitions, missing

    def _names(self, topics: Topics) -> list[str]:
        if topics.subscribed:
            return topics.subscribed
        pattern = topics.option("subscribePattern")
        return sorted(name for name in self._admin.listTopics().names().get() if self._jvm.java.util.regex.Pattern.matches(pattern, name))

    def offsets(self, partitions: Iterable[Partition], position: str | int) -> dict[Partition, int]:
        """Offsets of partitions.

        Args:
            partitions: the partitions.
            position: `earliest`; `latest`, the offset after the newest record that can be read now; `written`, the offset after the newest
                record, which may belong to an open transaction; or a time in epoch ms, for the first record since then. A partition
                without a record since that time has its latest offset.
        """
        clients = self._jvm.org.apache.kafka.clients.admin
        specs = {_EARLIEST: clients.OffsetSpec.earliest, _LATEST: clients.OffsetSpec.latest, _WRITTEN: clients.OffsetSpec.latest}
        spec = specs[position]() if isinstance(position, str) else clients.OffsetSpec.forTimestamp(position)
        java_partitions = {
            partition: self._jvm.org.apache.kafka.common.TopicPartition(partition.topic, partition.number) for partition in partitions
        }
        specs_by_partition = self._jvm.java.util.HashMap()
        for key in java_partitions.values():
            specs_by_partition.put(key, spec)
        is_committed = self._read_committed and position != _WRITTEN
        level = self._jvm.org.apache.kafka.common.IsolationLevel.valueOf("READ_COMMITTED" if is_committed else "READ_UNCOMMITTED")
        answer: Any = self._admin.listOffsets(specs_by_partition, clients.ListOffsetsOptions(level)).all().get() if java_partitions else {}
        offsets = {partition: int(answer.get(key).offset()) for partition, key in java_partitions.items()}
        missing = [partition for partition, offset in offsets.items() if offset < 0]
        return offsets | (self.offsets(missing, _LATEST) if missing else {})

    def close(self) -> None:
        """Close the client's connections, unless others use it."""
        self._use.close()


class TopicRanges:
    """Finds the new records of one source.

    Args:
        source: the source.
        topics: its topics.
        ledger: the lake's ledger.
        at_once: about how many offsets one micro-batch has at most, unless the option `maxOffsetsPerTrigger` gives another number.
    """

    def __init__(self, source: str, topics: Topics, ledger: Ledger, at_once: int) -> None:
        self._source, self._topics, self._ledger = source, topics, ledger
        self._default_at_once = at_once
        self._broker: Broker | None = None
        self._has_schema = False  # whether Spark can read the schema of all values
        self._has_looked = False  # whether a look of the present run has found the starts of all partitions
        self._ends: dict[Partition, int] | None = None  # the latest offsets at the first look of a run that reads only to them
        self._first_offsets: dict[Partition, int] = {}  # the first offsets by the options, also for ranges that could not be read yet
        self.unlisted: dict[str, str] = {}
        """Why the newest look found no offsets of a topic, by the topic's path."""
        self.refused: str | None = None
        """Why the topics are not read until a user decides, as of the newest look; None if they are read."""
        self.has_more = False
        """Whether the newest look left records for the next."""
        self.reads_to_present = False
        """Whether the present run reads only the records that were present at its first look."""

    def begin(self, *, to_present: bool) -> None:
        """Begin a run: with `to_present`, it reads the records that are present at its first look, and no later ones."""
        self.reads_to_present, self._ends, self.has_more, self._has_looked = to_present, None, False, False

    def close(self) -> None:
        """Close the connection to the broker."""
        broker, self._broker = self._broker, None  # first, since closing fails too if the JVM has ended
        if broker is not None:
            broker.close()

    def new(self, spark: SparkSession) -> list[File]:
        """The next ranges of offsets; none if the broker cannot be reached, a secret is not set or not legal, or a topic is refused.

        See `unlisted` and `refused`.
        """
        self.unlisted, self.refused, self.has_more = {}, None, False
        try:
            _ = dict(self._topics.options)  # all secrets, also those that only the reader of records needs
            self._check_schema(spark)
            self._broker = self._broker or Broker(spark, self._topics.client)
            return self._find_ranges(self._broker)
        except TopicError as error:
            self.refused, self.has_more = str(error), False
        except Py4JError as error:
            self.close()
            self.unlisted[f"{TOPIC}{self._topics.name}"] = error_reason(error)
        except ConnectionsError as error:
            self.unlisted[f"{TOPIC}{self._source}"] = str(error)  # without the topics, which may be the value that is not set
        return []

    def _check_schema(self, spark: SparkSession) -> None:
        """Raise `TopicError` if Spark cannot read the Avro schema with which all values are written."""
        avro = self._topics.avro
        if avro is not None and avro.schema is not None and not self._has_schema:
            if (fault := schema_fault(spark, avro.schema)) is not None:
                raise TopicError.no_schema(self._source, avro.file, fault)
            self._has_schema = True

    def _find_ranges(self, broker: Broker) -> list[File]:
        partitions, missing = broker.partitions(self._topics)
        self.unlisted |= {f"{TOPIC}{name}": "there is no such topic" for name in missing}
        recorded = {Partition.of(path): end for path, end in self._ledger.topic_ends(self._source).items()}
        self._require_same_topics(partitions, recorded)
        known_ends = self._first_offsets | recorded
        latest, earliest = broker.offsets(partitions, _LATEST), broker.offsets(partitions, _EARLIEST)
        written = latest | broker.offsets([p for p, end in known_ends.items() if p in latest and latest[p] < end], _WRITTEN)
        next_offsets = {p: self._next_offset(p, end, earliest[p], written[p]) for p, end in known_ends.items() if p in latest}
        new_partitions = [p for p in partitions if p not in next_offsets]
        is_first = not known_ends and not self._has_looked
        starts = self._starts(broker, new_partitions, earliest, latest) if is_first else {p: earliest[p] for p in new_partitions}
        written = latest | broker.offsets([p for p, start in starts.items() if latest[p] < start], _WRITTEN)
        self._check_starts(starts, earliest, written)
        self._has_looked = True
        if is_first and not self._topics.starts_at_earliest:
            self._first_offsets = starts
        return self._ranges_from(next_offsets | starts, latest, recorded)

    def _ranges_from(self, begin: dict[Partition, int], latest: dict[Partition, int], recorded: dict[Partition, int]) -> list[File]:
        """The ranges to read now, given each partition's next offset to read, its latest offset, and the end that the ledger records."""
        if self.reads_to_present:
            self._ends = latest if self._ends is None else self._ends
            latest = {p: min(end, self._ends.get(p, 0)) for p, end in latest.items()}
        at_once = int(self._topics.option("maxOffsetsPerTrigger", str(self._default_at_once)))
        until = _limit_ends(begin, latest, at_once)
        self.has_more = any(until[p] < latest[p] for p in begin)
        # a chosen start and an offset after lost records are recorded even without a record to read: the next look must know them
        moved = {p for p in self._first_offsets | recorded if p in begin and begin[p] != recorded.get(p)}
        return [offset_range(p, begin[p], until[p], self._source, self._topics) for p in begin if until[p] > begin[p] or p in moved]

    def _require_same_topics(self, partitions: Iterable[Partition], known_ends: Mapping[Partition, int]) -> None:
        for topic, topic_id in sorted({(p.topic, p.topic_id) for p in partitions}):
            ids = sorted({p.topic_id for p in known_ends if p.topic == topic})
            if ids and topic_id not in ids and topic_id not in self._topics.accepted:
                raise TopicError.created_again(self._source, topic, ids, topic_id)

    def _next_offset(self, partition: Partition, end: int, earliest: int, latest: int) -> int:
        """The next offset to read from a partition that was read up to `end`; raises `TopicError` if records are lost."""
        if latest < end:
            raise TopicError.shortened(self._source, partition, end, latest)
        if earliest <= end:
            return end
        if self._topics.option("failOnDataLoss", "true").lower() == "true":
            raise TopicError.lost(self._source, partition, end, earliest)
        _log.warning(
            "%s of source %r: the records from offset %d to %d are lost and are skipped", partition.path, self._source, end, earliest - 1
        )
        return earliest

    def _check_starts(self, starts: Mapping[Partition, int], earliest: Mapping[Partition, int], latest: Mapping[Partition, int]) -> None:
        for p, offset in starts.items():
            if not earliest[p] <= offset <= latest[p] <= OFFSET_MASK:
                raise TopicError.no_start(self._source, p, offset, (earliest[p], min(latest[p], OFFSET_MASK)))

    def _starts(
        self, broker: Broker, new_partitions: list[Partition], earliest: Mapping[Partition, int], latest: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """The first offsets of a source of which nothing was read yet."""
        if since := self._topics.option("startingTimestamp"):
            return broker.offsets(new_partitions, int(since))
        option = self._topics.option("startingOffsets", _EARLIEST)
        if option.lower() in (_EARLIEST, _LATEST):
            return {p: latest[p] if option.lower() == _LATEST else earliest[p] for p in new_partitions}
        offsets_by_topic: dict[str, dict[str, int]] = json.loads(option)
        chosen_offsets = {p: offsets_by_topic.get(p.topic, {}).get(str(p.number), -2) for p in new_partitions}
        return {p: {-2: earliest[p], -1: latest[p]}.get(offset, offset) for p, offset in chosen_offsets.items()}


def _limit_ends(begin: Mapping[Partition, int], latest: Mapping[Partition, int], at_once: int) -> dict[Partition, int]:
    """The ends of ranges that have about `at_once` offsets together. They are shared among partitions by the number of unread records."""
    unread_by_partition = {p: max(0, latest[p] - begin[p]) for p in begin}
    total = sum(unread_by_partition.values())
    if total <= at_once:
        return {p: begin[p] + unread_by_partition[p] for p in begin}
    return {p: begin[p] + min(unread_by_partition[p], math.ceil(at_once * unread_by_partition[p] / total)) for p in begin}


def starts_of_unread(unread: Sequence[Unread], known_ends: Mapping[str, int]) -> list[str]:
    """Values for the ledger's `offsets`: the start of each range that could not be read, if the ledger has no offset of its partition.

    Without such a value, the next process would take the partition for a new one, and read it from its beginning.

    Args:
        unread: the input that could not be read in a batch.
        known_ends: the offsets that the ledger records, by the path of each partition.
    """
    ranges = [u.file for u in unread if u.file.is_range and not u.is_replaced and u.file.path not in known_ends]
    return [replace(file, length=0).offset for file in ranges]


def topic_ranges(topics: Mapping[str, Topics], ledger: Ledger, at_once: int) -> dict[str, TopicRanges]:
    """The finders of new records, by source."""
    return {source: TopicRanges(source, topics_of_source, ledger, at_once) for source, topics_of_source in topics.items()}
