"""The offsets in the ledger, in any order, decide whether a file was read, was refused, or must be read again."""

from itertools import permutations

import pyarrow as pa
import pytest

from platform_defs.engine.formats.files import File, FileRecords
from platform_defs.engine.ledger.known_files import KnownFiles, uris_below

FILE = File(5, "file:/in/a%20b.jsonl", 7, "l")
DAMAGED = File(5, "file:/in/a%20b.jsonl", 7, "l", fault="torn")
READ, UNREAD = FILE.offset, DAMAGED.offset


def _files_known(*offsets: str, file: File = FILE) -> FileRecords:
    found = KnownFiles()
    for offset in offsets:
        found.add(pa.array([offset], pa.string()))
    return found.records_of([file])


@pytest.mark.parametrize(
    ("offsets", "is_known"),
    [
        ((READ,), True),
        ((UNREAD,), True),
        ((UNREAD, f"{READ}|retry|1"), False),
        ((UNREAD, f"{READ}|retry|1", f"{UNREAD}|1"), True),
        ((UNREAD, f"{READ}|retry|1", f"{UNREAD}|1", f"{READ}|retry|2"), False),
        ((UNREAD, f"{READ}|retry|1", READ), True),
        ((UNREAD, f"{READ}|retry|1", f"{UNREAD}|1", f"{READ}|retry|2", READ), True),
        (("file:/in/a b.jsonl|5|7|unread", f"{READ}|retry|1"), False),
        (("file:/in/a%20b.jsonl|5|-1|unread",), False),
    ],
)
def test_a_retry_cancels_earlier_refusals_only(offsets: tuple[str, ...], is_known: bool) -> None:
    for shuffled in permutations(offsets):
        assert _files_known(*shuffled).has_present_state(FILE) is is_known
        assert _files_known(*shuffled).statuses


def test_each_retry_has_its_own_number() -> None:
    offsets = [UNREAD]
    for number in (1, 2, 3):
        offsets.append(_files_known(*offsets).with_fault(FILE).retry)
        tried = _files_known(*offsets).with_fault(FILE)
        assert (tried.fault, tried.retries, tried.offset) == (None, number, READ)
        assert _files_known(*offsets, READ).with_fault(FILE).fault is not None
        refused = File(5, tried.path, 7, "l", fault="torn", retries=tried.retries)
        assert refused.offset == f"{UNREAD}|{number}"
        offsets.append(refused.offset)
        assert _files_known(*offsets).has_present_state(FILE)


@pytest.mark.parametrize("now", ["/data/landing/l", "/elsewhere/landing/l"], ids=["in place", "moved"])
def test_a_retry_by_relative_path_cancels_a_refusal_by_absolute_path(now: str) -> None:
    """Format 1 recorded absolute paths. A retry is recorded relative to the folder, wherever the folder is."""
    refused = "file:/data/landing/l/2026/a%20b.jsonl|5|7|unread"
    [uri] = uris_below([refused.split("|")[0]], now)
    assert uri == f"file:{now}/2026/a%20b.jsonl"
    file = File(5, uri, 7, "l", folder=now)
    retry = _files_known(refused, file=file).with_fault(file).retry
    assert retry == "./2026/a%20b.jsonl|5|7|retry|1"
    assert not _files_known(retry, refused, file=file).has_present_state(file)
    assert _files_known(refused, retry, file=file).with_fault(file).retries == 1
    assert _files_known("./2026/a%20b.jsonl|5|7|unread|1", refused, retry, file=file).has_present_state(file)


def test_read_files_are_found_at_their_present_paths() -> None:
    paths = ["./a%20b", "./%FF", "file:///in/l/x%3A", "file:///elsewhere/l/x%3A", "file:/a/l/b/l/c", "s3a://b/c"]
    assert uris_below(paths, "/in/l") == ["file:/in/l/a%20b", "file:/in/l/%FF", "file:///in/l/x%3A", "file:/in/l/x:", *paths[4:]]
    assert uris_below(["./a%20b", "s3a://old/l/c"], "s3a://new/l") == ["s3a://new/l/a%20b", "s3a://new/l/c"]
    assert uris_below([], "/in/l") == []
    assert uris_below(["./a%20b", "file:/old/a%2541/l/c"], "/in/%41/l") == ["file:/in/%2541/l/a%20b", "file:/in/%2541/l/c"]
    assert uris_below(["./a%20b"], "s3a://new/a%41/l") == ["s3a://new/a%2541/l/a%20b"]
    assert uris_below(["file:/old/l/%FC"], "/in/l") == ["file:/in/l/%FC"]
