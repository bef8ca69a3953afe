"""Recognizes errors that are caused by the end of the JVM that this process uses.

A call into a JVM that has ended fails with an error of Py4J or of a socket, which names neither the JVM nor a way out. Without this check,
code that handles errors of files or tables could report the input as the cause.
"""

import signal
import socket
import time
from subprocess import Popen, TimeoutExpired
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from operators.errors import TidemarkError

_ENDING_S = 3.0
"""How long to wait for the end of a JVM after an error of its connection, in seconds."""
_CONNECT_S = 1.0
_OUT_OF_MEMORY = 52
"""The exit code of Spark's `SparkExitCode.OOM`."""
_WITHOUT_LOSS = "The input is not the cause, and every commit that was made is complete"


class JvmLostError(TidemarkError, RuntimeError):
    """The JVM in which Spark runs has ended while this process used it."""

    @classmethod
    def of_server(cls) -> "JvmLostError":
        """The JVM belonged to `tidemark serve`."""
        way_out = "Run the command again: it starts a JVM of its own, or uses that of a new `tidemark serve`"
        return cls(f"the JVM that `tidemark serve` keeps has ended while this command used it. {_WITHOUT_LOSS}. {way_out}")

    @classmethod
    def of_command(cls, code: int) -> "JvmLostError":
        """The JVM was started by this process.

        Args:
            code: its exit code; negative for a signal, as `Popen.returncode`.
        """
        advice = "Run the command again"
        if code == -signal.SIGKILL:
            cause = "was ended by SIGKILL, which is what the operating system sends if memory runs out"
            advice += "; if it happens again, free memory, or lower TIDEMARK_DRIVER_MEMORY or TIDEMARK_MAX_STEP"
        elif code == _OUT_OF_MEMORY:
            cause = "has ended because its heap was full"
            advice += " with more TIDEMARK_DRIVER_MEMORY, or a lower TIDEMARK_MAX_STEP"
        else:
            cause = f"was ended by {signal.Signals(-code).name}" if -code in {*signal.Signals} else f"has ended with exit code {code}"
        return cls(f"the JVM of this command {cause}. {_WITHOUT_LOSS}. {advice}")


def lost_jvm(error: BaseException) -> JvmLostError | None:
    """The error that reports the end of the JVM that this process uses; None if it is running, or the process uses none.

    Args:
        error: the error that was raised. If it is about the connection, this waits a moment for the JVM to end.
    """
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return None
    wait_s = _ENDING_S if _is_connection_error(error) else 0.0
    if gateway.proc is None:
        return JvmLostError.of_server() if _is_closed(gateway.java_parameters.port, wait_s) else None
    code = _exit_code(gateway.proc, wait_s)
    return None if code is None else JvmLostError.of_command(code)


def _is_connection_error(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, is about the connection to the JVM."""
    while error is not None:
        if isinstance(error, ConnectionError) or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _exit_code(process: "Popen[bytes]", wait_s: float) -> int | None:
    """The exit code of a process; None if it is running after the wait."""
    try:
        return process.wait(wait_s)
    except TimeoutExpired:
        return None


def _is_closed(port: int, wait_s: float) -> bool:
    """Whether a port of this machine refuses connections after the wait; any other failure to connect says nothing about the JVM."""
    until = time.monotonic() + wait_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), _CONNECT_S).close()
        except (ConnectionRefusedError, ConnectionResetError):
            return True
        except OSError:
            return False
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
