"""A standalone Spark cluster of small processes on this machine. Its workers can be killed, and folders can be hidden from them."""

import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

import psutil
import pyspark

from benchmarks.live.processes import until
from benchmarks.measure import kill
from platform_defs.setup.java import find_java
from platform_defs.setup.ports import HOST, free_ports, is_open
from platform_defs.spark.class_archive import archive_option

SPARK = Path(pyspark.__file__).resolve().parent
SMALL_JVM = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
CLASS_PATH = ":".join(map(str, [SPARK / "conf", *SPARK.glob("jars/slf4j-api-*.jar"), SPARK / "jars/*"]))
"""The class path of Spark's own launcher, with which the class archive was written. With another one the JVM ignores the archive."""
_WAIT_S = 60


def hides_folders() -> bool:
    """Whether a process on this machine may hide folders from another one that it starts."""
    return which("unshare") is not None and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


@dataclass
class Cluster:
    """A master and its workers.

    Args:
        folder: the folder for the workers' files and logs.
        hidden: folders that the workers see empty, if `hides_folders`.
        memory: the memory of a worker for its executors.
    """

    folder: Path
    hidden: Sequence[Path] = ()
    memory: str = "1g"
    port: int = field(default=0, init=False)
    """The master's port; 0 before its start."""
    _started: "list[subprocess.Popen[bytes]]" = field(default_factory=list, init=False)
    _workers: list[int] = field(default_factory=list, init=False)

    @property
    def master(self) -> str:
        """The URI for `TIDEMARK_SPARK_MASTER`."""
        return f"spark://{HOST}:{self.port}"

    @property
    def workers(self) -> Sequence[int]:
        """The process ids of the workers that were started and not killed here, the oldest first."""
        return self._workers

    @property
    def executors(self) -> list[psutil.Process]:
        """The processes of the workers' executors."""
        found = list[psutil.Process]()
        for worker in self._workers:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(worker).children()
        return found

    def start_master(self) -> None:
        """Start the master, and wait until it answers."""
        self.port, ui = free_ports(2)
        process = self._start("master.Master", [], ["--host", HOST, "--port", str(self.port), "--webui-port", str(ui)])
        self._wait(lambda: is_open(self.port), "master.Master", process)

    def start_worker(self) -> int:
        """Start a worker of one core, and wait until the master has it; returns its process id."""
        [ui] = free_ports(1)
        before = self._log("master.Master").count("Registering worker")
        hide = ["unshare", "--mount", "sh", "-c", f'{_hiding(self.hidden)} exec "$@"', "sh"] if self.hidden and hides_folders() else []
        own = ["--cores", "1", "--memory", self.memory, "--work-dir", str(self.folder / "work")]
        process = self._start("worker.Worker", hide, ["--host", HOST, "--webui-port", str(ui), *own, self.master])
        self._wait(lambda: self._log("master.Master").count("Registering worker") > before, "worker.Worker", process)
        self._workers.append(process.pid)
        return process.pid

    def kill_worker(self, pid: int) -> None:
        """Kill a worker with its executors, as the end of a machine does."""
        kill_with_children(pid)
        self._workers.remove(pid)

    def end(self) -> None:
        """Kill all processes and the executors, the newest first. If a process cannot be killed, the others are killed nevertheless."""
        with ExitStack() as kills:
            for process in self._started:
                kills.callback(_kill_and_wait, process)

    def _start(self, role: str, before: Sequence[str], arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        java = find_java()
        own = {"SPARK_HOME": SPARK, "SPARK_SCALA_VERSION": "2.13", "JAVA_HOME": java, "SPARK_LOCAL_DIRS": self.folder / "local"}
        environment = ["env", *(f"{name}={value}" for name, value in own.items())]
        options = [*SMALL_JVM, *archive_option(java).split(), "-cp", CLASS_PATH]
        command = [*environment, *before, f"{java}/bin/java", *options, f"org.apache.spark.deploy.{role}"]
        with (self.folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, cwd=self.folder)
        self._started.append(process)
        return process

    def _wait(self, is_started: Callable[[], bool], role: str, process: "subprocess.Popen[bytes]") -> None:
        until(is_started, _WAIT_S, lambda: f"the {role} does not start; its log is:\n{self._log(role)}", process, 0.05)

    def _log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text()


@contextmanager
def cluster(folder: Path, workers: int = 2, hidden: Sequence[Path] = (), memory: str = "1g") -> Iterator[Cluster]:
    """A cluster that runs while the block does."""
    folder.mkdir(parents=True)
    made = Cluster(folder, hidden, memory)
    try:
        made.start_master()
        for _ in range(workers):
            made.start_worker()
        yield made
    finally:
        made.end()


def kill_with_children(pid: int) -> None:
    """Kill a process and those that it has started, as the end of a machine does."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        kill([process, *process.children(recursive=True)])


def _kill_and_wait(process: "subprocess.Popen[bytes]") -> None:
    kill_with_children(process.pid)
    process.wait(_WAIT_S)


def _hiding(folders: Iterable[Path]) -> str:
    return "".join(f"mount -t tmpfs -o size=1m none '{folder}' && " for folder in folders)
