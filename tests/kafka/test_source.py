"""Sources that read Kafka's topics, with a real broker: each record is ingested once, whatever happens to broker, process or topic."""

import io
import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import sleep, time
from typing import Any
from uuid import uuid4

import fastavro
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.formats.kafka_options import Avro, Registry, Topics
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.topic_ranges import TopicError
from platform_defs.engine.lake.tables import Lake
from platform_defs.setup.broker import Broker, running
from tests.support.clock import Clock
from tests.support.kafka import COMPACT_SOON, Kafka, Record
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, START, Event, iso, join, land, source

LEFT = [Event(f"k{n % 7}", n, n * MINUTE // 3) for n in range(120)]
RIGHT = [Event(f"k{n % 5}", n, n * MINUTE // 2 + 500) for n in range(90)]


def _topic(kafka: Kafka, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """A new topic."""
    return kafka.create(f"topic-{uuid4().hex[:12]}", partitions, config)


def _send(
    kafka: Kafka,
    topic: str,
    values: Sequence[str | bytes | None],
    partition: Callable[[int], int] = lambda _: -1,
    **parts: Any,
) -> None:
    """Write records; `partition` chooses the partition of the nth."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    kafka.produce(topic, [Record(value=value, partition=partition(n), **{"key": None, **parts}) for n, value in enumerate(encoded)])


class Lakes:
    """Makes engines on one lake, each like a new process, that read topics."""

    def __init__(self, spark: SparkSession, folder: Path, address: str) -> None:
        self.spark, self.folder, self.address = spark, folder, address

    def engine(
        self, sources: Sequence[SourceContract], tables: Sequence[DerivedAsset] = (), clock: Clock | None = None, **of: dict[str, Any]
    ) -> Engine:
        """An engine whose sources read topics, given as fields of `Topics` by source."""
        servers = {"kafka.bootstrap.servers": self.address}
        topics = {name: Topics(**{**parts, "options": {**servers, **parts["options"]}}) for name, parts in of.items()}
        named = {s.name: s for s in sources}, {t.name: t for t in tables}
        folders = {s.name: str(self.folder / "landing" / s.name) for s in sources}
        clocked = {"clock": clock} if clock else {}
        return Engine(Lake(str(self.folder / "lake")), *named, lambda: self.spark, folders=folders, topics=topics, **clocked)


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path, kafka: Kafka) -> Lakes:
    return Lakes(spark, tmp_path, kafka.address)


def _rows(engine: Engine, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in engine.lake.read(engine.spark, table).select(*columns).collect())


def _accepted(engine: Engine, name: str = "l") -> list[int]:
    return [value for (value,) in _rows(engine, f"events/{name}", "v")]


def _lines(events: Sequence[Event]) -> list[str]:
    return [event.line for event in events]


def test_a_pipeline_over_topics_equals_one_over_files(lakes: Lakes, kafka: Kafka, tmp_path: Path):
    left, right = _topic(kafka, 12), _topic(kafka, 3)
    tables = [join()]
    by_topic = lakes.engine(
        [source("l"), source("r")],
        tables,
        l={"options": {"subscribe": left, "maxOffsetsPerTrigger": "50"}},
        r={"options": {"subscribePattern": right}},
    )
    _send(kafka, left, _lines(LEFT), partition=lambda n: n % 9)  # three partitions stay empty
    _send(kafka, right, _lines(RIGHT), partition=lambda n: n % 3)
    made = by_topic.ingest()
    by_file = Lakes(lakes.spark, tmp_path / "files", kafka.address).engine([source("l"), source("r")], tables)
    land(by_file, "l", "l.jsonl", _lines(LEFT))
    land(by_file, "r", "r.jsonl", _lines(RIGHT))
    by_file.ingest()
    for engine in (by_topic, by_file):
        engine.drain()
        list(engine.steps("pairs"))
        assert all(account.holds for account in engine.accounts.days("pairs"))
    assert len(made) == 3, "at most 50 records of a source in one micro-batch, or a few more by rounding"
    columns = [c for c in by_file.lake.schema("pairs").fieldNames() if "seq" not in c and "arrival" not in c]
    assert _rows(by_topic, "pairs", *columns) == _rows(by_file, "pairs", *columns)
    assert by_topic.ledger.totals("l") == by_file.ledger.totals("l")


def test_a_lost_checkpoint_does_not_exist_and_a_kill_repeats_nothing(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 2)
    options = {"options": {"subscribe": topic}}
    _send(kafka, topic, _lines(LEFT[:40]))
    lakes.engine([source("l")], l=options).ingest()
    for number, point in enumerate(("ingest.after_log", "ingest.before_ledger", "ingest.after_ledger")):
        _send(kafka, topic, _lines(LEFT[40 + 20 * number : 60 + 20 * number]))
        run_and_die(lakes.engine([source("l")], l=options).ingest, point)
        _send(kafka, topic, [Event("more", 1_000 + number, 0).line])  # so that the next try reads another range
    again = lakes.engine([source("l")], l=options)
    again.ingest()
    assert _accepted(again) == [*range(100), 1_000, 1_001, 1_002]
    assert again.ledger.totals("l")["accepted"] == 103


def test_a_record_that_cannot_be_parsed_is_quarantined_with_its_position_and_can_be_released(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 2)
    _send(kafka, topic, [LEFT[0].line, "not json", b"\xff\xfe", None, '{"k": "a", "v": "x", "ts": null}'], partition=lambda _: 1)
    engine = lakes.engine([source("l")], l={"options": {"subscribe": topic}})
    [[entry]] = engine.ingest()
    assert (entry.rows_read, entry.accepted, entry.quarantined) == (5, 1, 4)
    rows = _rows(engine, "quarantine/l", "offset", "reason", "raw", "path")
    assert [(offset, reason) for offset, reason, _, _ in rows] == [
        (1, "malformed: not a JSON object"),
        (2, "malformed: not UTF-8"),
        (3, "malformed: the record has no value (a tombstone)"),
        (4, "type: v is no int"),
    ]
    assert all(path.startswith(f"kafka:{topic}/1@") for *_, path in rows)
    [released] = engine.ingestion.quarantine.release("l", ["malformed: not a JSON"])
    assert released.rows == 1
    [[entry]] = engine.ingest()
    assert (entry.rows_read, entry.quarantined) == (1, 1), "the released row is read from its file, and is as wrong as before"


def test_parts_of_a_record_are_columns(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 3)
    _send(kafka, topic, [LEFT[0].line], partition=lambda _: 2, key=b"the key", headers={"trace": b"t2"})
    contract = SourceContract(
        name="l",
        schema="v INT, ts TIMESTAMP, key STRING, part INT, at BIGINT, trace STRING, other STRING, sent TIMESTAMP",
        event_time="ts",
        future_skew=None,
    )
    columns = {"key": "key", "part": "partition", "at": "offset", "trace": "headers.trace", "other": "headers.x", "sent": "timestamp"}
    engine = lakes.engine([contract], l={"options": {"subscribe": topic}, "columns": columns})
    engine.ingest()
    rows = engine.lake.read(engine.spark, "events/l").withColumn("is_recent", F.col("sent") > F.now() - F.expr("INTERVAL 1 HOUR"))
    [row] = rows.collect()
    assert (row.v, row.key, row.part, row.at, row.trace, row.other, row.is_recent) == (0, "the key", 2, 0, "t2", None, True)


def test_a_broker_that_is_killed_is_not_blamed_on_the_records(lakes: Lakes, tmp_path: Path):
    with running(tmp_path / "broker") as broker:
        _check_a_killed_broker(lakes, broker)


def _check_a_killed_broker(lakes: Lakes, broker: Broker) -> None:
    own = Kafka(broker)
    topic = _topic(own)
    _send(own, topic, _lines(LEFT[:10]))
    options = {"options": {"subscribe": topic, "kafka.default.api.timeout.ms": "3000", "kafka.request.timeout.ms": "2000"}}
    engine = Lakes(lakes.spark, lakes.folder, broker.address).engine([source("l")], l=options)
    engine.ingest()
    _send(own, topic, _lines(LEFT[10:20]))
    broker.kill()
    with pytest.raises(UnreadError, match=rf"kafka:{topic} cannot be listed: Timeout.*nothing is recorded of it: the next ingest tries"):
        engine.ingest()
    broker.start()
    engine.ingest()
    assert _accepted(engine) == [*range(20)]
    assert engine.ledger.totals("l")["quarantined"] == 0


def test_a_topic_that_is_created_again_is_refused_until_it_is_accepted(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 1)
    _send(kafka, topic, _lines(LEFT[:5]))
    lakes.engine([source("l")], l={"options": {"subscribe": topic}}).ingest()
    kafka.delete(topic)
    kafka.create(topic, 2)
    _send(kafka, topic, _lines(LEFT[5:20]))
    engine = lakes.engine([source("l")], l={"options": {"subscribe": topic}})
    with pytest.raises(TopicError, match=f"the topic {topic} has the id .* deleted and created again") as refused:
        engine.ingest()
    new_id = str(refused.value).split(" has the id ")[1].split(",")[0]
    accepted = lakes.engine([source("l")], l={"options": {"subscribe": topic}, "accepted": (new_id,)})
    accepted.ingest()
    assert _accepted(accepted) == [*range(20)]
    lakes.engine([source("l")], l={"options": {"subscribe": topic}}).ingest()  # the ledger knows the new topic


def test_records_that_retention_deleted_are_refused_or_skipped(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 1)
    _send(kafka, topic, _lines(LEFT[:5]))
    lakes.engine([source("l")], l={"options": {"subscribe": topic}}).ingest()
    _send(kafka, topic, _lines(LEFT[5:12]))
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for done in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
        done.result()
    with pytest.raises(TopicError, match=r"starts at offset 8, and offset 5 is the next to be read: Kafka has deleted 3 records"):
        lakes.engine([source("l")], l={"options": {"subscribe": topic}}).ingest()
    engine = lakes.engine([source("l")], l={"options": {"subscribe": topic, "failOnDataLoss": "false"}})
    engine.ingest()
    assert _accepted(engine) == [0, 1, 2, 3, 4, 8, 9, 10, 11]


def test_gaps_of_transactions_and_compaction_are_no_loss(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 1, COMPACT_SOON)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions()
    deadline = time() + 60
    for number, event in enumerate(LEFT[:20]):
        producer.begin_transaction()
        producer.produce(topic, event.line, key=f"k{number % 4}")
        (producer.abort_transaction if number % 5 == 4 else producer.commit_transaction)()
    sleep(0.5)
    _send(kafka, topic, [LEFT[25].line], key=b"last")  # closes the segment with the records before it
    while len(before := kafka.read(topic)) > 6:
        assert time() < deadline, f"{len(before)} records are left after a minute"
        sleep(0.2)
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "7"}
    engine = lakes.engine([source("l")], l={"options": options})
    engine.ingest()
    held = _accepted(engine)[:-1]
    assert set(held).isdisjoint({4, 9, 14, 19}), "aborted records are not read"
    assert len(held) < 16, "some records were compacted away"
    assert {15, 16, 17, 18} <= set(held), "the newest record of each key is kept"
    _send(kafka, topic, [LEFT[30].line], key=b"last")
    engine.ingest()
    assert _accepted(engine) == [*held, 25, 30]


def test_a_partition_that_is_behind_holds_the_watermark_back_until_it_is_idle(lakes: Lakes, kafka: Kafka):
    topic, clock = _topic(kafka, 3), Clock()
    engine = lakes.engine([source("l", idle_timeout="10 minutes")], clock=clock, l={"options": {"subscribe": topic}})

    def watermark() -> int | None:
        mark = engine.ledger.last()["l"].watermark
        return None if mark is None else mark - START

    _send(kafka, topic, [Event("a", 1, 60 * MINUTE).line], partition=lambda _: 0)
    _send(kafka, topic, [Event("b", 2, 10 * MINUTE).line], partition=lambda _: 1)
    engine.ingest()
    assert watermark() == 10 * MINUTE - MINUTE - 1
    clock.now += 11 * MINUTE
    _send(kafka, topic, [Event("a", 3, 70 * MINUTE).line], partition=lambda _: 0)
    engine.ingest()
    assert watermark() == 70 * MINUTE - MINUTE - 1
    assert len(engine.ledger.last()["l"].partitions) == 2


V1 = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": "int"}, {"name": "ts", "type": "string"}],
}
V2 = {**V1, "fields": [*V1["fields"][:1], {"name": "v", "type": ["null", "string"]}, V1["fields"][2]]}


def _encoded(schema: dict[str, Any], event: Event, schema_id: int | None = None, **changes: Any) -> bytes:
    out = io.BytesIO()
    row = {"k": event.k, "v": event.v, "ts": iso(START + event.at), **changes}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return (b"" if schema_id is None else b"\0" + struct.pack(">I", schema_id)) + out.getvalue()


@contextmanager
def _registry(schemas: dict[int, Any]) -> Iterator[str]:
    """A server with the interface of Confluent's registry for reading schemas by their ids."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = schemas.get(int(self.path.split("?")[0].rsplit("/", 1)[1]))
            body = {"schema": json.dumps(found)} if found else {"error_code": 40403, "message": "Schema not found"}
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_avro_values_of_several_schemas_of_a_registry_are_read(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 1)
    damaged = _encoded(V1, LEFT[3], 1)[:-4]
    values = [_encoded(V1, LEFT[1], 1), _encoded(V2, LEFT[2], 2, v="2"), damaged, _encoded(V1, LEFT[4], 9), LEFT[5].line, None]
    _send(kafka, topic, values)
    with _registry({1: V1, 2: V2}) as url:
        of_registry = {"options": {"subscribe": topic}, "avro": Avro(registry=Registry(config={"url": url}))}
        engine = lakes.engine([source("l")], l=of_registry)
        engine.ingest()
    assert _accepted(engine) == [1, 2]
    assert [reason for _, reason in _rows(engine, "quarantine/l", "offset", "reason")] == [
        "malformed: the value cannot be read with its Avro schema",
        "malformed: no Avro schema with the id 9 in the registry",
        "malformed: not Confluent's wire format: no zero byte and id of a schema before the value",
        "malformed: the record has no value (a tombstone)",
    ]
    _send(kafka, topic, [_encoded(V1, LEFT[6], 1)])
    with pytest.raises(UnreadError, match=r"1 range of offsets could not be read: .*the registry of schemas cannot be asked"):
        lakes.engine([source("l")], l=of_registry).ingest()
    with _registry({1: V1}) as url:
        again = replace(of_registry["avro"], registry=Registry(config={"url": url}))
        engine = lakes.engine([source("l")], l={"options": {"subscribe": topic}, "avro": again})
        engine.ingest()
    assert _accepted(engine) == [1, 2, 6]


def test_avro_values_of_one_schema_are_read(lakes: Lakes, kafka: Kafka):
    topic = _topic(kafka, 1)
    _send(kafka, topic, [_encoded(V2, LEFT[1], v=None), b"", _encoded(V2, LEFT[2], v="2")])
    engine = lakes.engine([source("l")], l={"options": {"subscribe": topic}, "avro": Avro(schema=json.dumps(V2))})
    [[entry]] = engine.ingest()
    assert (entry.accepted, entry.quarantined) == (2, 1)
    assert {value for (value,) in {tuple(r) for r in engine.lake.read(engine.spark, "events/l").select("v").collect()}} == {None, 2}
