"""Sources that read Kafka's topics, with a real broker: each record is ingested once, whatever happens to broker, process or topic."""

import json
import socket
from dataclasses import replace
from os import utime
from pathlib import Path
from time import sleep, time

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

from assets.contracts import RowRule, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.setup.ports import HOST
from tests.support.clock import Clock
from tests.support.kafka import COMPACT_SOON, Kafka
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, START, Event, join, land, source
from tests.support.topics import LEFT, RIGHT, TopicEngines, accepted, lines, new_topic, rows, send


def test_a_pipeline_over_topics_equals_one_over_files(engines: TopicEngines, kafka: Kafka, tmp_path: Path):
    left, right = new_topic(kafka, 12), new_topic(kafka, 3)
    tables = [join()]
    by_topic = engines.make(
        [source("l"), source("r")],
        tables,
        l={"options": {"subscribe": left, "maxOffsetsPerTrigger": "50"}},
        r={"options": {"subscribePattern": right}},
    )
    send(kafka, left, lines(LEFT), partition=lambda n: n % 9)  # three partitions stay empty
    send(kafka, right, lines(RIGHT), partition=lambda n: n % 3)
    made = by_topic.ingest()
    by_file = TopicEngines(engines.spark, tmp_path / "files", kafka.address).make([source("l"), source("r")], tables)
    land(by_file, "l", "l.jsonl", lines(LEFT))
    land(by_file, "r", "r.jsonl", lines(RIGHT))
    by_file.ingest()
    for engine in (by_topic, by_file):
        engine.drain()
        list(engine.steps("pairs"))
        assert all(account.holds for account in engine.accounts.days("pairs"))
    assert len(made) == 3, "at most 50 records of a source in one micro-batch, or a few more by rounding"
    columns = [c for c in by_file.lake.schema("pairs").fieldNames() if "seq" not in c and "arrival" not in c]
    assert rows(by_topic, "pairs", *columns) == rows(by_file, "pairs", *columns)
    assert by_topic.ledger.totals("l") == by_file.ledger.totals("l")


def test_a_killed_ingest_neither_loses_nor_repeats_records(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 2)
    options = {"options": {"subscribe": topic}}
    send(kafka, topic, lines(LEFT[:40]))
    engines.make([source("l")], l=options).ingest()
    for number, point in enumerate(("ingest.after_log", "ingest.before_ledger", "ingest.after_ledger")):
        send(kafka, topic, lines(LEFT[40 + 20 * number : 60 + 20 * number]))
        run_and_die(engines.make([source("l")], l=options).ingest, point)
        send(kafka, topic, [Event("more", 1_000 + number, 0).line])  # so that the next try reads another range
    again = engines.make([source("l")], l=options)
    again.ingest()
    assert accepted(again) == [*range(100), 1_000, 1_001, 1_002]
    assert again.ledger.totals("l")["accepted"] == 103


def test_a_record_that_cannot_be_parsed_is_quarantined_with_its_position_and_can_be_released(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 2)
    send(kafka, topic, [LEFT[0].line, "not json", b"\xff\xfe", None, '{"k": "a", "v": "x", "ts": null}'], partition=lambda _: 1)
    engine = engines.make([source("l")], l={"options": {"subscribe": topic}})
    [[of_l]] = engine.ingest()
    assert (of_l.rows_read, of_l.accepted, of_l.quarantined) == (5, 1, 4)
    rejected = rows(engine, "quarantine/l", "offset", "reason", "raw", "path")
    assert [(offset, reason) for offset, reason, _, _ in rejected] == [
        (1, "malformed: not a JSON object"),
        (2, "malformed: not UTF-8"),
        (3, "malformed: the record has no value (a tombstone)"),
        (4, "type: v is no int"),
    ]
    assert all(path.startswith(f"kafka:{topic}/1@") for *_, path in rejected)
    [released] = engine.ingestion.quarantine.release("l", ["malformed: not a JSON"])
    assert released.rows == 1
    [[of_l]] = engine.ingest()
    assert (of_l.rows_read, of_l.quarantined) == (1, 1), "the released row is read from its file, and is as wrong as before"


