"""One writer at a time: who it is, since when, and what frees the place when it dies.

On a local disk the operating system frees a file lock with its process. Behind a URI there is no such lock: a lease
with a heartbeat stands in for it, which runs out when its holder dies. A lease is a Delta table without rows. Each
take, heartbeat and release is an empty commit made on the version that was read, so that of two at once one fails:
Delta's put-if-absent is the one atomic operation that every object store has.
"""

import json
import logging
import math
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from filelock import FileLock, Timeout

from operators.errors import TidemarkError
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.faults import point

Purpose = Literal["write", "maintenance"]
PATIENCE_S = 4 * 3600.0
"""How long a writer waits for maintenance: a dead one's place is freed, and a live one comes to its end, of a table of any size here."""
REPORT_S = 60.0
"""How often a writer that waits reports whom it waits for."""

_POLL_S = 0.2
_log = logging.getLogger(__name__)
_GRACE_S = 0.3
"""How long a refusal is asked again: one who has just taken a file lock may not have said yet who it is, and what for."""
_CHECKPOINT_EVERY = 20
_SHORT_LOG = {"delta.logRetentionDuration": "interval 10 seconds"}
"""A lease's log is cleaned up behind each checkpoint: of its commits only the newest counts."""
_NOTHING = Schema.from_arrow(pa.schema([("nothing", pa.string())]))


class Busy(TidemarkError):
    """The place is taken."""

    def __init__(self, holder: str, purpose: str = "write") -> None:
        super().__init__(holder)
        self.holder, self.purpose = holder, purpose


def holder(purpose: Purpose) -> str:
    """Who this process is, for those it keeps waiting."""
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]).strip() or "python"
    activity = command if purpose == "write" else f"{command}, {purpose}"
    return f"process {os.getpid()} ({activity}) on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def patiently(name: str, take: Callable[[], Any], purpose: Purpose, patience_s: float = PATIENCE_S) -> None:
    """Take a place. A writer waits while maintenance has it, and warns of that in the log each minute; any other holder is named.

    Raises:
        LakeBusy: somebody else is there, or maintenance is and did not end in `patience_s`; it says who, and since when.
    """
    begun, reported = time.monotonic(), -math.inf
    while True:
        try:
            return take()
        except Busy as busy:
            waits = busy.purpose == "maintenance" and purpose != "maintenance"
            waited_s = time.monotonic() - begun
            if waited_s >= (patience_s if waits else min(_GRACE_S, patience_s)):
                raise (LakeBusy.waited(name, busy.holder, waited_s) if waits else LakeBusy.held(name, busy.holder)) from None
            if waits and waited_s >= max(_GRACE_S, reported + REPORT_S):
                _log.warning("%s: waiting for maintenance, for %.0f s so far: %s", name, waited_s, busy.holder)
                reported = waited_s
        time.sleep(_POLL_S)


