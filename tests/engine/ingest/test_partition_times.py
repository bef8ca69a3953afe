"""The watermark of a source with several Kafka partitions."""

import random
from collections import Counter
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from platform_defs.connections.values import Secret, topic_options
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition, offset_range
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.ingest.partition_times import FILES, PartitionTimes, newest_by_input
from tests.support.example_counts import example_count

ONE, OTHER = Partition("orders", 0, "id1").path, Partition("orders", 1, "id1").path
ORDERS = Topics(options={"subscribe": "orders"})


def test_the_partition_that_is_behind_holds_the_watermark_back():
    times = PartitionTimes({}).after({ONE: 100, OTHER: 40}, now=1_000)
    assert times.lowest(1_000, None) == 40
    assert times.after({OTHER: 120}, now=2_000).lowest(2_000, None) == 100


def test_an_older_record_does_not_move_a_partition_back():
    assert PartitionTimes({}).after({ONE: 100}, now=1).after({ONE: 30}, now=2).lowest(2, None) == 100


def test_a_partition_that_never_had_a_record_does_not_hold_the_watermark_back():
    assert PartitionTimes({}).after({ONE: 100}, now=1).lowest(1, "1 hour") == 100


def test_an_idle_partition_does_not_hold_the_watermark_back_until_it_has_records_again():
    times = PartitionTimes({}).after({ONE: 100, OTHER: 40}, now=0).after({ONE: 200}, now=60_000)
    assert times.lowest(60_000, "1 minute") == 40
    assert times.lowest(60_001, "1 minute") == 200
    assert times.lowest(10**9, None) == 40, "without an idle timeout it waits for ever"
    assert times.after({OTHER: 50}, now=70_000).lowest(70_000, "1 minute") == 50


def test_a_partition_that_was_active_while_the_clock_was_ahead_becomes_idle():
    hour, year = 3_600_000, 365 * 86_400_000
    times = PartitionTimes({}).after({ONE: 100, OTHER: 40}, now=year)
    times = PartitionTimes.read(times.after({ONE: 200}, now=0).recorded)
    assert times.lowest(0, "1 hour") == 40, "its timeout starts when the clock is right again"
    times = PartitionTimes.read(times.after({ONE: 300}, now=hour).recorded)
    assert times.lowest(hour, "1 hour") == 40
    assert times.after({ONE: 400}, now=hour + 1).lowest(hour + 1, "1 hour") == 400


def test_if_all_partitions_are_idle_there_is_no_lowest_time():
    assert PartitionTimes({}).after({ONE: 100}, now=0).lowest(60_001, "1 minute") is None


def test_the_state_is_recorded_and_read_again():
    times = PartitionTimes({}).after({ONE: 100, OTHER: -40}, now=7)
    assert times.recorded == (f"{ONE}|100|7", f"{OTHER}|-40|7")
    assert PartitionTimes.read(times.recorded) == times
    assert PartitionTimes.read(()) == PartitionTimes({})


def test_a_topic_that_was_created_again_takes_over():
    again = Partition("orders", 0, "id2").path
    times = PartitionTimes({}).after({ONE: 100, OTHER: 40}, now=0).after({again: 90}, now=1)
    assert times.recorded == (f"{again}|90|1",)


def test_partitions_of_topics_that_are_no_longer_read_are_left_out():
    topics = Topics(options={"subscribe": "orders, payments"})
    assert [topics.reads(name) for name in ("orders", "payments", "order")] == [True, True, False]
    by_pattern = Topics(options={"subscribePattern": "pay.*"})
    assert [by_pattern.reads(name) for name in ("payments", "orders")] == [True, False]
    old = Partition("old", 0, "id9").path
    times = PartitionTimes({}).after({old: 10, ONE: 100}, now=0)
    assert times.after_batch({ONE: 120}, topics, now=1).recorded == (f"{ONE}|120|1",)


def test_a_source_that_has_read_kafka_and_goes_on_with_files_has_their_watermark():
    """Its ledger, perhaps of an earlier version, remembers the partitions until the first batch of files."""
    remembered = PartitionTimes.read((f"{ONE}|100|0", f"{OTHER}|40|0"))
    times = remembered.after_batch({FILES: 500}, None, now=9)
    assert (times.recorded, times.lowest(9, None, 500)) == ((), 500)


