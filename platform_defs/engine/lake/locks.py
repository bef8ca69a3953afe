"""Locks that allow one writer at a time. A refused writer gets an error that names the process that holds the lock and when it started.

On a local disk a writer takes a file lock, which the operating system releases when the process ends. For a lake behind a URI it takes a
lease with a heartbeat. A lease expires if its holder dies. It is a Delta table without rows. Each take, heartbeat and release is an empty
commit on the version that was read, so one of two concurrent commits fails. Commits are used because put-if-absent is the only atomic
operation that every object store has.

A stream gives way to other processes. If a stream holds the lock, another process takes a second lock, `<name>.next`, and waits. After
each step the stream checks the second lock, and releases its own if a process holds the second one.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from filelock import FileLock, Timeout

from platform_defs.engine.lake.errors import LakeError, store_reason
from platform_defs.engine.lake.waits import POLL_OF_STORE_S, Busy, Purpose, describe_process, take_or_wait
from platform_defs.faults import point

UNRECORDED = "a process that has not recorded its name yet"
"""The holder of a lock that was taken a moment ago."""
NEXT = ".next"
"""The suffix of the name of the lock that a process holds while it waits for a stream."""
_CHECKPOINT_EVERY = 20  # commits of a lease
_SHORT_LOG = {"delta.logRetentionDuration": "interval 10 seconds"}
"""The log retention of a lease: its log is cleaned up after each checkpoint, since only the newest commit counts."""
_LEASE_SCHEMA = Schema.from_arrow(pa.schema([("nothing", pa.string())]))
"""The schema of a lease, which never has rows."""
_unreleased = set[str]()  # the ids of leases that this process no longer needs, but could not release: it may take them again at once
_log = logging.getLogger(__name__)


@contextmanager
def holding_lock(folder: Path, name: str, purpose: Purpose, patience_s: float | None = None, *, may_ask: bool = True) -> Iterator[None]:
    """Hold a local file lock while the block runs. The operating system releases the lock of a dead process.

    Args:
        folder: the folder of the lock.
        name: its name.
        purpose: why this process takes the lock; it decides which holders it waits for, as `take_or_wait` describes.
        patience_s: how long to wait for maintenance, in seconds; by default `MAINTENANCE_PATIENCE_S`, and 0 for a stream.
        may_ask: whether to wait for a stream that holds the lock.

    Raises:
        LakeBusy: another process holds the lock, and this process does not wait for it, or has waited too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    holder_file, lock = _holder_file(folder, name), _file_lock(folder, name)

    def take() -> None:
        try:
            lock.acquire()
        except Timeout:
            raise _busy(holder_file) from None

    def ask() -> AbstractContextManager[None]:
        return holding_lock(folder, f"{name}{NEXT}", purpose, 0.0, may_ask=False)

    take_or_wait(name, take, purpose, patience_s, ask if may_ask else None)
    try:
        _replace_text(holder_file, json.dumps({"holder": describe_process(purpose), "purpose": purpose}))
        yield
    finally:
        lock.release()


def waiting_process(folder: Path, name: str) -> str | None:
    """The description of the process that waits for a stream to release a local file lock; None if no process waits."""
    lock = _file_lock(folder, f"{name}{NEXT}")
    if not Path(lock.lock_file).exists():
        return None
    try:
        with lock:
            return None
    except Timeout:
        return _busy(_holder_file(folder, f"{name}{NEXT}")).holder


def _file_lock(folder: Path, name: str) -> FileLock:
    return FileLock(folder / f"{name.replace('/', '.')}.lock", timeout=0)


def _holder_file(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '.')}.holder"


def _busy(holder_file: Path) -> Busy:
    """The error that names the holder, as the holder's file records it."""
    try:
        record = json.loads(holder_file.read_text())
    except FileNotFoundError:  # the first holder took it a moment ago
        record = {"holder": UNRECORDED, "purpose": "write"}
    return Busy(record["holder"], record["purpose"])


def _replace_text(path: Path, text: str) -> None:
    """Replace a file's text atomically."""
    new_file = path.with_suffix(".new")
    new_file.write_text(text)
    new_file.replace(path)


