"""A local Apache Kafka broker, for demos on one machine and for tests: `make kafka-up` runs one.

It is one process in KRaft mode, started with Java from the set `broker` of the pinned JARs. It listens on this machine only, without TLS
and without authentication, and on further listeners if a test names them.
"""

import signal
import socket
import struct
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from operators.errors import TidemarkError
from platform_defs.settings import SettingsError
from platform_defs.setup.jars import JarError, jar_paths
from platform_defs.setup.java import JavaNotFound, find_java
from platform_defs.setup.ports import HOST, free_ports, is_open

PORT, _LAST_PORT = 9092, 65_535
_SET = "broker"
_WAIT_S = 60
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dlog4j2.level=WARN")
_LOGGING_JARS = ("slf4j-api-2*.jar", "log4j-slf4j2-impl-*.jar")
"""JARs of PySpark with a logger. The broker's own set has none, so the reason of a failed start would be lost."""
_CLUSTER = "dGlkZW1hcmstb25lLW5vZA"
"""The id of the cluster, 16 bytes in base 64."""
_METADATA = struct.pack(">ihhihi?", 15, 3, 4, 1, -1, 0, False)
"""A metadata request: its length, API 3 in version 4, a correlation id, no client name, no topics, and no creation of topics."""
_SMALL = {
    "num.network.threads": 1,
    "num.io.threads": 2,
    "background.threads": 2,
    "num.replica.fetchers": 1,
    "num.recovery.threads.per.data.dir": 1,
    "log.cleaner.threads": 1,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
    "log.initial.task.delay.ms": 1000,
    "log.retention.check.interval.ms": 1000,
    "log.retention.ms": -1,  # otherwise a record with a timestamp of 2017 is deleted a second after it is written
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}
"""Options for one small process that starts fast. The session timeout is short, since a killed broker cannot join again until it ends."""


class BrokerError(TidemarkError, RuntimeError):
    """The broker does not start."""

    @classmethod
    def ended(cls, status: int, log: str) -> "BrokerError":
        """The broker's process has ended."""
        return cls(f"the Kafka broker ended with status {status} before it answered. It printed:\n{log}")

    @classmethod
    def silent(cls, address: str, log: str) -> "BrokerError":
        """The broker runs, but does not answer."""
        return cls(f"the Kafka broker does not answer at {address} after {_WAIT_S} s. It printed:\n{log}")

    @classmethod
    def port_in_use(cls, port: int) -> "BrokerError":
        """Another process listens on the broker's port."""
        return cls(f"`port` is {port}, and another process listens on it; legal: a free port. End that process, or choose another port")


