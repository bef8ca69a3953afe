"""The observer of the live benchmarks, with hand-written records and commits. No test starts Spark or a broker."""

import json
import signal
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.live import latency as live_latency
from benchmarks.live import observed, topics
from benchmarks.live.commands import latency, report_live
from benchmarks.live.latency import Latency
from benchmarks.live.observed import Input, Seen, commits, records, upsert_latencies, window_latencies
from benchmarks.live.report import write_samples, write_soak
from benchmarks.live.topics import create_topics
from tests.support.small_sources import START, iso


def _seen(partition: int, number: int, event_ms: int, at: int) -> Seen:
    return Seen(partition, at, {"id": number, "k": f"k{partition}", "at": iso(START + event_ms)})


GIVEN = Input(
    [
        *(_seen(0, n, 100 * n, 1_000 + 100 * n) for n in range(0, 20, 2)),
        *(_seen(1, n, 100 * n, 5_000 + 100 * n) for n in range(1, 20, 2)),
    ]
)


def test_a_window_is_closed_by_the_last_of_the_partitions_first_records_after_its_end_and_the_bound() -> None:
    assert GIVEN.closing(START + 500, 500) == GIVEN.closing(START + 1_000, 0)
    closing = GIVEN.closing(START + 1_000, 0)
    assert closing is not None
    assert (closing.id, closing.at) == (11, 6_100), "partition 1 is behind, and its first record at or after 1,000 ms has the id 11"
    assert GIVEN.closing(START + 1_900, 0) is None, "partition 0 has no such record"


def test_latencies_are_counted_from_the_closing_record_in_its_phase() -> None:
    ends = [(START + 1_000, 6_300), (START + 1_000, 6_400), (START + 1_900, 9_000)]
    assert window_latencies(GIVEN, ends, 0, lambda number: number // 10) == {1: [200, 300]}


def test_an_upserted_row_counts_from_the_version_that_has_the_event() -> None:
    newest = [("k0", 2, 1_500), ("k0", 2, 1_600), ("k0", 8, 2_000)]
    found = upsert_latencies(GIVEN, newest, lambda number: 0 if number <= 8 else None)
    assert sorted(found[0]) == [200, 300, 400, 500, 600], "ids 0 to 8 of partition 0; no version has the ids of partition 1"


def test_rows_that_a_compaction_moves_are_not_new(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    pa: Any = pytest.importorskip("pyarrow")
    for n in range(3):
        deltalake.write_deltalake(str(tmp_path), pa.table({"n": [n]}), mode="append")
    deltalake.DeltaTable(str(tmp_path)).optimize.compact()
    assert [[row["n"] for row in rows] for _, rows in commits(tmp_path, ["n"])] == [[0], [1], [2], []]


class _Message:
    def __init__(self, partition: int, value: bytes | None = None, error: int | None = None) -> None:
        self.partition, self.value, self.timestamp = lambda: partition, lambda: value, lambda: (1, 5)
        self.error = lambda: None if error is None else KafkaError(error)


class _Consumer:
    """A consumer of two partitions with these answers."""

    def __init__(self, *answers: list[_Message]) -> None:
        self._answers, self.is_closed = iter(answers), False

    def list_topics(self, topic: str, _: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

    def assign(self, _: Sequence[Any]) -> None:
        pass

    def consume(self, *_: Any) -> list[_Message]:
        return next(self._answers)

    def close(self) -> None:
        self.is_closed = True


def _ends(partition: int) -> _Message:
    return _Message(partition, error=KafkaError._PARTITION_EOF)


def test_a_topic_is_read_until_each_partition_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _Consumer([_Message(0, b'{"n": 1}'), _ends(0)], [_ends(0)], [_Message(1), _ends(1)])
    monkeypatch.setattr(observed, "Consumer", lambda _: made)
    assert [*records("address", "clicks")] == [Seen(0, 5, {"n": 1}), Seen(1, 5, {})]
    assert made.is_closed


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ([], TimeoutError, "the broker returned no record of clicks, and no end of a partition, in 30 s"),
        ([_Message(1, error=KafkaError._TRANSPORT)], KafkaException, "code=_TRANSPORT,"),
    ],
)
def test_a_topic_that_cannot_be_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, answer: list[_Message], error: type[Exception], message: str
) -> None:
    made = _Consumer([_ends(0)], answer)
    monkeypatch.setattr(observed, "Consumer", lambda _: made)
    with pytest.raises(error, match=message):
        [*records("address", "clicks")]
    assert made.is_closed


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=r"^sprk is no engine; the engines are tidemark, spark$"):
        latency(only=["spark", "sprk"], work=tmp_path)


