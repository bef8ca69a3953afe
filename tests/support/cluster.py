"""A standalone Spark cluster of small processes on this machine, whose workers can be killed and cannot see the driver's folders."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

import psutil
import pyspark

from platform_defs.setup.java import find_java
from platform_defs.setup.ports import HOST, free_ports, is_open

_SPARK = Path(pyspark.__file__).parent
_WAIT_S = 60
_JVM = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
_MODULES = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util", "java.lang.invoke")
)
"""The packages that Arrow and Spark open by reflection."""

SMALL_EXECUTORS = """
spark:
  spark.driver.host: 127.0.0.1
  spark.executor.memory: 512m
  spark.executor.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
"""The part `spark` of a file of connections, for the executors of these workers."""


def hides_folders() -> bool:
    """Whether a process on this machine may hide folders from another one that it starts."""
    return which("unshare") is not None and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


@dataclass
class Cluster:
    """A master and its workers.

    Args:
        folder: the folder for the workers' files and logs.
        hidden: folders that the workers see empty, if `hides_folders`.
        port: the master's port.
    """

    folder: Path
    hidden: Sequence[Path] = ()
    port: int = 0
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The URI for `TIDEMARK_SPARK_MASTER`."""
        return f"spark://{HOST}:{self.port}"

    def start_master(self) -> None:
        """Start the master, and wait until it answers."""
        self.port, ui = free_ports(2)
        self._start("master.Master", [], ["--host", HOST, "--port", str(self.port), "--webui-port", str(ui)])
        _wait(lambda: is_open(self.port), f"the master did not start: {self._log('master.Master')}")

    def start_worker(self) -> int:
        """Start a worker of one core, and wait until the master has it; returns its process id."""
        [ui] = free_ports(1)
        before = self._log("master.Master").count("Registering worker")
        hide = ["unshare", "--mount", "sh", "-c", f'{_hiding(self.hidden)} exec "$@"', "sh"] if self.hidden and hides_folders() else []
        options = ["--host", HOST, "--webui-port", str(ui), "--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / "work")]
        process = self._start("worker.Worker", hide, [*options, self.master])
        _wait(
            lambda: self._log("master.Master").count("Registering worker") > before,
            f"the worker did not register: {self._log('worker.Worker')}",
        )
        return process.pid

    def end(self) -> None:
        """Kill all processes, with the executors."""
        for process in reversed(self._started):
            kill_with_children(process.pid)
            process.wait(_WAIT_S)

    def _start(self, role: str, before: Sequence[str], arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        java = find_java()
        environment = {
            **os.environ,
            "SPARK_HOME": str(_SPARK),
            "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": java,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        command = [*before, f"{java}/bin/java", *_JVM, "-cp", f"{_SPARK}/jars/*", f"org.apache.spark.deploy.{role}", *arguments]
        with (self.folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)
        self._started.append(process)
        return process

    def _log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text()


@contextmanager
def cluster(folder: Path, workers: int = 2, hidden: Sequence[Path] = ()) -> Iterator[Cluster]:
    """A cluster that runs while the block does."""
    folder.mkdir(parents=True)
    made = Cluster(folder, hidden)
    try:
        made.start_master()
        for _ in range(workers):
            made.start_worker()
        yield made
    finally:
        made.end()


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on this machine while the block runs; yields its address."""
    folder.mkdir(parents=True)
    [port] = free_ports(1)
    java = find_java()
    options = {"master": "local[2]", "connect.grpc.binding.port": str(port), "sql.shuffle.partitions": "1", "ui.enabled": "false"}
    confs = [part for name, value in options.items() for part in ("--conf", f"spark.{name}={value}")]
    server = ["org.apache.spark.deploy.SparkSubmit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *confs]
    environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_LOCAL_DIRS": str(folder / "local"), "SPARK_SCALA_VERSION": "2.13"}
    command = [f"{java}/bin/java", "-Xmx700m", *_JVM[2:], *_MODULES, "-cp", f"{_SPARK}/jars/*", *server, "spark-internal"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        _wait(lambda: process.poll() is not None or is_open(port), "the server did not start in time")
        assert process.poll() is None, (folder / "server.log").read_text()
        yield f"sc://{HOST}:{port}"
    finally:
        kill_with_children(process.pid)
        process.wait(_WAIT_S)


def kill_with_children(pid: int) -> None:
    """Kill a process and those that it has started, as the end of a machine does."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                os.kill(one.pid, signal.SIGKILL)


def _hiding(folders: Iterable[Path]) -> str:
    return "".join(f"mount -t tmpfs -o size=1m none '{folder}' && " for folder in folders)


def _wait(is_so: Callable[[], bool], what_failed: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, what_failed
        time.sleep(0.05)
