"""The part `kafka.sources` of the connections: what it makes of a pipeline's sources, and what it refuses."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from assets.contracts import BoundedOutOfOrderness, Punctuated, SourceContract
from assets.pipeline import Pipeline
from platform_defs.connections import ConnectionsError, read
from platform_defs.connections.kafka_sources import KafkaError
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.ingest.topic_ranges import TopicRanges

NESTED = {"type": "record", "name": "in", "fields": [{"name": name, "type": "int"} for name in ("a", "b", "A")]}
"""A record with a field whose name equals another one, ignoring case."""


def _pipeline(**changes: Any) -> Pipeline:
    schema = "id STRING, at TIMESTAMP, region STRING"
    return Pipeline(sources=[SourceContract(**{"name": "orders", "schema": schema, "event_time": "at", **changes})], tables=[])


def _topics(source: dict[str, Any], pipeline: Pipeline | None = None, **options: Any) -> Topics:
    document = {"kafka": {"options": options, "sources": {"orders": source}}}
    return read(yaml.safe_dump(document)).topics(pipeline or _pipeline())["orders"]


def test_options_of_all_sources_and_of_one_are_joined_and_secrets_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAAS", "s3cret")
    shared = {"kafka.bootstrap.servers": "b:1", "kafka.sasl.jaas.config": {"env": "JAAS"}, "maxOffsetsPerTrigger": 5}
    topics = _topics({"options": {"subscribe": "orders", "maxOffsetsPerTrigger": 7}, "columns": {"region": "headers.region"}}, **shared)
    assert topics.client == {"bootstrap.servers": "b:1", "sasl.jaas.config": "s3cret"}
    assert topics.option("MAXOFFSETSPERTRIGGER") == "7"
    assert topics.columns == {"region": "headers.region"}
    assert "s3cret" not in repr(topics)


def test_an_option_of_a_source_replaces_one_of_all_sources_that_is_written_in_another_case():
    topics = _topics({"options": {"subscribe": "orders", "startingoffsets": "earliest"}}, startingOffsets="latest")
    assert topics.option("startingOffsets") == "earliest"


@pytest.mark.parametrize(("own", "shared"), [("startingOffsets", "startingtimestamp"), ("startingTimestamp", "startingOffsets")])
def test_the_start_of_a_source_replaces_that_of_all_sources(own: str, shared: str):
    values = {"startingoffsets": "earliest", "startingtimestamp": 1_000}
    topics = _topics({"options": {"subscribe": "orders", own: values[own.lower()]}}, **{shared: values[shared.lower()]})
    assert topics.options == {"subscribe": "orders", own: str(values[own.lower()])}
    assert topics.starts_at_earliest == (own == "startingOffsets")


def test_an_option_that_names_topics_is_refused_among_the_options_of_all_sources():
    with pytest.raises(ConnectionsError, match=r"'subscribe' is an option of a single source; legal: subscribe in kafka.sources"):
        _topics({"options": {"subscribePattern": "b"}}, subscribe="a")


def test_without_a_part_kafka_no_source_has_topics():
    assert read("spark: {}").topics(_pipeline()) == {}


def test_a_schema_is_read_from_its_file(tmp_path: Path):
    file = tmp_path / "order.avsc"
    in_records = [{"type": "record", "name": name, "fields": [{"name": field, "type": "int"}]} for name, field in (("x", "a"), ("y", "A"))]
    fields = [{"name": f"f{number}", "type": record, "default": {"b": 1, "B": 1}} for number, record in enumerate(in_records)]
    file.write_text(json.dumps({"type": "record", "name": "o", "fields": fields}))
    topics = _topics({"options": {"subscribe": "orders"}, "avro": {"schema_file": str(file)}})
    assert topics.avro is not None
    assert topics.avro.schema == file.read_text()


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        pytest.param(None, "cannot be read: .*No such file", id="no file"),
        pytest.param("{", "cannot be read: Expecting property name", id="no JSON"),
        pytest.param('["null", {"type": "record", "name": "o", "fields": []}]', "has a union of schemas at its top", id="a union"),
        pytest.param("[]", "has a union of schemas at its top", id="no schemas"),
        pytest.param('"string"', "is not the schema of a record", id="a text"),
        pytest.param("[" * 100_000, "cannot be read: maximum recursion depth", id="brackets"),
        pytest.param('{"type": {"type": "record"}}', "is not the schema of a record", id="a nested type"),
        pytest.param('{"type": "object", "properties": {}}', "is not the schema of a record", id="JSON Schema"),
        *[
            pytest.param(
                json.dumps({"type": "record", "name": "r", "fields": [{"name": "i", "type": "int"}, {"name": "f", "type": nested}]}),
                "has the field 'A' of the record 'in' twice, ignoring case",
                id=f"names that differ in case, in {part}",
            )
            for part, nested in {
                "a record": NESTED,
                "a type": {"type": NESTED},
                "an array": {"type": "array", "items": NESTED},
                "a map": {"type": "map", "values": {"type": "array", "items": NESTED}},
                "a union": ["null", "int", NESTED],
                "a record in a record": {"type": "record", "name": "out", "fields": [{"name": "b", "type": NESTED}]},
            }.items()
        ],
        pytest.param(json.dumps(NESTED), "has the field 'A' of the record 'in' twice, ignoring case", id="names that differ in case"),
    ],
)
def test_a_file_without_the_legal_schema_of_a_record_is_refused_with_its_source(tmp_path: Path, schema: str | None, fault: str):
    file = tmp_path / "order.avsc"
    if schema is not None:
        file.write_text(schema)
    with pytest.raises(KafkaError, match=rf"^kafka\.sources\.orders\.avro: `schema_file` is '{file}', which {fault}.*; legal: a file with"):
        _topics({"options": {"subscribe": "orders"}, "avro": {"schema_file": str(file)}})


def test_a_number_of_the_registrys_client_stays_a_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("USER_INFO", "u:p")
    registry = {"url": "http://r:1", "cache.capacity": 100, "basic.auth.user.info": {"env": "USER_INFO"}}
    avro = _topics({"options": {"subscribe": "orders"}, "avro": {"registry": registry}}).avro
    assert avro is not None
    assert avro.registry is not None
    assert avro.registry.config == {"url": "http://r:1", "cache.capacity": 100, "basic.auth.user.info": "u:p"}
    assert "u:p" not in repr(avro)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        pytest.param({}, "either subscribe", id="no topic"),
        pytest.param({"options": {"subscribe": "a", "subscribePattern": "b"}}, "either subscribe", id="two ways"),
        pytest.param({"options": {"subscribe": "a", "maxOffsetPerTrigger": 1}}, "did you mean 'maxOffsetsPerTrigger'", id="misspelled"),
        pytest.param({"options": {"subscribe": "a", "kafka.group.id": "g"}}, "'kafka.group.id' is set or refused by Spark", id="a group"),
        pytest.param({"options": {"subscribe": "a", "kafka.Group.ID": "g"}}, "'kafka.Group.ID' is set or refused", id="in another case"),
        pytest.param({"options": {"subscribe": "a", "kafka.interceptor.classes": "x"}}, "set or refused by Spark", id="interceptors"),
        pytest.param({"options": {"subscribe": "a", "kafka.": "x"}}, "'kafka.' is no option", id="no name"),
        pytest.param({"options": {"subscribe": "a", "failOnDataLoss": "ture"}}, "legal: true or false", id="no truth value"),
        pytest.param({"options": {"subscribe": "a,,b"}}, "'a,,b'; legal: names of topics, separated by commas", id="an empty topic"),
        pytest.param({"options": {"subscribe": ""}}, "legal: names of topics, separated by commas", id="empty topics"),
        pytest.param({"options": {"subscribePattern": ""}}, "legal: a regular expression", id="an empty pattern"),
        pytest.param(
            {"options": {"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": 1}},
            "'startingOffsets' and 'startingTimestamp' are both given; legal: one of them",
            id="two starts",
        ),
        pytest.param({"options": {"subscribe": "a", "maxOffsetsPerTrigger": 0}}, "legal: a whole number from 1 to", id="no records"),
        pytest.param({"options": {"subscribe": "a", "maxOffsetsPerTrigger": "x"}}, "legal: a whole number from 1 to", id="no number"),
        pytest.param({"options": {"subscribe": "a", "startingOffsets": "newest"}}, "legal: earliest, latest, or JSON", id="no start"),
        pytest.param({"options": {"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}}, "or JSON", id="no offset"),
        *[
            pytest.param({"options": {"subscribe": "a", "startingOffsets": text}}, "or JSON", id=text[:20])
            for text in (
                '{"a": {"0": true}}',
                '{"a": {"a": 1}}',
                '{"a": {"-1": 1}}',
                '{"a": {"00": 1}}',
                f'{{"a": {{"0": {1 << 63}}}}}',
                "[" * 100_000,
            )
        ],
        pytest.param({"options": {"subscribe": "a"}, "columns": {"region": "value"}}, "legal: key, topic, partition", id="no part"),
        pytest.param({"options": {"subscribe": "a", "Subscribe": "b"}}, "'subscribe' differs from another option in case only", id="twice"),
        pytest.param({"options": {"subscribe": "a"}, "avro": {}}, "legal: one of schema_file and registry", id="no schema"),
        pytest.param({"options": {"subscribe": "a"}, "avro": {"registry": {"url": ""}}}, "there is no url; legal: ", id="an empty URL"),
    ],
)
def test_an_illegal_source_is_refused(source: dict[str, Any], error: str):
    with pytest.raises(ConnectionsError, match=error):
        _topics(source)


@pytest.mark.parametrize(
    ("pipeline", "source", "error"),
    [
        pytest.param(_pipeline(name="order"), {}, r"there is no source 'orders'; legal: order; did you mean 'order'", id="no source"),
        pytest.param(_pipeline(), {"columns": {"regoin": "key"}}, r"there is no column 'regoin'; legal: id, at, region", id="no column"),
        pytest.param(_pipeline(watermark=Punctuated("at")), {}, "`watermark` of the source does not work with topics", id="punctuated"),
        pytest.param(_pipeline(new_columns="add"), {}, "`new_columns` of the source does not work with topics", id="added columns"),
        pytest.param(_pipeline(new_columns="refuse"), {}, "legal: ignore, quarantine", id="refused columns"),
    ],
)
def test_a_source_that_does_not_match_the_pipeline_is_refused(pipeline: Pipeline, source: dict[str, Any], error: str):
    with pytest.raises(KafkaError, match=error):
        _topics({"options": {"subscribe": "orders"}, **source}, pipeline)


@pytest.mark.parametrize(
    ("option", "text", "legal"),
    [
        pytest.param("startingTimestamp", "s3cret", "a whole number from 0 to", id="no time"),
        pytest.param("STARTINGTIMESTAMP", "-1", "a whole number from 0 to", id="a time before 1970, in another case"),
        pytest.param("maxOffsetsPerTrigger", "0", "a whole number from 1 to", id="no records"),
        pytest.param("minPartitions", "s3cret", "a whole number from 1 to", id="no number of partitions"),
        pytest.param("minPartitions", str(2**31), "a whole number from 1 to 2147483647", id="more partitions than Java can count"),
        pytest.param("startingTimestamp", "9" * 19, "a whole number from 0 to 9223372036854775807", id="a time that Java cannot have"),
        pytest.param("startingTimestamp", "9" * 5_000, "a whole number from 0 to", id="more digits than Python reads"),
        pytest.param("failOnDataLoss", "s3cret", "true or false", id="no truth value"),
        pytest.param("subscribe", "s3cret,", "names of topics, separated by commas", id="an empty topic"),
        pytest.param("startingOffsets", "s3cret", "earliest, latest, or JSON such as", id="no start"),
    ],
)
def test_a_variable_whose_value_is_not_legal_is_named_and_its_value_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, option: str, text: str, legal: str
):
    """Only the ingest of this source needs the value; the ingest reports the topics as not read, with this error."""
    monkeypatch.setenv("THE_OPTION", text)
    topics = _topics({"options": {"subscribe": "orders", option: {"env": "THE_OPTION"}}})
    ledger: Any = SimpleNamespace(topic_ends=lambda _: {})
    finder = TopicRanges("orders", topics, ledger, 1_000)
    finder.begin(to_present=True)
    assert finder.new(cast(Any, None)) == []
    assert re.search(
        f"variable THE_OPTION has a value that the option '{option}' of the connections cannot have; legal: {legal}",
        finder.unlisted["kafka:orders"],
    )
    assert "s3cret" not in finder.unlisted["kafka:orders"]


def test_a_bounded_watermark_and_quarantined_columns_are_legal():
    pipeline = _pipeline(watermark=BoundedOutOfOrderness("1 minute"), new_columns="quarantine")
    assert _topics({"options": {"subscribe": "orders"}}, pipeline).name == "orders"
