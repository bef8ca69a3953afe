"""The parts of a live benchmark: the folders, the broker, and the processes of the producer and of the stream."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from benchmarks.live.pipeline import EVENTS, TOTALS, WINDOWS, pipeline
from benchmarks.live.producer import Order
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.settings import PROJECT, Settings
from platform_defs.setup.broker import Broker

PARTITIONS = 3
_STARTED_S = 180.0
_ENDED_S = 120.0
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class World:
    """A lake whose source is a topic, with a sink for each table.

    Args:
        root: the folder of everything.
        broker: the broker.
    """

    root: Path
    broker: Broker

    def create_topics(self, *names: str, **more: Mapping[str, str]) -> None:
        """Create the topic of the events and those of the sinks; their records have the broker's time.

        Args:
            names: further topics.
            more: the configuration of sinks, by table.
        """
        configs = {EVENTS: {}, WINDOWS: {}, TOTALS: {"cleanup.policy": "compact"}, **{name: {} for name in names}, **more}
        wanted = [NewTopic(name, PARTITIONS, 1, config={**APPEND_TIME, **config}) for name, config in configs.items()]
        client = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})  # what it has begun ends with it
        for done in client.create_topics(wanted).values():
            done.result(60)

    @property
    def connections(self) -> dict[str, Any]:
        """The file of connections."""
        sinks = {WINDOWS: {"topic": WINDOWS}, TOTALS: {"topic": TOTALS}}
        source = {"options": {"subscribe": EVENTS}}
        return {"kafka": {"options": {"kafka.bootstrap.servers": self.broker.address}, "sources": {EVENTS: source}, "sinks": sinks}}

    def settings(self, heap: str, cores: int) -> dict[str, str]:
        """The settings of an engine on the lake; the file of connections is written."""
        file = self.root / "connections.yaml"
        file.write_text(yaml.safe_dump(self.connections), "utf-8")
        return {
            "lake": str(self.root / "lake"),
            "landing": str(self.root / "landing"),
            "connections": str(file),
            "session_file": str(self.root / "session.json"),
            "driver_memory": heap,
            "spark_master": f"local[{cores}]",
        }

    def environment(self, heap: str, cores: int) -> dict[str, str]:
        """The variables of a process that works on the lake."""
        own = self.settings(heap, cores) | {"pipeline": "benchmarks.live.pipeline:pipeline"}
        return {**{f"TIDEMARK_{name.upper()}": value for name, value in own.items()}, "PYTHONPATH": str(PROJECT)}

    def engine(self, connect: Callable[[], SparkSession] | None = None) -> Engine:
        """An engine on the lake in this process; it starts a session when it needs one."""
        return make_engine(Settings(**self.settings("2g", 2)), pipeline, connect)  # pyright: ignore[reportArgumentType]

    def produce(self, rate: float, seconds: float, keys: int, first_id: int = 0) -> "Sending":
        """Start a producer."""
        progress = self.root / f"sent-{first_id}.json"
        order = Order(self.broker.address, EVENTS, PARTITIONS, rate, seconds, keys, first_id, str(progress))
        command = [sys.executable, "-m", "benchmarks.live.producer", order.as_json()]
        return Sending(subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL), progress)


@dataclass
class Sending:
    """A producer's process, and the file of its counts."""

    process: "subprocess.Popen[bytes]"
    progress: Path

    @property
    def counts(self) -> dict[str, Any]:
        """The events that were sent, and those that the broker has acknowledged."""
        return json.loads(self.progress.read_text()) if self.progress.exists() else {"sent": 0, "acked": 0, "failed": 0, "ended": False}

    def wait(self) -> dict[str, Any]:
        """Wait for its end; returns its counts."""
        code = self.process.wait()
        if code or not self.counts["ended"]:
            raise RuntimeError(f"the producer ended with {code}: {self.counts}")
        return self.counts

    def end(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class StreamProcess:
    """A process of `tidemark ingest --every`, with its log.

    Args:
        process: the process.
        log: the file of its output.
    """

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def jvm(self) -> psutil.Process:
        """Its JVM."""
        [found] = [child for child in psutil.Process(self.process.pid).children(recursive=True) if child.name() == "java"]
        return found

    def require_running(self) -> None:
        """Raise if it has ended."""
        if (code := self.process.poll()) is not None:
            raise RuntimeError(f"the stream ended with {code}; its log ends with:\n" + "\n".join(self.lines[-15:]))

    @property
    def lines(self) -> list[str]:
        """Its output."""
        return self.log.read_text(errors="replace").splitlines()

    def end(self) -> None:
        """End it with SIGTERM, as a service manager does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_ENDED_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


@contextmanager
def streaming(world: World, every: str, heap: str, cores: int) -> Iterator[StreamProcess]:
    """A stream in a process of its own, until the block ends."""
    log = world.root / "stream.log"
    command = [str(Path(sys.executable).with_name("tidemark")), "ingest", "--every", every]
    command = ["env", *(f"{name}={value}" for name, value in world.environment(heap, cores).items()), *command]
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    made = StreamProcess(process, log)
    try:
        engine = world.engine()
        until(lambda: _is_started(made, engine), _STARTED_S)
        yield made
    finally:
        made.end()


def _is_started(stream: StreamProcess, engine: Engine) -> bool:
    """Whether a stream holds its lock, which it takes when its JVM runs."""
    stream.require_running()
    return engine.ingestion.busy() is not None


def until(condition: Callable[[], bool], seconds: float, poll_s: float = 0.2) -> None:
    """Wait until a condition is true.

    Raises:
        TimeoutError: it is not true in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} is not true after {seconds:.0f} s")
        time.sleep(poll_s)