def test_released_records_keep_their_parts_their_line_breaks_and_their_bytes(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka)
    pretty = json.dumps(json.loads(LEFT[1].line), indent=2)
    send(kafka, topic, [pretty, b"\xff\xfe", None, "no\njson"], key=b"the key", headers={"trace": b"t2"}, timestamp=1_772_000_000_123)
    schema = "v INT, ts TIMESTAMP, key STRING, trace STRING, other STRING, sent TIMESTAMP, at BIGINT"
    contract = SourceContract(
        name="l", schema=schema, event_time="ts", future_skew=None, rules=(RowRule(name="large", condition="v > 5", action="quarantine"),)
    )
    columns = {"key": "key", "trace": "headers.trace", "other": "headers.x", "sent": "timestamp", "at": "offset"}
    of = {"l": {"options": {"subscribe": topic}, "columns": columns}}
    engine = engines.make([contract], **of)
    assert [of_l.quarantined for [of_l] in engine.ingest()] == [4]
    before = rows(engine, "quarantine/l", "reason", "raw", "record")
    corrected = engines.make([replace(contract, rules=())], **of)
    [released] = corrected.ingestion.quarantine.release("l")
    assert released.rows == 4
    [[of_l]] = corrected.ingest()
    assert (of_l.rows_read, of_l.accepted, of_l.quarantined) == (4, 1, 3)
    [row] = corrected.lake.read(corrected.spark, "events/l").withColumn("ms", F.unix_millis("sent")).collect()
    assert (row.v, row.key, row.trace, row.other, row.ms, row["at"]) == (1, "the key", "t2", None, 1_772_000_000_123, 0)
    again = [row[1:] for row in rows(corrected, "quarantine/l", "seq", "reason", "raw", "record") if row[0] == of_l.seq]
    assert again == [row for row in before if not row[0].startswith("rule")]


def test_a_record_whose_key_or_header_is_not_text_cannot_be_released(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka)
    send(kafka, topic, [LEFT[0].line], key=b"\xff")
    send(kafka, topic, [b"\xfe"], key=b"text", headers={"trace": b"\xff"})
    send(kafka, topic, ["hex:41", b"\xfe"], key=b"text")
    contract = SourceContract(name="l", schema="v INT, ts TIMESTAMP, key STRING, trace STRING", event_time="ts", future_skew=None)
    engine = engines.make([contract], l={"options": {"subscribe": topic}, "columns": {"key": "key", "trace": "headers.trace"}})
    engine.ingest()
    reasons = [
        "malformed: key is not UTF-8",
        "malformed: headers.trace is not UTF-8",
        "malformed: not a JSON object",
        "malformed: not UTF-8",
    ]
    assert [reason for _, reason in rows(engine, "quarantine/l", "offset", "reason")] == reasons
    release = engine.ingestion.quarantine.release
    for reason in ([], *([part] for part in reasons[:2])):
        with pytest.raises(
            QuarantineError, match=r"cannot be released \(malformed: .* is not UTF-8\).* Release the rows with other reasons"
        ):
            release("l", reason)
    [released] = release("l", reasons[2:])
    assert released.rows == 2
    engine.ingest()
    assert [reason for _, reason in rows(engine, "quarantine/l", "seq", "reason")][4:] == sorted(reasons[2:])


def test_parts_of_a_record_are_columns(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 3)
    send(kafka, topic, [LEFT[0].line], partition=lambda _: 2, key=b"the key", headers={"trace": b"t2"})
    contract = SourceContract(
        name="l",
        schema="v INT, ts TIMESTAMP, key STRING, part INT, at BIGINT, trace STRING, other STRING, sent TIMESTAMP",
        event_time="ts",
        future_skew=None,
    )
    columns = {"key": "key", "part": "partition", "at": "offset", "trace": "headers.trace", "other": "headers.x", "sent": "timestamp"}
    engine = engines.make([contract], l={"options": {"subscribe": topic}, "columns": columns})
    engine.ingest()
    found = engine.lake.read(engine.spark, "events/l").withColumn("is_recent", F.col("sent") > F.now() - F.expr("INTERVAL 1 HOUR"))
    [row] = found.collect()
    assert (row.v, row.key, row.part, row.at, row.trace, row.other, row.is_recent) == (0, "the key", 2, 0, "t2", None, True)


