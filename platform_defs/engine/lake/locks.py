"""Locks on a disk that allow one writer at a time. The error of a refused writer names the process that holds the lock, and since when.

The operating system releases a file lock when the process ends. For a lake behind a URI, a writer takes a lease (`leases`).

A stream gives way to other processes. If a stream holds the lock, another process takes a second lock, `<name>.next`, and waits. After
each step the stream checks the second lock, and releases its own if a process holds the second one.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from platform_defs.engine.lake.waits import Busy, Purpose, describe_process, take_or_wait

UNRECORDED = "a process that has not recorded its name yet"
"""The holder of a lock that was taken a moment ago."""
NEXT = ".next"
"""The suffix of the name of the lock that a process holds while it waits for a stream."""


@contextmanager
def holding_lock(folder: Path, name: str, purpose: Purpose, patience_s: float | None = None, *, may_request: bool = True) -> Iterator[None]:
    """Hold a local file lock while the block runs. The operating system releases the lock of a dead process.

    Args:
        folder: the folder of the lock.
        name: its name.
        purpose: why this process takes the lock. The purpose decides which holders the process waits for, see `take_or_wait`.
        patience_s: how long to wait for maintenance, in seconds; by default `MAINTENANCE_PATIENCE_S`, and 0 for a stream.
        may_request: whether to wait for a stream that holds the lock.

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

    def request() -> AbstractContextManager[None]:
        return holding_lock(folder, f"{name}{NEXT}", purpose, 0.0, may_request=False)

    take_or_wait(name, take, purpose, patience_s, request if may_request else None)
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
