"""Leases: the locks of a lake behind a URI. A lease expires if its holder dies, and is renewed by a heartbeat until then.

Each take, heartbeat and release writes the next of the lease's numbered records (`lease_records`); of two processes that write the same
number, one is refused. Put-if-absent is the only atomic operation that every object store has.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from deltalake.exceptions import DeltaError

from platform_defs.engine.faults import point
from platform_defs.engine.lake.errors import LakeError, store_reason
from platform_defs.engine.lake.lease_records import LeaseRecords, NumberedRecord, Record, lease_records
from platform_defs.engine.lake.locks import NEXT
from platform_defs.engine.lake.waits import POLL_OF_STORE_S, Busy, Purpose, describe_process, take_or_wait

_unreleased = set[str]()  # the ids of leases that this process no longer needs, but has not released: it may take them again at once
_log = logging.getLogger(__name__)


@dataclass
class Lease:
    """A lease: the lock of a lake behind a URI.

    Args:
        uri: the URI of its folder.
        name: the name of the lock.
        seconds: how long the lease lasts after each heartbeat; the clocks of all writers must differ by much less than this.
        purpose: why this process takes the lease. The purpose decides which holders the process waits for, see `take_or_wait`.
        now: the wall clock, in epoch s.
        patience_s: how long to wait for maintenance, in seconds; by default `MAINTENANCE_PATIENCE_S`, and 0 for a stream.
        may_request: whether to wait for a stream that holds the lease.
        storage_options: deltalake's options for the store.
    """

    uri: str
    name: str
    seconds: float
    purpose: Purpose = "write"
    now: Callable[[], float] = time.time
    patience_s: float | None = None
    may_request: bool = True
    storage_options: dict[str, str] | None = field(default=None, repr=False)
    _id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    _until: float = field(default=0.0, init=False)  # when the lease expires without another heartbeat, in epoch s
    _holder: str = field(default="", init=False)
    _newest: NumberedRecord | None = field(default=None, init=False)  # the newest record that this process has read or written
    _taken_by: str | None = field(default=None, init=False)  # the process that has taken the lease from this one
    _mutex: threading.RLock = field(default_factory=threading.RLock, init=False)

    @contextmanager
    def holding(self) -> Iterator["Lease"]:
        """Hold the lease while the block runs. A thread sends the heartbeats.

        Raises:
            LakeBusy: another process holds the lease, and this process does not wait for it, or has waited too long; the text names the
                holder, and since when it holds the lease.
        """
        request = self._next.holding if self.may_request else None
        ended = threading.Event()
        heart = threading.Thread(target=self._send_heartbeats, args=(ended,), name=f"lease of {self.name}", daemon=True)
        take_or_wait(self.name, self.take, self.purpose, self.patience_s, request, POLL_OF_STORE_S)
        try:
            heart.start()
            yield self
        finally:
            _unreleased.add(self._id)  # an interrupt may come before the lease is released
            ended.set()
            if heart.is_alive():
                heart.join()
            try:
                self.release()
                _unreleased.discard(self._id)
            except (DeltaError, OSError) as error:  # the work of the block is done, or has an error of its own
                _log.warning(
                    "the lease of %s was not released, so other processes wait until it expires: %s", self.name, store_reason(error)
                )

    @property
    def _next(self) -> "Lease":
        """The lease `<name>.next`, which this process holds while it waits for a stream to release this lease."""
        return replace(self, uri=f"{self.uri}{NEXT}", name=f"{self.name}{NEXT}", patience_s=0.0, may_request=False)

    def waiting_process(self) -> str | None:
        """The description of the process that waits for a stream to release the lease; None if no process waits."""
        newest = self._next._records.newest()
        record = None if newest is None else newest.record
        return record["holder"] if record is not None and record["until"] > self.now() else None

    def take(self) -> None:
        """Take the lease if it is free or has expired.

        Raises:
            Busy: another process holds it.
        """
        self._holder = describe_process(self.purpose)
        while True:
            record = self._read()
            if record is not None and record["id"] not in {self._id, *_unreleased} and record["until"] > self.now():
                raise Busy(record["holder"], record["purpose"])
            point("lease.before_take")
            try:
                if self._write(self._new_record()):
                    point("lease.after_take")
                    return
            except BaseException:
                _unreleased.add(self._id)  # the record may have been written
                raise

    def renew(self) -> None:
        """Extend the lease, unless another process has taken it."""
        with self._mutex:
            while self._taken_by is None:
                record = self._read()
                if record is None or record["id"] != self._id:
                    self._taken_by = "unknown" if record is None else record["holder"]
                    return
                point("lease.before_renew")
                if self._write(self._new_record()):
                    point("lease.after_renew")
                    return

    def check(self) -> None:
        """Raise unless this process still holds the lease; called before each commit to the lake. An expired lease is renewed.

        Raises:
            LakeError: another process has taken the lease.
            DeltaError, OSError: the lease has expired, and the store does not answer.
        """
        if self._taken_by is None and self.now() >= self._until:
            self.renew()
        if self._taken_by is not None:
            raise LakeError.lost(self.name, self._taken_by)

    def release(self) -> None:
        """Release the lease, if this process still holds it."""
        with self._mutex:
            while (record := self._read()) is not None and record["id"] == self._id:
                point("lease.before_release")
                if self._write(None):
                    point("lease.after_release")
                    return

    def _send_heartbeats(self, ended: threading.Event) -> None:
        while not ended.wait(self.seconds / 3):
            with suppress(DeltaError, OSError):  # the store did not answer: the next heartbeat tries again, and `check` decides
                self.renew()

    def _new_record(self) -> Record:
        return {"id": self._id, "holder": self._holder, "purpose": self.purpose, "until": self.now() + self.seconds}

    def _read(self) -> Record | None:
        """The newest record in the store."""
        self._newest = self._records.newest()
        return None if self._newest is None else self._newest.record

    def _write(self, record: Record | None) -> bool:
        """Write a record after the newest one that is known; returns False if another process came first."""
        written = self._records.write(self._newest, record)
        if written is None:
            return False
        self._newest, self._until = written, 0.0 if record is None else record["until"]
        return True

    @cached_property
    def _records(self) -> LeaseRecords:
        return lease_records(self.uri, self.storage_options)