@dataclass
class Broker:
    """A broker with its data in a folder. `start` runs it, also again after `stop` or `kill`, on the same ports and data.

    Each folder has one object, since only this object knows the ports.

    Args:
        folder: the folder of its data, its configuration and its log; it is created.
        port: the port for clients; a free one by default.
        options: further options of the broker, by Kafka's names.
        listeners: further listeners for clients, such as `SASL_SSL://127.0.0.1:9093`.
    """

    folder: Path
    port: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    listeners: Sequence[str] = ()
    _controller_port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port, as `kafka.bootstrap.servers` takes them."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> str:
        """What the broker and its format step have printed."""
        return self._log_file.read_text("utf-8", errors="replace") if self._log_file.exists() else ""

    def start(self) -> "Broker":
        """Start the broker and wait until it answers; format its folder first if it is new.

        Raises:
            BrokerError: the broker ends or does not answer, or the port is not free.
            JarError: a pinned JAR is missing.
            JavaNotFound: there is no Java.
        """
        self._check_port()
        command = _java()
        if not self._config.exists():
            self._prepare(command)
        self._check_port()
        with self._log_file.open("ab") as log:
            start_command = [*command, "kafka.Kafka", str(self._config)]
            self._process = subprocess.Popen(start_command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        try:
            self._wait(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def _check_port(self) -> None:
        if is_open(self.port):
            raise BrokerError.port_in_use(self.port)

    def stop(self) -> None:
        """Stop the broker normally; nothing happens if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker with SIGKILL, as a crash does; nothing happens if it does not run."""
        self._end(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the broker ends; returns the exit status."""
        return self._process.wait() if self._process else 0

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log_file(self) -> Path:
        return self.folder / "broker.log"

    def _end(self, stop_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(stop_signal)
            try:
                process.wait(_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _prepare(self, command: Sequence[str]) -> None:
        """Choose the ports, write the configuration, and format the folder of the data."""
        free_port, self._controller_port = free_ports(2)
        self.port = self.port or free_port
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self._config.with_suffix(".draft")
        draft.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()), "utf-8")
        format_command = [*command, "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", _CLUSTER, "-c", str(draft)]
        result = subprocess.run(format_command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self._log_file.write_bytes(result.stdout + result.stderr)
        if result.returncode:
            raise BrokerError.ended(result.returncode, _tail(self.log))
        draft.replace(self._config)

    def _properties(self) -> dict[str, object]:
        clients, controller = ",".join([f"PLAINTEXT://{self.address}", *self.listeners]), f"CONTROLLER://{HOST}:{self._controller_port}"
        protocols = ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", *[f"{p}:{p}" for p in self._protocols]]
        fixed = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "listeners": f"{clients},{controller}",
            "advertised.listeners": clients,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(protocols),
            "log.dirs": self.folder / "data",
        }
        return {**_SMALL, **self.options, **fixed}

    @property
    def _protocols(self) -> list[str]:
        """The security protocols of the further listeners, which are also the listeners' names."""
        return [listener.split(":")[0] for listener in self.listeners]

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not _answers(self.port):
            if (status := process.poll()) is not None:
                raise BrokerError.ended(status, _tail(self.log))
            if time.monotonic() > deadline:
                raise BrokerError.silent(self.address, _tail(self.log))
            time.sleep(0.05)


@contextmanager
def running_broker(folder: Path, port: int = 0, listeners: Sequence[str] = (), **options: object) -> Iterator[Broker]:
    """A broker that runs until the block ends.

    Args:
        folder: the folder of its data.
        port: the port for clients; a free one by default.
        listeners: further listeners for clients.
        options: further options of the broker, by Kafka's names.
    """
    broker = Broker(folder, port, options, listeners)
    try:
        yield broker.start()
    finally:
        broker.stop()


def _java() -> list[str]:
    spark = find_spec("pyspark")
    included = Path(spark.origin).parent / "jars" if spark and spark.origin else Path()
    logging = [str(path) for pattern in _LOGGING_JARS for path in sorted(included.glob(pattern))]
    return [str(Path(find_java(), "bin", "java")), *_JVM, "-cp", ":".join([*logging, *jar_paths(_SET)])]


def _answers(port: int) -> bool:
    """Whether the broker answers a request, and is a member of its cluster."""
    with suppress(OSError, struct.error), socket.create_connection((HOST, port), 1) as connection:
        connection.sendall(_METADATA)
        _, _, _, brokers = struct.unpack(">iiii", connection.recv(16, socket.MSG_WAITALL))
        return brokers > 0
    return False


def _tail(log: str) -> str:
    return "\n".join(log.splitlines()[-15:])


_HOW_TO_CONNECT = """A Kafka broker listens at {address}, on this machine only. Its data are in a temporary folder. Ctrl-C stops it.
A client creates a topic by writing to it. In the file of TIDEMARK_CONNECTIONS:

  kafka:
    options:
      kafka.bootstrap.servers: {address}

"""


def main(port: int = PORT) -> int:
    """Run a broker in the foreground until Ctrl-C; the exit status is 1 if it does not start, and the broker's own if it ends by itself."""
    with TemporaryDirectory(prefix="kafka-") as folder, suppress(KeyboardInterrupt):
        try:
            with running_broker(Path(folder), port) as broker:
                sys.stdout.write(_HOW_TO_CONNECT.format(address=broker.address))
                sys.stdout.flush()
                return broker.wait()
        except (BrokerError, JarError, JavaNotFound, SettingsError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= _LAST_PORT):
        raise ArgumentTypeError(f"`port` is {text!r}; legal: 0 to {_LAST_PORT}, and 0 is any free port")
    return int(text)


def parsed_port(arguments: Sequence[str] | None = None) -> int:
    """The port that the command line gives; an illegal one ends the process with a message and status 2."""
    parser = ArgumentParser("make kafka-up", description="Run a local Kafka broker until Ctrl-C.")
    parser.add_argument("port", type=_port, nargs="?", default=PORT)
    return parser.parse_args(arguments).port


if __name__ == "__main__":
    sys.exit(main(parsed_port()))
