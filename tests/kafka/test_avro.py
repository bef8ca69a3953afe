"""Sources that read Avro values, with a real broker."""

import io
import json
import re
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from assets.contracts import RowRule
from platform_defs.engine.formats import avro
from platform_defs.engine.formats.kafka_options import Avro, Registry, Topics
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.ingest.topic_ranges import TopicRanges
from tests.support.kafka import Kafka
from tests.support.registry import AT_ONCE, registry
from tests.support.small_sources import START, Event, iso, source
from tests.support.topics import LEFT, TopicEngines, accepted, new_topic, rows, send

V1 = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": "int"}, {"name": "ts", "type": "string"}],
}
SAME_NAMES = {"type": "record", "name": "Same", "fields": [{"name": name, "type": "int"} for name in ("a", "A")]}
UNUSUAL = {
    "a record or null": ["null", V1],
    "a union of records": [V1, {**V1, "name": "Other"}],
    "a recursive record": {**V1, "fields": [*V1["fields"], {"name": "next", "type": ["null", "Row"]}]},
    "a reference": {**V1, "fields": [*V1["fields"], {"name": "to", "type": "com.acme.Other"}]},
    "names that differ in case": {**V1, "fields": [*V1["fields"], {"name": "K", "type": "string"}]},
    "JSON Schema": {"type": "object", "properties": {"k": {"type": "string"}}},
    "no record": "string",
    "nested names that differ in case": {**V1, "fields": [*V1["fields"], {"name": "s", "type": {"type": "array", "items": SAME_NAMES}}]},
}
"""Schemas that Spark cannot read, or whose values are no rows."""
V2 = {**V1, "fields": [*V1["fields"][:1], {"name": "v", "type": ["null", "string"]}, V1["fields"][2]]}


def _encoded(schema: dict[str, Any], event: Event, schema_id: int | None = None, **changes: Any) -> bytes:
    out = io.BytesIO()
    row = {"k": event.k, "v": event.v, "ts": iso(START + event.at), **changes}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return (b"" if schema_id is None else b"\0" + struct.pack(">I", schema_id)) + out.getvalue()


def test_avro_values_of_several_schemas_of_a_registry_are_read(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 1)
    damaged = _encoded(V1, LEFT[3], 1)[:-4]
    values = [_encoded(V1, LEFT[1], 1), _encoded(V2, LEFT[2], 2, v="2"), damaged, _encoded(V1, LEFT[4], 9), LEFT[5].line, None]
    send(kafka, topic, values)
    with registry({1: V1, 2: V2}) as url:
        of_registry = {"options": {"subscribe": topic}, "avro": Avro(registry=Registry(config={"url": url} | AT_ONCE))}
        engine = engines.make([source("l")], l=of_registry)
        engine.ingest()
    assert accepted(engine) == [1, 2]
    assert [reason for _, reason in rows(engine, "quarantine/l", "offset", "reason")] == [
        "malformed: the value cannot be read with its Avro schema",
        "malformed: no Avro schema with the id 9 in the registry",
        "malformed: not Confluent's wire format: no zero byte and id of a schema before the value",
        "malformed: the record has no value (a tombstone)",
    ]
    send(kafka, topic, [_encoded(V1, LEFT[6], 1)])
    with pytest.raises(UnreadError, match=r"1 range of offsets could not be read: .*the schema registry cannot be used"):
        engines.make([source("l")], l=of_registry).ingest()
    with registry({1: V1}) as url:
        again = replace(of_registry["avro"], registry=Registry(config={"url": url} | AT_ONCE))
        engine = engines.make([source("l")], l={"options": {"subscribe": topic}, "avro": again})
        engine.ingest()
    assert accepted(engine) == [1, 2, 6]


def test_records_with_an_unusual_schema_are_quarantined_and_the_others_are_accepted(engines: TopicEngines, kafka: Kafka):
    topic, schemas = new_topic(kafka, 1), dict(enumerate(UNUSUAL.values(), 10))
    values = [_encoded(V1, LEFT[1], 1), *[_encoded(V1, LEFT[2], schema_id) for schema_id in schemas], _encoded(V1, LEFT[3], 1)]
    send(kafka, topic, values)
    with registry({1: V1, **schemas}, kinds={15: "JSON"}) as url:
        engine = engines.make(
            [source("l")], l={"options": {"subscribe": topic}, "avro": Avro(registry=Registry(config={"url": url} | AT_ONCE))}
        )
        engine.ingest()
    assert accepted(engine) == [1, 3]
    reasons = [reason for _, reason in rows(engine, "quarantine/l", "offset", "reason")]
    expected = [
        r"malformed: the Avro schema is no record",
        r"malformed: the Avro schema is no record",
        r"malformed: its Avro schema cannot be read: IncompatibleSchemaException: .*recursive reference.*",
        r"malformed: its Avro schema cannot be read: AvroTypeException: Undefined schema: com\.acme\.Other",
        r"malformed: its Avro schema cannot be read: it has the field 'K' twice, in different case",
        r"malformed: its schema is not Avro but JSON",
        r"malformed: the Avro schema is no record",
        r"malformed: its Avro schema cannot be read: it has the field 'A' twice, in different case",
    ]
    assert len(reasons) == len(expected)
    for reason, pattern in zip(reasons, expected, strict=True):
        assert re.fullmatch(pattern, reason, re.DOTALL), reasons


