"""The files that a ledger has recorded are recognized, at any present path of their folder."""

import errno
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_defs.engine.formats.files import File, FileRecords
from platform_defs.engine.ledger.known_files import KnownFiles
from platform_defs.engine.ledger.recorded_files import RecordedFiles
from platform_defs.engine.ledger.rows import table_of
from tests.engine.source_batches import source_batch
from tests.support.file_walk import landed_files
from tests.support.memory_ledger import MemoryLedgerStore, memory_ledger

NAMES = ["1.jsonl", "2026/1.jsonl", "l/1.jsonl", "a b.jsonl", "ä%41|x.jsonl", "file:x/1.jsonl", ".x/~(1).jsonl"]
NAMES += ["m\udcfcller.jsonl", "m\udcf6ller.jsonl", "m\ufffdller.jsonl", "m%FCller.jsonl", "d\udcfc/ü.jsonl"]  # not UTF-8
FOLDERS = ["/data/landing/l", "/elsewhere/landing/l", "/mnt/l", "/mnt/a%41b/l", "/mnt/%FC/l"]


def _is_recorded(known: FileRecords, file: File) -> bool:
    """Whether a file is recorded, with its present or an earlier size."""
    return any(key in known.statuses for key in file.keys)


def _file(folder: str, name: str, modified: int = 5, length: int = 7, fault: str | None = None) -> File:
    from platform_defs.engine.formats.files import _encoded

    return File(modified, f"file:{_encoded(f'{folder}/{name}')}", length, "l", fault, folder)


def _files_known(*offsets: str) -> KnownFiles:
    known = KnownFiles()
    known.add(pa.array(offsets, pa.string()))
    return known


def _format_1_offset(file: File) -> str:
    """The offset of a file in format 1."""
    return "|".join([file.path, str(file.modified), str(file.length), *(["unread"] if file.fault else [])])


@pytest.mark.parametrize("old_folder", ["/data/landing/l", "/data/a%41b/l"], ids=["", "from a folder with a percent sign"])
@pytest.mark.parametrize("folder", FOLDERS, ids=["in place", "moved", "mounted", "below a percent sign", "below a percent sign and a byte"])
@pytest.mark.parametrize("offset", [_format_1_offset, lambda f: f.offset], ids=["whole paths of format 1", "paths below the folder"])
@pytest.mark.parametrize("name", NAMES)
def test_a_read_file_is_recognized_after_its_folder_moved(name: str, offset: object, folder: str, old_folder: str) -> None:
    known = _files_known(offset(_file(old_folder, name)))  # pyright: ignore[reportCallIssue]
    same, other, changed = _file(folder, name), _file(folder, f"x{name}"), _file(folder, name, 6)
    found = known.records_of([same, other, changed])
    assert (found.has_present_state(same), found.has_present_state(other), found.has_present_state(changed)) == (True, False, False)
    assert (_is_recorded(found, changed), _is_recorded(found, other)) == (True, False)
    assert found.with_fault(changed).fault is not None


def test_a_fault_while_files_are_read_adds_none_of_them_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [(source_batch("l", n, offsets=(f"./{n}|1|1",)),) for n in (1, 2)]
    store = MemoryLedgerStore()
    for batch in batches:
        store.append(table_of([batch]))
        store.refresh()
    recorded, rows = RecordedFiles(store), store.rows

    def fail(*arguments: Any) -> Iterator[pa.Table]:
        yield next(rows(*arguments))
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store, "rows", fail)
    with pytest.raises(OSError, match="Input/output error"):
        recorded.files_of("l", 2)
    monkeypatch.setattr(store, "rows", rows)
    assert len(recorded.files_of("l", 2)) == 2


@pytest.mark.parametrize("folder", [None, "/l"], ids=["whole path", "path below the folder"])
def test_similar_file_names_are_distinguished(folder: str | None) -> None:
    files = [replace(_file("/l", name), folder=folder) for name in NAMES]
    assert len({f.keys for f in files}) == len(files)
    for file in files:
        known = _files_known(file.offset).records_of(files)
        assert [f.path for f in files if known.has_present_state(f)] == [file.path]


@pytest.mark.parametrize("name", NAMES)
def test_a_relative_path_is_the_absolute_path_without_its_folder(name: str) -> None:
    for folder in FOLDERS:
        file = _file(folder, name)
        assert file.path.endswith(file.offset.split("|")[0].removeprefix("."))
        assert file.offset.startswith("./")


def test_an_unreadable_file_is_read_again_after_it_has_changed() -> None:
    known = _files_known(_file("/l", "1.jsonl", fault="torn").offset)
    changed = _file("/l", "1.jsonl", 6)
    assert known.records_of([changed]).with_fault(changed).fault is None


