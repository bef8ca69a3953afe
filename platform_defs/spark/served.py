"""A Spark session that several processes use: `tidemark serve` keeps it, and commands and Dagster's runs attach to its JVM.

A JVM takes seconds to start, and a minute until it is fast. A process that attaches has its own session, with its own settings and
temporary views, in the Spark context of the serving process. If such a process is killed, its running query still runs to its end.
"""

import atexit
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any, cast

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from operators.errors import TidemarkError
from platform_defs.engine.lake.interrupts import cancel_jobs, ending_on_sigterm
from platform_defs.engine.lake.lost_jvm import JvmLostError
from platform_defs.setup.ports import is_open
from platform_defs.spark.java_calls import delete_all

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_CANCEL_S = 10.0
"""How long Ctrl-C waits until the jobs of this process are cancelled, in seconds."""


class ServeError(TidemarkError, RuntimeError):
    """A session cannot be served."""

    @classmethod
    def already_served(cls, file: Path, pid: int) -> "ServeError":
        """Another process serves a session."""
        way_out = "end that process first, or set TIDEMARK_SESSION_FILE to another file"
        return cls(f"process {pid} serves a Spark session already, by {file}; {way_out}")


@dataclass(frozen=True)
class Served:
    """A session that a process serves, as its file records it. A process that can read the file can run any code in that JVM.

    Args:
        pid: the process.
        port: the port of its JVM, on this machine.
        secret: the password of that port.
        version: the version of PySpark.
        config: the configuration of the session; a process attaches only if its own is the same.
    """

    pid: int
    port: int
    secret: str
    version: str
    config: Mapping[str, str]


@contextmanager
def serving_session(session: SparkSession, config: Mapping[str, str], file: Path) -> Iterator[Served]:
    """Let other processes attach to a session of this process until the block ends.

    Args:
        session: the session.
        config: its configuration.
        file: the file in which the other processes find the session; only this user can read it.

    Raises:
        ServeError: another process serves a session by this file.
    """
    check_free(file)
    java = cast(Any, session.sparkContext)._gateway.java_parameters
    record = Served(os.getpid(), java.port, java.auth_token, pyspark.__version__, dict(config))
    _write(file, json.dumps(asdict(record)))
    try:
        yield record
    finally:
        if served_session(file) == record:
            file.unlink(missing_ok=True)


def serve(session: SparkSession, config: Mapping[str, str], file: Path, ready: Callable[[], object]) -> None:
    """Let other processes attach to a session of this process until Ctrl-C or SIGTERM.

    Args:
        session: the session.
        config: its configuration.
        file: the file in which the other processes find the session.
        ready: called when other processes can attach.

    Raises:
        ServeError: another process serves a session by this file.
        JvmLostError: the JVM has ended.
    """
    with suppress(KeyboardInterrupt), ending_on_sigterm(), serving_session(session, config, file):
        ready()
        raise JvmLostError.of_command(cast(Any, session.sparkContext)._gateway.proc.wait())


def check_free(file: Path) -> None:
    """Raise if a process serves a session by a file.

    Raises:
        ServeError: a process serves a session by this file.
    """
    record = served_session(file)
    if record is not None and is_open(record.port):  # the process may have ended, and its number may be that of another one
        raise ServeError.already_served(file, record.pid)


def served_session(file: Path) -> Served | None:
    """The session that a file records; None if there is none, or if its process has ended."""
    with suppress(OSError, ValueError, TypeError):
        record = Served(**json.loads(file.read_text("utf-8")))
        os.kill(record.pid, 0)
        return record
    return None


def attach_session(file: Path, config: Mapping[str, str]) -> SparkSession | None:
    """A new session in the JVM that another process serves; None if no process serves one with this configuration.

    It is also None if `spark-submit` started this process.

    Args:
        file: the file that records the served session.
        config: the configuration that this process wants.
    """
    if _PORT in os.environ:  # started by spark-submit, with a JVM of its own
        return None
    record = served_session(file)
    if record is None or (record.version, record.config) != (pyspark.__version__, config):
        return None
    try:
        return _attach(record, config)
    except (Py4JError, OSError):  # the process has ended, and another process has its number or its port
        cast(Any, SparkContext)._gateway = None
        return None


def _attach(record: Served, config: Mapping[str, str]) -> SparkSession:
    gateway = _gateway(record)
    jvm: Any = gateway.jvm
    sessions = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
    of_server = sessions.getDefaultSession().get()
    java_context = jvm.JavaSparkContext(of_server.sparkContext())
    conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
    context = SparkContext(jsc=java_context, gateway=gateway, conf=conf)
    session = SparkSession(context, of_server.newSession(), dict(config))
    sessions.setDefaultSession(of_server)  # PySpark has made this process's session the default of the JVM
    atexit.register(delete_all, gateway)  # the JVM keeps the objects of this process until then
    with suppress(ValueError):  # signals are handled in the main thread only
        signal.signal(signal.SIGINT, _interrupt)
    return session


def _gateway(record: Served) -> Any:
    """A connection to a JVM; PySpark takes its address from the environment."""
    os.environ |= {_PORT: str(record.port), _SECRET: record.secret}
    try:
        return launch_gateway()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]


def _interrupt(_: int, __: FrameType | None) -> None:
    """Cancel the jobs of this process on Ctrl-C; PySpark's own handler would cancel the jobs of all processes."""
    thread = Thread(target=cancel_jobs, daemon=True)  # the connection of this thread may wait for a job
    thread.start()
    thread.join(_CANCEL_S)  # not for ever: this thread may hold a lock of Py4J, which is released as it goes on
    raise KeyboardInterrupt


def _write(file: Path, text: str) -> None:
    """Write a file that only this user can read, in one step."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial_file = file.with_name(f"{file.name}.{os.getpid()}")
    partial_file.unlink(missing_ok=True)
    with os.fdopen(os.open(partial_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
    partial_file.replace(file)