MACHINE = {"cores": 2, "cpu": "a CPU", "memory_gib": 8, "commit": "abc", "versions": {"pyspark": "4.1.3"}}
MEMORY = {"jvm_mb": 900, "outside_mb": 400, "python_mb": 300, "live_mb": None, "executors_mb": 800}
SAMPLE = {"acked": 100, "accepted": 90, "start": 0, "age_s": 5.0, **MEMORY, "files": 40, "on_disk": 99}


CELL = {"n": 2, "p50_ms": 1_234, "p99_ms": 4_000, "max_ms": 4_000}
OUTPUTS = {"window to table": CELL, "window to topic": CELL, "upsert to table": {"n": 0}, "upsert to topic": CELL}


def _page(docs: Path) -> Path:
    page = docs / "explanation" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text("".join(f"<!-- measured:{name} -->\n<!-- /measured:{name} -->\n" for name in ("latency", "soak")))
    return page


def test_latency_keeps_the_results_of_the_other_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page, handlers = _page(tmp_path), list[object]()

    def measured(wanted: Latency, *_: object) -> dict[str, Any]:
        handlers.append(signal.getsignal(signal.SIGTERM))
        return {f"{rate:g}": OUTPUTS for rate in wanted.rates}

    monkeypatch.setattr(live_latency, "_measured", measured)
    (tmp_path / "latency").mkdir()
    for commit, engine, rates in (("abc", "tidemark", [5_000.0, 100.0]), ("def", "spark", [100.0])):
        monkeypatch.setattr(live_latency, "machine", lambda commit=commit: MACHINE | {"commit": commit})
        latency(only=[engine], rates=rates, work=tmp_path)
    assert signal.getsignal(signal.SIGTERM) not in handlers, "SIGTERM ends the stream and the broker too"
    report_live(tmp_path, tmp_path)
    text = page.read_text()
    assert "| | 100/s | 5,000/s |" in text
    assert "| Tidemark, closed window, in the Delta table | 1.23 / 4.00 | 1.23 / 4.00 |" in text
    assert "| Tidemark, upserted row, in the Delta table | none | none |" in text
    assert "| Spark's own state, closed window, in a topic | 1.23 / 4.00 | not measured |" in text
    machines = [line for line in text.splitlines() if " at `" in line]
    assert [(line.partition(":")[0], line[-5:]) for line in machines] == [("Tidemark", "abc`."), ("Spark's own state", "def`.")]
    monkeypatch.setattr(live_latency, "machine", lambda: MACHINE)
    latency(only=["spark"], rates=[100.0], work=tmp_path)
    report_live(tmp_path, tmp_path)
    assert [line[:7] for line in page.read_text().splitlines() if " at `" in line] == ["2 cores"]


def test_a_report_without_results_names_the_files(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=rf"neither {tmp_path}/latency/latency.json nor {tmp_path}/soak/soak.json exists"):
        report_live(tmp_path, tmp_path)


def test_the_figures_of_a_soak_are_written_into_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plots need the dependency group `bench`")
    page = _page(tmp_path)
    (tmp_path / "images").mkdir()
    found = {"machine": MACHINE, "at": "2026-11-25T00:00:00"}
    samples = [SAMPLE | {"seconds": seconds, "live_mb": live} for seconds, live in ((0.0, None), (1_800.0, 150))]
    memory = ("live_mb", "python_mb")
    growth = dict.fromkeys([*memory, *[f"{name} between processes" for name in memory]], 1.0) | {"live_mb": None}
    kills = [
        {"kind": "job", "seconds": 60.0, "back_s": 9.0, "step_s": 21.0},
        {"kind": "job", "seconds": 160.0, "back_s": 7.0, "step_s": 18.0},
        {"kind": "worker", "seconds": 90.0, "back_s": None, "step_s": 2.5},
    ]
    soak = {"soak": {"rate": 10.0, "minutes": 30, "workers": 2}, "samples": samples, "growth": growth, "kills": kills, "ended": [99.0]}
    on_disk = {"ledger": {"commits": 3, "data": 3}, "windows": {"data": 2, "checksums": 1}}
    steps = {"ledger": 3, "windows": 2, "totals": 2}
    write_soak(
        found | soak | {"acked": 100, "steps": steps, "on_disk": on_disk, "maintained": {"ledger": {"data": 1}}, "problems": []}, tmp_path
    )
    text = page.read_text()
    assert "| resident memory of the stream's Python process: median; most, MiB | 300; 300 |" in text
    assert "| growth of the live heap of the stream process that ran longest, first third to last | not measured |" in text
    assert "| growth of the live heap from early stream processes to late ones of the same age | 1.00 times |" in text
    assert "| problems | none |" in text
    assert "| job | 2 | 8.0; 9.0 | 19.5; 21.0 |" in text
    assert "| worker | 1 | none | 2.5; 2.5 |" in text
    assert "| files of, at the end / after maintenance | commits | data | checksums |" in text
    assert "| `ledger` | 3 / 0 | 3 / 1 | 0 / 0 |" in text
    assert (tmp_path / "images" / "bench-soak.svg").exists()
    write_samples(samples, tmp_path / "soak.csv")
    assert json.dumps((tmp_path / "soak.csv").read_text().splitlines()[0]).count(",") == len(samples[0]) - 1


