"""A source with input that waits to be read is not idle, and unreadable input holds back no table for ever. Without Spark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from assets.contracts import Alignment, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition, offset_range
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.ingest import Ingest, _SourceResult
from platform_defs.engine.ingest.ingestion import Ingestion
from platform_defs.engine.ingest.stream import Stream
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Batch, SourceBatch, next_row
from platform_defs.engine.ledger.open_batch import OpenBatch
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, MINUTE, START, source

NO_SESSION: Any = None
TOPICS = Topics(options={"subscribe": "payments"})


@dataclass
class Topic:
    """The finder of the records of a topic with one partition, which the source `r` reads.

    Args:
        end: the offset after its newest record.
        at_once: the largest number of records in one batch.
        position: the offset of the next record.
    """

    end: int = 0
    at_once: int = 1
    position: int = 0
    unlisted: dict[str, str] = field(default_factory=dict)
    refused: str | None = None
    has_more: bool = False
    reads_to_present: bool = False
    _present: int | None = None

    def begin(self, *, to_present: bool) -> None:
        self.reads_to_present, self._present = to_present, None

    def close(self) -> None:
        """Nothing is open."""

    def new(self, _: Any) -> list[File]:
        self._present = self.end if self._present is None or not self.reads_to_present else self._present
        if self.unlisted:
            return []
        first, self.position = self.position, min(self.position + self.at_once, self._present)
        self.has_more = self.position < self._present
        length = self.position - first
        return [offset_range(Partition("payments", 0, "id"), first, length, "r", TOPICS)] if length else []


@dataclass
class Lakes:
    """Ingests into one lake without a session: each file or range counts as one row, and files named `bad` cannot be read.

    Args:
        folder: the folder of the lake and of the sources' files.
        clock: the wall clock.
        contracts: the sources.
        topic: the topic of the source `r`; None if it has none.
        damaged: whether files named `bad` cannot be read.
        before_look: the calls before each look of a continuous stream, from its second look on.
        with_more_files: the sources of each batch, each with whether more of its files wait.
    """

    folder: Path
    clock: Clock
    contracts: Sequence[SourceContract] = ()
    topic: Topic | None = None
    damaged: bool = True
    before_look: list[Callable[[], Any]] = field(default_factory=list)
    with_more_files: list[tuple[str, bool]] = field(default_factory=list)

    def engine(self) -> Engine:
        """An engine, as a new process has it."""
        names = [contract.name for contract in self.contracts]
        folders = {name: str(self.folder / "in" / name) for name in names}
        by_name = {contract.name: contract for contract in self.contracts}
        return Engine(Lake(str(self.folder / "lake")), by_name, {}, lambda: NO_SESSION, self.clock, folders=folders, max_files=1)

    def land(self, name: str, *files: str) -> None:
        for file in files:
            path = self.folder / "in" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}\n")

    def ingest(self, on_batch: Callable[[Batch], Any] = lambda _: None) -> None:
        """Ingest what is present, in a new process."""
        self.engine().ingestion.run(None, on_batch)

    def stream(self, *before_look: Callable[[], Any], on_batch: Callable[[Batch], Any] = lambda _: None) -> None:
        """Ingest continuously, with a call before each look but the first."""
        self.before_look[:] = before_look
        with pytest.raises(KeyboardInterrupt, match="enough"):
            self.engine().ingestion.run("30 seconds", on_batch)

    @property
    def history(self) -> list[str]:
        """The sources of each batch, in capitals if they became idle in it."""
        rows = [[row.source.upper() if row.kind == "inactive" else row.source for row in batch] for batch in self.engine().ledger.batches()]
        return ["".join(sorted(names)) for names in rows]

    def source(
        self, ingest: Ingest, batch: OpenBatch, contract: SourceContract, files: Sequence[File], last: SourceBatch | None
    ) -> _SourceResult:
        self.with_more_files.append((contract.name, contract.name in ingest.with_more_files))
        unread = [Unread(file, "no permission") for file in files if "bad" in file.path and self.damaged]
        readable = [file for file in files if file not in [failure.file for failure in unread]]
        row = last or SourceBatch(seq=batch.seq, kind="rows", ingested_at=batch.now, source=contract.name)
        counts: dict[str, Any] = {"rows_read": len(readable), "duplicate": len(readable), "offsets": tuple(f.offset for f in readable)}
        committed = next_row(row, seq=batch.seq, kind="rows", ingested_at=batch.now, idle=False, **counts)
        return _SourceResult(committed if readable else None, unread)

    def sleep(self, _: float) -> None:
        if not self.before_look:
            raise KeyboardInterrupt("enough")
        self.before_look.pop(0)()


@pytest.fixture
def lakes(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Lakes:
    made, whole = Lakes(tmp_path, clock, [source(name, idle_timeout="10 minutes") for name in "lr"]), Ingestion.stream.fget
    assert whole is not None

    def stream(ingestion: Ingestion) -> Stream:
        ranges: Any = {} if made.topic is None else {"r": made.topic}
        return replace(whole(ingestion), ranges=ranges, sleep=made.sleep)

    def ingest_source(ingest: Ingest, *args: Any) -> _SourceResult:
        return made.source(ingest, *args)

    monkeypatch.setattr(Ingestion, "stream", property(stream))
    monkeypatch.setattr(Ingest, "_ingest_source", ingest_source)
    return made


def test_a_source_with_a_backlog_in_a_topic_is_not_idle_while_files_are_read(lakes: Lakes, clock: Clock) -> None:
    lakes.topic = Topic(end=2)
    lakes.land("l", "1.jsonl", "2.jsonl", "3.jsonl", "4.jsonl")
    lakes.ingest(on_batch=lambda _: clock.pass_ms(11 * MINUTE))
    assert lakes.history == ["lr", "l", "l", "l", "Lr"]


def test_input_that_arrives_during_long_micro_batches_counts(lakes: Lakes, clock: Clock) -> None:
    lakes.land("l", "1.jsonl", "2.jsonl", "3.jsonl", "4.jsonl")
    lakes.land("r", "1.jsonl")

    def land(entry: Batch) -> None:
        lakes.land("r", "2.jsonl") if entry[0].seq == 1 else None
        clock.pass_ms(11 * MINUTE)

    lakes.ingest(land)
    assert lakes.history == ["lr", "l", "l", "l"]
    lakes.ingest()
    assert lakes.history[4:] == ["Lr"], "`l` has had no input since"


def test_records_that_arrive_after_the_first_look_of_an_ingest_count(lakes: Lakes, clock: Clock) -> None:
    """It reads the records that were present at that look, and no later ones."""
    lakes.topic = topic = Topic(end=2)

    def send(_: Batch) -> None:
        topic.end = 3
        clock.pass_ms(11 * MINUTE)

    lakes.ingest(send)
    assert lakes.history == ["r", "Lr"]
    lakes.ingest()
    assert lakes.history[2:] == ["r"]


def test_a_stream_looks_for_input_again_before_a_long_backlog_is_read(lakes: Lakes, clock: Clock) -> None:
    """So a source becomes idle meanwhile if it is silent, and its input is read meanwhile if it is not."""
    lakes.land("l", *(f"{n}.jsonl" for n in range(1, 8)))
    lakes.land("r", "1.jsonl")

    def land(entry: Batch) -> None:
        lakes.land("r", "2.jsonl") if entry[0].seq == 2 else None
        clock.pass_ms(4 * MINUTE)

    lakes.stream(on_batch=land)
    assert lakes.history == ["lr", "l", "lr", "l", "l", "Rl", "l"]


def test_a_batch_knows_whether_more_files_of_its_sources_wait(lakes: Lakes, clock: Clock) -> None:
    """The first source is read file by file, and the second in two batches of a look; a stream looks again after one of them."""
    lakes.contracts = [source("l", alignment=Alignment("g", "1 hour"), idle_timeout="10 minutes"), source("r")]
    for name in "lr":
        lakes.land(name, "1.jsonl", "2.jsonl")
    lakes.ingest()
    assert sorted(lakes.with_more_files) == [("l", False), ("l", True), ("r", False), ("r", True)]
    lakes.with_more_files.clear()
    lakes.land("r", "3.jsonl", "4.jsonl", "5.jsonl")
    lakes.stream(on_batch=lambda _: clock.pass_ms(2 * MINUTE))
    assert lakes.with_more_files == [("r", True), ("r", True), ("r", False)]


def test_a_source_that_waits_for_its_group_is_not_idle_when_the_source_that_it_waits_for_becomes_idle(lakes: Lakes, clock: Clock) -> None:
    """`r` is ahead of `l`, which is silent, while files of `s` are read."""
    aligned: Any = {"alignment": Alignment("g", "1 hour"), "idle_timeout": "10 minutes"}
    lakes.contracts = [source("l", **aligned), source("r", **aligned), source("s")]
    lakes.engine().ingestion.control_batches.watermark({"l": START, "r": START + 2 * HOUR})
    lakes.land("r", "1.jsonl", "2.jsonl")
    lakes.land("s", *(f"{n}.jsonl" for n in range(1, 6)))
    lakes.stream(on_batch=lambda _: clock.pass_ms(6 * MINUTE))
    assert lakes.history == ["lr", "s", "s", "Ls", "rs", "rs"]


def test_a_file_that_is_never_readable_holds_back_no_table_for_ever(lakes: Lakes, clock: Clock) -> None:
    """Each ingest is a process of its own, and ends with an error."""
    lakes.land("l", "1.jsonl")
    lakes.land("r", "1.jsonl")
    lakes.ingest()
    lakes.land("r", "bad.jsonl")
    for minutes, expected in ((10, ["lr"]), (1, ["lr", "LR"])):
        clock.pass_ms(minutes * MINUTE)
        with pytest.raises(UnreadError, match="no permission") as raised:
            lakes.ingest()
        assert lakes.history == expected
        assert len(raised.value.batches) == len(expected) - 1, "the error has the batch of the sources that became idle"
    lakes.damaged = False
    lakes.ingest()
    assert lakes.history == ["lr", "LR", "r"]


def test_in_a_stream_too_an_unreadable_file_is_silence(lakes: Lakes, clock: Clock) -> None:
    """The first look at it counts as input, since the file may be readable; the next ones do not."""
    lakes.land("l", "1.jsonl")
    lakes.land("r", "1.jsonl")
    lakes.stream(
        lambda: (clock.pass_ms(9 * MINUTE), lakes.land("r", "bad.jsonl"), lakes.land("l", "2.jsonl")),
        lambda: (clock.pass_ms(2 * MINUTE), lakes.land("l", "3.jsonl")),
    )
    assert lakes.history == ["lr", "l", "Rl"]


def test_new_unreadable_files_at_each_look_are_silence_too(lakes: Lakes, clock: Clock) -> None:
    """Other sources are recorded as idle meanwhile, although each look finds something."""
    lakes.land("l", "1.jsonl")
    lakes.land("r", "1.jsonl")
    lakes.stream(*[lambda n=n: (clock.pass_ms(4 * MINUTE), lakes.land("r", f"bad{n}.jsonl")) for n in range(1, 5)])
    assert lakes.history == ["lr", "LR"]


def test_a_broker_that_never_answers_holds_back_no_table_for_ever(lakes: Lakes, clock: Clock) -> None:
    lakes.topic = topic = Topic(end=1)
    lakes.land("l", "1.jsonl")

    def fail() -> None:
        topic.unlisted["kafka:payments"] = "no broker"
        topic.end = 3
        clock.pass_ms(10 * MINUTE)

    lakes.stream(
        fail,
        lambda: (clock.pass_ms(1), lakes.land("l", "2.jsonl")),
        topic.unlisted.clear,
    )
    assert lakes.history == ["lr", "Rl", "r"]


def test_a_refused_topic_holds_back_no_table_for_ever(lakes: Lakes, clock: Clock) -> None:
    lakes.topic = topic = Topic(end=1)
    lakes.ingest()
    topic.refused = "the topic was created again"
    clock.pass_ms(10 * MINUTE + 1)
    with pytest.raises(UnreadError, match="created again"):
        lakes.ingest()
    assert lakes.history == ["r", "LR"]