def test_records_are_ingested_after_a_broker_did_not_answer_and_none_is_quarantined(engines: TopicEngines, kafka: Kafka):
    """One engine has an address at which no broker listens, as if its broker had ended. `test_soak.py` kills a broker during a stream."""
    topic = new_topic(kafka)
    send(kafka, topic, lines(LEFT[:10]))
    options = {"subscribe": topic}
    engines.make([source("l")], l={"options": options}).ingest()
    send(kafka, topic, lines(LEFT[10:20]))
    quick = {"kafka.default.api.timeout.ms": "1500", "kafka.request.timeout.ms": "1000"}
    with socket.socket() as silent:
        silent.bind((HOST, 0))  # bound, so that nothing else listens there
        address = f"{HOST}:{silent.getsockname()[1]}"
        unanswered = engines.make([source("l")], l={"options": {**options, **quick, "kafka.bootstrap.servers": address}})
        with pytest.raises(
            UnreadError, match=rf"kafka:{topic} cannot be listed: Timeout.*the ledger does not record it: the next ingest tries"
        ):
            unanswered.ingest()
    engine = engines.make([source("l")], l={"options": options})
    engine.ingest()
    assert accepted(engine) == [*range(20)]
    assert engine.ledger.totals("l")["quarantined"] == 0


def test_gaps_of_transactions_and_compaction_are_no_loss(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 1, COMPACT_SOON)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions()
    deadline = time() + 60
    for number, event in enumerate(LEFT[:20]):
        producer.begin_transaction()
        producer.produce(topic, event.line, key=f"k{number % 4}")
        (producer.abort_transaction if number % 5 == 4 else producer.commit_transaction)()
    sleep(0.5)
    send(kafka, topic, [LEFT[25].line], key=b"last")  # closes the segment with the records before it
    while len(before := kafka.read(topic)) > 6:
        assert time() < deadline, f"{len(before)} records are left after a minute"
        sleep(0.2)
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "7"}
    engine = engines.make([source("l")], l={"options": options})
    engine.ingest()
    held = accepted(engine)[:-1]
    assert set(held).isdisjoint({4, 9, 14, 19}), "aborted records are not read"
    assert len(held) < 16, "some records were compacted away"
    assert {15, 16, 17, 18} <= set(held), "the newest record of each key is kept"
    send(kafka, topic, [LEFT[30].line], key=b"last")
    engine.ingest()
    assert accepted(engine) == [*held, 25, 30]


def test_committed_records_are_read_up_to_an_open_transaction(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 1)
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions()
    send(kafka, topic, lines(LEFT[:3]))
    producer.begin_transaction()
    producer.produce(topic, LEFT[3].line)
    producer.flush()
    send(kafka, topic, lines(LEFT[4:6]))
    engine = engines.make([source("l")], l={"options": options})
    engine.ingest()
    assert accepted(engine) == [0, 1, 2]
    assert engine.ingest() == [], "the open transaction is no loss"
    producer.commit_transaction()
    engines.make([source("l")], l={"options": options}).ingest()
    assert accepted(engine) == [0, 1, 2, 3, 4, 5]


def test_a_source_that_has_read_uncommitted_records_can_change_to_committed_ones(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 1)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, LEFT[0].line)
    producer.flush()
    engines.make([source("l")], l={"options": {"subscribe": topic}}).ingest()
    committed = {"options": {"subscribe": topic, "kafka.isolation.level": "read_committed"}}
    engine = engines.make([source("l")], l=committed)
    assert engine.ingest() == []
    producer.commit_transaction()
    send(kafka, topic, [LEFT[1].line])
    engines.make([source("l")], l=committed).ingest()
    assert accepted(engine) == [0, 1]


