"""The stream: what is new in the sources' folders becomes micro-batches, each one batch of the ledger.

The ledger knows which files were ingested, so nothing else is kept of how far an ingest has come.
"""

import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from operators.timing import length_ms
from platform_defs.engine.formats.files import File, is_local, listed, one_path
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.ingest import Ingest, IngestError
from platform_defs.engine.ingest.new_files import Landing
from platform_defs.engine.ingest.pending_files import FIRST_WAIT_S, Pending
from platform_defs.engine.ingest.turns import MOST_KEPT, PATIENCE_S, Turns
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Entry

OnEntry = Callable[[Entry], None]
OnQuiet = Callable[[], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stream:
    """Ingests from folders.

    Args:
        spark: the session.
        lake: the lake.
        ingest: ingests micro-batches.
        folders: each source's folder.
        max_files: files of a source that one micro-batch takes.
        landings: what finds new files in the folders of this machine, by source.
        idle: records the sources that became idle; asked at each interval that brings no file, where the stream stays.
        first_wait_s: how long a stream that stays waits before it tries a file again that could not be read, at first, in seconds.
        sleep: waits some seconds.
    """

    spark: SparkSession
    lake: Lake
    ingest: Ingest
    folders: Mapping[str, str]
    max_files: int
    landings: Mapping[str, Landing]
    idle: Callable[[], Entry | None] = lambda: None
    first_wait_s: float = FIRST_WAIT_S
    sleep: Callable[[float], None] = time.sleep
    _warned: set[tuple[str, str, str]] = field(default_factory=set, init=False, compare=False, repr=False)

    def run(self, every: str | None = None, on_entry: OnEntry = lambda _: None, on_quiet: OnQuiet = lambda: None) -> list[Entry]:
        """Ingest what is there, or what comes, for ever, at an interval.

        Args:
            every: the interval, such as `'30 seconds'`; None to end when all that is there is ingested.
            on_entry: called after each entry is committed.
            on_quiet: called at each interval that brought no entry, where the stream stays.

        Returns:
            The entries made; where the stream stays, the newest of them.

        Raises:
            IngestError: a rule whose action is to fail was broken, a column came that the contract refuses, or a folder cannot be used.
            UnreadError: files could not be read now, or folders not be listed, and `every` is None; raised after all else was ingested.
            LakeError: the lake cannot be written to, or another process writes to it.
        """
        with self.lake.opened():
            self._make_folders()
            with self.lake.writer(writer_name(self.folders)):
                pending = Pending(self.ingest.files, self.first_wait_s, warns=every is not None)
                turns = Turns(pending.files, self.idle, on_entry, on_quiet, PATIENCE_S if every else 0.0)
                turns.made = deque(maxlen=MOST_KEPT if every else None)  # a stream may stay for years
                for landing in self.landings.values():
                    landing.forget()  # whoever asks for what is there gets what has changed too
                self._turn(turns, pending)
                if every is not None:
                    self._stay(length_ms(every, "every") / 1000, turns, pending)
                unlisted = {path: why for landing in self.landings.values() for path, why in landing.unlisted.items()}
                if pending.unread or unlisted:
                    raise UnreadError(pending.unread, list(turns.made), unlisted)
        return list(turns.made)

    def _stay(self, interval_s: float, turns: Turns, pending: Pending) -> None:
        """Take a turn at each interval; one that took longer is followed at once by the next."""
        took_s = 0.0
        while True:
            self.sleep(max(0.0, interval_s - took_s))
            began = time.monotonic()
            if not self._turn(turns, pending):
                turns.quiet()
            took_s = time.monotonic() - began

    def _turn(self, turns: Turns, pending: Pending) -> bool:
        """Ingest what is new, and files whose next try has come; whether there was any."""
        ready = pending.is_ready()
        if ready:
            turns.files([])
        found = [file for file in self._found() if file not in pending]
        for some in _in_turn(found, self.max_files):
            turns.files(some)
        return ready or bool(found)

    def _found(self) -> list[File]:
        """The files that the ledger does not record as they are now."""
        found: list[File] = []
        for source, folder in self.folders.items():
            if source in self.landings:
                found += self.landings[source].new()
            else:
                found += self.ingest.ledger.unrecorded(source, listed(self.spark, folder, source))
        self._warn()
        return found

    def _warn(self) -> None:
        """Name what was passed over, once as long as it lasts."""
        passed: set[tuple[str, str, str]] = set()
        for source, landing in self.landings.items():
            passed |= {(source, path, f"it cannot be listed: {why}") for path, why in landing.unlisted.items()}
            passed |= {(source, path, "it is a link below the source's folder") for path in landing.links}
        for source, path, why in sorted(passed - self._warned):
            _log.warning("%s of source %r is passed over: %s", path, source, why)
        self._warned.clear()
        self._warned.update(passed)

    def _make_folders(self) -> None:
        """Make the local folders that are not there; what stands in the way is theirs, not the lake's."""
        for source, folder in self.folders.items():
            if not is_local(folder):
                continue
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise IngestError.no_folder(source, folder, error.strerror or str(error)) from error
            if not os.access(folder, os.R_OK | os.X_OK):
                raise IngestError.no_folder(source, folder, "it may not be read")


def writer_name(folders: Mapping[str, str]) -> str:
    """The writer's place of whoever ingests from folders: one at a time, since two would ingest each other's files for nothing."""
    named = sorted((source, one_path(folder)) for source, folder in folders.items())
    return f"ingest-{hashlib.sha256(repr(named).encode()).hexdigest()[:12]}"


def _in_turn(files: Sequence[File], at_once: int) -> Iterator[list[File]]:
    """The files, the oldest first, so many of each source at once."""
    by_source: dict[str, list[File]] = {}
    for file in sorted(files):
        by_source.setdefault(file.source, []).append(file)
    for first in range(0, max(map(len, by_source.values()), default=0), at_once):
        yield [file for mine in by_source.values() for file in mine[first : first + at_once]]
