"""A stream gives way: other processes wait for its lock, it finds out that they wait, and does not wait itself. Without Spark."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import DeltaError
from filelock import FileLock

from platform_defs.engine.lake import lease_records
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.locks import NEXT
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.lake.waits import Purpose

WAIT_S = 30.0


@pytest.fixture(params=["path", "uri"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(f"file://{tmp_path}/lake", 60.0, leases=True) if request.param == "uri" else Lake(f"{tmp_path}/lake")


class Waiter(threading.Thread):
    """Another process that needs a lock."""

    def __init__(self, lake: Lake, purpose: Purpose, order: list[str]) -> None:
        super().__init__()
        self._lake, self._purpose, self._order = lake, purpose, order
        self.start()

    def run(self) -> None:
        with self._lake.writer("t", self._purpose):
            self._order.append(self._purpose)


def _wait_until(condition: object) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():  # pyright: ignore[reportCallIssue]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("purpose", ["write", "maintenance"])
def test_a_stream_sees_which_process_waits_and_that_process_then_gets_the_lock(lake: Lake, purpose: Purpose) -> None:
    order = list[str]()
    with lake.writer("t", "stream"):
        assert lake.waiting_process("t") is None
        other = Waiter(lake, purpose, order)
        _wait_until(lambda: str(lake.waiting_process("t")).startswith("process "))  # it takes the lock first, then records its name
        assert order == []
        order.append("stream")
    other.join(WAIT_S)
    assert order == ["stream", purpose]
    assert lake.waiting_process("t") is None
    assert lake.current_writer("t") is None


def test_two_waiting_processes_both_get_the_lock(lake: Lake) -> None:
    order = list[str]()
    with lake.writer("t", "stream"):
        others = [Waiter(lake, "write", order), Waiter(lake, "maintenance", order)]
        _wait_until(lambda: lake.waiting_process("t"))
    for other in others:
        other.join(WAIT_S)
    assert sorted(order) == ["maintenance", "write"]


@pytest.mark.parametrize("purpose", ["write", "maintenance", "stream"])
def test_a_stream_neither_waits_for_a_lock_nor_requests_it(lake: Lake, purpose: Purpose) -> None:
    with lake.writer("t", purpose):
        began = time.monotonic()
        with pytest.raises(LakeBusy, match="t has a writer already: process"), lake.writer("t", "stream"):
            pass
        assert time.monotonic() - began < 5
        assert lake.waiting_process("t") is None, "it does not request the lock either"


def test_a_look_up_of_the_holder_neither_waits_for_a_stream_nor_requests_its_lock(lake: Lake) -> None:
    with lake.writer("t", "stream"):
        assert str(lake.current_writer("t")).startswith("t has a writer already: process ")
        assert lake.waiting_process("t") is None


def test_a_wait_for_a_stream_times_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_defs.engine.lake.waits.STREAM_PATIENCE_S", 0.3)
    message = r"t has a writer already: process .* it is a stream, whose present step did not end in 0 minutes.*TIDEMARK_MAX_STEP"
    with lake.writer("t", "stream"), pytest.raises(LakeBusy, match=message), lake.writer("t"):
        pass
    assert lake.waiting_process("t") is None


def test_a_request_of_a_dead_process_is_ignored(tmp_path: Path) -> None:
    """The operating system releases the lock of the request; the file with the name of the process remains."""
    lake = Lake(f"{tmp_path}/lake")
    with lake.writer("t", "stream"):
        (Path(lake.root) / "_locks" / f"t{NEXT}.holder").write_text('{"holder": "process 1", "purpose": "write"}')
        assert lake.waiting_process("t") is None


def test_a_request_without_a_name_is_a_request(tmp_path: Path) -> None:
    """The first process that waits takes the lock a moment before it records its name."""
    lake = Lake(f"{tmp_path}/lake")
    with lake.writer("t", "stream"), FileLock(Path(lake.root) / "_locks" / f"t{NEXT}.lock"):
        assert lake.waiting_process("t") == "a process that has not recorded its name yet"


def test_a_stream_retries_the_read_of_a_request_whose_log_is_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, order = Lake(f"file://{tmp_path}/lake", 60.0, leases=True), list[str]()
    with lake.writer("t", "stream"):
        other = Waiter(lake, "write", order)
        _wait_until(lambda: lake.waiting_process("t"))
        faults, opened = [DeltaError("a commit file is missing")], lease_records.DeltaTable

        def open_table(uri: str, **options: Any) -> Any:
            if uri.endswith(NEXT) and faults:
                raise faults.pop()
            return opened(uri, **options)

        monkeypatch.setattr(lease_records, "DeltaTable", open_table)
        assert str(lake.waiting_process("t")).startswith("process ")
        assert faults == []
        monkeypatch.undo()
    other.join(WAIT_S)
    assert order == ["write"]


def test_a_stream_keeps_its_step_if_the_store_does_not_answer_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(f"file://{tmp_path}/lake", 60.0, leases=True)

    def fails(uri: str, **_: Any) -> Any:
        raise DeltaError("the connection timed out")

    with lake.writer("t", "stream"):
        with monkeypatch.context() as patch:
            patch.setattr(lease_records, "DeltaTable", fails)
            assert lake.waiting_process("t") is None
        assert "cannot find out whether a process waits for t" in caplog.text
