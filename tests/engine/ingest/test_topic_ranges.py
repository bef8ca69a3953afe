"""Which offsets of Kafka's topics are read next, without a broker."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from platform_defs.connections.values import Secret, topic_options
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition, offset_range
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.topic_ranges import TopicRanges, starts_of_unread
from platform_defs.engine.ledger.known_files import KnownFiles

ORDERS = [Partition("orders", number, "id1") for number in range(3)]


@dataclass
class FakeBroker:
    """A broker with the earliest and the latest offset of each partition.

    Args:
        held: by partition, the earliest offset, and the offset after the newest record that can be read.
        missing: topics that do not exist.
        since: by partition, the offset of the first record since a time.
        open: the number of records of open transactions, after the latest offset.
    """

    held: dict[Partition, tuple[int, int]]
    missing: list[str] = field(default_factory=list)
    since: Mapping[Partition, int] = field(default_factory=dict)
    open: int = 0

    def partitions(self, topics: Topics) -> tuple[list[Partition], list[str]]:
        return sorted(self.held), self.missing

    def offsets(self, partitions: Iterable[Partition], which: str | int) -> dict[Partition, int]:
        if isinstance(which, int):
            return {p: self.since[p] for p in partitions}
        return {p: self.held[p][which != "earliest"] + (self.open if which == "written" else 0) for p in partitions}

    def close(self) -> None:
        """Nothing is open."""


def ranges(broker: FakeBroker, known: Mapping[str, int] | None = None, at_once: int = 1_000, *, to_present: bool = True, **topics: Any):
    """A finder that asks this broker, with a ledger that has read up to these offsets."""
    ledger: Any = SimpleNamespace(topic_ends=lambda _: dict(known or {}))
    options = {"subscribe": "orders", **topics.pop("options", {})}
    found = TopicRanges("orders", Topics(options=options, **topics), ledger, at_once)
    found._broker = broker  # pyright: ignore[reportAttributeAccessIssue]
    found.begin(to_present=to_present)
    return found


def of(files: Iterable[File]) -> dict[int, tuple[int, int]]:
    """The first offset and the number of offsets, by the partition's number."""
    return {Partition.of(file.path).number: (file.modified, file.length) for file in files}


def new(finder: TopicRanges) -> dict[int, tuple[int, int]]:
    return of(finder.new(None))  # pyright: ignore[reportArgumentType]


def refusal(finder: TopicRanges) -> str:
    """Why a finder reads nothing until a user decides."""
    assert new(finder) == {}
    assert not finder.has_more
    return finder.refused or ""


def test_a_new_source_starts_at_the_earliest_records():
    broker = FakeBroker({ORDERS[0]: (0, 5), ORDERS[1]: (7, 9), ORDERS[2]: (4, 4)})
    assert new(ranges(broker)) == {0: (0, 5), 1: (7, 2)}


def test_a_source_goes_on_where_the_ledger_ends():
    broker = FakeBroker({ORDERS[0]: (0, 5), ORDERS[1]: (0, 9)})
    assert new(ranges(broker, {ORDERS[0].path: 5, ORDERS[1].path: 6})) == {1: (6, 3)}


def test_a_partition_that_was_added_is_read_from_its_beginning():
    broker = FakeBroker({ORDERS[0]: (0, 5), ORDERS[1]: (0, 9)})
    assert new(ranges(broker, {ORDERS[0].path: 5}, options={"startingOffsets": "latest"})) == {1: (0, 9)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"startingOffsets": "latest"}, {0: (5, 0), 1: (9, 0)}, id="latest"),
        pytest.param({"startingOffsets": "LATEST"}, {0: (5, 0), 1: (9, 0)}, id="in another case"),
        pytest.param({"startingOffsets": '{"orders": {"0": 3, "1": -1}}'}, {0: (3, 2), 1: (9, 0)}, id="by partition"),
        pytest.param({"startingOffsets": '{"orders": {"0": 3}}'}, {0: (3, 2), 1: (1, 8)}, id="by partition, not all"),
        pytest.param({"startingTimestamp": "1000"}, {0: (4, 1), 1: (9, 0)}, id="since a time"),
    ],
)
def test_the_chosen_start_is_recorded_even_without_records(options: dict[str, str], expected: dict[int, tuple[int, int]]):
    broker = FakeBroker({ORDERS[0]: (0, 5), ORDERS[1]: (1, 9)}, since={ORDERS[0]: 4, ORDERS[1]: 9})
    assert new(ranges(broker, options=options)) == expected


