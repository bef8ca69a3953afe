"""A stream publishes its tables to Kafka, with a real broker: what is behind at its start, each new step, and later a failed sink."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.operations import publish_to_topic
from platform_defs.engine.operations.sink import Sink
from platform_defs.engine.operations.topic import CHANGE, STEP
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.run import StreamError, StreamRun
from tests.conftest import MakeEngine
from tests.engine.source_batches import source_batch
from tests.platform_defs.stream.recorder import Recorder
from tests.support.kafka import Kafka, Record
from tests.support.small_sources import MINUTE, Event, land, replay, source

COUNT = {"n": "count(*)"}
ASSETS = [
    DerivedAsset(name="windows", inputs=("l",), operator=WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates=COUNT)),
    DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates=COUNT)),
]
FIRST = {"l": [Event("a", 1, 0), Event("a", 2, MINUTE), Event("b", 3, 60 * MINUTE)]}
NOW = StreamTrigger(None)
AWAY = {
    "kafka.bootstrap.servers": "127.0.0.1:9",
    "kafka.default.api.timeout.ms": "800",
    "kafka.request.timeout.ms": "400",
}
WAIT_S = 60.0


@pytest.fixture
def engine(make_engine: MakeEngine, kafka: Kafka) -> Engine:
    """Two tables, each with a topic of its own."""
    made = make_engine([source("l")], ASSETS)
    replay(made, [FIRST])
    options = {"kafka.bootstrap.servers": kafka.address}
    return replace(made, sinks={a.name: Sink(topic=f"{a.name}-{uuid4().hex[:8]}", options=options, partitions=1) for a in ASSETS})


def _present(records: list[Record]) -> dict[str, int]:
    """The newest count of each key, without deleted keys, as a reader of the compacted topic sees them."""
    newest = {json.loads(r.key or b"")["k"]: json.loads(r.value)["n"] if r.value else None for r in records}
    return {k: n for k, n in newest.items() if n is not None}


def _keys(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(r.key, r.value, r.headers[STEP], r.headers.get(CHANGE)) for r in records]


def _after(stream: StreamRun, engine: Engine, reports: Recorder, done: Callable[[], bool]) -> None:
    """Report a batch to a stream, and let it retry until `done` is true."""
    stream.after((source_batch("l", engine.ledger.head),))
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end, reports.made
        time.sleep(0.02)
        stream.retry()


def test_what_is_behind_is_published_at_the_start_then_each_step_and_nothing_twice(engine: Engine, kafka: Kafka) -> None:
    reports, topics = Recorder(), {name: sink.topic for name, sink in engine.sinks.items()}
    for name in engine.assets:
        engine.advance(name)
    StreamRun(engine, reports).run(NOW)
    assert {name for names in reports.of("published") for name in names} == {"totals", "windows"}
    assert _present(kafka.read(topics["totals"])) == {"a": 2, "b": 1}
    land(engine, "l", "1.jsonl", [Event("c", 5, 120 * MINUTE).line])
    StreamRun(engine, Recorder()).run(NOW)
    assert _present(kafka.read(topics["totals"])) == {"a": 2, "b": 1, "c": 1}
    quiet = Recorder()
    StreamRun(engine, quiet).run(NOW)
    assert quiet.of("published") == []
    for topic in topics.values():
        found = _keys(kafka.read(topic))
        assert len(found) == len({*found})
    rows = [json.loads(r.value or b"") for r in kafka.read(topics["windows"])]
    assert sorted((row["k"], row["n"]) for row in rows) == [("a", 2), ("b", 1)], "the rows of closed windows"


def test_a_stream_without_new_steps_opens_no_topic(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, topic = list[str](), publish_to_topic.Topic
    monkeypatch.setattr(publish_to_topic, "Topic", lambda *a, **k: (opened.append(a[2]), topic(*a, **k))[1])
    reports = Recorder()
    stream = StreamRun(engine, reports)
    stream.start()
    _after(stream, engine, reports, lambda: len({n for names in reports.of("published") for n in names}) == 2)
    opened.clear()
    for _ in range(20):
        stream.retry()
    assert opened == []


def test_a_sink_that_fails_is_recorded_and_tried_again_while_others_go_on(engine: Engine, kafka: Kafka, tmp_path: Path) -> None:
    away = replace(engine, sinks={**engine.sinks, "totals": replace(engine.sinks["totals"], options=AWAY)})
    reports = Recorder()
    with pytest.raises(StreamError, match=r"^totals could not be published to Kafka; the reasons are in the log. All tables are advanced"):
        StreamRun(away, reports).run(NOW)
    assert {name for names in reports.of("advanced") for name in names} == {"totals", "windows"}
    assert {*reports.of("unpublished")} == {"totals"}  # once for each try, of which a slow machine makes several
    assert {name for names in reports.of("published") for name in names} == {"windows"}
    failure = away.failures.of_sink("totals")
    assert failure is not None
    assert "cannot be used" in failure.message
    assert away.failures.of_sink("windows") is None

    reports = Recorder()
    stream = StreamRun(away, reports)
    stream.start()
    _after(stream, away, reports, lambda: reports.of("unpublished") != [])
    assert reports.waiting == ["kafka/totals"]
    back = Recorder()
    StreamRun(engine, back).run(NOW)  # the broker is back
    assert back.of("published") == [["totals"]]
    assert engine.failures.of_sink("totals") is None
    assert _present(kafka.read(engine.sinks["totals"].topic)) == {"a": 2, "b": 1}
