"""Read errors are classified as corrupted, missing or unreachable files by the messages of Spark 4.1, Hadoop 3.4 and Parquet."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from platform_defs.engine.formats import unreadable_files
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.read_errors import MISSING, classify_error, would_fail_again

JOB = (
    "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while "
    "reading file file:///in/a.jsonl.gz.  SQLSTATE: KD001\n"
    "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:911)"
)
HADOOP = "org.apache.hadoop.io.compress.zlib.BuiltInGzipDecompressor.executeTrailerState(BuiltInGzipDecompressor.java:1)"
JDK = "java.base/java.io.DataInputStream.read(DataInputStream.java:151)"


def _failed(cause: str, *frames: str) -> str:
    return "\n".join([JOB, f"Caused by: {cause}", *[f"\tat {f}" for f in frames], "\t... 1 more"])


@dataclass(frozen=True)
class Case:
    """An error message, and how it is classified."""

    id: str
    text: str
    kind: str
    reason: str


CASES = [
    Case(
        "an Avro schema",
        "An error occurred while calling o50.withColumn.\n: org.apache.avro.SchemaParseException: Illegal character in: a-b\n"
        "\tat org.apache.avro.Schema.validateName(Schema.java:1694)",
        "content",
        "the file cannot be read: SchemaParseException: Illegal character in: a-b",
    ),
    Case(
        "an Avro schema that Spark does not support",
        "An error occurred while calling o50.withColumn.\n: org.apache.spark.sql.avro.IncompatibleSchemaException: \nFound recursive "
        "reference\n\tat org.apache.spark.sql.avro.SchemaConverters$.toSqlTypeHelper(SchemaConverters.scala:1)",
        "content",
        "the file cannot be read: IncompatibleSchemaException:",
    ),
    Case(
        "no memory for an Avro value",
        _failed("java.lang.OutOfMemoryError: Java heap space", "org.apache.avro.util.Utf8.setByteLength(Utf8.java:114)"),
        "transient",
        "OutOfMemoryError: Java heap space",
    ),
    Case(
        "torn gzip",
        _failed("java.io.EOFException: Unexpected end of input stream", "org.apache.hadoop.io.compress.DecompressorStream.x(D)"),
        "content",
        "EOFException: Unexpected end",
    ),
    Case("gzip checksum", _failed("java.io.IOException: gzip stream CRC failure", JDK, HADOOP), "content", "gzip stream CRC failure"),
    Case(
        "snappy",
        _failed("java.io.IOException: FAILED_TO_UNCOMPRESS(5)", "org.xerial.snappy.SnappyNative.throw_error(S.java:1)"),
        "content",
        "FAILED_TO",
    ),
    Case(
        "Parquet page",
        _failed(
            "shaded.parquet.org.apache.thrift.transport.TTransportException: Socket is closed by peer.",
            "shaded.parquet.org.apache.thrift.transport.T.read(T.java:1)",
        ),
        "content",
        "TTransportException",
    ),
    Case(
        "Parquet footer",
        ": java.lang.RuntimeException: file:/in/a.parquet is not a Parquet file. Expected magic number",
        "content",
        "cannot be read as Parquet",
    ),
    Case(
        "Parquet type",
        ": org.apache.spark.sql.AnalysisException: [PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64.",
        "content",
        "PARQUET_TYPE_ILLEGAL",
    ),
    Case(
        "a footer that points behind the end",
        _failed("java.io.EOFException: Read past End of File", "org.apache.hadoop.fs.RawLocalFileSystem$AsyncHandler.completed(R)"),
        "content",
        "Read past",
    ),
    Case("a decoder's exception without a stack", _failed("java.lang.NullPointerException"), "content", "NullPointerException"),
    Case(
        "a timeout",
        _failed(
            "java.net.SocketTimeoutException: Read timed out",
            "java.base/sun.nio.ch.NioSocketImpl.timedRead(N.java:1)",
            "org.apache.http.impl.io.X.read(X.java:1)",
        ),
        "transient",
        "SocketTimeoutException: Read timed out",
    ),
    Case(
        "a timeout below Parquet",
        _failed("org.apache.parquet.io.ParquetDecodingException: Can not read value at 0", "org.apache.parquet.hadoop.X.y(X.java:1)")
        + "\nCaused by: java.net.SocketTimeoutException: Read timed out\n\tat com.amazonaws.x.Y.z(Y.java:1)",
        "transient",
        "SocketTimeout",
    ),
    Case(
        "a store that is busy",
        _failed(
            "software.amazon.awssdk.services.s3.model.S3Exception: Please reduce your request rate (Status Code: 503)",
            "software.amazon.awssdk.X.y(X.java:1)",
        ),
        "transient",
        "503",
    ),
    Case(
        "a missing block",
        _failed(
            "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1",
            "org.apache.hadoop.hdfs.DFSInputStream.x(D.java:1)",
        ),
        "transient",
        "BlockMissingException",
    ),
    Case(
        "a stale handle",
        _failed(
            "java.io.IOException: Stale file handle",
            "java.base/java.io.FileInputStream.readBytes(F.java:1)",
            "org.apache.hadoop.fs.RawLocalFileSystem$L.read(R.java:1)",
        ),
        "transient",
        "Stale file handle",
    ),
    Case(
        "a stale handle when the file is opened",
        _failed("java.io.FileNotFoundException: /in/a.jsonl (Stale file handle)"),
        "transient",
        "Stale file handle",
    ),
    Case(
        "an input/output error (EIO)",
        _failed(
            "java.io.IOException: Input/output error",
            "java.base/java.io.FileInputStream.readBytes(F.java:1)",
            "org.apache.hadoop.fs.RawLocalFileSystem$L.read(R.java:1)",
        ),
        "transient",
        "Input/output error",
    ),
    Case(
        "a checksum",
        _failed(
            "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/in/a.jsonl at 0",
            "org.apache.hadoop.fs.FSInputChecker.verifySums(F.java:352)",
        ),
        "transient",
        "ChecksumException",
    ),
    Case("no permission", _failed("java.io.FileNotFoundException: /in/a.jsonl (Permission denied)"), "transient", "Permission denied"),
    Case(
        "too many open files",
        _failed("java.io.FileNotFoundException: /in/a.jsonl (Too many open files)"),
        "transient",
        "Too many open files",
    ),
    Case(
        "out of memory in a decoder",
        _failed("java.lang.OutOfMemoryError: Java heap space", "org.xerial.snappy.SnappyInputStream.x(S.java:1)"),
        "transient",
        "OutOfMemoryError",
    ),
    Case(
        "a stack overflow",
        _failed("java.lang.StackOverflowError", "org.apache.spark.sql.catalyst.X.y(X.scala:1)"),
        "transient",
        "StackOverflowError",
    ),
    Case(
        "a missing native library",
        _failed(
            "java.lang.RuntimeException: native zStandard library not available", "org.apache.hadoop.io.compress.ZStandardCodec.x(Z.java:1)"
        ),
        "transient",
        "zStandard",
    ),
    Case(
        "a missing codec",
        _failed(
            "java.lang.ClassNotFoundException: org.apache.hadoop.io.compress.BrotliCodec",
            "org.apache.parquet.hadoop.CodecFactory.getCodec(C.java:1)",
        ),
        "transient",
        "BrotliCodec",
    ),
    Case(
        "a full disk",
        _failed("java.io.IOException: No space left on device", "org.apache.hadoop.io.compress.X.y(X.java:1)"),
        "transient",
        "No space left",
    ),
    Case(
        "an executor that was lost",
        ": org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure",
        "transient",
        "ExecutorLost",
    ),
    Case(
        "an unknown error",
        _failed("com.example.StrangeException: \x1b[31mred", "com.example.X.y(X.java:1)"),
        "transient",
        r"StrangeException: \x1b[31mred",
    ),
    Case("a message that cannot be parsed", "no route", "transient", "no route"),
    Case("a missing file", _failed("java.io.FileNotFoundException: /in/a.jsonl (No such file or directory)"), "missing", "deleted"),
    Case("a missing path in a listing", "[PATH_NOT_FOUND] Path does not exist: file:/in/a.jsonl", "missing", "deleted"),
    Case(
        "a missing object in a store",
        _failed("java.io.FileNotFoundException: No such file or directory: s3a://b/a.jsonl"),
        "missing",
        "deleted",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_only_corrupted_content_rejects_a_file(case: Case) -> None:
    found = classify_error(case.text)
    assert found.kind == case.kind
    assert case.reason in found.reason
    assert found.reason.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (": org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.", True),
        (": org.apache.spark.sql.AnalysisException: [INVALID_OPTIONS] no such option", True),
        (": org.apache.spark.SparkException: [INTERNAL_ERROR] no", True),
        (": org.apache.spark.sql.delta.DeltaAnalysisException: [DELTA_METADATA_MISMATCH] no", True),
        (_failed("java.io.IOException: No space left on device"), True),
        ("not a message of Java", True),
        (": org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure", False),
        (_failed("java.net.SocketTimeoutException: Read timed out"), False),
        (_failed("java.lang.OutOfMemoryError: Java heap space"), False),
    ],
)
def test_errors_that_a_retry_cannot_fix_are_not_retried(text: str, expected: bool) -> None:
    assert would_fail_again(PySparkException(text)) is expected


FILES = [File(n, f"file:/in/{n}.jsonl", 7, "l") for n in range(8)]
TIMEOUT = _failed("java.net.SocketTimeoutException: Read timed out")
TORN = _failed("java.io.EOFException: Unexpected end of input stream", HADOOP)


def _isolate(faults: dict[int, list[str]], waits: Sequence[float] = (1.0, 5.0)) -> tuple[unreadable_files.CheckedFiles, list[float], int]:
    """Isolate unreadable files; each read of a file raises the next of its errors, and the last one again and again; "" raises none."""
    slept, reads = list[float](), [0]

    def fail(files: Sequence[File]) -> DataFrame:
        reads[0] += 1
        for file in files:
            left = faults.get(file.modified, [])
            if left and (text := left.pop(0) if len(left) > 1 else left[0]):
                raise PySparkException(text)
        return _ReadableFrame()  # pyright: ignore[reportReturnType]

    retries = unreadable_files.ReadRetries(waits, slept.append)
    return unreadable_files._check_files(fail, FILES, retries), slept, reads[0]


class _ReadableFrame:
    """A frame whose rows can be read."""

    def __getattr__(self, _: str):
        return self

    def __call__(self, *_: object, **__: object):
        return self


def test_an_outage_that_ends_rejects_no_file() -> None:
    checked, slept, _ = _isolate({3: [TIMEOUT, TIMEOUT, ""]})
    assert (checked.files, checked.unread) == (FILES, [])
    assert slept == [1.0, 5.0]


def test_a_lasting_outage_rejects_no_file_and_stops_waiting() -> None:
    checked, slept, reads = _isolate({n: [TIMEOUT] for n in range(8)})
    assert checked.files == []
    assert [u.file for u in checked.unread] == FILES
    assert {u.reason for u in checked.unread} == {"SocketTimeoutException: Read timed out"}
    assert slept == [1.0, 5.0]
    assert reads == 2 + 15


def test_an_unreachable_and_a_corrupted_file_do_not_affect_the_others() -> None:
    checked, slept, _ = _isolate({2: [TIMEOUT], 5: [TORN], 6: ["[PATH_NOT_FOUND] no"]})
    assert [f.modified for f in checked.files] == [0, 1, 3, 4, 5, 6, 7]
    assert [(f.modified, f.fault, f.length) for f in checked.files if f.fault] == [
        (5, "the file cannot be read: EOFException: Unexpected end of input stream", 7),
        (6, MISSING, unreadable_files.MISSING_LENGTH),
    ]
    assert [u.file.modified for u in checked.unread] == [2]
    assert slept == [1.0, 5.0]


def test_corrupted_content_is_not_retried() -> None:
    assert _isolate({5: [TORN]})[1] == []