def test_files_of_a_source_that_reads_topics_too_hold_the_watermark_back_only_while_more_of_them_wait():
    times = PartitionTimes({}).after({ONE: 100, OTHER: 80}, now=0).after_batch({FILES: 10}, ORDERS, now=1)
    assert len(times.recorded) == 2, "files are not remembered"
    assert times.lowest(1, None, 10, Look(1), has_more_files=True) == 10
    assert times.lowest(1, None, 10, Look(1)) == 80, "a late release of records does not hold it back"
    assert times.lowest(1, None, 500, Look(1), has_more_files=True) == 80, "files do not move it past a partition"
    assert times.lowest(60_002, "1 minute", 500, Look(60_002)) == 500, "no partition is active"
    assert times.lowest(60_002, None, 500, Look(60_002)) == 80, "without an idle timeout, a silent partition holds it back"


def test_a_partition_is_silent_up_to_the_newest_look():
    times = PartitionTimes({}).after({ONE: 100, OTHER: 40}, now=0)
    assert times.lowest(90_000, "1 minute", 500, Look(50_000)) == 40, "its records may have arrived since"
    assert times.lowest(90_000, "1 minute", 500, Look(90_000)) == 500


def test_topics_that_a_variable_names_are_still_read_while_the_variable_is_not_set(monkeypatch: pytest.MonkeyPatch):
    """Such a source still reads its files."""
    monkeypatch.delenv("NO_SUCH_TOPIC", raising=False)
    topics = Topics(options=topic_options({"subscribe": Secret(env="NO_SUCH_TOPIC")}))
    assert PartitionTimes({}).after({ONE: 100}, now=0).after_batch({FILES: 10}, topics, now=1).recorded == (f"{ONE}|100|0",)


def test_the_newest_times_need_a_query_only_if_a_batch_has_several_inputs():
    """The rows of a batch are not looked at here, and cannot be."""
    ranges, no_rows = [offset_range(Partition("orders", 0, "id1"), 5, 6, "l", ORDERS)], Any
    files = [File(n, f"file:/in/{n}.jsonl", 1, "l") for n in range(3)]
    assert newest_by_input(cast(DataFrame, no_rows), ranges, 120) == {ONE: 120}
    assert newest_by_input(cast(DataFrame, no_rows), files, 120) == {FILES: 120}
    assert newest_by_input(cast(DataFrame, no_rows), files, None) == {}


def _lowest_by_model(batches, now, idle_ms):
    """The lowest time by the definition: of the partitions of each topic since it was last created, the newest time of each active one.

    Args:
        batches: the event times of each partition, by batch, and the time of the batch.
        now: the wall clock.
        idle_ms: the idle timeout; None for none.
    """
    created = {partition.topic: partition.topic_id for newest, _ in batches for partition in newest}
    partitions = {partition for newest, _ in batches for partition in newest if created[partition.topic] == partition.topic_id}
    seen = {partition: [(newest[partition], at) for newest, at in batches if partition in newest] for partition in partitions}
    active = [times for times in seen.values() if idle_ms is None or now - times[-1][1] <= idle_ms]
    return min((max(time for time, _ in times) for times in active), default=None)


@pytest.mark.parametrize("examples", [250, pytest.param(1_000, marks=pytest.mark.soak)])
def test_the_lowest_time_equals_that_of_a_model(examples: int):
    """In random cases, topics of several partitions are created again, fall silent and return; each state is recorded and read."""
    rng, seen = random.Random(5), Counter[str]()
    for case in range(example_count(examples)):
        times, batches, now, idle_ms, ids = PartitionTimes({}), [], 0, rng.choice([None, 0, 300, 1_000]), {"orders": 1, "payments": 1}
        was_silent = False
        for _ in range(rng.randrange(1, 12)):
            now += rng.randrange(400)
            topic = rng.choice([*ids])
            ids[topic] += rng.random() < 0.1
            all_partitions = [Partition(name, number, f"id{n}") for name, n in ids.items() for number in range(3)]
            newest = {partition: rng.randrange(-500, 500) for partition in rng.sample(all_partitions, rng.randrange(4))}
            batches.append((newest, now))
            times = PartitionTimes.read(times.recorded).after({partition.path: time for partition, time in newest.items()}, now)
            for later in (now, now + 300, now + 301):
                assert times.lowest(later, idle_ms) == _lowest_by_model(batches, later, idle_ms), case
            is_silent = times.lowest(now, idle_ms) != times.lowest(now, None)
            seen["silent"] += is_silent
            seen["active again"] += was_silent and not is_silent
            was_silent = is_silent
        seen["created again"] += max(ids.values()) > 1
    assert min(seen[name] for name in ("silent", "active again", "created again")) > example_count(examples) // 10, seen
