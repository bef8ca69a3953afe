"""A short soak: steady producers, and a stream with both kinds of sinks; the stream's process and the broker are killed.

`make soak` runs half an hour, on a cluster whose workers are killed too.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.live import final_checks
from benchmarks.live.pipeline import EVENTS
from benchmarks.live.processes import until
from benchmarks.live.quiet import QuietReports
from benchmarks.live.soak import Soak, run
from benchmarks.live.world import World, streaming
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.run import StreamRun
from tests.support.kafka import Kafka
from tests.support.quick_session import QUICK_CONNECTIONS

RATE, SECONDS, KEYS = 400.0, 4.0, 20
WAIT_S = 120.0


class _Ended(Exception):
    """The test has seen enough."""


class _UntilEnded(QuietReports):
    """Ends a stream between two turns."""

    def __init__(self, is_ended: Callable[[], bool]) -> None:
        self._is_ended = is_ended

    def report_turn(self, waiting: Mapping[str, PendingRetry], unpublished: Mapping[str, PendingRetry]) -> None:
        if self._is_ended():
            raise _Ended


def test_nothing_is_lost_or_doubled_in_lake_and_topics_when_the_job_and_the_broker_are_killed(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """One producer sends events until the process is killed, and one while the broker is killed."""
    world, events = World(tmp_path, kafka.broker, spark=QUICK_CONNECTIONS["spark"]), int(RATE * SECONDS)
    world.create_topics()
    engine, errors = world.engine(lambda: spark), list[BaseException]()
    with streaming(world, "500 milliseconds", "1g", 2) as job:
        earlier = world.produce(RATE, SECONDS, KEYS)
        has_begun = (world.lake / engine.sources[EVENTS].log).exists
        until(has_begun, WAIT_S, lambda: f"there is no event log; {job.log.read_text()}", job.process, 0.05)
        job.kill()  # while it ingests a batch

    later = world.produce(RATE / 2, 2 * SECONDS, KEYS, first_id=events)

    def ended() -> bool:
        counts = [sending.counts for sending in (earlier, later)]
        return all(count["ended"] for count in counts) and engine.ledger.totals(EVENTS)["accepted"] >= 2 * events

    def stream() -> None:
        try:
            StreamRun(engine, _UntilEnded(ended)).run(StreamTrigger("500 milliseconds"))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=stream)
    thread.start()
    until(lambda: later.counts["acked"] > 0, WAIT_S, lambda: "no event was sent", poll_s=0.05)
    kafka.broker.kill()
    try:
        assert not later.counts["ended"]
        time.sleep(0.5)
    finally:
        kafka.broker.start()  # other tests use it too
    acked = earlier.wait()["acked"] + later.wait()["acked"]
    thread.join(WAIT_S)
    assert [type(error) for error in errors] == [_Ended], errors
    final_checks.finish(engine, QuietReports())
    assert acked == 2 * events
    assert final_checks.problems(engine, acked) == []


@pytest.mark.soak
@pytest.mark.cluster
def test_nothing_is_lost_or_doubled_when_job_broker_and_workers_are_killed(tmp_path: Path) -> None:
    small = {"heap": "1g", "executor_memory": "512m"}
    found = run(Soak(work=tmp_path / "soak", minutes=2, rate=400.0, keys=20, kill_every_s=22, **small), lambda _: None)
    assert {kill["kind"] for kill in found["kills"]} == {"job", "broker", "worker"}
    of_speed = ("has grown", "behind in the last third")  # `make soak` checks both, in a run that is long enough
    assert [problem for problem in found["problems"] if not any(text in problem for text in of_speed)] == []
