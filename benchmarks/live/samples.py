"""Samples of a running stream: what it has read, its memory, and the files of its lake."""

import os
import re
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from deltalake import DeltaTable

from benchmarks.live.pipeline import EVENTS
from benchmarks.live.processes import StreamProcess
from benchmarks.live.world import World
from platform_defs.setup.java import find_java

_MB = 1 << 20
LIVE_EVERY_S = 60.0
"""How often the live heap is measured, which makes the JVM collect all garbage."""


@dataclass(frozen=True)
class Sample:
    """A sample. A measure of a process that does not run at that moment is None.

    Args:
        seconds: since the first event.
        acked: events that the broker has acknowledged.
        accepted: events in the ledger.
        start: how often the stream was started before.
        age_s: the age of the stream's newest process, in seconds.
        jvm_mb: the resident memory of the stream's JVM.
        outside_mb: the part of `jvm_mb` that is outside the heap: classes, code, threads, and buffers. The heap grows to its limit in time.
        python_mb: the resident memory of its Python process.
        live_mb: the memory of the JVM's reachable objects, when it was measured last; None before.
        executors_mb: the resident memory of all executors of the cluster.
        files: the data files in the newest versions of all tables.
        on_disk: the files of the lake, with those that only earlier versions need, and with those of the logs.
    """

    seconds: float
    acked: int
    accepted: int
    start: int
    age_s: float
    jvm_mb: float | None
    outside_mb: float | None
    python_mb: float | None
    live_mb: float | None
    executors_mb: float | None
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
        self._world, self._stream = world, stream
        self._engine, self._jcmd = world.engine(), Path(find_java(), "bin", "jcmd")
        self._live: float | None = None
        self._measured, self._measured_start, self._began = 0.0, 0, time.monotonic()

    @property
    def accepted(self) -> int:
        """The events in the ledger."""
        return self._engine.ledger.totals(EVENTS)["accepted"] if (self._world.lake / "ledger").exists() else 0

    def take(self, acked: int) -> Sample:
        """Take a sample; every minute with the live heap."""
        now, start = time.monotonic(), len(self._stream.started_at) - 1
        jvm = self._stream.jvm
        if start != self._measured_start:
            self._live, self._measured, self._measured_start = None, now, start
        elif jvm is not None and now - self._measured >= LIVE_EVERY_S:
            self._live, self._measured = self._live_mb(jvm), now
        resident, heap = _resident_mb(jvm), None if jvm is None else self._heap_mb(jvm)
        executors = [] if self._world.cluster is None else [_resident_mb(one) for one in self._world.cluster.executors]
        return Sample(
            seconds=round(now - self._began, 1),
            acked=acked,
            accepted=self.accepted,
            start=start,
            age_s=round(now - self._stream.started_at[-1], 1),
            jvm_mb=resident,
            outside_mb=None if resident is None or heap is None else round(resident - heap),
            python_mb=_resident_mb(psutil.Process(self._stream.process.pid)) if not self._stream.is_ended else None,
            live_mb=self._live,
            executors_mb=sum(one or 0 for one in executors) if executors else None,
            files=self._files(),
            on_disk=sum(sum(of.values()) for of in files_by_kind(self._world.lake).values()),
        )

    def _live_mb(self, jvm: psutil.Process) -> float | None:
        totals = [line.split() for line in self._asked(jvm, "GC.class_histogram").splitlines() if line.startswith("Total")]
        return round(int(totals[0][2]) / _MB, 1) if totals else None

    def _heap_mb(self, jvm: psutil.Process) -> float | None:
        """The size of the heap now, up to which its pages may be resident."""
        sizes = re.findall(r"total (?:reserved )?(\d+)K", self._asked(jvm, "GC.heap_info"))
        return sum(map(int, sizes)) / 1024 if sizes else None

    def _asked(self, jvm: psutil.Process, command: str) -> str:
        """The answer of the JVM; empty without a JDK, or if the JVM ends or starts."""
        if not self._jcmd.exists():
            return ""
        return subprocess.run([str(self._jcmd), str(jvm.pid), command], capture_output=True, text=True, timeout=60, check=False).stdout

    def _files(self) -> int:
        derived = [name for asset in self._engine.assets.values() for name in (asset.name, asset.changelog)]
        tables = [self._world.lake / name for name in ("ledger", self._engine.sources[EVENTS].log, *derived)]
        return sum(len(DeltaTable(str(table)).file_uris()) for table in tables if (table / "_delta_log").exists())


def _resident_mb(process: psutil.Process | None) -> float | None:
    with suppress(psutil.NoSuchProcess):
        return None if process is None else round(process.memory_info().rss / _MB)
    return None


_OF_TABLE = re.compile(r"/(_delta_log|_change_data|commit-)")


def files_by_kind(lake: Path) -> dict[str, dict[str, int]]:
    """The number of files below a lake's folder, by table and kind."""
    found = defaultdict[str, Counter[str]](Counter)
    for folder, _, names in os.walk(lake):
        path = f"/{os.path.relpath(folder, lake)}"
        inside = _OF_TABLE.search(path)
        table, part = path[1 : inside.start() if inside else None], inside[1] if inside else ""
        found[table].update(_kind(name, part) for name in names)
    return {table: dict(kinds) for table, kinds in sorted(found.items()) if kinds}


def _kind(name: str, part: str) -> str:
    if name.endswith(".crc"):
        return "checksums"
    if part == "_delta_log":
        return "checkpoints" if "checkpoint" in name else "commits"
    return "change data" if part == "_change_data" else "deletion vectors" if name.endswith(".bin") else "data"
