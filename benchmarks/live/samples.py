"""Samples of a running stream: what it has read, its memory, and the files of its lake."""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from deltalake import DeltaTable

from benchmarks.live.pipeline import EVENTS
from benchmarks.live.world import StreamProcess, World
from platform_defs.setup.java import find_java

_MB = 1 << 20
LIVE_EVERY_S = 60.0
"""How often the live heap is measured, which makes the JVM collect all garbage."""

WARM_UP_S = 360.0
"""The warm-up, at most half of the run: Spark's Kafka connector keeps idle consumers, and what they have fetched, for five minutes."""


@dataclass(frozen=True)
class Sample:
    """A sample.

    Args:
        seconds: since the first event.
        acked: events that the broker has acknowledged.
        accepted: events in the ledger.
        jvm_mb: the resident memory of the stream's JVM.
        outside_mb: of that, what is outside its heap: classes, code, threads, and buffers. The heap grows to its limit by and by.
        python_mb: the resident memory of its Python process.
        live_mb: the memory of the JVM's reachable objects, when it was measured last; None before.
        files: the data files in the newest versions of all tables.
        on_disk: the files of the lake, with those that only earlier versions need, and with those of the logs.
    """

    seconds: float
    acked: int
    accepted: int
    jvm_mb: float
    outside_mb: float
    python_mb: float
    live_mb: float | None
    files: int
    on_disk: int

    def as_dict(self) -> dict[str, Any]:
        """The sample as plain data."""
        return asdict(self)


class Sampler:
    """Takes samples of a stream in another process.

    Args:
        world: the lake.
        stream: the stream.
    """

    def __init__(self, world: World, stream: StreamProcess) -> None:
        self._lake, self._stream = world.root / "lake", stream
        self._engine, self._jcmd = world.engine(), Path(find_java(), "bin", "jcmd")
        self._live: float | None = None
        self._measured, self._began = 0.0, time.monotonic()

    @property
    def accepted(self) -> int:
        """The events in the ledger."""
        return self._engine.ledger.totals(EVENTS)["accepted"] if (self._lake / "ledger").exists() else 0

    def take(self, acked: int) -> Sample:
        """Take a sample; every minute with the live heap."""
        passed = time.monotonic() - self._began
        if passed - self._measured >= LIVE_EVERY_S:
            self._live, self._measured = self._live_mb(), passed
        jvm, python = self._stream.jvm, psutil.Process(self._stream.process.pid)
        resident, of_python = (process.memory_info().rss / _MB for process in (jvm, python))
        return Sample(
            seconds=round(passed, 1),
            acked=acked,
            accepted=self.accepted,
            jvm_mb=round(resident),
            outside_mb=round(resident - self._heap_mb()),
            python_mb=round(of_python),
            live_mb=self._live,
            files=self._files(),
            on_disk=files_below(self._lake),
        )

    def _live_mb(self) -> float | None:
        totals = [line.split() for line in self._asked("GC.class_histogram").splitlines() if line.startswith("Total")]
        return round(int(totals[0][2]) / _MB, 1) if totals else None

    def _heap_mb(self) -> float:
        """The size of the heap now, up to which its pages may be resident."""
        return sum(int(kilobytes) for kilobytes in re.findall(r"total (\d+)K", self._asked("GC.heap_info"))) / 1024

    def _asked(self, command: str) -> str:
        """The answer of the JVM; empty without a JDK."""
        if not self._jcmd.exists():
            return ""
        arguments = [str(self._jcmd), str(self._stream.jvm.pid), command]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False).stdout

    def _files(self) -> int:
        derived = [name for asset in self._engine.assets.values() for name in (asset.name, asset.changelog)]
        tables = [self._lake / name for name in ("ledger", self._engine.sources[EVENTS].log, *derived)]
        return sum(len(DeltaTable(str(table)).file_uris()) for table in tables if (table / "_delta_log").exists())


def files_below(folder: Path) -> int:
    """The number of files below a folder."""
    return sum(len(names) for _, _, names in os.walk(folder))


def growth(samples: Sequence[Sample], name: str) -> float:
    """How much a measure has grown: the median of its last third over that of its first third, without the warm-up.

    Args:
        samples: the samples, in order.
        name: the measure.
    """
    warm_up_s = min(WARM_UP_S, samples[-1].seconds / 2) if samples else 0.0
    values = [value for s in samples if s.seconds >= warm_up_s and (value := getattr(s, name)) is not None]
    third = max(1, len(values) // 3)
    return median(values[-third:]) / max(1e-9, median(values[:third])) if values else 1.0
