"""Finds out, without Spark, whether Kafka topics have records that are not ingested yet. Sensors use it; an ingest looks again itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.formats.files import TOPIC
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topic_offsets import TopicLookError, topic_offsets
from platform_defs.engine.ledger.ledger import Ledger


@dataclass(frozen=True)
class NewRecords:
    """The result of a look at topics.

    Args:
        ends: the offset after the newest record, by the path of each partition with new records.
        unlisted: why the offsets of a topic could not be looked up, by the topic's path.
        missing: the paths of the topics that sources name, and that do not exist.
    """

    ends: Mapping[str, int]
    unlisted: Mapping[str, str]
    missing: Sequence[str] = ()


def new_records(topics: Mapping[str, Topics], ledger: Ledger) -> NewRecords:
    """The partitions with records that are not ingested yet.

    A partition that ends before the offset up to which it was read counts too, so that an ingest reports the lost records. Before the first
    ingest of a source that does not start at the earliest offsets, all of its partitions count, so that the ingest records where it starts.
    A broker that does not answer is asked only once.

    Args:
        topics: the topics of each source.
        ledger: the lake's ledger.
    """
    ends, unlisted, missing, silent = dict[str, int](), dict[str, str](), list[str](), dict[str, str]()
    for source, of_source in sorted(topics.items()):
        try:  # before `topic_offsets`, which would report the error as one of the broker
            path, client = f"{TOPIC}{of_source.name}", repr(sorted(of_source.client.items()))
            starts_at_earliest = of_source.starts_at_earliest
        except ConnectionsError as error:
            unlisted[f"{TOPIC}{source}"] = str(error)
            continue
        if client in silent:
            unlisted[path] = silent[client]
            continue
        try:
            offsets_by_partition = topic_offsets(of_source)
        except TopicLookError as error:
            unlisted[path] = str(error)
            if error.of_client:
                silent[client] = str(error)
            continue
        existing = {partition.topic for partition in offsets_by_partition}
        missing += [f"{TOPIC}{name}" for name in of_source.subscribed if name not in existing]
        known_ends = ledger.topic_ends(source)
        is_undecided = not known_ends and not starts_at_earliest
        ends |= {
            partition.path: offsets[1]
            for partition, offsets in offsets_by_partition.items()
            if is_undecided or _has_new(offsets, known_ends.get(partition.path))
        }
    return NewRecords(ends, unlisted, missing)


def _has_new(offsets: tuple[int, int], end: int | None) -> bool:
    earliest, latest = offsets
    return latest > earliest if end is None else latest != end
