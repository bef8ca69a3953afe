"""Waiting for a lock: who waits for whom, and for how long.

A writer waits for maintenance. A writer and maintenance wait for a stream, which releases a table after its present step if a process waits
for the table. By default a stream does not wait, since its other tables would wait too. In all other cases a held lock is an error.
"""

import logging
import math
import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from operators.errors import TidemarkError
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.interrupts import is_stopped

Purpose = Literal["write", "maintenance", "stream"]
MAINTENANCE_PATIENCE_S = 4 * 3600.0
"""How long a writer waits for maintenance, in seconds. Maintenance ends within this time for any table size expected here."""
STREAM_PATIENCE_S = 1800.0
"""How long others wait for a stream, in seconds. It releases a table after its present step."""
REPORT_S = 60.0
"""How often a waiting process logs the holder of the lock, in seconds."""
POLL_S = 0.2
"""How long a waiting process sleeps before it tries a lock again, in seconds."""
POLL_OF_STORE_S = 1.0
"""The longest sleep between two tries for a lease in an object store, where each try costs requests. The first sleeps are shorter: they
begin with `POLL_S`, and each is twice as long as the one before."""
_GRACE_S = 0.3
"""How long a lock is tried again for each holder that refuses it, in seconds: the holder may not have written its name and purpose yet,
or may be another process that waited for the same stream and needs the lock for a moment."""
_log = logging.getLogger(__name__)


def describe_process(purpose: Purpose) -> str:
    """A description of this process, for the messages of processes that wait for it."""
    command = " ".join([*(Path(script).name for script in sys.argv[:1]), *sys.argv[1:2]]).strip() or "python"
    activity = command if purpose == "write" else f"{command}, {purpose}"
    return f"process {os.getpid()} ({activity}) on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


class Busy(TidemarkError):
    """The lock is held by another process."""

    def __init__(self, holder: str, purpose: str = "write") -> None:
        super().__init__(holder)
        self.holder, self.purpose = holder, purpose


def take_or_wait(
    name: str,
    take: Callable[[], Any],
    purpose: Purpose,
    patience_s: float | None = None,
    request: Callable[[], AbstractContextManager[Any]] | None = None,
    longest_poll_s: float = POLL_S,
) -> None:
    """Take a lock, or wait for it. A process that waits logs a warning after 0.3 s, and then each minute.

    A writer waits while maintenance holds the lock. A writer and maintenance wait for a stream. A stream does not wait, except for
    maintenance if it is given a patience. In all other cases a held lock is an error. Waits for maintenance and waits for a
    stream have separate limits.

    Args:
        name: the name of the lock.
        take: takes it, or raises `Busy`.
        purpose: the purpose of this process.
        patience_s: how long to wait for maintenance; by default `MAINTENANCE_PATIENCE_S`, and 0 for a stream.
        request: returns a context manager that requests the lock from a stream while it is open; None: do not wait for a stream.
        longest_poll_s: the longest sleep between two tries; sleeps begin with `POLL_S`, and double up to this.

    Raises:
        LakeBusy: another process holds the lock, and this one does not wait for it, has waited too long, or was stopped; the text names
            the holder, and since when it holds the lock.
    """
    tried_at, reported_at, may_request, poll_s = time.monotonic(), -math.inf, request is not None, POLL_S
    holder, holder_since, waits_s = None, tried_at, defaultdict[str, float](float)
    with ExitStack() as requests:
        while True:
            try:
                return take()
            except Busy as busy:
                limit_s, now = _limit_s(busy.purpose, purpose, patience_s, may_request), time.monotonic()
                if busy.holder != holder:
                    holder, holder_since = busy.holder, now
                waits_s[busy.purpose] += now - tried_at
                tried_at, waited_s, grace_s = now, waits_s[busy.purpose], min(_GRACE_S, math.inf if patience_s is None else patience_s)
                if is_stopped() or (waited_s >= limit_s if limit_s else now - holder_since >= grace_s):
                    raise LakeBusy.of(name, busy.holder, busy.purpose, waited_s if limit_s else None) from None
                if limit_s and waited_s >= _GRACE_S and now >= reported_at + REPORT_S:
                    _log.warning("%s: waiting for %s, for %.0f s so far: %s", name, _phrase_of_purpose(busy.purpose), waited_s, busy.holder)
                    reported_at = now
                if request is not None and busy.purpose == "stream":
                    with suppress(LakeBusy):  # another process has requested it already; the stream gives way to that one first
                        requests.enter_context(request())
                        request = None
            time.sleep(poll_s)
            poll_s = min(2 * poll_s, longest_poll_s)


def _limit_s(held_for: str, purpose: Purpose, patience_s: float | None, may_request: bool) -> float:
    """How long to wait for a holder, in seconds; 0 for no wait."""
    if held_for == "maintenance" and purpose != "maintenance":
        return patience_s if patience_s is not None else 0.0 if purpose == "stream" else MAINTENANCE_PATIENCE_S
    return STREAM_PATIENCE_S if held_for == "stream" and purpose != "stream" and may_request else 0.0


def _phrase_of_purpose(purpose: str) -> str:
    return "the stream" if purpose == "stream" else purpose