class _AnsweringClient(AdminClient):
    """A client whose broker gives these answers, by topic, each once; None is success.

    Args:
        lists: the answers to requests for a list of topics: an error of the request, an error of the topic, or None, which is the default.
        leaders: the answers of the partitions of a created topic to requests for their offsets: an error, or None, which is the default.
        answers: the answers to a creation.
    """

    def __init__(
        self, lists: Iterable[KafkaException | KafkaError | None] = (), leaders: Iterable[int | None] = (), **answers: Sequence[int | None]
    ) -> None:
        self._answers = {topic: iter(codes) for topic, codes in answers.items()}
        self._lists, self._leaders = iter(lists), iter(leaders)

    def create_topics(self, new_topics: Sequence[NewTopic], **_: Any) -> dict[str, Future[None]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return {topic.topic: _answer(next(self._answers[topic.topic])) for topic in new_topics}

    def list_offsets(self, topic_partition_offsets: Mapping[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[None]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return {partition: _answer(next(self._leaders, None)) for partition in topic_partition_offsets}

    def list_topics(self, topic: str = "", *_: Any, **__: Any) -> Any:
        """Describe a topic with one partition, or a topic with the error of the next answer, which has no partition."""
        error = next(self._lists, None)
        if isinstance(error, KafkaException):
            raise error
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={} if error else {0: None})})


def _answer(code: int | None) -> Future[None]:
    """A broker's answer: success, or an error with a code."""
    future = Future[None]()
    if code is None:
        future.set_result(None)
    else:
        future.set_exception(KafkaException(KafkaError(code)))
    return future


def test_topics_are_created_although_a_busy_broker_answers_late_or_refuses_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_PAUSE_S", 0)
    client = _AnsweringClient(
        at_once=[None],
        repeated=[KafkaError.TOPIC_ALREADY_EXISTS],
        late=[KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS],
        restarted=[KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_REPLICATION_FACTOR, None],
    )
    create_topics(client, [NewTopic(name, 1, 1) for name in ("at_once", "repeated", "late", "restarted")])
    assert not any(list(left) for left in client._answers.values()), "each answer was waited for"


_UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_a_broker_that_has_not_read_a_created_topic_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_PAUSE_S", 0)
    listed = [_UNKNOWN, KafkaException(KafkaError(KafkaError._TRANSPORT))]
    client = _AnsweringClient(listed, clicks=[KafkaError.TOPIC_ALREADY_EXISTS] * 3)
    create_topics(client, [NewTopic("clicks", 1, 1)])
    assert not any(list(left) for left in (client._lists, *client._answers.values())), "each answer was waited for"
    monkeypatch.setattr(topics, "_WAIT_S", 0)
    with pytest.raises(KafkaException, match="code=UNKNOWN_TOPIC_OR_PART,"):
        create_topics(_AnsweringClient([_UNKNOWN], clicks=[KafkaError.TOPIC_ALREADY_EXISTS]), [NewTopic("clicks", 1, 1)])


def test_a_broker_that_does_not_lead_each_partition_of_a_created_topic_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_PAUSE_S", 0)
    leaders = [None, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._NOENT, None, None, None]
    client = _AnsweringClient(leaders=leaders, clicks=[None, *[KafkaError.TOPIC_ALREADY_EXISTS] * 2])
    existing = SimpleNamespace(topics={"clicks": SimpleNamespace(error=None, partitions={0: None, 1: None})})
    monkeypatch.setattr(client, "list_topics", lambda *_: existing)
    create_topics(client, [NewTopic("clicks", 2, 1)])
    assert not any(list(left) for left in (client._leaders, *client._answers.values())), "each answer was waited for"


@pytest.mark.parametrize(("code", "name"), [(KafkaError.INVALID_PARTITIONS, "INVALID_PARTITIONS"), (KafkaError._TIMED_OUT, "_TIMED_OUT")])
def test_a_refused_topic_and_a_broker_that_never_answers_are_errors(monkeypatch: pytest.MonkeyPatch, code: int, name: str) -> None:
    monkeypatch.setattr(topics, "_WAIT_S", 0)
    with pytest.raises(KafkaException, match=f"code={name},"):
        create_topics(_AnsweringClient(refused=[code]), [NewTopic("refused", 0, 1)])


def test_an_existing_topic_with_another_number_of_partitions_is_an_error() -> None:
    client = _AnsweringClient(clicks=[KafkaError.TOPIC_ALREADY_EXISTS])
    with pytest.raises(ValueError, match="'clicks' exists, but its number of partitions is 1 instead of 3; delete it, or use"):
        create_topics(client, [NewTopic("clicks", 3, 1)])
