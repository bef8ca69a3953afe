"""The step times of a stream: from the start of a step to its commit. No test starts Spark."""

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.monitoring.stream_metrics import StreamMetrics
from platform_defs.stream.run import StreamRun
from tests.engine.source_batches import source_batch

NONE: Any = None


class Time:
    """A monotonic clock that a test advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def _sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"tidemark_{name}", {"table": "pairs", **labels})


def test_the_time_between_two_steps_is_not_counted(registry: CollectorRegistry) -> None:
    now = Time()
    stream = StreamMetrics(registry, now)

    def steps() -> Generator[Any]:
        for seconds in (0.2, 20):
            now.now_s += seconds
            yield seconds
        now.now_s += 1000  # no step: nothing is left to do

    for _ in stream.measure_steps("pairs", steps()):
        now.now_s += 500
    assert _sample(registry, "step_seconds_count") == 2
    assert _sample(registry, "step_seconds_sum") == pytest.approx(20.2)
    assert _sample(registry, "step_seconds_bucket", le="0.25") == 1
    assert _sample(registry, "step_seconds_bucket", le="30.0") == 2
    assert _sample(registry, "step_failures_total") is None


def test_a_failed_step_is_counted_and_its_error_is_raised(registry: CollectorRegistry) -> None:
    stream = StreamMetrics(registry)

    def steps() -> Generator[Any]:
        yield "a step"
        raise ValueError("no further")

    with pytest.raises(ValueError, match="no further"):
        [*stream.measure_steps("pairs", steps())]
    assert (_sample(registry, "step_seconds_count"), _sample(registry, "step_failures_total")) == (1, 1)


def test_a_table_with_another_writer_is_no_failed_step(registry: CollectorRegistry) -> None:
    def steps() -> Generator[Any]:
        raise LakeBusy.held_by_writer("pairs", "another process")
        yield

    with pytest.raises(LakeBusy, match="has a writer already"):
        [*StreamMetrics(registry).measure_steps("pairs", steps())]
    assert _sample(registry, "step_failures_total") is None


def test_steps_that_are_left_early_are_closed(registry: CollectorRegistry) -> None:
    ended = list[str]()

    def steps() -> Generator[Any]:
        try:
            yield "a step"
            yield "another"
        finally:
            ended.append("closed")

    made = StreamMetrics(registry).measure_steps("pairs", steps())
    next(made)
    made.close()
    assert ended == ["closed"]


def test_a_stream_measures_each_table(registry: CollectorRegistry) -> None:
    def steps(name: str, *, checked: bool, purpose: str) -> Generator[Any]:
        assert (checked, purpose) == (True, "stream")
        yield SimpleNamespace(rows=1, before=NONE, after=SimpleNamespace(step=1))

    engine: Any = SimpleNamespace(steps=steps, assets={"pairs": SimpleNamespace(inputs=("l",))}, sources={}, sinks={})
    engine.accounts = SimpleNamespace(check=lambda *_: [])
    reports: Any = MagicMock()
    StreamRun(engine, reports, StreamMetrics(registry).measure_steps).after((source_batch("l", 1, rows_read=1, accepted=1),))
    reports.report_failure.assert_not_called()
    assert _sample(registry, "step_seconds_count") == 1