def test_a_partition_that_is_behind_holds_the_watermark_back_until_it_is_idle(engines: TopicEngines, kafka: Kafka):
    topic, clock = new_topic(kafka, 3), Clock()
    engine = engines.make([source("l", idle_timeout="10 minutes")], clock=clock, l={"options": {"subscribe": topic}})

    def watermark() -> int | None:
        mark = engine.ledger.newest_rows()["l"].watermark
        return None if mark is None else mark - START

    send(kafka, topic, [Event("a", 1, 60 * MINUTE).line], partition=lambda _: 0)
    send(kafka, topic, [Event("b", 2, 10 * MINUTE).line], partition=lambda _: 1)
    engine.ingest()
    assert watermark() == 10 * MINUTE - MINUTE - 1
    clock.now += 11 * MINUTE
    send(kafka, topic, [Event("a", 3, 70 * MINUTE).line], partition=lambda _: 0)
    engine.ingest()
    assert watermark() == 70 * MINUTE - MINUTE - 1
    assert len(engine.ledger.newest_rows()["l"].partitions) == 2


def test_a_partition_becomes_idle_by_the_wall_clock_after_the_clock_was_ahead(engines: TopicEngines, kafka: Kafka):
    topic, clock = new_topic(kafka, 2), Clock()
    engine = engines.make([source("l", idle_timeout="10 minutes")], clock=clock, l={"options": {"subscribe": topic}})
    send(kafka, topic, [Event("a", 1, 60 * MINUTE).line], partition=lambda _: 0)
    send(kafka, topic, [Event("b", 2, 10 * MINUTE).line], partition=lambda _: 1)
    clock.now += 365 * 24 * 60 * MINUTE
    engine.ingest()
    clock.now -= 365 * 24 * 60 * MINUTE
    watermarks: list[int] = []
    for n in range(3):
        send(kafka, topic, [Event("a", 3 + n, (70 + n) * MINUTE).line], partition=lambda _: 0)
        engine.ingest()
        watermarks.append((engine.ledger.newest_rows()["l"].watermark or 0) - START)
        clock.now += 6 * MINUTE
    assert watermarks == [10 * MINUTE - MINUTE - 1, 10 * MINUTE - MINUTE - 1, 72 * MINUTE - MINUTE - 1]


def test_a_source_that_goes_on_with_files_after_its_topic_was_removed_has_their_watermark(engines: TopicEngines, kafka: Kafka):
    """Otherwise the partitions in the ledger would hold the watermark back for ever, since the source has no idle timeout."""
    topic, clock = new_topic(kafka, 2), Clock()
    both = engines.make([source("l")], clock=clock, l={"options": {"subscribe": topic}})
    send(kafka, topic, [Event("a", 1, 60 * MINUTE).line, Event("b", 2, 50 * MINUTE).line], partition=lambda n: n)
    land(both, "l", "old.jsonl", [Event("c", 3, 10 * MINUTE).line])
    marks = [_watermark(both)]
    land(both, "l", "new.jsonl", [Event("c", 4, 90 * MINUTE).line])
    marks.append(_watermark(both))
    land(both, "l", "newer.jsonl", [Event("c", 5, 91 * MINUTE).line])
    files_only = engines.make([source("l")], clock=clock)
    marks.append(_watermark(files_only))
    assert marks == [50 * MINUTE, 50 * MINUTE, 91 * MINUTE], "files do not hold the watermark back; the topic does while it is read"
    assert files_only.ledger.newest_rows()["l"].partitions == ()
    assert accepted(files_only) == [1, 2, 3, 4, 5]


def test_a_backlog_of_files_beside_a_topic_is_not_late(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 2)
    engine = replace(engines.make([source("l")], l={"options": {"subscribe": topic}}), max_files=1)
    send(kafka, topic, [Event("a", 1, 60 * MINUTE).line, Event("b", 2, 50 * MINUTE).line], partition=lambda n: n)
    for n in range(3):
        file = land(engine, "l", f"{n}.jsonl", [Event("c", 3 + n, n * 10 * MINUTE).line])
        utime(file, (1_700_000_000 + n, 1_700_000_000 + n))
    marks = [(row.watermark or 0) - START + MINUTE + 1 for [row] in engine.ingest()]
    assert marks == [0, 10 * MINUTE, 50 * MINUTE], "no file is late; after the last one, the topic alone decides"


def _watermark(engine: Engine) -> int:
    """Ingest; returns the event time behind the new watermark of `l`, in ms after START: the watermark, its bound of a minute, and 1 ms."""
    engine.ingest()
    return (engine.ledger.newest_rows()["l"].watermark or 0) - START + MINUTE + 1
