"""New files are found at a cost that does not grow with the number of files that ever landed. Without Spark."""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_defs.engine.formats import files
from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest import local_files
from platform_defs.engine.ingest.file_finders import file_finders
from platform_defs.engine.ingest.hadoop_files import HadoopFileFinder
from platform_defs.engine.ingest.local_files import LocalFileFinder
from platform_defs.engine.ingest.s3_files import S3FileFinder
from platform_defs.engine.ledger.ledger import Ledger
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.file_walk import landed_files
from tests.support.memory_ledger import memory_ledger


class LandingFolder:
    """The landing folder of a source, its ledger, and the finder of its new files."""

    def __init__(self, path: Path) -> None:
        self.path, self.ledger, self.now = path, memory_ledger(clock=Clock(5)), 0.0
        self.finder, self.stamp = LocalFileFinder("l", str(path), self.ledger, lambda: self.now), 0

    def land(self, name: str, content: str = "x") -> None:
        """Write a file into the folder; every new file gives its folders a new time, even with coarse time stamps."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        path.write_text(content)
        self.stamp += is_new
        for parent in [p for p in path.parents if p == self.path or self.path in p.parents] if is_new else []:
            os.utime(parent, ns=(0, self.stamp * 10**9))

    def list_new(self) -> list[str]:
        """The names of the new files; nothing is recorded."""
        self.now += 10.0
        return [self.name(file) for file in self.finder.new()]

    def ingest(self, fault: str | None = None) -> list[str]:
        """List the folder, and record the new files; returns their names."""
        self.now += 10.0
        found = self.finder.new()
        with_faults = [self.ledger.file_records("l", found).with_fault(f) for f in found]
        if found:
            self.commit(tuple(replace(f, fault=f.fault or fault).offset for f in with_faults))
        return [self.name(file) for file in found]

    def commit(self, offsets: tuple[str, ...], kind: str = "rows") -> None:
        seq = self.ledger.head + 1
        self.ledger.commit([(source_batch("l", seq, kind=kind, ingested_at=self.ledger.now(), offsets=offsets),)])

    def name(self, file: File) -> str:
        return file.keys[0].removeprefix("./")


@pytest.fixture
def folder(tmp_path: Path) -> LandingFolder:
    return LandingFolder(tmp_path / "l")


def test_a_landed_file_is_found_until_it_is_recorded(folder: LandingFolder) -> None:
    assert folder.list_new() == []
    folder.land("1.jsonl")
    folder.land("2026/03/ä 2.jsonl")
    folder.land("_hidden/3.jsonl")
    folder.land(".4.jsonl")
    assert sorted(folder.list_new()) == sorted(folder.list_new()) == sorted(folder.ingest()) == ["1.jsonl", "2026/03/ä 2.jsonl"]
    assert folder.list_new() == []
    for name in ("2026/03/5.jsonl", "2026/04/6.jsonl", "7.jsonl"):
        folder.land(name)
        assert folder.ingest() == [name]
    shutil.rmtree(folder.path)
    assert folder.list_new() == []
    folder.land("2026/03/5.jsonl", "another")
    assert folder.ingest() == ["2026/03/5.jsonl"]


def test_a_file_that_lands_within_the_time_stamp_of_its_folder_is_found(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 0)
    folder.land("1.jsonl")
    assert folder.ingest() == ["1.jsonl"]
    stamp = folder.path.stat()
    folder.now -= 9.5
    assert folder.list_new() == []
    folder.now -= 9.5
    folder.land("2.jsonl")
    os.utime(folder.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert folder.list_new() == ["2.jsonl"]


def test_links_are_skipped_and_counted(folder: LandingFolder) -> None:
    folder.land("day/1.jsonl")
    for link, to in (("latest", "day"), ("self", "."), ("copy.jsonl", "day/1.jsonl"), ("broken", "missing")):
        (folder.path / link).symlink_to(folder.path / to)
    assert folder.ingest() == ["day/1.jsonl"]
    assert folder.finder.links == [str(folder.path / link) for link in ("broken", "copy.jsonl", "latest", "self")]
    (folder.path / "broken").unlink()
    folder.list_new()
    assert len(folder.finder.links) == 3


def test_a_file_changed_in_place_is_found_by_a_later_listing(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 3)
    monkeypatch.setattr(local_files, "_SHORTEST_ROTATION_S", 0.0)
    for n in range(20):
        folder.land(f"{n % 4}/{n}.jsonl")
    assert len(folder.ingest()) == 20
    for _ in range(3):
        assert folder.list_new() == []
    (folder.path / "3/7.jsonl").write_text("changed to another length")
    assert [name for _ in range(10) for name in folder.ingest()] == ["3/7.jsonl"]
    assert "3/7.jsonl" not in [name for _ in range(10) for name in folder.list_new()]


def test_a_folder_without_modification_times_is_listed_periodically(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 3)
    monkeypatch.setattr(local_files, "_SHORTEST_ROTATION_S", 0.0)
    for n in range(12):
        folder.land(f"{n % 4}/{n}.jsonl")
    folder.ingest()
    folder.list_new()
    times = {path: path.stat().st_mtime_ns for path in folder.path.iterdir()}
    folder.land("2/new.jsonl")
    for path, time in times.items():
        os.utime(path, ns=(time, time))
    assert [name for _ in range(10) for name in folder.ingest()] == ["2/new.jsonl"]


def test_an_unread_file_is_found_as_soon_as_it_changes(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 0)
    for n in range(3):
        folder.land(f"{n}.jsonl")
    assert len(folder.ingest(fault="unread")) == 3
    assert folder.list_new() == folder.list_new() == []
    folder.land("1.jsonl", "fixed")
    assert folder.ingest() == ["1.jsonl"]
    assert folder.list_new() == []


def test_a_file_marked_for_retry_is_found(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 0)
    folder.land("1.jsonl")
    [file] = landed_files(str(folder.path), "l")
    assert folder.ingest(fault="unread") == ["1.jsonl"]
    assert folder.list_new() == []
    folder.commit((file.retry,), kind="retry")
    assert folder.list_new() == ["1.jsonl"]


def test_a_recreated_or_restored_ledger_invalidates_the_known_files(folder: LandingFolder) -> None:
    for n in range(3):
        folder.land(f"{n}.jsonl")
        folder.ingest()
    assert folder.list_new() == []
    memory = folder.ledger._store.memory  # pyright: ignore[reportAttributeAccessIssue]
    del memory.commits[1:]
    folder.ledger._forget()
    assert folder.list_new() == ["1.jsonl", "2.jsonl"]
    folder.ingest()
    memory.commits.clear()
    folder.ledger._forget()
    assert folder.list_new() == ["0.jsonl", "1.jsonl", "2.jsonl"]


def test_an_unlistable_folder_is_named_and_does_not_affect_the_others(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.land("good/1.jsonl")
    folder.land("bad/2.jsonl")
    scandir, bad = os.scandir, str(folder.path / "bad")

    def fail(path: str) -> object:
        if path == bad:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        assert folder.ingest() == ["good/1.jsonl"]
    assert folder.finder.unlisted == {bad: "Permission denied"}
    assert folder.ingest() == ["bad/2.jsonl"]
    assert folder.finder.unlisted == {}


ACTIONS = ("land", "land", "land", "change", "delete", "ingest", "ingest", "refuse", "list")


@pytest.fixture
def _few_second_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 2)
    monkeypatch.setattr(local_files, "_SHORTEST_ROTATION_S", 0.0)


@pytest.mark.usefixtures("_few_second_looks")
def test_the_finder_finds_exactly_the_files_of_a_walk(tmp_path_factory: pytest.TempPathFactory) -> None:
    """After random actions, of which each follows each other one."""
    rng, seen = random.Random(3), set[tuple[str, str]]()
    for _ in range(20):
        actions = [(rng.choice(ACTIONS), rng.randrange(3), rng.randrange(4)) for _ in range(20)]
        seen |= {(before, action) for (before, *_), (action, *_) in pairwise(actions)}
        check_finder(tmp_path_factory, actions)
    assert len(seen) == len({*ACTIONS}) ** 2


@pytest.mark.soak
@pytest.mark.usefixtures("_few_second_looks")
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(0, 3)), max_size=20))
def test_in_many_examples_the_finder_finds_exactly_the_files_of_a_walk(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, int]]
) -> None:
    check_finder(tmp_path_factory, actions)


def check_finder(tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, int]]) -> None:
    folder, size = LandingFolder(tmp_path_factory.mktemp("landing") / "l"), 1
    for action, subfolder, number in actions:
        path, size = folder.path / f"{subfolder}/{number}.jsonl", size + 1
        if action == "land" or (action == "change" and path.exists()):
            folder.land(f"{subfolder}/{number}.jsonl", "x" * size)
        elif action == "delete":
            path.unlink(missing_ok=True)
        elif action in ("ingest", "refuse"):
            folder.ingest("unread" if action == "refuse" else None)
        else:
            folder.list_new()
    walked = list(landed_files(str(folder.path), "l"))
    known = folder.ledger.file_records("l", walked)
    found: set[File] = set()
    for _ in range(2 * len(walked) + 2):
        folder.now += 10.0
        found.update(folder.finder.new())
    assert found == {file for file in walked if not known.has_present_state(file)}


def test_the_cost_of_a_listing_grows_with_new_files_only(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with many known files in many folders, a listing checks only a few of them."""
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 10)
    for n in range(200):
        folder.land(f"{n // 20}/{n}.jsonl")
    folder.ingest()
    folder.list_new()
    checked, listed = list[str](), list[str]()
    found: Callable[[str, str, str], File | None] = files.found_file
    scandir = os.scandir
    monkeypatch.setattr(local_files, "found_file", lambda path, *of: checked.append(path) or found(path, *of))
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(Path(path).name) or scandir(path))
    assert folder.list_new() == []
    assert (len(checked) <= 10, len(listed) <= 1) == (True, True)
    checked.clear()
    listed.clear()
    folder.land("3/new.jsonl")
    assert folder.ingest() == ["3/new.jsonl"]
    assert len(checked) <= 11
    assert len(listed) <= 3, "the root, the folder that changed, and one that is listed again for a second look"


