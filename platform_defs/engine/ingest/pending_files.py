"""Files that could not be read, which a running ingest tries again later.

A retry reads a file as the newest listing has it, because the file may have been written again in the meantime, and the topic of a range of
offsets may have been created again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ledger.ledger import Batch

FIRST_WAIT_S = 30.0
LONGEST_WAIT_S = 3600.0
_Key = tuple[str, str]
"""A source and a path: two sources may read the same topic, and so the same partition."""
_log = logging.getLogger(__name__)


@dataclass
class _Try:
    unread: Unread
    wait_s: float
    next_at: float


@dataclass
class Pending:
    """Ingests files, and remembers those that could not be read. Each failed try doubles the wait before the next.

    Args:
        ingest: ingests files as one batch.
        first_wait_s: the wait before the first retry, in seconds.
        longest_wait_s: the longest wait.
        clock: a monotonic clock, in seconds.
        warns: whether to log unreadable files, as a continuous stream raises no error for them.
    """

    ingest: Callable[[Sequence[File]], Batch | None]
    first_wait_s: float = FIRST_WAIT_S
    longest_wait_s: float = LONGEST_WAIT_S
    clock: Callable[[], float] = time.monotonic
    warns: bool = False
    _tries: dict[_Key, _Try] = field(default_factory=dict)

    def __contains__(self, file: File) -> bool:
        """Whether a file in this state still waits for a retry. After its wait, the file is ingested like any other listed file.

        A range of offsets is in the same state as long as it begins at the same offset: each new record moves its end.
        """
        tried = self._tries.get(_key(file))
        if tried is None or tried.next_at <= self.clock():
            return False
        return tried.unread.file.modified == file.modified if file.is_range else tried.unread.file == file

    def files(self, files: Sequence[File]) -> Batch | None:
        """Ingest files as one batch; files that cannot be read are remembered for a retry."""
        try:
            batch, unread = self.ingest(files), list[Unread]()
        except UnreadError as error:
            batch, unread = next(iter(error.batches), None), list(error.unread)
            if self.warns:
                _log.warning("%s", error)
        self._schedule_retries(files, unread)
        return batch

    @property
    def unread(self) -> list[Unread]:
        """The unreadable files, each with the reason from its last try."""
        return [t.unread for t in self._tries.values()]

    def forget_unlisted(self, source: str, listed: Sequence[File], *, ranges: bool = False) -> None:
        """Forget a source's unread files (or, with `ranges`, its ranges of offsets) that are no longer listed, as after a deletion."""
        unread = [t.unread.file for t in self._tries.values() if t.unread.file.source == source and t.unread.file.is_range == ranges]
        for key in set(map(_key, unread)) - set(map(_key, listed)):
            del self._tries[key]

    def _schedule_retries(self, tried: Sequence[File], unread: Sequence[Unread]) -> None:
        """Schedule retries for unread files, and forget files that were read."""
        waited = {key: self._tries[key].wait_s for key in (_key(failure.file) for failure in unread) if key in self._tries}
        for file in tried:
            self._tries.pop(_key(file), None)
        for failure in unread:
            key = _key(failure.file)
            wait = min(2 * waited[key], self.longest_wait_s) if key in waited else self.first_wait_s
            self._tries[key] = _Try(failure, wait, self.clock() + wait)


def _key(file: File) -> _Key:
    return file.source, file.path
