"""The metrics that only the process of a stream can measure: how long the steps of tables take, and how many attempts fail."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from platform_defs.engine import Engine
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.monitoring.catalog import metric_named
from platform_defs.monitoring.endpoint import serving_metrics
from platform_defs.monitoring.lake_metrics import LakeMetrics

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""The upper bounds of the histogram, in seconds: from a small step to one over a long backlog."""


class StreamMetrics:
    """Measures the steps of tables.

    Args:
        registry: the registry that exports the metrics.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], float] = time.monotonic) -> None:
        disable_created_metrics()  # otherwise each series would have a gauge of its time of creation
        self._now = now
        seconds, failures = metric_named("step_seconds"), metric_named("step_failures_total")
        self._seconds = Histogram(seconds.full_name, seconds.text, seconds.labels, registry=registry, buckets=BUCKETS)
        self._failures = Counter(failures.full_name, failures.text, failures.labels, registry=registry)

    def measure_steps(self, table: str, steps: Generator[Step]) -> Generator[Step]:
        """The steps of a table, each measured from its start until it is committed and checked for the conservation law."""
        with closing(steps):
            while True:
                began = self._now()
                try:
                    step = next(steps, None)
                except LakeBusy:  # the stream skips the table until it is free
                    raise
                except Exception:
                    self._failures.labels(table).inc()
                    raise
                if step is None:
                    return
                self._seconds.labels(table).observe(self._now() - began)
                yield step


def metrics_of_stream(
    engine: Engine, host: str, port: int | None, print_line: Callable[[str], None]
) -> tuple[StreamMetrics, AbstractContextManager[None]]:
    """The metrics of a stream, and a context manager that serves them together with the metrics of the lake.

    Args:
        engine: the engine of the stream.
        host: the address to listen at.
        port: the port; None to serve nothing.
        print_line: prints the URL.
    """
    registry = CollectorRegistry(auto_describe=False)
    stream = StreamMetrics(registry)
    if port is None:
        return stream, nullcontext()
    registry.register(LakeMetrics(engine))
    return stream, _serving(registry, host, port, print_line)


@contextmanager
def _serving(registry: CollectorRegistry, host: str, port: int, print_line: Callable[[str], None]) -> Iterator[None]:
    with serving_metrics(registry, host, port) as url:
        print_line(f"Serving metrics at {url}.")
        yield
