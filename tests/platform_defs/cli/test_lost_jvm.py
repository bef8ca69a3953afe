"""A JVM that ends while a command uses it is named in one line, with the way out; no file and no table is blamed."""

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from operators.errors import TidemarkError
from platform_defs.cli import commands as cli
from platform_defs.engine.ingest.micro_batches import MicroBatches
from platform_defs.engine.lake import lost_jvm
from platform_defs.engine.lake.lost_jvm import JvmLostError
from platform_defs.engine.operations.advance_all import AdvanceAll
from tests.platform_defs.cli.test_commands import tidemark
from tests.support.quick_session import QUICK_CONNECTIONS

SAFE = "The input is not the cause, and every commit that was made is complete. Run the command again"
KILLED = "error: the JVM of this command was ended by SIGKILL, which is what the operating system sends if memory runs out. " + SAFE
SERVED = f"error: the JVM that `tidemark serve` keeps has ended while this command used it. {SAFE}: it starts a JVM of its own"


def _process(script: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", script])


def _use_jvm(patch: pytest.MonkeyPatch, process: Any = None, port: int = 0) -> None:
    """Let this process have a connection to a JVM that it has started, or that another process serves by a port."""
    patch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process, java_parameters=SimpleNamespace(port=port)))


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that refuses connections, and that no other process can get."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def _fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Any:
    def engine() -> None:
        raise error

    monkeypatch.setattr(cli, "_engine", engine)
    return tidemark("status")


@pytest.mark.parametrize(("traceback", "shown"), [("0", []), ("1", ["Exception while sending command."])])
def test_the_traceback_of_a_call_that_the_jvm_did_not_answer_is_shown_on_demand(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, traceback: str, shown: list[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_TRACEBACK", traceback)

    def engine() -> None:
        logging.error("Exception while sending command.")  # as Py4J does
        raise TidemarkError("the JVM has ended")

    monkeypatch.setattr(cli, "_engine", engine)
    tidemark("status")
    assert caplog.messages == shown


UNHANDLED = "signal.signal(15, signal.SIG_DFL)"
"""The processes of pytest-xdist ignore SIGTERM, and so do processes that they start."""
LOST_CONNECTION = (
    Py4JNetworkError("Answer from Java side is empty"),
    ConnectionRefusedError(111, "Connection refused"),
    Py4JError("o12.count"),
)


@pytest.mark.parametrize("error", [*LOST_CONNECTION, TidemarkError("file:/in/a.csv could not be read")], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import os; os.kill(os.getpid(), 9)", KILLED + "; if it happens again, free memory, or lower TIDEMARK_DRIVER_MEMORY or"),
        (
            f"import os, signal; {UNHANDLED}; os.kill(os.getpid(), 15)",
            f"error: the JVM of this command was ended by SIGTERM. {SAFE}\n",
        ),
        ("raise SystemExit(52)", "has ended because its heap was full. " + SAFE + " with more TIDEMARK_DRIVER_MEMORY, or a lower TIDEMARK"),
        ("raise SystemExit(1)", f"the JVM of this command has ended with exit code 1. {SAFE}\n"),
    ],
)
def test_the_end_of_a_jvm_of_the_command(monkeypatch: pytest.MonkeyPatch, error: Exception, script: str, message: str) -> None:
    process = _process(script)
    process.wait()
    _use_jvm(monkeypatch, process)
    result = _fail(monkeypatch, error)
    assert (result.code, result.out) == (1, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    monkeypatch.setenv("TIDEMARK_TRACEBACK", "1")
    if not isinstance(error, TidemarkError):
        with pytest.raises(type(error)):
            _fail(monkeypatch, error)


def test_the_end_of_a_served_jvm(monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    _use_jvm(monkeypatch, port=free_port)
    result = _fail(monkeypatch, LOST_CONNECTION[0])
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(SERVED)


def test_an_error_while_the_jvm_is_running_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_jvm, "_ENDING_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        _use_jvm(monkeypatch, port=server.getsockname()[1])
        assert lost_jvm.lost_jvm(LOST_CONNECTION[0]) is None
        assert _fail(monkeypatch, TidemarkError("a file")).err == "error: a file\n"
    process = _process("import time; time.sleep(60)")
    try:
        _use_jvm(monkeypatch, process)
        assert lost_jvm.lost_jvm(LOST_CONNECTION[1]) is None
    finally:
        process.kill()
        process.wait()
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert lost_jvm.lost_jvm(LOST_CONNECTION[1]) is None


def test_a_failure_to_connect_for_another_reason_is_no_end_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    _use_jvm(monkeypatch, port=1)
    monkeypatch.setattr(lost_jvm, "socket", SimpleNamespace(create_connection=connect))
    assert lost_jvm.lost_jvm(OSError(errno.EMFILE, "too many open files")) is None


def test_a_stream_ends_with_its_jvm(monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    def steps(_: str) -> Generator[Any]:
        raise LOST_CONNECTION[2]
        yield

    def idle() -> None:
        raise LOST_CONNECTION[1]

    _use_jvm(monkeypatch, port=free_port)
    advance = AdvanceAll(steps, {"a": []}, lambda *_: pytest.fail("a table is blamed"))
    with pytest.raises(JvmLostError, match="tidemark serve"):
        advance()
    with pytest.raises(JvmLostError, match="tidemark serve"):
        MicroBatches(lambda _: None, idle, lambda _: None, lambda: None, 0.0).quiet()


SLOW = """
import os, sys, time
from pathlib import Path
from threading import Thread, Timer
from pyspark import SparkContext
from platform_defs.cli import commands
from platform_defs.cli.main import main
from platform_defs.settings import settings
from platform_defs.spark.served import serving_session
from platform_defs.spark.session import session, spark_config

limit = Timer(120, os._exit, (9,))
limit.daemon = True
limit.start()
spark = session(settings())
process = SparkContext._gateway.proc

def report_running():
    while not spark.sparkContext.statusTracker().getJobIdsForGroup(str(os.getpid())):
        time.sleep(0.05)
    print(process and process.pid, flush=True)

def slow():
    spark.sparkContext.setJobGroup(str(os.getpid()), "")
    Thread(target=report_running, daemon=True).start()
    spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', id + 1000000)").collect()

commands._engine = slow
sys.argv = ["tidemark", "status"]
"""
SERVER = """
with serving_session(spark, spark_config(settings()), Path(settings().session_file)):
    main()
"""


def _command(script: str, environment: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SLOW + textwrap.dedent(script)]
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(QUICK_CONNECTIONS))
    files = {"LAKE": tmp_path / "lake", "SESSION_FILE": tmp_path / "session.json", "CONNECTIONS": tmp_path / "connections.yaml"}
    values = {**files, "DRIVER_MEMORY": "1g"}
    return {f"TIDEMARK_{name}": str(value) for name, value in values.items()}


@pytest.mark.spark
def test_commands_report_the_end_of_their_jvm_and_nothing_else(environment: dict[str, str]) -> None:
    with ExitStack() as ends:
        own = ends.enter_context(_command(SERVER, environment))
        ends.callback(own.kill)
        assert own.stdout is not None
        pid = int(own.stdout.readline())
        ends.callback(_end, pid)
        attached = ends.enter_context(_command("main()", environment))
        ends.callback(attached.kill)
        assert attached.stdout is not None
        assert attached.stdout.readline() == "None\n", "it has no JVM of its own"
        os.kill(pid, signal.SIGKILL)
        for process, message in ((own, KILLED), (attached, SERVED)):
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out) == (1, "")
            assert err.splitlines()[-1].startswith(message), err
            assert "Traceback" not in err


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
