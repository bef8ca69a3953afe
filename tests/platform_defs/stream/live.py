"""A pipeline of rides whose stream runs in processes of its own: its folders, its files, and the processes that belong to it."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import yaml

from platform_defs.engine import Engine
from platform_defs.engine.engine import wall_clock
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import PROJECT
from platform_defs.template.pipeline import pipeline
from tests.support.quick_session import QUICK_CONNECTIONS
from tests.support.small_sources import HOUR, MINUTE, START, iso

T = TypeVar("T")
DAGSTER = str(Path(sys.executable).with_name("dagster"))


@dataclass(frozen=True)
class Rides:
    """The folders of a lake of rides.

    Args:
        root: the folder that has them all.
    """

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a process that works on the lake: a small heap, and summaries every second."""
        (self.root / "connections.yaml").write_text(yaml.safe_dump(QUICK_CONNECTIONS))
        own = {
            "TIDEMARK_PIPELINE": "platform_defs.template.pipeline:pipeline",
            "TIDEMARK_LAKE": str(self.root / "lake"),
            "TIDEMARK_LANDING": str(self.root / "landing"),
            "TIDEMARK_DAGSTER_HOME": str(self.root / "dagster"),
            "DAGSTER_HOME": str(self.root / "dagster"),
            "TIDEMARK_SESSION_FILE": str(self.root / "session.json"),
            "TIDEMARK_CONNECTIONS": str(self.root / "connections.yaml"),
            "TIDEMARK_DRIVER_MEMORY": "1g",
            "TIDEMARK_SPARK_MASTER": "local[2]",
            "TIDEMARK_STREAM_TRIGGER": "processingTime=1 second",
            "TIDEMARK_STREAM_SUMMARY": "1 second",
        }
        return {**os.environ, **own, "PYTHONPATH": str(PROJECT)}

    def engine(self, lake: str = "lake") -> Engine:
        """An engine on the lake, without a session."""
        folders = {s.name: str(self.root / "landing" / s.name) for s in pipeline.sources}
        return Engine(
            Lake(str(self.root / lake)), pipeline.sources_by_name, pipeline.tables_by_name, _no_session, wall_clock, folders=folders
        )

    def land(self, hour: int) -> None:
        """Land a file of each source with the rows of one hour, the same for each call; no row is late."""
        rides = [{"ride_id": f"{hour}-{n}", "zone": f"z{n % 3}", "started_at": _at(hour, n)} for n in range(40)]
        fares = [{"ride_id": f"{hour}-{n}", "amount": f"{n}.50", "paid_at": _at(hour, n + 15)} for n in range(0, 40, 2)]
        for source, rows in (("rides", rides), ("fares", fares)):
            folder = self.root / "landing" / source
            folder.mkdir(parents=True, exist_ok=True)
            hidden = folder / f".{hour:04}.jsonl"
            hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            modified = (START + hour * HOUR) // 1000
            os.utime(hidden, (modified, modified))
            hidden.rename(folder / f"{hour:04}.jsonl")

    def is_streaming(self) -> bool:
        """Whether a stream holds its lock."""
        return self.engine().ingestion.current_writer() is not None

    def is_advancing(self) -> bool:
        """Whether a process writes to a table."""
        return self.engine().pending.current_writer() is not None

    @property
    def is_current(self) -> bool:
        """Whether every landed file is ingested, and every table is advanced to its watermark."""
        engine = self.engine()
        landed = any(engine.ingestion.new_files(source) for source in engine.folders)
        return bool(engine.ledger.head) and not landed and all(engine.pending.days(name) is None for name in engine.assets)


def _at(hour: int, minute: int) -> str:
    return iso(START + hour * HOUR + minute * MINUTE)


def _no_session() -> Any:
    raise AssertionError("no session is needed")


def until(condition: Callable[[], T], seconds: float = 120.0) -> T:
    """Wait until a condition is true; returns its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{condition} is not true after {seconds:.0f} s"
        time.sleep(0.2)
    return found


def java_of(process: psutil.Process) -> list[psutil.Process]:
    """The JVMs that a process and its children have started."""
    try:
        return [child for child in process.children(recursive=True) if child.name() == "java"]
    except psutil.NoSuchProcess:
        return []


def is_running(process: psutil.Process) -> bool:
    """Whether a process has not ended. A zombie, whose parent has not asked for its exit code, has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