def test_a_new_file_of_a_folder_with_the_same_name_is_new() -> None:
    """`/data/l/archive/l/1` was read. Below `/new/l` that can be `archive/l/1` or `1`, but not `2`."""
    known = _files_known("file:/data/l/archive/l/1.jsonl|5|7")
    for name, expected in (("archive/l/1.jsonl", True), ("1.jsonl", True), ("2.jsonl", False), ("archive/1.jsonl", False)):
        file = _file("/new/l", name)
        assert known.records_of([file]).has_present_state(file) is expected, name


def test_a_remote_file_is_recognized_in_another_bucket() -> None:
    at = [File(5, f"s3a://{bucket}/in/l/2026/1%20a.jsonl", 7, "l", None, f"s3a://{bucket}/in/l") for bucket in ("old", "new")]
    assert at[0].offset == at[1].offset == "./2026/1%20a.jsonl|5|7"
    for offset in (_format_1_offset(at[0]), at[0].offset):
        assert _files_known(offset).records_of([at[1]]).has_present_state(at[1])


def test_the_known_files_do_not_depend_on_how_they_were_added() -> None:
    """In random ledgers, of which some have a file in several states, and some a refused file that was read later."""
    rng, repeated, repaired = random.Random(1), 0, 0
    for _ in range(40):
        names = rng.sample(NAMES, 3)
        rows = [(rng.choice(names), rng.randrange(3), rng.random() < 0.5) for _ in range(rng.randrange(9))]
        check_known_files(rows, rng.randrange(9))
        states = {name: [torn for n, _, torn in rows if n == name] for name, _, _ in rows}
        repeated += any(len(torn) > 1 for torn in states.values())
        repaired += any(True in torn and not torn[-1] for torn in states.values())
    assert min(repeated, repaired) >= 10


@pytest.mark.soak
@settings(max_examples=1_000)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 2), st.booleans()), max_size=8), st.integers(0, 8))
def test_in_many_examples_the_known_files_do_not_depend_on_how_they_were_added(rows: list[tuple[str, int, bool]], cut: int) -> None:
    check_known_files(rows, cut)


def check_known_files(rows: list[tuple[str, int, bool]], cut: int) -> None:
    """Check the files of a ledger with two batches.

    Args:
        rows: the name of each file, its time, and whether it was refused.
        cut: the number of files in the first batch.
    """
    files = [_file("/l", name, modified, fault="torn" if torn else None) for name, modified, torn in rows]
    offsets = [f.offset if n % 2 else _format_1_offset(f) for n, f in enumerate(files)]
    ledger = memory_ledger([(source_batch("l", n, offsets=tuple(part)),) for n, part in enumerate((offsets[:cut], offsets[cut:]), 1)])
    every = [_file("/l", name, modified) for name in NAMES for modified in range(3)]
    known = ledger.file_records("l", every)
    assert {f for f in every if known.has_present_state(f)} == {_file("/l", f.keys[0][2:], f.modified) for f in files}
    assert {f.keys[0] for f in every if _is_recorded(known, f)} == {f.keys[0] for f in files}
    read = {name for name, _, _ in rows if not [t for n, m, t in rows if n == name][-1]}
    refused = {name for name in NAMES for modified in range(3) if known.with_fault(_file("/l", name, modified)).fault}
    assert refused >= read - {name for name, _, torn in rows if torn}
    assert len(ledger._known_files("l")) == len(rows)


def test_links_below_a_landing_folder_are_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "landing/l"
    (folder / "2026").mkdir(parents=True)
    (folder / "2026/1.jsonl").write_text("{}")
    (folder / "latest").symlink_to(folder / "2026")
    (folder / "self").symlink_to(folder)
    (folder / "2.jsonl").symlink_to(folder / "2026/1.jsonl")
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "by link").symlink_to(folder)
    for root in (folder, tmp_path / "by link"):
        assert [f.keys[0] for f in landed_files(str(root), "l")] == ["./2026/1.jsonl"]


def test_a_file_keeps_its_offset_when_the_landing_folder_moves_to_a_folder_with_a_percent_sign(tmp_path: Path) -> None:
    offsets = []
    for folder in (tmp_path / "landing/l", tmp_path / "a%41b/l", tmp_path / "%zz/l"):
        folder.mkdir(parents=True)
        (folder / "ä %41.jsonl").write_text("{}")
        os.utime(folder / "ä %41.jsonl", (5, 5))
        offsets += [f.offset for f in landed_files(str(folder), "l")]
    assert offsets == ["./ä%20%2541.jsonl|5000|2"] * 3