@dataclass
class Lease:
    """A lease: the lock of a lake behind a URI.

    Args:
        uri: the URI of the Delta table that is the lease.
        name: the name of the lock.
        seconds: how long the lease lasts after each heartbeat; the clocks of all writers must differ by much less than this.
        purpose: why this process takes the lease; it decides which holders it waits for, as `take_or_wait` describes.
        now: the wall clock, in epoch s.
        patience_s: how long to wait for maintenance, in seconds; by default `MAINTENANCE_PATIENCE_S`, and 0 for a stream.
        may_ask: whether to wait for a stream that holds the lease.
        storage_options: deltalake's options for the store.
    """

    uri: str
    name: str
    seconds: float
    purpose: Purpose = "write"
    now: Callable[[], float] = time.time
    patience_s: float | None = None
    may_ask: bool = True
    storage_options: dict[str, str] | None = field(default=None, repr=False)
    _id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    _until: float = field(default=0.0, init=False)  # when the lease expires without another heartbeat, in epoch s
    _holder: str = field(default="", init=False)
    _taken_by: str | None = field(default=None, init=False)  # the process that has taken the lease from this one
    _mutex: threading.RLock = field(default_factory=threading.RLock, init=False)

    @contextmanager
    def holding(self) -> Iterator["Lease"]:
        """Hold the lease while the block runs. A thread sends the heartbeats.

        Raises:
            LakeBusy: another process holds the lease, and this process does not wait for it, or has waited too long; the text names the
                holder, and when it started.
        """
        ask = self._next.holding if self.may_ask else None
        take_or_wait(self.name, self.take, self.purpose, self.patience_s, ask, POLL_OF_STORE_S)
        ended = threading.Event()
        heart = threading.Thread(target=self._send_heartbeats, args=(ended,), name=f"lease of {self.name}", daemon=True)
        heart.start()
        try:
            yield self
        finally:
            ended.set()
            heart.join()
            try:
                self.release()
            except (DeltaError, OSError) as error:  # the work of the block is done, or has an error of its own
                _unreleased.add(self._id)
                _log.warning(
                    "the lease of %s was not released, so other processes wait until it expires: %s", self.name, store_reason(error)
                )

    @property
    def _next(self) -> "Lease":
        """The lease `<name>.next`, which this process holds while it waits for a stream to release this lease."""
        return replace(self, uri=f"{self.uri}{NEXT}", name=f"{self.name}{NEXT}", patience_s=0.0, may_ask=False)

    def waiting_process(self) -> str | None:
        """The description of the process that waits for a stream to release the lease; None if no process waits."""
        try:
            record = _record(self._next._read())
        except TableNotFoundError:
            return None
        return record["holder"] if record is not None and record["until"] > self.now() else None

    def take(self) -> None:
        """Take the lease if it is free or has expired.

        Raises:
            Busy: another process holds it.
        """
        self._holder = describe_process(self.purpose)
        while True:
            table = self._open()
            record = _record(table)
            if record is not None and record["id"] not in {self._id, *_unreleased} and record["until"] > self.now():
                raise Busy(record["holder"], record["purpose"])
            point("lease.before_take")
            if self._commit_record(table, self._new_record()):
                point("lease.after_take")
                self._set_log_retention(table)
                return

    def renew(self) -> None:
        """Extend the lease, unless another process has taken it."""
        with self._mutex:
            while self._taken_by is None:
                table = self._open()
                record = _record(table)
                if record is None or record["id"] != self._id:
                    self._taken_by = "unknown" if record is None else record["holder"]
                    return
                point("lease.before_renew")
                if self._commit_record(table, self._new_record()):
                    point("lease.after_renew")
                    return

    def check(self) -> None:
        """Raise unless this process still holds the lease; called before each commit to the lake. An expired lease is renewed.

        Raises:
            LakeError: another process has taken the lease.
        """
        if self._taken_by is None and self.now() >= self._until:
            self.renew()
        if self._taken_by is not None:
            raise LakeError.lost(self.name, self._taken_by)

    def release(self) -> None:
        """Release the lease, if this process still holds it."""
        with self._mutex:
            table = self._open()
            record = _record(table)
            if record is not None and record["id"] == self._id:
                point("lease.before_release")
                self._commit_record(table, None)
                point("lease.after_release")

    def _send_heartbeats(self, ended: threading.Event) -> None:
        while not ended.wait(self.seconds / 3):
            with suppress(DeltaError, OSError):  # the store did not answer: the next heartbeat tries again, and `check` decides
                self.renew()

    def _new_record(self) -> dict[str, Any]:
        return {"id": self._id, "holder": self._holder, "purpose": self.purpose, "until": self.now() + self.seconds}

    def _commit_record(self, table: DeltaTable, record: dict[str, Any] | None) -> bool:
        """Commit a record on the version that was read; returns False if another commit came first."""
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({"lease": record})}, max_commit_retries=0)
        try:
            table.create_write_transaction([], "append", _LEASE_SCHEMA, commit_properties=properties)
        except CommitFailedError:
            newest = DeltaTable(self.uri, storage_options=self.storage_options)
            if newest.version() == table.version():  # no other process has committed, so the store itself failed
                raise
            return False
        self._until = 0.0 if record is None else record["until"]
        if table.version() % _CHECKPOINT_EVERY == 0:
            self._clean_up()
        return True

    def _clean_up(self) -> None:
        """Write a checkpoint and delete the log before it: if the log grew, each heartbeat would cost more than the previous one."""
        with suppress(DeltaError, OSError):  # the next clean-up tries again
            table = DeltaTable(self.uri, storage_options=self.storage_options)
            table.create_checkpoint()
            table.cleanup_metadata()

    def _set_log_retention(self, table: DeltaTable) -> None:
        """Set the log retention of a lease that an older version created. The commit repeats the record, since only the newest counts."""
        if _SHORT_LOG.items() <= table.metadata().configuration.items():
            return
        with self._mutex, suppress(DeltaError, OSError):
            newest = self._open()
            record = _record(newest)
            if record is not None and record["id"] == self._id:
                properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({"lease": record})}, max_commit_retries=0)
                newest.alter.set_table_properties(_SHORT_LOG, commit_properties=properties)

    def _open(self) -> DeltaTable:
        """The lease's table, which is created if it does not exist."""
        with suppress(TableNotFoundError):
            return self._read()
        no_retry = CommitProperties(max_commit_retries=0)  # to create the table again would release a lease that a process holds
        with suppress(DeltaError):  # another process has created it
            DeltaTable.create(
                self.uri, _LEASE_SCHEMA, "error", configuration=_SHORT_LOG, commit_properties=no_retry, storage_options=self.storage_options
            )
        return self._read()

    def _read(self) -> DeltaTable:
        try:
            return DeltaTable(self.uri, storage_options=self.storage_options)
        except TableNotFoundError:
            raise
        except DeltaError:
            return DeltaTable(self.uri, storage_options=self.storage_options)  # the holder may have cleaned up the log during the first try


def _record(table: DeltaTable) -> dict[str, Any] | None:
    """The record of the lease in its newest commit: `id`, `holder`, `purpose`, `until` (epoch s). None if the lease is free."""
    newest = next(iter(table.history(1)), {})
    return json.loads(newest.get("userMetadata") or "{}").get("lease")