def test_a_failed_listing_hides_no_file_from_the_next(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "SECOND_LOOKS", 0)
    folder.land("1/1.jsonl")
    folder.ingest()
    folder.list_new()
    folder.land("1/2.jsonl")

    def fail(*_: object) -> None:
        raise OSError("the store is unreachable")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "file_records", fail)
        for _ in range(3):
            with pytest.raises(OSError, match="the store is unreachable"):
                folder.list_new()
    assert folder.ingest() == ["1/2.jsonl"]


def test_an_inaccessible_file_is_named_and_found_later(folder: LandingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "_SHORTEST_ROTATION_S", 0.0)
    folder.land("1/1.jsonl")
    folder.ingest()
    folder.land("1/2.jsonl")
    folder.land("1/3.jsonl")
    found, bad = files.found_file, [str(folder.path / f"1/{n}.jsonl") for n in (1, 2)]

    def fail(path: str, *of: str) -> File | None:
        if path in bad:
            raise PermissionError(13, "Permission denied", path)
        return found(path, *of)

    with monkeypatch.context() as patch:
        patch.setattr(local_files, "found_file", fail)
        assert [name for _ in range(3) for name in folder.ingest()] == ["1/3.jsonl"]
        assert folder.finder.unlisted == dict.fromkeys(bad, "Permission denied")
    assert folder.ingest() == ["1/2.jsonl"]
    assert folder.finder.unlisted == {}