@contextmanager
def locked(folder: Path, name: str, purpose: Purpose) -> Iterator[None]:
    """Hold a file lock of this machine while the block runs; the system frees a dead one's."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / f"{name.replace('/', '.')}.holder"
    lock = FileLock(folder / f"{name.replace('/', '.')}.lock", timeout=0)

    def take() -> None:
        try:
            lock.acquire()
        except Timeout:
            known = json.loads(note.read_text()) if note.exists() else {}
            raise Busy(known.get("holder", "unknown"), known.get("purpose", "write")) from None

    patiently(name, take, purpose)
    try:
        _write_whole(note, json.dumps({"holder": holder(purpose), "purpose": purpose}))
        yield
    finally:
        lock.release()


def _write_whole(path: Path, text: str) -> None:
    """A reader sees the old text or the new, never a part."""
    hidden = path.with_suffix(".new")
    hidden.write_text(text)
    hidden.replace(path)


@dataclass
class Lease:
    """A lease behind a URI.

    Args:
        uri: the lease's own table.
        name: what it is the lease of.
        seconds: how long it lasts from each heartbeat; the clocks of all writers must agree to a fraction of it.
        purpose: what it is taken for.
        now: the wall clock, in epoch s.
    """

    uri: str
    name: str
    seconds: float
    purpose: Purpose = "write"
    now: Callable[[], float] = time.time
    _id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    _until: float = field(default=0.0, init=False)
    _holder: str = field(default="", init=False)
    _taken_by: str | None = field(default=None, init=False)
    _mutex: threading.RLock = field(default_factory=threading.RLock, init=False)

    @contextmanager
    def held(self) -> Iterator["Lease"]:
        """Hold the lease, with its heartbeat, while the block runs.

        Raises:
            LakeError: somebody else holds it; it says who, and since when.
        """
        patiently(self.name, self.take, self.purpose)
        ended = threading.Event()
        heart = threading.Thread(target=self._beat, args=(ended,), name=f"lease of {self.name}", daemon=True)
        heart.start()
        try:
            yield self
        finally:
            ended.set()
            heart.join()
            self.release()

    def take(self) -> None:
        """Take the lease if it is free, or run out.

        Raises:
            Busy: it is neither.
        """
        self._holder = holder(self.purpose)
        while True:
            table = self._open()
            known = _record(table)
            if known is not None and known["id"] != self._id and known["until"] > self.now():
                raise Busy(known["holder"], known["purpose"])
            point("lease.before_take")
            if self._put(table, self._mine()):
                point("lease.after_take")
                self._shorten(table)
                return

    def renew(self) -> None:
        """Make the lease last anew, unless another has it by now."""
        with self._mutex:
            while self._taken_by is None:
                table = self._open()
                known = _record(table)
                if known is None or known["id"] != self._id:
                    self._taken_by = "unknown" if known is None else known["holder"]
                    return
                point("lease.before_renew")
                if self._put(table, self._mine()):
                    point("lease.after_renew")
                    return

    def check(self) -> None:
        """Pass if the lease is held still; called before each commit.

        Raises:
            LakeError: it is not: another writer has it.
        """
        if self._taken_by is None and self.now() >= self._until:
            self.renew()
        if self._taken_by is not None:
            raise LakeError.lost(self.name, self._taken_by)

    def release(self) -> None:
        """Give the lease back, if it is still this one."""
        with self._mutex:
            table = self._open()
            known = _record(table)
            if known is not None and known["id"] == self._id:
                point("lease.before_release")
                self._put(table, None)
                point("lease.after_release")

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(self.seconds / 3):
            with suppress(DeltaError, OSError):  # the lake is out of reach: the next beat tries again, and `check` has the last word
                self.renew()

    def _mine(self) -> dict[str, Any]:
        return {"id": self._id, "holder": self._holder, "purpose": self.purpose, "until": self.now() + self.seconds}

    def _put(self, table: DeltaTable, record: dict[str, Any] | None) -> bool:
        """Commit a record on the version that was read; False when another commit came first."""
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({"lease": record})}, max_commit_retries=0)
        try:
            table.create_write_transaction([], "append", _NOTHING, commit_properties=properties)
        except CommitFailedError:
            if DeltaTable(self.uri).version() == table.version():  # nobody was first: the store itself refused
                raise
            return False
        self._until = 0.0 if record is None else record["until"]
        if table.version() % _CHECKPOINT_EVERY == 0:
            self._clean_up()
        return True

    def _clean_up(self) -> None:
        """Make a checkpoint, and delete the log behind it: else each heartbeat would cost more than the one before."""
        with suppress(DeltaError, OSError):  # the next one tries again
            table = DeltaTable(self.uri)
            table.create_checkpoint()
            table.cleanup_metadata()

    def _shorten(self, table: DeltaTable) -> None:
        """Give a lease of an older version the short log of new ones, in a commit that says again who holds it."""
        if _SHORT_LOG.items() <= table.metadata().configuration.items():
            return
        with self._mutex, suppress(DeltaError, OSError):
            newest = self._open()
            known = _record(newest)
            if known is not None and known["id"] == self._id:
                again = CommitProperties(custom_metadata={"userMetadata": json.dumps({"lease": known})}, max_commit_retries=0)
                newest.alter.set_table_properties(_SHORT_LOG, commit_properties=again)

    def _open(self) -> DeltaTable:
        with suppress(TableNotFoundError):
            return self._read()
        once = CommitProperties(max_commit_retries=0)
        with suppress(DeltaError):  # another has made it meanwhile; a retry would make it twice, and so free a lease that is taken
            DeltaTable.create(self.uri, _NOTHING, mode="error", configuration=_SHORT_LOG, commit_properties=once)
        return self._read()

    def _read(self) -> DeltaTable:
        try:
            return DeltaTable(self.uri)
        except TableNotFoundError:
            raise
        except DeltaError:
            return DeltaTable(self.uri)  # the holder may have cleaned up what was listed just before


def _record(table: DeltaTable) -> dict[str, Any] | None:
    """Who holds the lease, by its newest commit."""
    newest = next(iter(table.history(1)), {})
    return json.loads(newest.get("userMetadata") or "{}").get("lease")