def test_tombstones_are_released_and_values_that_are_kept_as_bytes_are_not(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 1)
    large = RowRule(name="large", condition="v > 5", action="quarantine")
    send(kafka, topic, [_encoded(V1, LEFT[1]), None])
    of = {"l": {"options": {"subscribe": topic}, "avro": Avro(schema=json.dumps(V1))}}
    engines.make([source("l", rules=(large,))], **of).ingest()
    engine = engines.make([source("l")], **of)
    [released] = engine.ingestion.quarantine.release("l")
    assert released.rows == 2
    engine.ingest()
    assert accepted(engine) == [1]
    tombstone = "malformed: the record has no value (a tombstone)"
    assert [reason for _, reason in rows(engine, "quarantine/l", "seq", "reason")][1:] == ["rule: large", tombstone]
    send(kafka, topic, [b""])
    engine.ingest()
    with pytest.raises(QuarantineError, match="are not readable Avro"):
        engine.ingestion.quarantine.release("l")


def test_a_value_with_a_union_of_schemas_is_quarantined(engines: TopicEngines, kafka: Kafka):
    topic = new_topic(kafka, 1)
    send(kafka, topic, [b"\2" + _encoded(V1, LEFT[1])])
    engine = engines.make([source("l")], l={"options": {"subscribe": topic}, "avro": Avro(schema=json.dumps(["null", V1]))})
    [[of_l]] = engine.ingest()
    assert (of_l.accepted, of_l.quarantined) == (0, 1)
    assert rows(engine, "quarantine/l", "reason") == [("malformed: the Avro schema is no record",)]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        pytest.param(UNUSUAL["a recursive record"], "recursive reference", id="recursive"),
        pytest.param(UNUSUAL["a reference"], r"Undefined schema: com\.acme\.Other", id="a reference"),
        pytest.param(UNUSUAL["names that differ in case"], "the field 'K' twice, in different case", id="names that differ in case"),
        pytest.param(UNUSUAL["nested names that differ in case"], "the field 'A' twice, in different case", id="nested names"),
        pytest.param({**V1, "fields": [{"name": "k", "type": "text"}]}, "text", id="no type"),
        pytest.param({"type": "record", "name": "Row"}, "", id="no fields"),
    ],
)
def test_a_schema_file_that_spark_cannot_read_is_refused_before_a_record_is_read(spark: SparkSession, schema: object, reason: str):
    ledger: Any = SimpleNamespace(topic_ends=lambda _: {})
    of_file = Avro(schema=json.dumps(schema), file="/srv/order.avsc")
    finder = TopicRanges("l", Topics(options={"subscribe": "orders"}, avro=of_file), ledger, 1_000)
    finder.begin(to_present=True)
    assert finder.new(spark) == []
    assert re.search(
        rf"^source 'l': the Avro schema of its topics, in the file '/srv/order\.avsc', cannot be read: .*{reason}", finder.refused or ""
    )


def test_records_of_rarer_schemas_are_not_called_unknown_and_can_be_sent_again(
    engines: TopicEngines, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(avro, "_MOST_SCHEMAS", 1)
    topic = new_topic(kafka, 1)
    send(kafka, topic, [_encoded(V1, LEFT[1], 1), _encoded(V1, LEFT[2], 1), _encoded(V2, LEFT[3], 2, v="3")])
    with registry({1: V1, 2: V2}) as url:
        of_registry = {"options": {"subscribe": topic}, "avro": Avro(registry=Registry(config={"url": url} | AT_ONCE))}
        engine = engines.make([source("l")], l=of_registry)
        engine.ingest()
        [(reason,)] = rows(engine, "quarantine/l", "reason")
        assert re.fullmatch(r"malformed: too many Avro schemas: .* send this record again, whose schema id is 2", reason)
        send(kafka, topic, [_encoded(V2, LEFT[3], 2, v="3")])
        engine.ingest()
    assert accepted(engine) == [1, 2, 3]


def test_avro_values_of_one_schema_are_read_and_a_damaged_one_that_names_a_length_of_a_gigabyte_is_quarantined(
    engines: TopicEngines, kafka: Kafka
):
    topic = new_topic(kafka, 1)
    send(kafka, topic, [_encoded(V2, LEFT[1], v=None), b"", b"\xfe\xff\xff\xff\x07AB", _encoded(V2, LEFT[2], v="2")])
    engine = engines.make([source("l")], l={"options": {"subscribe": topic}, "avro": Avro(schema=json.dumps(V2))})
    [[of_l]] = engine.ingest()
    assert (of_l.accepted, of_l.quarantined) == (2, 2)
    assert {value for (value,) in {tuple(r) for r in engine.lake.read(engine.spark, "events/l").select("v").collect()}} == {None, 2}
    assert rows(engine, "quarantine/l", "reason") == [("malformed: the value cannot be read with its Avro schema",)] * 2
