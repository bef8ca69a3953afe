"""Files that could not be read, kept by a running ingest until their next try."""

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
    """Ingests files, and keeps those that could not be read now, by path. Each failed try doubles the wait before the next.

    Args:
        ingest: makes one entry of files.
        first_wait_s: the wait before the first further try, in seconds.
        longest_wait_s: the longest wait.
        clock: seconds that never go back.
        warns: whether a stream that stays keeps them, so that no error at its end will name them.
    """

    ingest: Callable[[Sequence[File]], Entry | None]
    first_wait_s: float = FIRST_WAIT_S
    longest_wait_s: float = LONGEST_WAIT_S
    clock: Callable[[], float] = time.monotonic
    warns: bool = False
    _tries: dict[str, _Try] = field(default_factory=dict)

    def __contains__(self, file: File) -> bool:
        return file.path in self._tries and self._tries[file.path].unread.file == file

    def files(self, found: Sequence[File]) -> Entry | None:
        """Ingest files, and those whose next try has come, as one entry; what cannot be read now is kept, and is no error."""
        tried = [*found, *self._ready([f.path for f in found])]
        try:
            entry, unread = self.ingest(tried), list[Unread]()
        except UnreadError as error:
            entry, unread = next(iter(error.entries), None), list(error.unread)
            if self.warns:
                _log.warning("%s", error)
        self._note(tried, unread)
        return entry

    @property
    def unread(self) -> list[Unread]:
        """The files, each with the reason of its last try."""
        return [t.unread for t in self._tries.values()]

    def is_ready(self) -> bool:
        """Whether the time of some file's next try has come."""
        return any(t.next_at <= self.clock() for t in list(self._tries.values()))

    def _note(self, tried: Sequence[File], unread: Sequence[Unread]) -> None:
        """Take down what became of files: those that were read need no further try."""
        waited = {u.file.path: self._tries[u.file.path].wait_s for u in unread if u.file.path in self._tries}
        for file in tried:
            self._tries.pop(file.path, None)
        for u in unread:
            wait = min(2 * waited[u.file.path], self.longest_wait_s) if u.file.path in waited else self.first_wait_s
            self._tries[u.file.path] = _Try(u, wait, self.clock() + wait)

    def _ready(self, besides: Sequence[str]) -> list[File]:
        """The files to try now, but for paths that are tried anyway, as another state of theirs was listed."""
        now = self.clock()
        return [t.unread.file for path, t in self._tries.items() if t.next_at <= now and path not in besides]
