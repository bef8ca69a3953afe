"""The lake's errors, and the parts of the errors of Spark, of stores and of disks that are safe to show."""

import errno
import re
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from operators.errors import TidemarkError

_LONGEST_REASON = 200
_DATA_EXCEPTION = "22"
"""The SQLSTATE class of overflows, divisions by zero, invalid casts and invalid dates."""
_TREE = re.compile(r"\x1b\[\d*m|↳")
"""The colors and arrows with which deltalake prints the causes of an error, one per line."""

_ANSWER = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
"""The code and the message in S3's answer to a request that it refuses."""
_FAULT = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|NoSuchBucket|UnknownStoreException|NoAuthWithAWS"
    r"|Unable to load credentials|UnknownHostException|ConnectException|SocketTimeoutException|Connection refused|error sending request"
    r"|error decoding response body|request or response body error"
    r"|SlowDown|Status Code: (?:403|5\d\d)|\b(?:403 Forbidden|5\d\d (?:Internal|Service|Slow|Bad Gateway))"
)
"""Signs that a store refused a request or could not be reached, in errors of deltalake, of `obstore` and of Hadoop."""
_FAULTS_OF_DISK = {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""The operating system's number in an error of deltalake."""
_JAVA_FAULT = re.compile(r"(?:(?<=\()|(?<=: ))(?:Input/output error|Too many open files|Stale (?:NFS )?file handle|Connection timed out)")
"""The operating system's text for these faults in an error of Java, such as `FileNotFoundException: /a (Too many open files)`."""
_MESSAGE = re.compile(r'message: "([^"]+)"')
"""The operating system's reason in the details of an error of `obstore`."""


def spark_condition(error: PySparkException | Py4JJavaError) -> str:
    """The class and the condition of a Spark error, without its text, which may quote rows."""
    if isinstance(error, PySparkException):
        return " ".join(filter(None, (type(error).__name__, error.getCondition())))
    return str(error.java_exception.getClass().getName())


def data_exception(error: BaseException | None) -> str | None:
    """The condition of the first exception in a chain of causes that is a data exception; None if there is none."""
    while error is not None:
        if isinstance(error, PySparkException) and (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
            return error.getCondition() or spark_condition(error)
        error = error.__cause__ or (None if isinstance(error, Py4JJavaError) else getattr(error, "_cause", None))
    return None


def store_reason(error: Exception) -> str:
    """The reason of an error, in one line. Of an answer of S3, only the code and the message: the rest may quote the access key."""
    if isinstance(error, (PySparkException, Py4JJavaError)):
        sign = _FAULT.search(str(error)) or _JAVA_FAULT.search(str(error))
        return ": ".join([spark_condition(error), *([sign[0]] if sign else [])])
    text = str(error)
    if answer := _ANSWER.search(text):
        return f"{answer[1]}: {answer[2]}"[:_LONGEST_REASON]
    text_without_details, _, details = text.partition("\n\nDebug source")
    lines = [line for part in text_without_details.splitlines() if (line := _TREE.sub("", part).strip().rstrip("."))]
    lines += _MESSAGE.findall(details)[-1:]
    joined = ": ".join(lines)
    shown = joined if len(joined) <= _LONGEST_REASON else ": ".join(map(_cut, dict.fromkeys((lines[0], lines[-1]))))
    return shown or type(error).__name__


def _cut(line: str) -> str:
    """Both ends of a long line: its end may say the cause."""
    return line if len(line) <= _LONGEST_REASON else f"{line[:120]} ... {line[-75:]}"


def is_fault_of_store(error: Exception) -> bool:
    """Whether an object store refused a request or could not be reached. Such an error is not about the file that its text may name."""
    return bool(_FAULT.search(str(error)))


def is_fault_of_disk(error: Exception) -> bool:
    """Whether the operating system could not read a file for a reason that may pass, such as an I/O error or too many open files."""
    numbers = {getattr(error, "errno", None), *map(int, _OS_ERROR.findall(str(error)))}
    return not numbers.isdisjoint(_FAULTS_OF_DISK) or bool(_JAVA_FAULT.search(str(error)))


class LakeError(TidemarkError, RuntimeError):
    """An operation on the lake failed; the text says why and what to do."""

    @classmethod
    def lost(cls, name: str, holder: str) -> "LakeError":
        """The lease ran out, and another writer took it."""
        return cls(
            f"{name} has another writer now: {holder}; this process did not renew its lease in time (it was suspended, or "
            "could not reach the lake), so it stopped before its next commit. Run it again when the other writer has ended; "
            "TIDEMARK_LEASE sets how long a lease lasts"
        )

    @classmethod
    def overtaken(cls, table: str, unit: str) -> "LakeError":
        """Another writer has committed since this one read the table."""
        return cls(
            f"{table} has a newer {unit} than this process started from: another writer has committed meanwhile, so nothing was written. "
            "Run it again when the other writer has ended. If there should be none, look for a second process or an expired lease"
        )

    @classmethod
    def not_known(cls, table: str, error: Exception) -> "LakeError":
        """A commit failed, and the table's log cannot be read, so it is not known whether the commit was made nevertheless."""
        cause = error.__cause__ if isinstance(error, LakeError) and isinstance(error.__cause__, Exception) else error
        return cls(
            f"whether this process's commit to {table} succeeded is not known: the table's log cannot be read now "
            f"({store_reason(cause)}). Run the command again when the store or the disk answers: it goes on from what is committed, "
            "and writes nothing twice"
        )

    @classmethod
    def not_committed(cls, table: str, error: Exception) -> "LakeError":
        """A commit failed on a disk, and no other writer has committed."""
        return cls(
            f"nothing was committed to {table}: the commit failed ({store_reason(error)}), and no other writer has committed. Run the "
            "command again when the cause is gone"
        )

    @classmethod
    def other_columns(cls, table: str, differing: Sequence[str]) -> "LakeError":
        """The rows' columns differ from the table's."""
        return cls(
            f"{table} has other columns than the rows to be written: {'; '.join(differing)}. Nothing was written. Legal: the table's "
            "own columns; restore the column's type or name, give it another name, or choose another lake (TIDEMARK_LAKE)"
        )

    @classmethod
    def lost_totals(cls, table: str, path: str, error: Exception) -> "LakeError":
        """The file with the totals of the rows that retention removed from a log cannot be read."""
        return cls(
            f"retention removed rows from {table}, and the file with their totals cannot be read: {path} ({store_reason(error)}). "
            "Nothing was computed. Restore it from a backup of the lake, which has it in the folder `_retained`"
        )

    @classmethod
    def missing_file(cls, table: str, file: str, batches: str) -> "LakeError":
        """A data file in the table's log is missing or unreadable; `batches` names the batches of its rows, or is empty."""
        return cls(
            f"{table} lacks a data file: {file}{batches} is in the table's log, but is missing or unreadable; "
            "nothing was computed without it. "
            "Restore the file from a backup. If there is none, rebuild a derived table with `tidemark rebuild NAME --downstream`; "
            "for an event log, ingest the sources again into a new lake (TIDEMARK_LAKE)"
        )

    @classmethod
    def not_read(cls, tables: Sequence[str], error: Exception) -> "LakeError":
        """Tables cannot be read for a reason that may pass; no data file is the cause."""
        return cls(
            f"{' and '.join(tables)} cannot be read now ({store_reason(error)}). Nothing was changed; run the command again when the "
            "store or the disk answers"
        )

    @classmethod
    def no_store(cls, root: str, error: Exception) -> "LakeError":
        """The store of a lake behind a URI cannot be opened."""
        return cls(
            f"the lake {root} cannot be used: its store refused, or cannot be reached ({store_reason(error)}). Nothing more was read or "
            "written. Legal: a bucket that exists (TIDEMARK_LAKE), an endpoint that answers, and credentials that may list, read, write "
            "and delete its objects: set them in the part `s3` of TIDEMARK_CONNECTIONS, or as AWS_* variables, and run again"
        )

    @classmethod
    def no_conditional_put(cls, root: str) -> "LakeError":
        """The store replaces an object although the request forbids it."""
        return cls(
            f"the lake {root} cannot be written to: its store ignores conditional puts (`If-None-Match: *`), so two writers could "
            "overwrite each other's commits. Nothing was written. Legal: Amazon S3, or a store that refuses to replace an object on "
            "such a request"
        )

    @classmethod
    def newer(cls, root: str, lake_format: int, newest_format: int) -> "LakeError":
        """A later version of Tidemark created the lake."""
        return cls(
            f"the lake {root} has format {lake_format}, and this version of Tidemark knows formats up to {newest_format}; "
            "nothing was read or written. Install the version that created it, or a later one, or choose another lake"
        )

    @classmethod
    def unusable(cls, root: str, reason: str) -> "LakeError":
        """The root is not writable."""
        return cls(
            f"the lake {root} cannot be written to: {reason}; legal: a folder that this process may write to, on a file system mounted "
            "for writing. Nothing that was committed is lost: fix it, or choose another lake, and run again"
        )

    @classmethod
    def full(cls, root: str, reason: str) -> "LakeError":
        """The disk is full, or a quota is used up."""
        return cls(
            f"no space is left for the lake {root}, or for Spark's temporary files: {reason}; what was committed is complete, and the rest "
            "will be done again. Free some space, or enlarge the disk or the quota, and run again"
        )

    @classmethod
    def query_ended(cls) -> "LakeError":
        """The query's thread in the JVM has ended with an error that it reports only in the JVM's output."""
        return cls(
            "Spark ended a query without an answer: its thread in the JVM was interrupted, or failed with an error such as "
            "StackOverflowError or OutOfMemoryError, which is in the JVM's output. Nothing was written. Run it again; if it fails "
            "again, give the JVM more memory (TIDEMARK_DRIVER_MEMORY)"
        )


class UnreadableLogError(LakeError):
    """A table's Delta log cannot be read.

    Args:
        reason: the cause, in one line.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason

    @classmethod
    def of(cls, table: str, path: str, error: Exception) -> "UnreadableLogError":
        """A file of the Delta log is missing, damaged or unreadable."""
        reason = store_reason(error)
        return cls(
            f"the Delta log of {table} cannot be read: a file of {path}/_delta_log is missing, damaged or unreadable ({reason}). "
            "Nothing was computed or written. Restore the folder from a backup. A derived table can instead be deleted (an upserted one "
            "together with its changelog) and rebuilt with `tidemark rebuild NAME --downstream`",
            reason,
        )


class MissingMetadataError(LakeError):
    """No commit in a table's log has metadata with a key."""

    @classmethod
    def of(cls, table: str, key: str) -> "MissingMetadataError":
        """Another program wrote the table, or its log was cleaned up."""
        return cls(
            f"no commit of {table} records its {key}: another program wrote the table, or its log was cleaned up. "
            "A derived table can be rebuilt with `tidemark rebuild NAME --downstream`; restore any other table from a backup"
        )


class LakeBusy(LakeError):
    """Another process holds a lock of the lake, or waits for a lock that this process holds."""

    @classmethod
    def of(cls, name: str, holder: str, purpose: str, waited_s: float | None) -> "LakeBusy":
        """Another process holds the lock; `waited_s` is how long this process waited for it, None if it did not wait."""
        if waited_s is None:
            return cls.held_by_writer(name, holder)
        return cls.held_by_stream(name, holder, waited_s) if purpose == "stream" else cls.held_by_maintenance(name, holder, waited_s)

    @classmethod
    def held_by_writer(cls, name: str, holder: str) -> "LakeBusy":
        """Another writer holds the lock."""
        return cls(f"{name} has a writer already: {holder}; only one can write at a time, so wait for it or end it")

    @classmethod
    def held_by_maintenance(cls, name: str, holder: str, waited_s: float) -> "LakeBusy":
        """Maintenance holds the lock, and did not end in time."""
        return cls(
            f"{name} has a writer already: {holder}; it is maintenance, and did not end in {waited_s / 60:.0f} minutes. "
            "Nothing was written. End that process if it hangs (its lock is released at once, and its work is complete), and run again"
        )

    @classmethod
    def held_by_stream(cls, name: str, holder: str, waited_s: float) -> "LakeBusy":
        """A stream holds the lock, and its step did not end in time."""
        return cls(
            f"{name} has a writer already: {holder}; it is a stream, whose present step did not end in {waited_s / 60:.0f} minutes. "
            "Nothing was written. Run again later, or end the stream: what it has committed is complete. A lower TIDEMARK_MAX_STEP makes "
            "its steps shorter"
        )

    @classmethod
    def released_for(cls, name: str, holder: str) -> "LakeBusy":
        """Another process waits for the table, so a stream releases it."""
        return cls(f"{name} is released for {holder}; the stream goes on with it when that process has ended")