def test_files_with_non_utf8_names_are_distinguished_and_recorded_once(folder: LandingFolder) -> None:
    names = ["m\udcfcller.jsonl", "m\udcf6ller.jsonl", "d\udcfc/1.jsonl", "müller.jsonl"]
    for name in names:
        folder.land(name)
        os.utime(folder.path / name, (5, 5))
    found = folder.finder.new()
    fault, of_folder = (
        f"its name is not UTF-8, and Spark cannot open it; rename the {thing}" for thing in ("file", "folder that it is in")
    )
    faults = {f.path.rpartition("/l/")[2]: f.fault for f in found}
    assert faults == {"m%FCller.jsonl": fault, "m%F6ller.jsonl": fault, "d%FC/1.jsonl": of_folder, "müller.jsonl": None}
    assert len(folder.ingest()) == 4
    assert folder.ledger.offsets("l") == {f"./{path}|5000|1{'|unread' if fault else ''}" for path, fault in faults.items()}
    assert folder.list_new() == folder.list_new() == []
    (folder.path / names[0]).rename(folder.path / "renamed.jsonl")
    assert folder.ingest() == ["renamed.jsonl"]
    assert folder.list_new() == []


def test_the_finder_of_a_folder_is_chosen_by_its_uri() -> None:
    folders = {"l": "/in/l", "r": "s3a://in/r", "g": "gs://in/g", "h": "hdfs:///in/h", "f": "file:///in/f"}
    kinds = {source: type(finder) for source, finder in file_finders(folders, memory_ledger()).items()}
    on_hadoop = dict.fromkeys("ghf", HadoopFileFinder)
    assert kinds == {"l": LocalFileFinder, "r": S3FileFinder} | on_hadoop
