"""New files behind a URI that only Spark can list: a listing that fails is no error of the ingest. Without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest import hadoop_files, new_files
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.hadoop_files import HadoopFileFinder
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.memory_ledger import memory_ledger

FOLDER = "abfss://in@account/l"


class JavaError(Py4JJavaError):
    """An error of the JVM, without a JVM."""

    def __init__(self, name: str, message: str) -> None:
        java: Any = SimpleNamespace(getClass=lambda: SimpleNamespace(getName=lambda: name), _target_id="o1", _gateway_client=None)
        super().__init__(message, java)
        self._text = f"{name}: {message}"

    def __str__(self) -> str:
        return self._text


class Store:
    """A store, and the finder of its new files; `error` is raised by each listing."""

    def __init__(self) -> None:
        self.ledger = memory_ledger(clock=Clock(5))
        self.finder = HadoopFileFinder("l", FOLDER, self.ledger)
        self.files, self.error, self.is_stopped = list[File](), None, False
        context = SimpleNamespace(isStopped=lambda: self.is_stopped)
        self.session: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context))

    files: list[File]
    error: Exception | None

    def put(self, *names: str) -> list[File]:
        put = [File(n, f"{FOLDER}/{name}", 1, "l", folder=FOLDER) for n, name in enumerate(names, 1 + len(self.files))]
        self.files += put
        return put

    def list_files(self, spark: Any, folder: str, source: str) -> list[File]:
        assert (spark, folder, source) == (self.session, FOLDER, "l")
        if self.error is not None:
            raise self.error
        return self.files[::-1]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(hadoop_files, "list_files", made.list_files)
    return made


def test_new_files_are_those_that_the_ledger_does_not_record(store: Store) -> None:
    first, second = store.put("1.jsonl", "day=1/ä 2.jsonl")
    store.put("_hidden.jsonl", "_day=2/3.jsonl", "day=1/.4.jsonl")
    assert store.finder.new(store.session) == [first, second]
    store.ledger.commit([(source_batch("l", 1, offsets=(first.offset,)),)])
    assert (store.finder.new(store.session), store.finder.unlisted, store.finder.links) == ([second], {}, ())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(JavaError("java.net.ConnectException", "Connection refused"), "java.net.ConnectException: ConnectException", id="JVM"),
        pytest.param(
            AnalysisException("AccessDenied for MARKED", errorClass=None, messageParameters=None),
            "AnalysisException: AccessDenied",
            id="Spark",
        ),
    ],
)
def test_a_listing_that_fails_is_the_reason_why_a_folder_is_unlisted(store: Store, error: Exception, reason: str) -> None:
    """Its text, which may quote credentials, is not shown."""
    [file] = store.put("1.jsonl")
    store.error = error
    assert (store.finder.new(store.session), store.finder.unlisted) == ([], {FOLDER: reason})
    store.error = None
    assert (store.finder.new(store.session), store.finder.unlisted) == ([file], {})


def test_a_session_that_has_ended_is_not_the_fault_of_the_store(store: Store) -> None:
    store.error, store.is_stopped = PySparkException("a stopped context"), True
    with pytest.raises(PySparkException, match="a stopped context"):
        store.finder.new(store.session)


def test_an_error_of_the_ledger_is_raised(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("1.jsonl")

    def fail(*_: object) -> None:
        raise PySparkException("the ledger is unreachable")

    monkeypatch.setattr(store.ledger, "files_to_read", fail)
    with pytest.raises(PySparkException, match="the ledger is unreachable"):
        store.finder.new(store.session)


def test_without_a_session_the_folder_is_unlisted(store: Store) -> None:
    assert store.finder.new() == []
    assert store.finder.unlisted == {FOLDER: "only Spark can list it; run the stream, or schedule the job `ingest`"}


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        pytest.param("org.apache.hadoop.fs.UnsupportedFileSystemException", True, id="no file system"),
        pytest.param("java.lang.ClassNotFoundException", True, id="no JAR"),
        pytest.param("java.net.UnknownHostException", False, id="no network"),
    ],
)
def test_only_a_missing_file_system_keeps_an_ingest_from_starting(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, is_refused: bool
) -> None:
    """A store that cannot be reached now keeps no other source from being ingested."""

    def fail(*_: object) -> None:
        raise JavaError(name, "no")

    monkeypatch.setattr(new_files, "hadoop_file", fail)
    if not is_refused:
        return store.finder.prepare(store.session)
    with pytest.raises(IngestError, match=rf"Spark has no file system for it \({name}\)"):
        store.finder.prepare(store.session)
    return None
