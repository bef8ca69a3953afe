"""A short soak: a steady producer, a stream with both kinds of sinks, and a broker that is killed; `make soak` runs half an hour."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.live import verdict
from benchmarks.live.pipeline import EVENTS
from benchmarks.live.quiet import QuietReports
from benchmarks.live.samples import Sample, growth
from benchmarks.live.soak import not_flat
from benchmarks.live.world import World, until
from platform_defs.engine.operations.advance_all import Failed
from platform_defs.setup.broker import Broker
from platform_defs.stream.run import StreamRun
from platform_defs.stream_trigger import StreamTrigger

RATE, SECONDS, KEYS = 400.0, 8.0, 20
WAIT_S = 120.0


class _Ended(Exception):
    """The test has seen enough."""


class _UntilEnded(QuietReports):
    """Ends a stream between two turns."""

    def __init__(self, is_ended: Callable[[], bool]) -> None:
        self._is_ended = is_ended

    def turned(self, waiting: Mapping[str, Failed], unpublished: Mapping[str, Failed]) -> None:
        if self._is_ended():
            raise _Ended


def test_nothing_is_lost_or_doubled_in_lake_and_topics_when_the_broker_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker").start()
    try:
        world = World(tmp_path, broker)
        world.create_topics()
        engine = world.engine(lambda: spark)
        sending, errors = world.produce(RATE, SECONDS, KEYS), list[BaseException]()

        def ended() -> bool:
            counts = sending.counts
            return counts["ended"] and engine.ledger.totals(EVENTS)["accepted"] >= counts["acked"]

        def stream() -> None:
            try:
                StreamRun(engine, _UntilEnded(ended)).run(StreamTrigger("500 milliseconds"))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=stream)
        thread.start()
        until(lambda: sending.counts["acked"] > RATE * SECONDS / 4, WAIT_S, 0.05)
        broker.kill()
        time.sleep(0.5)
        broker.start()
        acked = sending.wait()["acked"]
        thread.join(WAIT_S)
        assert [type(error) for error in errors] == [_Ended], errors
        verdict.finish(engine, QuietReports())
        assert acked == RATE * SECONDS
        assert verdict.problems(engine, acked) == []
    finally:
        broker.kill()


def _sample(seconds: float, **changes: float) -> Sample:
    normal = {
        "acked": seconds * 10,
        "accepted": seconds * 10,
        "jvm_mb": 900,
        "outside_mb": 400,
        "python_mb": 300,
        "live_mb": 150,
        "files": 40,
        "on_disk": 99,
    }
    return Sample(seconds=seconds, **{**normal, **changes})  # pyright: ignore[reportArgumentType]


def test_the_soak_finds_what_grows_and_a_stream_that_is_behind() -> None:
    level = [_sample(n * 10) for n in range(60)]
    assert not_flat(level, [], 10.0) == []
    leak = [_sample(n * 10, live_mb=150 + 4 * n) for n in range(60)]
    assert growth(leak, "live_mb") > 1.2
    assert [problem.split(" has")[0] for problem in not_flat(leak, [], 10.0)] == ["live_mb"]
    behind = [*level[:30], _sample(300, accepted=2_500), *level[31:]]
    assert not_flat(behind, [], 10.0) == ["the ledger is 50 s behind at 300 s; legal: 20 s"]
    assert not_flat(behind, [290.0], 10.0) == [], "a broker that was just killed"
