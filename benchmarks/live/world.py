"""The parts of a live benchmark: the folders, the broker, the cluster, and the processes of the producer and of the stream."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from benchmarks.live.cluster import Cluster
from benchmarks.live.pipeline import EVENTS, TOTALS, WINDOWS, pipeline
from benchmarks.live.processes import Sending, StreamProcess
from benchmarks.live.producer import Order
from benchmarks.live.topics import create_topics
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.settings import PROJECT, Settings
from platform_defs.setup.broker import Broker

PARTITIONS = 3
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class World:
    """A lake whose source is a topic, with a sink for each table.

    Args:
        root: the folder of the lake, the input, the settings and the logs.
        broker: the broker.
        cluster: the cluster on which the stream runs; None for one process.
        spark: further options of Spark for the stream.
    """

    root: Path
    broker: Broker
    cluster: Cluster | None = None
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def lake(self) -> Path:
        """The folder of the lake."""
        return self.root / "lake"

    def create_topics(self) -> None:
        """Create the topic of the events and those of the sinks; their records have the broker's time."""
        configs = {EVENTS: {}, WINDOWS: {}, TOTALS: {"cleanup.policy": "compact"}}
        wanted = [NewTopic(name, PARTITIONS, 1, config={**APPEND_TIME, **config}) for name, config in configs.items()]
        client = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})  # its requests end when it is garbage-collected
        create_topics(client, wanted)

    @property
    def connections(self) -> dict[str, Any]:
        """The content of the connections file."""
        sinks = {WINDOWS: {"topic": WINDOWS}, TOTALS: {"topic": TOTALS}}
        source = {"options": {"subscribe": EVENTS}}
        kafka = {"options": {"kafka.bootstrap.servers": self.broker.address}, "sources": {EVENTS: source}, "sinks": sinks}
        return {"kafka": kafka}

    def settings(self, heap: str, cores: int) -> dict[str, str]:
        """The settings of an engine of one process on the lake. This writes the connections file."""
        return {
            "lake": str(self.lake),
            "landing": str(self.root / "landing"),
            "connections": self._write_yaml("connections.yaml", self.connections),
            "session_file": str(self.root / "session.json"),
            "driver_memory": heap,
            "spark_master": f"local[{cores}]",
        }

    def environment(self, heap: str, cores: int) -> dict[str, str]:
        """The variables of a process that works on the lake, on the cluster if there is one. This writes the connections files."""
        own = self.settings(heap, cores) | {"pipeline": "benchmarks.live.pipeline:pipeline"}
        if self.cluster is not None:
            own |= {"spark_master": self.cluster.master, "shared_folders": "true", "shuffle_partitions": "2"}
        if self.spark:
            own["connections"] = self._write_yaml("connections-of-the-stream.yaml", self.connections | {"spark": dict(self.spark)})
        return {**{f"TIDEMARK_{name.upper()}": value for name, value in own.items()}, "PYTHONPATH": str(PROJECT)}

    def _write_yaml(self, name: str, content: Mapping[str, Any]) -> str:
        """Write a YAML file below the root; returns its path."""
        file = self.root / name
        file.write_text(yaml.safe_dump(dict(content)), "utf-8")
        return str(file)

    def engine(self, connect: Callable[[], SparkSession] | None = None) -> Engine:
        """An engine on the lake in this process; it starts a session when it needs one."""
        return make_engine(Settings(**self.settings("2g", 2)), pipeline, connect)  # pyright: ignore[reportArgumentType]

    def produce(self, rate: float, seconds: float, keys: int, first_id: int = 0) -> Sending:
        """Start a producer."""
        progress = self.root / f"sent-{first_id}.json"
        order = Order(self.broker.address, EVENTS, PARTITIONS, rate, seconds, keys, first_id, str(progress))
        command = [sys.executable, "-m", "benchmarks.live.producer", order.as_json()]
        return Sending(subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL), progress)

    def stream(self, every: str, heap: str, cores: int) -> StreamProcess:
        """Start a process of `tidemark ingest --every`."""
        command = [str(Path(sys.executable).with_name("tidemark")), "ingest", "--every", every]
        variables = [f"{name}={value}" for name, value in self.environment(heap, cores).items()]
        return StreamProcess(["env", *variables, *command], self.root / "stream.log").start()


@contextmanager
def streaming(world: World, every: str, heap: str, cores: int) -> Iterator[StreamProcess]:
    """A stream in a process of its own, until the block ends."""
    made = world.stream(every, heap, cores)
    try:
        engine = world.engine()
        made.wait_started(lambda: engine.ingestion.current_writer() is not None)  # it takes its lock when its JVM runs
        yield made
    finally:
        made.end()
