"""The watermark of a source with several Kafka partitions."""

import random

from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition, offset_range
from platform_defs.engine.ingest.partition_times import PartitionTimes
from tests.support.example_counts import example_count

ONE, OTHER = Partition("orders", 0, "id1").path, Partition("orders", 1, "id1").path


def test_the_partition_that_is_behind_holds_the_watermark_back():
    times = PartitionTimes({}).after({ONE: 100, OTHER: 40}, now=1_000)
    assert times.lowest(1_000, None) == 40
    assert times.after({OTHER: 120}, now=2_000).lowest(2_000, None) == 100


def test_an_older_record_does_not_move_a_partition_back():
    assert PartitionTimes({}).after({ONE: 100}, now=1).after({ONE: 30}, now=2).lowest(2, None) == 100


def test_a_partition_that_never_had_a_record_does_not_hold_it_back():
    assert PartitionTimes({}).after({ONE: 100}, now=1).lowest(1, "1 hour") == 100


def test_an_idle_partition_does_not_hold_it_back_until_it_has_records_again():
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
    files = [offset_range(Partition("orders", 0, "id1"), 5, 6, "l", topics)]
    assert times.after_batch(None, files, 120, now=1).recorded == (f"{ONE}|120|1",)  # pyright: ignore[reportArgumentType]


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


def test_the_lowest_time_equals_that_of_a_model():
    """In random cases, topics of several partitions are created again, fall silent and return; each state is recorded and read."""
    rng = random.Random(5)
    for case in range(example_count(1_000)):
        times, batches, now, idle_ms, ids = PartitionTimes({}), [], 0, rng.choice([None, 0, 300, 1_000]), {"orders": 1, "payments": 1}
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
