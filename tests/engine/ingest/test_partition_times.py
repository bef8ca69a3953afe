"""The watermark of a source with several Kafka partitions."""

from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition, offset_range
from platform_defs.engine.ingest.partition_times import PartitionTimes

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
