"""Locks: a second writer is refused, the lock of a killed writer is released, and a writer that lost its lock stops."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from platform_defs.engine.lake import lease_records
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.leases import Lease
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.lake.waits import Busy, describe_process, take_or_wait

ROWS = pa.table({"a": [1]})
HOLDER = rf"process {os.getpid()} \(.+\) on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
HOLD_LOCKS = """
import sys, time
from contextlib import ExitStack
from platform_defs.engine.lake.tables import Lake
with ExitStack() as stack:
    for root in sys.argv[1:]:
        stack.enter_context(Lake(root, 2.0, leases="://" in root).writer("ledger"))
    print("held", flush=True)
    time.sleep(60)
"""


class WallClock:
    """A wall clock in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall() -> WallClock:
    return WallClock()


@pytest.fixture
def waiting_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """The clock of processes that wait, which their sleep advances."""
    clock = WallClock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr("platform_defs.engine.lake.waits.time", SimpleNamespace(sleep=sleep, monotonic=clock))
    return clock


def remote(tmp_path: Path, seconds: float = 60.0) -> Lake:
    return Lake(f"file://{tmp_path}/lake", seconds, leases=True)


def lease(tmp_path: Path, wall: WallClock, **more: str) -> Lease:
    return Lease(f"file://{tmp_path}/lease", "ledger", 60.0, now=wall, **more)  # pyright: ignore[reportArgumentType]


