"""The part `kafka.sinks` of the connections, and the assets made of it."""

from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import Pipeline
from operators import Aggregate
from operators.errors import TidemarkError
from platform_defs.connections import ConnectionsError, read
from platform_defs.connections.kafka_sinks import KafkaSinkError
from platform_defs.connections.values import Secret, topic_options
from platform_defs.definitions import build
from platform_defs.engine.operations.sink import Sink
from platform_defs.engine.operations.topic import kept_clients
from platform_defs.settings import Settings
from platform_defs.shop import shop

SERVER = "options: {kafka.bootstrap.servers: 'localhost:9092', startingOffsets: latest"
FILE = f"kafka: {{{SERVER}, kafka.sasl.jaas.config: {{env: THE_KEY}}}}, sinks: {{category_leaderboard: {{topic: best}}}}}}"


def _sinks(sinks: str, options: str = f"{SERVER}}}, "):
    return read(f"kafka: {{{options}sinks: {sinks}}}").sinks(shop(Settings()))  # pyright: ignore[reportCallIssue]


def test_a_sink_has_the_options_of_all_topics_and_its_own_but_none_of_a_reader():
    own = "{kafka.bootstrap.servers: 'other:1', kafka.linger.ms: 5, kafka.acks: all}"
    sink = _sinks(f"{{category_leaderboard: {{topic: best, format: avro, partitions: 3, options: {own}}}}}")["category_leaderboard"]
    assert (sink.topic, sink.format, sink.partitions, sink.key) == ("best", "avro", 3, ())
    assert sink.options == {
        "kafka.bootstrap.servers": "other:1",
        "kafka.linger.ms": "5",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
    }
    assert sink.client["linger.ms"] == "5"


def test_names_of_options_ignore_case_as_in_spark():
    own = "{kafka.Bootstrap.servers: 'other:1', kafka.Linger.MS: 5, kafka.Enable.idempotence: true}"
    sink = _sinks(f"{{category_leaderboard: {{topic: best, options: {own}}}}}")["category_leaderboard"]
    assert sink.client == {"bootstrap.servers": "other:1", "linger.ms": "5", "enable.idempotence": "true"}


def test_a_secret_is_read_for_a_sink_and_never_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_KEY", "s3cret")
    sinks = read(FILE).sinks(shop(Settings()))  # pyright: ignore[reportCallIssue]
    assert sinks["category_leaderboard"].options["kafka.sasl.jaas.config"] == "s3cret"
    assert "s3cret" not in repr(sinks)
    assert read(FILE).jar_sets == ["spark", "kafka"]


def test_a_secret_that_is_not_set_stops_only_what_needs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    secret = "{env: THE_KEY}"
    sources = f"{{orders: {{options: {{kafka.sasl.jaas.config: {secret}, subscribe: orders}}, avro: {{registry: {{url: {secret}}}}}}}}}"
    connected = read(FILE.replace("sinks:", f"sources: {sources}, sinks:"))
    sink, topics = (resolve(shop(Settings())) for resolve in (connected.sinks, connected.topics))  # pyright: ignore[reportCallIssue]
    assert sink["category_leaderboard"].topic == "best"
    assert (topics["orders"].name, topics["orders"].subscribed) == ("orders", ["orders"])
    avro = topics["orders"].avro
    assert avro is not None
    assert avro.registry is not None
    for options in (sink["category_leaderboard"].options, topics["orders"].options, avro.registry.config):
        with pytest.raises(ConnectionsError, match=r"environment variable THE_KEY, which is not set or is empty; set it"):
            dict(options)


def test_a_sink_has_its_registry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_USER", "u:p")
    registry = "{url: 'http://r:1', cache.capacity: 10, basic.auth.user.info: {env: THE_USER}}"
    sinks = _sinks(f"{{category_leaderboard: {{topic: t, format: avro, registry: {registry}}}}}")
    found = sinks["category_leaderboard"].registry
    assert found is not None
    assert found.config == {"url": "http://r:1", "cache.capacity": 10, "basic.auth.user.info": "u:p"}
    assert "u:p" not in repr(sinks)