_CHOSEN = [
    pytest.param({"startingOffsets": "latest"}, {0: (1_000, 0), 1: (900, 0)}, id="latest"),
    pytest.param({"startingOffsets": '{"orders": {"0": 995, "1": -1}}'}, {0: (995, 5), 1: (900, 0)}, id="by partition"),
    pytest.param({"startingTimestamp": "1000"}, {0: (990, 10), 1: (890, 10)}, id="since a time"),
]


@pytest.mark.parametrize(("options", "expected"), _CHOSEN)
def test_the_chosen_start_holds_until_a_batch_records_it(options: dict[str, str], expected: dict[int, tuple[int, int]]):
    """The first ranges cannot be read for a while: the registry does not answer, or the leader of a partition has moved."""
    broker = FakeBroker({ORDERS[0]: (0, 1_000), ORDERS[1]: (0, 900)}, since={ORDERS[0]: 990, ORDERS[1]: 890})
    ends: dict[str, int] = {}
    finder = ranges(broker, to_present=False, options=options)
    finder._ledger = SimpleNamespace(topic_ends=lambda _: dict(ends))  # pyright: ignore[reportAttributeAccessIssue]
    assert new(finder) == expected
    broker.held = {ORDERS[0]: (0, 1_003), ORDERS[1]: (0, 901)}
    longer = {number: (start, length + {0: 3, 1: 1}[number]) for number, (start, length) in expected.items()}
    assert new(finder) == longer
    ends[ORDERS[0].path] = 1_003
    assert new(finder) == {1: longer[1]}, "the other partition was not read yet"
    finder.begin(to_present=False)
    assert new(finder) == {1: longer[1]}, "nor in the next run"
    ends[ORDERS[1].path] = 901
    assert new(finder) == {}


def test_a_batch_records_the_starts_of_the_ranges_that_it_could_not_read():
    topics = Topics(options={"subscribe": "orders", "startingOffsets": "latest"})
    added, known, replaced = (offset_range(partition, 900, 40, "orders", topics) for partition in ORDERS)
    unread = [Unread(added, "the leader has moved"), Unread(known, ""), Unread(replaced, "created again", is_replaced=True)]
    unread.append(Unread(File(1, "file:/data/orders/a.jsonl", 7, "orders"), "a file is read later"))
    starts = starts_of_unread(unread, {ORDERS[1].path: 850})
    assert starts == [f"{ORDERS[0].path}|900|0"]
    records = KnownFiles()
    records.add(pa.array([f"{ORDERS[1].path}|850|90", *starts], pa.string()))
    broker = FakeBroker({ORDERS[0]: (0, 1_000), ORDERS[1]: (0, 940)})
    next_process = ranges(broker, records.topic_ends(), options={"startingOffsets": "latest"})
    assert new(next_process) == {0: (900, 100)}


def test_a_run_reads_what_is_present_at_its_first_look_in_micro_batches_of_limited_size():
    broker = FakeBroker({ORDERS[0]: (0, 100), ORDERS[1]: (0, 50)})
    ends: dict[str, int] = {}
    finder = ranges(broker, ends, at_once=30)
    finder._ledger = SimpleNamespace(topic_ends=lambda _: dict(ends))  # pyright: ignore[reportAttributeAccessIssue]
    batches: list[dict[int, tuple[int, int]]] = []
    while found := finder.new(None):  # pyright: ignore[reportArgumentType]
        batches.append(of(found))
        assert finder.has_more == (len(batches) < 5)
        ends |= {file.path: file.modified + file.length for file in found}
        broker.held[ORDERS[0]] = (0, broker.held[ORDERS[0]][1] + 1_000)  # more arrives during the run
    assert ends == {ORDERS[0].path: 100, ORDERS[1].path: 50}
    assert len(batches) == 5
    assert batches[0] == {0: (0, 20), 1: (0, 10)}, "each partition has its share of what is left"
    assert all(sum(length for _, length in batch.values()) <= 31 for batch in batches)


def test_a_stream_reads_what_arrives():
    broker = FakeBroker({ORDERS[0]: (0, 1)})
    finder = ranges(broker, {ORDERS[0].path: 1}, to_present=False)
    assert new(finder) == {}
    broker.held[ORDERS[0]] = (0, 3)
    assert new(finder) == {0: (1, 2)}


