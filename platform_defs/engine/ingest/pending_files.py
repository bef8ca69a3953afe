"""Files that could not be read, which a running ingest tries again later."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ledger.ledger import Entry

FIRST_WAIT_S = 30.0
LONGEST_WAIT_S = 3600.0
_log = logging.getLogger(__name__)


@dataclass
class _Try:
    unread: Unread
    wait_s: float
    next_at: float


@dataclass
class Pending:
    """Ingests files, and retries those that could not be read. Each failed try doubles the wait before the next.

    Args:
        ingest: ingests files as one batch.
        first_wait_s: the wait before the first retry, in seconds.
        longest_wait_s: the longest wait.
        clock: a monotonic clock, in seconds.
        warns: whether to log unreadable files, as a continuous stream raises no error for them.
    """

    ingest: Callable[[Sequence[File]], Entry | None]
    first_wait_s: float = FIRST_WAIT_S
    longest_wait_s: float = LONGEST_WAIT_S
    clock: Callable[[], float] = time.monotonic
    warns: bool = False
    _tries: dict[str, _Try] = field(default_factory=dict)

    def __contains__(self, file: File) -> bool:
        """Whether a file in this state waits for a retry. A range of offsets is left to its finder as soon as its wait has ended."""
        tried = self._tries.get(file.path)
        return tried is not None and tried.unread.file == file and not (file.is_range and tried.next_at <= self.clock())

    def files(self, new_files: Sequence[File]) -> Entry | None:
        """Ingest files, and files that are due for a retry, as one batch; files that cannot be read are kept for a retry."""
        to_ingest = [*new_files, *self._ready([f.path for f in new_files])]
        try:
            entry, unread = self.ingest(to_ingest), list[Unread]()
        except UnreadError as error:
            entry, unread = next(iter(error.entries), None), list(error.unread)
            if self.warns:
                _log.warning("%s", error)
        self._note(to_ingest, unread)
        return entry

    @property
    def unread(self) -> list[Unread]:
        """The unreadable files, each with the reason from its last try."""
        return [t.unread for t in self._tries.values()]

    def forget_ranges(self, source: str, listed: Sequence[File]) -> None:
        """Forget the unread ranges of offsets of a source that its finder no longer finds, as those of a topic that was deleted."""
        paths = {file.path for file in listed}
        vanished = [p for p, t in self._tries.items() if t.unread.file.is_range and t.unread.file.source == source and p not in paths]
        for path in vanished:
            del self._tries[path]

    def is_ready(self) -> bool:
        """Whether any file is due for a retry."""
        return bool(self._ready([]))

    def _note(self, tried: Sequence[File], unread: Sequence[Unread]) -> None:
        """Schedule retries for unread files, and forget files that were read."""
        waited = {failure.file.path: self._tries[failure.file.path].wait_s for failure in unread if failure.file.path in self._tries}
        for file in tried:
            self._tries.pop(file.path, None)
        for failure in unread:
            wait = min(2 * waited[failure.file.path], self.longest_wait_s) if failure.file.path in waited else self.first_wait_s
            self._tries[failure.file.path] = _Try(failure, wait, self.clock() + wait)

    def _ready(self, besides: Sequence[str]) -> list[File]:
        """The files that are due for a retry, without the paths in `besides`, which were listed in another state.

        Ranges of offsets are not among them: they are found again, since their topic may have been created again in the meantime.
        """
        tries, now = list(self._tries.items()), self.clock()
        return [t.unread.file for path, t in tries if t.next_at <= now and path not in besides and not t.unread.file.is_range]
