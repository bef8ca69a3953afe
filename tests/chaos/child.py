"""One process of a trial: it performs its actions in order, and kills its own process group at the planned points."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from operators.changelog import fold
from platform_defs.engine import Engine, faults
from platform_defs.engine.lake import compaction
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger import store as ledger_store
from platform_defs.spark.served import attach_session
from tests.chaos.stream import ASSETS, CONTRACTS, PUBLISHED, Action, land_abandoned_files, land_part, script, set_released_times, shop
from tests.support.clock import Clock
from tests.support.quick_session import INTERPRETED, quick_session

DAYS = date(2026, 2, 27), date(2026, 3, 6)
LOST = {"wide": "method = 'card' OR status = 'created'", "visits": "method = 'card'"}
"""The rows that are deleted before a rebuild, by table: an append-only table, and one with corrections."""
LEASE_S = 2.4
"""Shorter than the start of a process, so that the next process finds the lease of a killed one expired."""
NEVER = 1 << 30
"""More files than any table has."""


@dataclass(frozen=True)
class Instructions:
    """The instructions for a process.

    Args:
        home: the trial's folder, which contains the landed files.
        root: the lake.
        seed: the stream's seed.
        parts: how many parts the stream lands in.
        start: the index of the first action.
        kills: when to kill the process, by the index of an action: a fault point and at which passage, or `timer` and milliseconds.
        archive: the class data archive, with which the JVM starts faster; empty for none.
        make_archive: whether the process writes the archive when it ends, instead of using it.
        session_file: the file of a served session, in whose JVM the process works; empty for a JVM of its own.
    """

    home: str
    root: str
    seed: int
    parts: int
    start: int
    kills: dict[str, tuple[str, int]]
    archive: str = ""
    make_archive: bool = False
    session_file: str = ""


@dataclass
class Child:
    """The process.

    Args:
        instructions: its instructions.
        send: sends a message to the parent.
        connect: makes the session.
        clock: the wall clock, set by each action.
        passed: how often the current action has passed each point.
        current: the index of the current action.
        mutex: held while a point is passed.
    """

    instructions: Instructions
    send: Callable[[dict[str, Any]], None]
    connect: Callable[[], SparkSession]
    clock: Clock = field(default_factory=Clock)
    passed: dict[str, int] = field(default_factory=dict)
    current: int = -1
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.day = shop(self.instructions.seed, self.instructions.parts)
        self.actions = script(self.day)

    def run(self) -> None:
        """Perform the script from the first action of the instructions on."""
        engine = self.engine()
        for index in range(self.instructions.start, len(self.actions)):
            self.act(engine, index)

    def act(self, engine: Engine, index: int) -> None:
        """Perform one action."""
        action = self.actions[index]
        faults.install(self._pass_point)
        self._begin(index, action)
        getattr(self, f"_{action.kind}")(engine, action)
        self.send({"done": index})
        faults.install(None)

    def engine(self) -> Engine:
        """A new engine, as every process makes one."""
        folders = {name: f"{self.instructions.home}/landing/{name}" for name in CONTRACTS}
        return Engine(self.lake(), CONTRACTS, ASSETS, self.connect, self.clock, max_step=40, folders=folders)

    def lake(self) -> Lake:
        """The lake. Writers take leases if it has a `file://` URI."""
        return Lake(self.instructions.root, LEASE_S, leases="://" in self.instructions.root)

    def _begin(self, index: int, action: Action) -> None:
        self.clock.now, self.current = action.clock, index
        self.passed.clear()
        self.send({"begun": index})
        point, nth = self.instructions.kills.get(str(index), ("", 0))
        if point == "timer":
            threading.Thread(target=self._die_after, args=(nth / 1000,), daemon=True).start()

    def _die_after(self, seconds: float) -> None:
        time.sleep(seconds)
        self._die("timer")

    def _pass_point(self, point: str) -> None:
        with self.mutex:  # sources are ingested concurrently
            self.passed[point] = self.passed.get(point, 0) + 1
            self.send({"passed": point, "in": self.current})
            if self._dies_at(point):
                self._die(point)

    def _dies_at(self, point: str) -> bool:
        return self.instructions.kills.get(str(self.current)) == (point, self.passed[point])

    def _die(self, point: str) -> None:
        self.send({"killed": point, "in": self.current})
        os.killpg(0, signal.SIGKILL)

    def _ingest(self, engine: Engine, action: Action) -> None:
        land_part(self.day, Path(self.instructions.home, "landing"), action.part)
        engine.ingestion.stream.run()

    def _release(self, engine: Engine, action: Action) -> None:
        engine.ingestion.quarantine.retry("payments")
        engine.ingestion.quarantine.release("payments")
        set_released_times(self.day, Path(self.instructions.home, "landing"), action.part)

    def _abandoned(self, engine: Engine, action: Action) -> None:
        if str(self.current) in self.instructions.kills:
            land_abandoned_files(self.day, Path(self.instructions.home, "landing"), action.part)
            engine.ingestion.stream.run()
            raise RuntimeError("the abandoned files were ingested: the point of the kill was not passed")

    def _advance(self, engine: Engine, action: Action) -> None:
        for name in engine.assets:
            engine.advance(name)

    def _watermark(self, engine: Engine, action: Action) -> None:
        seen = engine.ledger.newest_rows()["orders"].max_event_time
        engine.ingestion.control_batches.watermark({"orders": seen or 0})

    def _idle(self, engine: Engine, action: Action) -> None:
        engine.ingestion.control_batches.record_idle_sources()

    def _drain(self, engine: Engine, action: Action) -> None:
        engine.drain()

    def _maintain(self, engine: Engine, action: Action) -> None:
        left = [m for m in engine.maintain(small_files=2, retention_hours=0) if m.left or m.failed]
        if left:
            raise RuntimeError(f"maintenance left {left}")

    def _publish(self, engine: Engine, action: Action) -> None:
        engine.views.publish("takings", f"{self.instructions.home}/{PUBLISHED}")

    def _rebuild_days(self, engine: Engine, action: Action) -> None:
        for asset, lost in LOST.items():
            DeltaTable(engine.lake.path(asset)).delete(lost)
            engine.rebuild_days(asset, *DAYS)

    def _rebuild_tables(self, engine: Engine, action: Action) -> None:
        for _ in engine.rebuild_tables(["visits"]):
            pass

    def _verify(self, engine: Engine, action: Action) -> None:
        violations = [f"{asset}: {a}" for asset in ASSETS for a in engine.accounts.days(asset) if not a.holds]
        changelog = engine.views.table(ASSETS["takings"].changelog)
        folded = fold(changelog.drop("changed_at"), key=("method",), order="step")
        table = engine.views.table("takings").select(*folded.columns)
        same = folded.exceptAll(table).isEmpty() and table.exceptAll(folded).isEmpty()
        count_differences = {key: held for asset in ASSETS for key, held in engine.accounts.count_differences(asset).items()}
        self.send({"law": violations, "count_differences": repr(count_differences), "changelog_equal": same})


def main() -> None:
    """Read the instructions from the command line. The next argument is the file descriptor of the pipe for messages to the parent."""
    fields = json.loads(sys.argv[1])
    instructions = Instructions(**fields | {"kills": {index: tuple(kill) for index, kill in fields["kills"].items()}})

    def send(message: dict[str, Any]) -> None:
        os.write(int(sys.argv[2]), f"{json.dumps(message)}\n".encode())

    ledger_store.MANY_FILES = 5  # so that a short trial compacts its tables
    is_by_spark = "://" in instructions.root or instructions.start % 2  # files behind a `file://` URI are not merged without Spark
    compaction.MANY_FILES, compaction.MANY_TINY_FILES = (3, NEVER) if is_by_spark else (NEVER, 3)
    spark = _session(instructions)
    Child(instructions, send, lambda: spark).run()
    if not instructions.session_file:  # otherwise the session would end for all processes that use its JVM
        spark.stop()


def _session(instructions: Instructions) -> SparkSession:
    if instructions.session_file:
        attached = attach_session(Path(instructions.session_file), {})
        assert attached is not None, "no process serves the session"
        for name, value in INTERPRETED.items():
            attached.conf.set(name, value)
        return attached
    option = "ArchiveClassesAtExit" if instructions.make_archive else "SharedArchiveFile"
    return quick_session(f"-XX:{option}={instructions.archive}" if instructions.archive else None)


if __name__ == "__main__":
    main()
