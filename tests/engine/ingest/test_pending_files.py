"""Unreadable files are tried again after a wait that doubles, while other files are ingested."""

from collections.abc import Sequence

import pytest

from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.pending_files import Pending
from platform_defs.engine.ledger.ledger import Batch
from tests.engine.source_batches import source_batch

RANGE = "kafka:orders/0@id1"
GOOD, BAD, WORSE = (File(1, f"file:/in/{n}.jsonl", 7, "l") for n in ("good", "bad", "worse"))


class _Ingest:
    """An ingest that reads all files except the unreadable ones."""

    def __init__(self) -> None:
        self.tried, self.unreadable = list[list[File]](), {BAD, WORSE}

    def __call__(self, files: Sequence[File]) -> Batch | None:
        self.tried.append(list(files))
        batch = (source_batch("l", len(self.tried)),) if any(f not in self.unreadable for f in files) else None
        unread = [Unread(f, "timeout") for f in files if f in self.unreadable]
        if unread:
            raise UnreadError(unread, [batch] if batch else [])
        return batch


def test_the_wait_doubles_up_to_its_longest_and_ends_when_the_file_is_read() -> None:
    ingest, now = _Ingest(), [0.0]
    pending = Pending(ingest, 30.0, 100.0, clock=lambda: now[0])
    assert pending.files([GOOD, BAD]) is not None
    assert [u.file for u in pending.unread] == [BAD]
    assert (BAD in pending, GOOD in pending, WORSE in pending) == (True, False, False)
    for wait in (30.0, 60.0, 100.0, 100.0):
        now[0] += wait - 0.1
        assert BAD in pending
        now[0] += 0.2
        assert BAD not in pending
        assert pending.files([BAD]) is None
    ingest.unreadable.clear()
    now[0] += 101
    assert pending.files([GOOD, BAD]) is not None
    assert pending.unread == []


def test_an_unread_file_is_tried_again_only_as_the_newest_listing_has_it() -> None:
    ingest, now = _Ingest(), [0.0]
    pending = Pending(ingest, clock=lambda: now[0])
    pending.files([BAD, WORSE])
    newer = File(2, BAD.path, 9, "l")
    assert newer not in pending, "a changed file does not wait"
    now[0] += 31
    assert WORSE not in pending
    pending.files([newer])
    assert ingest.tried[-1] == [newer], "WORSE was not listed"
    assert [u.file for u in pending.unread] == [WORSE]


def test_only_a_running_stream_warns(caplog: pytest.LogCaptureFixture) -> None:
    Pending(_Ingest()).files([BAD])
    assert caplog.records == []
    Pending(_Ingest(), warns=True).files([BAD])
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().startswith("source 'l': 1 file could not be read: file:/in/bad.jsonl (timeout). The cause is")


def test_any_other_error_is_raised() -> None:
    def fail(_: Sequence[File]) -> Batch | None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Pending(fail).files([GOOD])


def test_a_range_waits_until_it_begins_at_another_offset() -> None:
    ingest, now = _Ingest(), [0.0]
    pending = Pending(ingest, 30.0, clock=lambda: now[0])
    first, longer, later = File(5, RANGE, 3, "l"), File(5, RANGE, 9, "l"), File(6, RANGE, 8, "l")
    ingest.unreadable = {first, longer}
    pending.files([first])
    assert (first in pending, longer in pending, later in pending) == (True, True, False), "new records do not end the wait"
    now[0] += 31
    assert longer not in pending
    pending.files([longer])
    now[0] += 59
    assert longer in pending, "the second wait is twice as long"


def test_sources_with_the_same_topic_wait_separately() -> None:
    of_l, of_r, next_of_r = File(0, RANGE, 10, "l"), File(0, RANGE, 5, "r"), File(5, RANGE, 5, "r")
    ingest = _Ingest()
    ingest.unreadable = {of_l, of_r}
    pending = Pending(ingest)
    pending.files([of_l, of_r])
    assert [u.file for u in pending.unread] == [of_l, of_r]
    ingest.unreadable = {of_l}
    pending.files([of_r])
    pending.files([next_of_r])
    assert [u.file for u in pending.unread] == [of_l], "a range that another source has read is still unread"
    pending.forget_unlisted("l", [of_r], ranges=True)
    assert pending.unread == []


def test_unread_input_that_is_no_longer_listed_is_forgotten() -> None:
    ranges = [File(5, f"kafka:orders/{n}@id1", 3, "l") for n in range(2)]

    def ingest(found: Sequence[File]) -> Batch | None:
        raise UnreadError([Unread(file, "timeout") for file in found], [])

    pending = Pending(ingest)
    pending.files([*ranges, GOOD, BAD])
    pending.forget_unlisted("r", [])
    pending.forget_unlisted("r", [], ranges=True)
    assert [u.file for u in pending.unread] == [*ranges, GOOD, BAD]
    pending.forget_unlisted("l", [ranges[1]], ranges=True)
    assert [u.file for u in pending.unread] == [ranges[1], GOOD, BAD]
    pending.forget_unlisted("l", [File(9, BAD.path, 1, "l")])
    assert [u.file for u in pending.unread] == [ranges[1], BAD], "a file that changed is still there"