def test_a_topic_that_was_created_again_is_refused_until_its_id_is_accepted():
    again = Partition("orders", 0, "id2")
    broker = FakeBroker({again: (0, 3)})
    known = {ORDERS[0].path: 10}
    assert re.search(r"the topic orders has the id id2, .* with the id id1: .*add id2 to .*`accepted`", refusal(ranges(broker, known)))
    assert new(ranges(broker, known, accepted=("id2",))) == {0: (0, 3)}
    assert new(ranges(broker, {**known, again.path: 3})) == {}, "the ledger knows the new topic"


def test_deleted_records_are_refused_unless_the_option_allows_it(caplog: pytest.LogCaptureFixture):
    broker = FakeBroker({ORDERS[0]: (8, 12)})
    known = {ORDERS[0].path: 5}
    assert re.search(
        r"starts at offset 8, and offset 5 is the next .* deleted 3 records .*`failOnDataLoss` to false", refusal(ranges(broker, known))
    )
    assert new(ranges(broker, known, options={"failOnDataLoss": "false"})) == {0: (8, 4)}
    assert "offset 5 to 7 are lost" in caplog.text


def test_a_loss_without_later_records_is_recorded_so_that_it_is_reported_once():
    broker, ends = FakeBroker({ORDERS[0]: (100, 100)}), {ORDERS[0].path: 50}
    assert new(ranges(broker, ends, options={"failOnDataLoss": "false"})) == {0: (100, 0)}
    assert new(ranges(broker, {ORDERS[0].path: 100}, options={"failOnDataLoss": "false"})) == {}


def test_a_partition_that_lost_records_which_were_read_is_refused():
    assert re.search(
        r"ends at offset 3, but was read up to offset 5", refusal(ranges(FakeBroker({ORDERS[0]: (0, 3)}), {ORDERS[0].path: 5}))
    )


def test_records_that_were_read_before_their_transaction_ends_are_not_lost():
    """A source that has read uncommitted records, and reads committed ones now."""
    broker = FakeBroker({ORDERS[0]: (0, 3)}, open=4)
    finder = ranges(broker, {ORDERS[0].path: 5})
    assert (new(finder), finder.has_more) == ({}, False)
    broker.held[ORDERS[0]] = (0, 9)
    assert new(ranges(broker, {ORDERS[0].path: 5})) == {0: (5, 4)}


def test_a_start_within_an_open_transaction_is_legal():
    broker = FakeBroker({ORDERS[0]: (0, 3)}, open=4)
    assert new(ranges(broker, options={"startingOffsets": '{"orders": {"0": 6}}'})) == {0: (6, 0)}
    assert re.search(
        "is to be read from offset 8; legal: 0 to 7", refusal(ranges(broker, options={"startingOffsets": '{"orders": {"0": 8}}'}))
    )


def test_a_topic_that_does_not_exist_is_named():
    finder = ranges(FakeBroker({}, missing=["ordres"]))
    assert new(finder) == {}
    assert finder.unlisted == {"kafka:ordres": "there is no such topic"}


@pytest.mark.parametrize("offset", [3, 500])
def test_a_start_that_the_partition_does_not_have_is_refused_before_it_is_recorded(offset: int):
    broker = FakeBroker({ORDERS[0]: (4, 100)})
    options = {"startingOffsets": f'{{"orders": {{"0": {offset}}}}}'}
    assert re.search(
        rf"is to be read from offset {offset}; legal: 4 to 100\. Correct the option `startingOffsets`",
        refusal(ranges(broker, options=options)),
    )


def test_a_topic_that_is_created_during_a_run_is_read_from_its_beginning():
    broker = FakeBroker({}, missing=["orders"])
    finder = ranges(broker, to_present=False, options={"startingOffsets": "latest"})
    assert new(finder) == {}
    broker.held[ORDERS[0]] = (0, 100)
    assert new(finder) == {0: (0, 100)}


@pytest.mark.parametrize("option", ["subscribe", "kafka.sasl.jaas.config", "maxOffsetsPerTrigger", "groupIdPrefix"])
def test_a_secret_that_is_not_set_leaves_the_topics_of_its_source_unlisted(monkeypatch: pytest.MonkeyPatch, option: str):
    monkeypatch.delenv("THE_KEY", raising=False)
    ledger: Any = SimpleNamespace(topic_ends=lambda _: {})
    options = topic_options({"subscribe": "orders", option: Secret(env="THE_KEY")})
    finder = TopicRanges("orders", Topics(options=options), ledger, 1_000)
    finder.begin(to_present=True)
    assert new(finder) == {}
    assert "variable THE_KEY, which is not set" in finder.unlisted["kafka:orders"]