@pytest.mark.parametrize(
    ("sinks", "error"),
    [
        pytest.param("{boards: {topic: t}}", "there is no table 'boards'; legal: ", id="no table"),
        pytest.param("{category_leaderboard: {topic: t, key: [seller]}}", "is an upserted table, whose", id="its key"),
        pytest.param(
            "{payment_order_wide: {topic: t, key: [Order_ID]}}",
            r"payment_order_wide\.key: there is no column 'Order_ID'; legal: columns of payment_order_wide, .*; did you mean 'order_id'",
            id="no column",
        ),
        pytest.param(
            "{category_leaderboard: {topic: t}, payment_order_wide: {topic: t}}",
            "category_leaderboard and payment_order_wide have the topic 't'",
            id="one topic for two tables",
        ),
    ],
)
def test_a_sink_that_does_not_fit_the_pipeline_is_refused(sinks: str, error: str):
    with pytest.raises(TidemarkError, match=error):
        _sinks(sinks)


def test_a_sink_without_a_broker_is_refused():
    with pytest.raises(TidemarkError, match=r"category_leaderboard has no option kafka\.bootstrap\.servers; legal: HOST:PORT"):
        _sinks("{category_leaderboard: {topic: t}}", options="")


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        pytest.param("{topic: t, options: {kafka.acks: 1}}", "'kafka.acks' is 1; legal: all or -1", id="records that may be lost"),
        pytest.param("{topic: t, options: {kafka.enable.idempotence: false}}", "legal: true, because a sink", id="records out of order"),
        pytest.param("{topic: t, options: {kafka.Acks: 0}}", "'kafka.Acks' is 0; legal: all or -1", id="in another case"),
        pytest.param("{topic: t, options: {kafka.Transactional.Id: x}}", "is set by Spark", id="an option of Spark in another case"),
        pytest.param("{topic: t, options: {kafka.linger.ms: 1, kafka.Linger.ms: 2}}", "differs from another option in case", id="twice"),
        pytest.param("{topic: t, options: {kafka.key.serializer: x}}", "is set by Spark", id="an option of Spark"),
        pytest.param("{topic: t, options: {subscribe: x}}", "'subscribe' is not an option of a sink", id="an option of a reader"),
        pytest.param("{topic: 'a b'}", "topic: legal: at most 249 letters, digits", id="no name of a topic"),
        pytest.param("{topic: ..}", r"topic: legal: .* neither '\.' nor '\.\.'", id="a name that Kafka refuses"),
        pytest.param("{topic: t, format: csv}", "format", id="another format"),
        pytest.param("{topic: t, registry: {url: 'http://r:1'}}", "legal: a registry with the format avro", id="a registry for JSON"),
    ],
)
def test_an_illegal_sink_is_refused(sink: str, error: str):
    with pytest.raises(ConnectionsError, match=error):
        read(f"kafka: {{sinks: {{x: {sink}}}}}")


def test_a_topic_is_an_asset_below_its_table_and_part_of_the_job(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    (tmp_path / "connections.yaml").write_text(FILE)
    repository = build(Settings(connections=str(tmp_path / "connections.yaml"))).get_repository_def()  # pyright: ignore[reportCallIssue]
    node, key = repository.asset_graph.get(dg.AssetKey(["kafka", "category_leaderboard"])), dg.AssetKey("category_leaderboard")
    assert (node.kinds, node.parent_keys, node.metadata["topic"]) == ({"kafka"}, {key}, "best")
    assert node.key in repository.get_job("advance").asset_layer.executable_asset_keys


def test_a_table_with_the_name_of_a_step_of_a_sink_is_refused(tmp_path: Path):
    rides = SourceContract(name="rides", schema="zone STRING, at TIMESTAMP", event_time="at")
    per_zone = Aggregate(by="zone", aggregates={"n": "count(*)"})
    tables = [DerivedAsset(name=name, inputs=("rides",), operator=per_zone) for name in ("totals", "kafka__totals")]
    pipeline = Pipeline(sources=[rides], tables=tables)
    file = tmp_path / "connections.yaml"
    file.write_text(f"kafka: {{{SERVER}}}, sinks: {{totals: {{topic: t}}}}}}")
    message = r"^kafka\.sinks\.totals: the step .* is called 'kafka__totals', which is the name of a table too; legal: another name"
    with pytest.raises(KafkaSinkError, match=message):
        build(Settings(connections=str(file)), pipeline)  # pyright: ignore[reportCallIssue]
    with pytest.raises(KafkaSinkError, match=message):
        read(file.read_text()).sinks(pipeline)


def test_a_sink_whose_secret_is_not_set_does_not_stop_a_stream(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    sink = Sink(topic="t", options=topic_options({"kafka.sasl.jaas.config": Secret(env="THE_KEY")}))
    started = list[str]()
    with kept_clients(SimpleNamespace(_jvm=None), [sink]):  # pyright: ignore[reportArgumentType]
        started.append("stream")
    assert started == ["stream"]
