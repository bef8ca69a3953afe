"""Tables that are published as Avro with a schema registry, with a real broker."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from assets.contracts import DerivedAsset, SourceContract
from operators import TopN
from platform_defs.engine import Engine
from platform_defs.engine.formats.kafka_options import Avro, Registry
from platform_defs.engine.formats.schema_registry import RegistryError
from platform_defs.engine.operations.sink import Sink
from tests.conftest import MakeEngine
from tests.support.kafka import Kafka
from tests.support.registry import AT_ONCE, registry
from tests.support.small_sources import Event, join, replay, source
from tests.support.topics import TopicEngines, new_topic

TOP = DerivedAsset(name="top", inputs=("l",), operator=TopN(order_by="v DESC", by="k", rank_end=1))


def _with_sink(engine: Engine, kafka: Kafka, topic: str, url: str, asset: str = "top", **more: Any) -> Engine:
    options = {"kafka.bootstrap.servers": kafka.address}
    sink = Sink(topic=topic, options=options, format="avro", registry=Registry(config={"url": url} | AT_ONCE), **more)
    return replace(engine, sinks={asset: sink})


def _read_with(url: str, topic: str, kafka: Kafka) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """The keys and values of a topic, read by Confluent's deserializer."""
    read: Any = AvroDeserializer(SchemaRegistryClient({"url": url}))
    of = {part: SerializationContext(topic, part) for part in (MessageField.KEY, MessageField.VALUE)}
    return [(read(r.key, of[MessageField.KEY]), read(r.value, of[MessageField.VALUE])) for r in kafka.read(topic)]


def test_a_table_is_read_back_by_confluents_deserializer_and_by_a_source(make_engine: MakeEngine, engines: TopicEngines, kafka: Kafka):
    topic, subjects = new_topic(kafka, 1), dict[str, list[int]]()
    engine = make_engine([source("l")], [TOP])
    for batch in ([Event("a", 1, 1), Event("b", 1, 2)], [Event("a", 2, 3)]):
        replay(engine, [{"l": batch}])
        engine.advance("top")
    with registry({}, subjects) as url:
        assert _with_sink(engine, kafka, topic, url).views.publish_to_topic("top").records == 3
        assert sorted(subjects) == [f"{topic}-key", f"{topic}-value"]
        found = {key["k"]: value and value["v"] for key, value in _read_with(url, topic, kafka) if key is not None}
        assert found == {"a": 2, "b": 1}
        contract = SourceContract(name="l", schema="k STRING, v INT, ts TIMESTAMP", event_time="ts", future_skew=None)
        reader = engines.make([contract], l={"options": {"subscribe": topic}, "avro": Avro(registry=Registry(config={"url": url}))})
        reader.ingest()
    columns = "k", "v", "ts"
    read = {row.k: tuple(row) for row in reader.lake.read(reader.spark, "events/l").orderBy("arrival").select(*columns).collect()}
    assert read == {row.k: tuple(row) for row in engine.views.table("top").select(*columns).collect()}


def test_a_table_without_a_key_has_no_key_schema(make_engine: MakeEngine, kafka: Kafka):
    topic, subjects = new_topic(kafka, 1), dict[str, list[int]]()
    engine = make_engine([source("l"), source("r")], [join()])
    replay(engine, [{"l": [Event("a", 1, 0)], "r": [Event("a", 2, 1)]}, {n: [Event("z", 1, 5_400_000)] for n in ("l", "r")}])
    engine.advance("pairs")
    with registry({}, subjects) as url:
        records = _with_sink(engine, kafka, topic, url, "pairs").views.publish_to_topic("pairs").records
        assert [key for key, _ in _read_with(url, topic, kafka)] == [None] * records
    assert list(subjects) == [f"{topic}-value"]


def test_a_new_column_is_compatible_and_a_schema_that_the_registry_refuses_is_an_error(make_engine: MakeEngine, kafka: Kafka):
    topic = new_topic(kafka, 1)
    engine = make_engine([source("l")], [TOP])
    replay(engine, [{"l": [Event("a", 1, 1)]}])
    engine.advance("top")
    before = {"type": "record", "name": "top", "namespace": "tidemark", "fields": [{"name": "v", "type": "boolean"}]}
    with registry({7: before}, {f"{topic}-value": [7]}) as url:
        message = rf"refuses the schema of the subject '{topic}-value': Schema being .* incompatible .* Publish to a new topic"
        with pytest.raises(RegistryError, match=message):
            _with_sink(engine, kafka, topic, url).views.publish_to_topic("top")
        assert kafka.read(topic) == []
    with registry({7: before | {"fields": []}}, {f"{topic}-value": [7]}) as url:
        assert _with_sink(engine, kafka, topic, url).views.publish_to_topic("top").records == 1
    replay(engine, [{"l": [Event("a", 3, 1)]}])
    engine.advance("top")
    with pytest.raises(RegistryError, match="the schema registry cannot be used"):
        _with_sink(engine, kafka, topic, url).views.publish_to_topic("top")
