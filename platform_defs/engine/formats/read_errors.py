"""Classifies an error of Spark's readers: the file's content is damaged, the file does not exist, or it cannot be read now.

Only a file with damaged content is quarantined. This module lists all signs of damage. Any other error counts as a transient fault of the
machine, the store or the network, and the file is read again later.
"""

import re
from dataclasses import dataclass
from typing import Literal

from platform_defs.safe_text import printable, shortened

Kind = Literal["content", "missing", "transient"]

MISSING = "the file was deleted before it was read"
_LONGEST = 200
_EXCEPTION = re.compile(r"^(?:Caused by)?:? ?((?:[a-z_][\w$]*\.)+[A-Z][\w$]*)(?:: (.*))?$")
_FRAME = re.compile(r"^\s+at (?:[\w.@$-]+/)?((?:[\w$]+\.)+[\w$<>]+)\(")
_JDK = re.compile(r"(?:java|javax|jdk|sun|scala)\.")
_PROXIES = ("com.sun.proxy.", "org.apache.spark.network.util.JavaUtils.checkArgument")

_MACHINE = re.compile(
    r"OutOfMemoryError|StackOverflowError|UnsatisfiedLinkError|NoClassDefFoundError|ClassNotFoundException|InterruptedException"
    r"|native \w+ library not available|No space left on device|Disk quota exceeded|Too many open files|Read-only file system"
)
"""Errors of a decoder that are not caused by the file: no memory, no library, no disk space."""
_DECODERS = (
    "org.apache.parquet.",
    "shaded.parquet.",
    "org.apache.hadoop.io.compress.",
    "org.xerial.snappy.",
    "net.jpountz.",
    "io.airlift.compress.",
    "com.github.luben.zstd.",
    "com.univocity.parsers.",
    "com.fasterxml.jackson.",
    "org.apache.avro.",
    "org.apache.spark.sql.avro.",
    "org.apache.spark.sql.execution.datasources.parquet.",
    "org.apache.spark.sql.execution.vectorized.",
)
"""An exception thrown in these packages is about the bytes that they decode; file systems throw from other packages."""
_STACKLESS = re.compile(r"java\.lang\.(?:NullPointer|ArrayIndexOutOfBounds|ClassCast|ArrayStore|Arithmetic)Exception$")
"""Exceptions that the JVM throws without a stack trace when compiled code throws them often; no system call causes them."""
_BEYOND_THE_END = re.compile(r"EOFException: (?:Read past End of File|Cannot seek after EOF|Reached the end of stream|Attempted to seek)")
"""Errors of the file system that are caused by a footer that points beyond the file's end."""
_CONDITIONS = re.compile(
    r"^(?:PARQUET_\w+|FAILED_READ_FILE\.(?:CANNOT_READ_FILE_FOOTER|PARQUET_COLUMN_DATA_TYPE_MISMATCH)"
    r"|UNSUPPORTED_TIME_TYPE|DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION"
    r"|CANNOT_MERGE_SCHEMAS|UNABLE_TO_INFER_SCHEMA|COLUMN_ALREADY_EXISTS)(?:\.|$)"
)
"""Spark's own error conditions about a file's schema or footer."""
_NO_PARQUET = re.compile(r"is not a Parquet file")
_NOT_FOUND = re.compile(r"FileNotFoundException|NoSuchFileException|PATH_NOT_FOUND|FILE_NOT_EXIST")
_OTHER_REASON = re.compile(r"FileNotFoundException: .*\((?!No such file or directory)[^()]*\)\s*$", re.MULTILINE)
"""Java also raises `FileNotFoundException` for an existing file: `(Permission denied)`, `(Too many open files)`, `(Stale file handle)`."""
_QUERY = re.compile(r"org\.apache\.spark\.(?:sql\.[\w.$]+|Spark\w+Exception)|java\.lang\.ArithmeticException|java\.time\.\w+")
"""Errors that Spark raises for a query that it cannot run, or for a value that an expression does not accept."""
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")


@dataclass(frozen=True)
class ReadError:
    """The cause of an error in reading a file.

    Args:
        kind: `content` if its bytes are damaged, `missing` if it does not exist, `transient` for everything else.
        reason: the cause, in one line.
    """

    kind: Kind
    reason: str


@dataclass(frozen=True)
class _Cause:
    """One exception of a chain: its class, its message, and the first stack frame outside the JDK."""

    kind: str
    message: str
    frame: str

    @property
    def text(self) -> str:
        return f"{self.kind.rsplit('.', 1)[-1]}: {self.message}"


def read_error(error: Exception) -> ReadError:
    """Classify an error that was raised by reading files."""
    return classify_error(str(error))


def classify_error(text: str) -> ReadError:
    """Classify the text of an error that was raised by reading files, including the JVM's stack traces.

    >>> classify_error(": java.net.SocketTimeoutException: Read timed out")
    ReadError(kind='transient', reason='SocketTimeoutException: Read timed out')
    """
    if _NOT_FOUND.search(text) and not _OTHER_REASON.search(text):
        return ReadError("missing", MISSING)
    causes = _causes(text)
    if causes and _NO_PARQUET.search(causes[-1].message):
        return ReadError("content", "the file cannot be read as Parquet")
    reason = _one_line(causes[-1].text if causes else text)
    if _is_content(text, causes):
        return ReadError("content", f"the file cannot be read: {reason}")
    return ReadError("transient", reason)


def may_pass(error: Exception) -> bool:
    """Whether a failed query of readable files may succeed if it is tried again."""
    return read_error(error).kind == "transient" and not would_fail_again(error)


def would_fail_again(error: Exception) -> bool:
    """Whether an immediate retry would fail for the same reason: a rule that divides by zero, an unknown option, a full disk."""
    text = str(error)
    causes = _causes(text)
    if _FULL.search(text) or not causes:
        return True
    root = causes[-1]
    if root.kind == "org.apache.spark.SparkException":
        return root.message.startswith("[") and not root.message.startswith("[FAILED_READ_FILE")
    return bool(_QUERY.fullmatch(root.kind))


def _is_content(text: str, causes: list[_Cause]) -> bool:
    condition = re.match(r"\W*\[([A-Z_.\d]+)\]", text)
    if not causes:
        return condition is not None and bool(_CONDITIONS.match(condition[1]))
    root = causes[-1]
    if _MACHINE.search(root.text):
        return False
    if _BEYOND_THE_END.match(root.text):
        return True
    if root.kind.startswith("org.apache.spark.") and (named := re.match(r"\W*\[([A-Z_.\d]+)\]", root.message)):
        return bool(_CONDITIONS.match(named[1]))
    return root.frame.startswith(_DECODERS) if root.frame else bool(_STACKLESS.match(root.kind))


def _causes(text: str) -> list[_Cause]:
    """The chain of exceptions in an error's text, the root cause last."""
    causes: list[_Cause] = []
    for line in text.splitlines():
        if head := _EXCEPTION.match(line):
            causes.append(_Cause(head[1], head[2] or "", ""))
        elif causes and not causes[-1].frame and (frame := _FRAME.match(line)) and not _is_of_the_jdk(frame[1]):
            causes[-1] = _Cause(causes[-1].kind, causes[-1].message, frame[1])
    return causes


def _is_of_the_jdk(frame: str) -> bool:
    return bool(_JDK.match(frame)) or frame.startswith(_PROXIES)


def _one_line(text: str) -> str:
    line = " ".join((text.strip().splitlines() or ["unknown"])[0].split())
    return shortened(printable(line), _LONGEST)
