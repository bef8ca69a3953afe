"""Unreadable files are tried again after a wait that doubles, while other files are ingested."""

from collections.abc import Sequence

import pytest

from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.pending_files import Pending
from platform_defs.engine.ledger.ledger import Entry
from tests.engine.entries import source_entry

GOOD, BAD, WORSE = (File(1, f"file:/in/{n}.jsonl", 7, "l") for n in ("good", "bad", "worse"))


class _Ingest:
    """An ingest that reads all files except the unreadable ones."""

    def __init__(self) -> None:
        self.tried, self.unreadable = list[list[File]](), {BAD, WORSE}

    def __call__(self, files: Sequence[File]) -> Entry | None:
        self.tried.append(list(files))
        entry = (source_entry("l", len(self.tried)),) if any(f not in self.unreadable for f in files) else None
        unread = [Unread(f, "timeout") for f in files if f in self.unreadable]
        if unread:
            raise UnreadError(unread, [entry] if entry else [])
        return entry


def test_the_wait_doubles_up_to_its_longest_and_ends_when_the_file_is_read() -> None:
    ingest, now = _Ingest(), [0.0]
    pending = Pending(ingest, 30.0, 100.0, clock=lambda: now[0])
    assert pending.files([GOOD, BAD]) is not None
    assert [u.file for u in pending.unread] == [BAD]
    assert (BAD in pending, GOOD in pending, WORSE in pending) == (True, False, False)
    for wait in (30.0, 60.0, 100.0, 100.0):
        now[0] += wait - 0.1
        assert not pending.is_ready()
        pending.files([])
        assert ingest.tried[-1] == []
        now[0] += 0.2
        assert pending.is_ready()
        assert pending.files([]) is None
        assert ingest.tried[-1] == [BAD]
    ingest.unreadable.clear()
    now[0] += 101
    assert pending.files([GOOD]) is not None
    assert ingest.tried[-1] == [GOOD, BAD]
    assert (pending.unread, pending.is_ready()) == ([], False)


def test_a_file_listed_again_replaces_its_earlier_listing() -> None:
    ingest, now = _Ingest(), [0.0]
    pending = Pending(ingest, clock=lambda: now[0])
    pending.files([BAD, WORSE])
    now[0] += 31
    newer = File(2, BAD.path, 9, "l")
    assert BAD in pending
    assert newer not in pending
    pending.files([newer])
    assert ingest.tried[-1] == [newer, WORSE]
    assert [u.file for u in pending.unread] == [WORSE]


def test_only_a_running_stream_warns(caplog: pytest.LogCaptureFixture) -> None:
    Pending(_Ingest()).files([BAD])
    assert caplog.records == []
    Pending(_Ingest(), warns=True).files([BAD])
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().startswith("source 'l': 1 file could not be read: file:/in/bad.jsonl (timeout). The cause is")


def test_any_other_error_is_raised() -> None:
    def fail(_: Sequence[File]) -> Entry | None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Pending(fail).files([GOOD])


def test_a_range_of_offsets_waits_and_is_then_listed_again_instead_of_retried():
    now = [0.0]
    range_ = File(5, "kafka:orders/0@id1", 3, "l")

    def ingest(found: Sequence[File]) -> Entry | None:
        raise UnreadError([Unread(file, "timeout") for file in found], [])

    pending = Pending(ingest, first_wait_s=30.0, clock=lambda: now[0])
    pending.files([range_])
    assert range_ in pending
    assert File(5, range_.path, 4, "l") not in pending, "a longer range is another one"
    now[0] = 31.0
    assert range_ not in pending
    assert not pending.is_ready(), "only a new listing shows whether the topic is still the same"


def test_an_unread_range_that_is_no_longer_listed_is_forgotten():
    ranges = [File(5, f"kafka:orders/{n}@id1", 3, "l") for n in range(2)]

    def ingest(found: Sequence[File]) -> Entry | None:
        raise UnreadError([Unread(file, "timeout") for file in found], [])

    pending = Pending(ingest)
    pending.files([*ranges, GOOD])
    pending.forget_ranges("r", [])
    assert [u.file for u in pending.unread] == [*ranges, GOOD]
    pending.forget_ranges("l", [ranges[1]])
    assert [u.file for u in pending.unread] == [ranges[1], GOOD]