@pytest.fixture(params=["path", "uri"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return remote(tmp_path) if request.param == "uri" else Lake(f"{tmp_path}/lake")


def test_the_error_of_a_second_writer_names_the_holder_and_since_when(lake: Lake) -> None:
    with lake.writer("events/l"):
        with (
            pytest.raises(LakeError, match=rf"^events/l has a writer already: {HOLDER}; only one can write"),
            lake.writer("events/l"),
        ):
            pass
        with lake.writer("events/r"):
            pass
    with lake.writer("events/l"):
        pass


def test_a_failed_writer_releases_its_lock(lake: Lake) -> None:
    with pytest.raises(ZeroDivisionError, match="division"), lake.writer("x"):
        _ = 1 // 0
    with lake.writer("x"):
        pass


def test_a_killed_writer_is_replaced(tmp_path: Path) -> None:
    """On a local disk at once; in a lake with a URI only after the lease has expired. One process holds the locks of both lakes."""
    on_disk, with_leases = Lake(f"{tmp_path}/on_disk"), remote(tmp_path, 2.0)
    roots = [on_disk.root, with_leases.root]
    with subprocess.Popen([sys.executable, "-c", HOLD_LOCKS, *roots], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "held\n"
            why = rf"ledger has a writer already: process {other.pid} \(-c.*\) on"
            for lake in (on_disk, with_leases):
                with pytest.raises(LakeError, match=why), lake.writer("ledger"):
                    pass
        finally:
            other.kill()
    with pytest.raises(LakeError, match=rf"already: process {other.pid}"), with_leases.writer("ledger"):
        pass
    with on_disk.writer("ledger"):
        on_disk.append_small(ROWS, "t")
    time.sleep(2.1)
    with with_leases.writer("ledger"):
        with_leases.append_small(ROWS, "t")


def test_a_lease_ends_at_its_expiry(tmp_path: Path, wall: WallClock) -> None:
    one, other = lease(tmp_path, wall), lease(tmp_path, wall)
    one.take()
    wall.now += 59.9
    with pytest.raises(Busy, match="process"):
        other.take()
    wall.now += 0.1
    other.take()
    with pytest.raises(LakeError, match=r"ledger has another writer now: .*stopped before its next commit.*TIDEMARK_LEASE"):
        one.check()
    other.check()


def test_a_holder_detects_a_lost_renewal(tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease has expired, and another process takes it between the check and the renewal."""
    one, other = lease(tmp_path, wall), lease(tmp_path, wall)
    one.take()
    wall.now += 61

    def overtaken(record: dict[str, Any] | None) -> bool:
        monkeypatch.undo()
        other.take()
        return one._write(record)

    monkeypatch.setattr(one, "_write", overtaken)
    with pytest.raises(LakeError, match="ledger has another writer now"):
        one.check()
    other.check()


def test_a_heartbeat_extends_the_lease(tmp_path: Path, wall: WallClock) -> None:
    one, other = lease(tmp_path, wall), lease(tmp_path, wall)
    one.take()
    for _ in range(3):
        wall.now += 40
        one.renew()
    with pytest.raises(Busy, match="process"):
        other.take()
    one.check()


def test_a_heartbeat_runs_during_the_work(tmp_path: Path) -> None:
    lake = remote(tmp_path, 0.6)
    with lake.writer("x"):
        time.sleep(1.5)
        with pytest.raises(LakeError, match="x has a writer already"), lake.writer("x"):
            pass
        lake.append_small(ROWS, "t")


def test_a_suspended_holder_that_was_not_replaced_continues(tmp_path: Path, wall: WallClock) -> None:
    one = lease(tmp_path, wall)
    one.take()
    wall.now += 500
    one.check()
    with pytest.raises(Busy, match="process"):
        lease(tmp_path, wall).take()


def test_a_holder_that_lost_its_lease_commits_nothing_more(tmp_path: Path) -> None:
    """Every commit of the lake checks the lease, and the former holder does not release the lock of the new one."""
    lake, later = remote(tmp_path), WallClock()
    later.now = time.time() + 3_600
    with lake.writer("x"):
        lake.append_small(ROWS, "t")
        other = Lease(lake.path("_leases/x"), "x", 60.0, now=later)
        other.take()
        lake._leases["x"].renew()
        with pytest.raises(LakeError, match="x has another writer now"):
            lake.append_small(ROWS, "t")
        delta = DeltaTable(lake.path("t"))
        with pytest.raises(LakeError, match="x has another writer now"):
            lake.carry_metadata({}, delta)
    other.check()
    assert lake.version("t") == 0


def test_one_of_many_concurrent_writers_gets_the_lock(tmp_path: Path, wall: WallClock) -> None:
    winners, barrier = list[int](), threading.Barrier(8)

    def take(n: int) -> None:
        one = lease(tmp_path, wall)
        barrier.wait()
        try:
            one.take()
            winners.append(n)
        except Busy:
            pass

    threads = [threading.Thread(target=take, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1


def test_a_store_error_is_not_reported_as_another_writer(tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CommitFailedError("access denied")

    one = lease(tmp_path, wall)
    one.take()
    wall.now += 100
    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(CommitFailedError, match="access denied"):
        lease(tmp_path, wall).take()


def test_a_store_that_fails_when_a_lease_is_released_neither_fails_the_work_nor_locks_the_process_out(
    tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("Generic S3 error: 503 Service Unavailable")

    with monkeypatch.context() as patch, lease(tmp_path, wall).holding():
        patch.setattr(Lease, "_write", fail)
    assert "the lease of ledger was not released, so other processes wait until it expires: Generic S3 error: 503" in caplog.text
    with monkeypatch.context() as patch, pytest.raises(KeyError, match="own"), lease(tmp_path, wall).holding():
        raise patch.setattr(Lease, "_write", fail) or KeyError("own")
    with monkeypatch.context() as patch:
        patch.setattr("platform_defs.engine.lake.leases._unreleased", set[str]())
        with pytest.raises(Busy, match=str(os.getpid())):
            lease(tmp_path, wall).take()
    lease(tmp_path, wall).take()


def test_a_store_that_cannot_create_a_lease_is_not_called_another_process(tmp_path: Path) -> None:
    """Of a lease that another process has created first, a take reads the record and tries again."""
    (tmp_path / "file").touch()
    with pytest.raises(DeltaError, match="Could not create local directory"):
        lease_records.lease_records(f"{tmp_path}/file/lease", None).write(None, None)


@pytest.mark.parametrize("call", ["start", "join"])
def test_a_second_interrupt_does_not_lock_the_process_out(
    tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It comes while the heartbeats begin, or while the block waits for the last one."""

    def interrupt(_: threading.Thread) -> None:
        raise KeyboardInterrupt("ctrl-c")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, call, interrupt)
        with pytest.raises(KeyboardInterrupt, match="ctrl-c"), lease(tmp_path, wall).holding():
            pass
    lease(tmp_path, wall).take()


def test_maintenance_skips_a_table_with_a_writer_and_a_writer_waits_for_maintenance(lake: Lake) -> None:
    with lake.writer("x"), pytest.raises(LakeError, match=HOLDER), lake.writer("x", "maintenance"):
        pass
    order, held = list[str](), threading.Event()

    def maintain() -> None:
        with lake.writer("x", "maintenance"):
            held.set()
            time.sleep(0.5)
            order.append("maintenance ends")

    thread = threading.Thread(target=maintain)
    thread.start()
    assert held.wait(10)
    with lake.writer("x"):
        order.append("writer begins")
    thread.join()
    assert order == ["maintenance ends", "writer begins"]


def test_a_lock_without_a_holder_name_is_respected(tmp_path: Path) -> None:
    lake = Lake(f"{tmp_path}/lake")
    with lake.writer("x"):
        next(Path(lake.root, "_locks").glob("*.holder")).unlink()
        with pytest.raises(LakeError, match="already: a process that has not recorded its name yet; only one"), lake.writer("x"):
            pass


def test_a_writer_stops_waiting_after_its_timeout() -> None:
    def busy() -> None:
        raise Busy("process 1 (tidemark, maintenance)", "maintenance")

    with pytest.raises(LakeError, match=re.escape("x has a writer already: process 1 (tidemark, maintenance)")):
        take_or_wait("x", busy, "write", patience_s=0)


@pytest.mark.usefixtures("waiting_clock")
def test_a_lock_that_others_take_for_a_moment_each_is_tried_again() -> None:
    """Several processes may have waited for the same stream. One that holds the lock for longer is an error."""
    holders = ["process 1", "process 1", "process 2", "process 2"]

    def take() -> None:
        if holders:
            raise Busy(holders.pop(0))

    take_or_wait("x", take, "maintenance")
    holders += ["process 3"] * 3
    with pytest.raises(LakeError, match="x has a writer already: process 3"):
        take_or_wait("x", take, "maintenance")


def test_a_wait_for_maintenance_does_not_count_as_a_wait_for_the_stream(waiting_clock: WallClock) -> None:
    """After 40 minutes of maintenance, the stream holds the lock: until it is requested, or for longer than others wait for it."""
    began, requests = waiting_clock.now, list[float]()

    @contextmanager
    def request() -> Iterator[None]:
        requests.append(waiting_clock.now)
        yield

    def take(gives_way: bool) -> None:
        if waiting_clock.now < began + 2_400:
            raise Busy("process 1 on host", "maintenance")
        if not (requests and gives_way):
            raise Busy("process 2 on host", "stream")

    take_or_wait("x", partial(take, True), "write", request=request)
    assert requests == [pytest.approx(began + 2_400, abs=1)]
    requests.clear()
    waiting_clock.now = began
    with pytest.raises(LakeError, match=r"process 2 on host; it is a stream, whose present step did not end in 30 minutes"):
        take_or_wait("x", partial(take, False), "write", request=request)
    assert len(requests) == 1


def test_a_description_of_a_process_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an interpreter that another program embeds."""
    monkeypatch.setattr(sys, "argv", list[str]())
    assert re.fullmatch(HOLDER, describe_process("write"))


def test_a_writer_logs_that_it_waits_for_maintenance_and_times_out(waiting_clock: WallClock, caplog: pytest.LogCaptureFixture) -> None:
    def busy() -> None:
        raise Busy("process 7 (tidemark maintain) on host", "maintenance")

    with (
        caplog.at_level("WARNING"),
        pytest.raises(LakeError, match=r"ledger has a writer already: process 7 .* 240 minutes\. .* End that"),
    ):
        take_or_wait("ledger", busy, "write")
    messages = [r.getMessage() for r in caplog.records]
    assert messages[0] == "ledger: waiting for maintenance, for 0 s so far: process 7 (tidemark maintain) on host"
    assert 235 <= len(messages) <= 241, "once a minute"
    caplog.clear()
    left = [Busy("process 7 on host", "maintenance")]

    def free_soon() -> None:
        if left:
            raise left.pop()

    take_or_wait("ledger", free_soon, "write")
    assert caplog.records == [], "a short wait is not logged"


def test_a_lease_is_tried_again_about_once_a_second(tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try is several requests of an object store."""
    one, other = lease(tmp_path, wall), lease(tmp_path, wall)
    one.purpose = "maintenance"
    slept = list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 5:
            one.release()

    one.take()
    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)  # of this module only: other threads of the process sleep too
    monkeypatch.setattr("platform_defs.engine.lake.waits.time", clock)
    with other.holding():
        assert slept == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_clean_up_does_not_repeat_the_record_of_a_former_holder(tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes a lease of an earlier version between the release and the clean-up of the log."""
    monkeypatch.setattr(lease_records, "_CLEAN_UP_EVERY", 3)
    one, other, third = (lease(tmp_path, wall) for _ in range(3))
    DeltaTable.create(one.uri, Schema.from_arrow(pa.schema([("nothing", pa.string())])))
    clean_up = lease_records._Commits._clean_up

    def clean_up_late(records: Any, number: int, record: Any) -> None:
        if record is None:
            other.take()
        clean_up(records, number, record)

    monkeypatch.setattr(lease_records._Commits, "_clean_up", clean_up_late)
    one.take()
    one.renew()
    one.release()
    with pytest.raises(Busy, match="process"):
        third.take()
    other.check()


@pytest.mark.parametrize("old", [False, True], ids=["a new lease", "a lease of an older version"])
def test_the_cost_of_a_heartbeat_is_constant(tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    """The log is cleaned up after 5 commits, and again after each 5 more."""
    monkeypatch.setattr("platform_defs.engine.lake.lease_records._CLEAN_UP_EVERY", 5)
    monkeypatch.setattr("platform_defs.engine.lake.lease_records._SHORT_LOG", {"delta.logRetentionDuration": "interval 0 seconds"})
    one, other = lease(tmp_path, wall), lease(tmp_path, wall)
    if old:
        DeltaTable.create(one.uri, Schema.from_arrow(pa.schema([("nothing", pa.string())])))
    one.take()
    log = tmp_path / "lease/_delta_log"
    for _ in range(25):
        wall.now += 20
        one.renew()
    assert len(list(log.iterdir())) < 13
    assert DeltaTable(one.uri).version() >= 25
    with pytest.raises(Busy, match="process"):
        other.take()
    one.check()
    one.release()
    other.take()
    with pytest.raises(Busy, match="process"):
        one.take()
