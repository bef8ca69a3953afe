"""New files are found at a cost that does not grow with the number of files that ever landed. Without Spark."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_defs.engine.formats import files
from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest import new_files as landing
from platform_defs.engine.ingest.new_files import Landing
from platform_defs.engine.ledger.ledger import Ledger
from tests.engine.entries import source_entry
from tests.support.clock import Clock
from tests.support.file_walk import landed_files
from tests.support.memory_ledger import memory_ledger


class Looks:
    """The folder of a source, a ledger, and the finder of new files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger, self.now = folder, memory_ledger(clock=Clock(5)), 0.0
        self.landing, self.stamp = Landing("l", str(folder), self.ledger, lambda: self.now), 0

    def land(self, name: str, content: str = "x") -> None:
        """Write a file into the folder; every new file gives its folders a new time, even with coarse time stamps."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        path.write_text(content)
        self.stamp += is_new
        for parent in [p for p in path.parents if p == self.folder or self.folder in p.parents] if is_new else []:
            os.utime(parent, ns=(0, self.stamp * 10**9))

    def look(self) -> list[str]:
        self.now += 10.0
        return [self.name(file) for file in self.landing.new()]

    def ingest(self, fault: str | None = None) -> list[str]:
        """List the folder, and record the new files; returns their names."""
        self.now += 10.0
        found = self.landing.new()
        judged = [self.ledger.known("l", found).with_fault(f) for f in found]
        if found:
            self.commit(tuple(replace(f, fault=f.fault or fault).offset for f in judged))
        return [self.name(file) for file in found]

    def commit(self, offsets: tuple[str, ...], kind: str = "rows") -> None:
        seq = self.ledger.head + 1
        self.ledger.commit([(source_entry("l", seq, kind=kind, ingested_at=self.ledger.now(), offsets=offsets),)])

    def name(self, file: File) -> str:
        return file.keys[0].removeprefix("./")


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    return Looks(tmp_path / "l")


def test_a_landed_file_is_found_until_it_is_recorded(looks: Looks) -> None:
    assert looks.look() == []
    looks.land("1.jsonl")
    looks.land("2026/03/ä 2.jsonl")
    looks.land("_hidden/3.jsonl")
    looks.land(".4.jsonl")
    assert sorted(looks.look()) == sorted(looks.look()) == sorted(looks.ingest()) == ["1.jsonl", "2026/03/ä 2.jsonl"]
    assert looks.look() == []
    for name in ("2026/03/5.jsonl", "2026/04/6.jsonl", "7.jsonl"):
        looks.land(name)
        assert looks.ingest() == [name]
    shutil.rmtree(looks.folder)
    assert looks.look() == []
    looks.land("2026/03/5.jsonl", "another")
    assert looks.ingest() == ["2026/03/5.jsonl"]


def test_a_file_that_lands_within_the_time_stamp_of_its_folder_is_found(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "SECOND_LOOKS", 0)
    looks.land("1.jsonl")
    assert looks.ingest() == ["1.jsonl"]
    stamp = looks.folder.stat()
    looks.now -= 9.5
    assert looks.look() == []
    looks.now -= 9.5
    looks.land("2.jsonl")
    os.utime(looks.folder, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert looks.look() == ["2.jsonl"]


def test_links_are_skipped_and_counted(looks: Looks) -> None:
    looks.land("day/1.jsonl")
    for link, to in (("latest", "day"), ("self", "."), ("again.jsonl", "day/1.jsonl"), ("gone", "nowhere")):
        (looks.folder / link).symlink_to(looks.folder / to)
    assert looks.ingest() == ["day/1.jsonl"]
    assert looks.landing.links == [str(looks.folder / link) for link in ("again.jsonl", "gone", "latest", "self")]
    (looks.folder / "gone").unlink()
    looks.look()
    assert len(looks.landing.links) == 3


def test_a_file_changed_in_place_is_found_by_a_later_listing(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "SECOND_LOOKS", 3)
    monkeypatch.setattr(landing, "_TURN_S", 0.0)
    for n in range(20):
        looks.land(f"{n % 4}/{n}.jsonl")
    assert len(looks.ingest()) == 20
    for _ in range(3):
        assert looks.look() == []
    (looks.folder / "3/7.jsonl").write_text("changed, and of another length")
    assert [name for _ in range(10) for name in looks.ingest()] == ["3/7.jsonl"]
    assert "3/7.jsonl" not in [name for _ in range(10) for name in looks.look()]


def test_a_folder_without_modification_times_is_listed_periodically(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "SECOND_LOOKS", 3)
    monkeypatch.setattr(landing, "_TURN_S", 0.0)
    for n in range(12):
        looks.land(f"{n % 4}/{n}.jsonl")
    looks.ingest()
    looks.look()
    times = {path: path.stat().st_mtime_ns for path in looks.folder.iterdir()}
    looks.land("2/new.jsonl")
    for path, time in times.items():
        os.utime(path, ns=(time, time))
    assert [name for _ in range(10) for name in looks.ingest()] == ["2/new.jsonl"]


def test_an_unread_file_is_found_as_soon_as_it_changes(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "SECOND_LOOKS", 0)
    for n in range(3):
        looks.land(f"{n}.jsonl")
    assert len(looks.ingest(fault="unread")) == 3
    assert looks.look() == looks.look() == []
    looks.land("1.jsonl", "mended")
    assert looks.ingest() == ["1.jsonl"]
    assert looks.look() == []


def test_a_file_marked_for_retry_is_found(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "SECOND_LOOKS", 0)
    looks.land("1.jsonl")
    [file] = landed_files(str(looks.folder), "l")
    assert looks.ingest(fault="unread") == ["1.jsonl"]
    assert looks.look() == []
    looks.commit((file.retry,), kind="retry")
    assert looks.look() == ["1.jsonl"]


def test_a_recreated_or_restored_ledger_invalidates_the_known_files(looks: Looks) -> None:
    for n in range(3):
        looks.land(f"{n}.jsonl")
        looks.ingest()
    assert looks.look() == []
    memory = looks.ledger._store.memory  # pyright: ignore[reportAttributeAccessIssue]
    del memory.commits[1:]
    looks.ledger._forget()
    assert looks.look() == ["1.jsonl", "2.jsonl"]
    looks.ingest()
    memory.commits.clear()
    looks.ledger._forget()
    assert looks.look() == ["0.jsonl", "1.jsonl", "2.jsonl"]


def test_an_unlistable_folder_is_named_and_does_not_affect_the_others(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    looks.land("good/1.jsonl")
    looks.land("bad/2.jsonl")
    scandir, bad = os.scandir, str(looks.folder / "bad")

    def fail(path: str) -> object:
        if path == bad:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        assert looks.ingest() == ["good/1.jsonl"]
    assert looks.landing.unlisted == {bad: "Permission denied"}
    assert looks.ingest() == ["bad/2.jsonl"]
    assert looks.landing.unlisted == {}


ACTS = st.lists(
    st.tuples(
        st.sampled_from(("land", "land", "land", "change", "delete", "ingested", "ingested", "refuse", "look")),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=20,
)


@pytest.fixture
def _few_second_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "SECOND_LOOKS", 2)
    monkeypatch.setattr(landing, "_TURN_S", 0.0)


@pytest.mark.usefixtures("_few_second_looks")
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTS)
def test_the_finder_finds_exactly_the_files_of_a_walk(tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int, int]]) -> None:
    looks, size = Looks(tmp_path_factory.mktemp("landing") / "l"), 1
    for act, folder, number in acts:
        path, size = looks.folder / f"{folder}/{number}.jsonl", size + 1
        if act == "land" or (act == "change" and path.exists()):
            looks.land(f"{folder}/{number}.jsonl", "x" * size)
        elif act == "delete":
            path.unlink(missing_ok=True)
        elif act in ("ingested", "refuse"):
            looks.ingest("unread" if act == "refuse" else None)
        else:
            looks.look()
    walked = list(landed_files(str(looks.folder), "l"))
    known = looks.ledger.known("l", walked)
    found: set[File] = set()
    for _ in range(2 * len(walked) + 2):
        looks.now += 10.0
        found.update(looks.landing.new())
    assert found == {file for file in walked if not known.holds(file)}


def test_the_cost_of_a_listing_grows_with_new_files_only(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many known files in many folders, no listing looks at all of them."""
    monkeypatch.setattr(landing, "SECOND_LOOKS", 10)
    for n in range(1_000):
        looks.land(f"{n // 100}/{n}.jsonl")
    looks.ingest()
    looks.look()
    looked, listed = list[str](), list[str]()
    found: Callable[[str, str, str], File | None] = files.found_file
    scandir = os.scandir
    monkeypatch.setattr(landing, "found_file", lambda path, *of: looked.append(path) or found(path, *of))
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(Path(path).name) or scandir(path))
    assert looks.look() == []
    assert (len(looked) <= 10, len(listed) <= 1) == (True, True)
    looked.clear()
    listed.clear()
    looks.land("3/new.jsonl")
    assert looks.ingest() == ["3/new.jsonl"]
    assert len(looked) <= 11
    assert len(listed) <= 3, "the root and the folder that changed, and one whose second look began"


def test_a_failed_listing_hides_no_file_from_the_next(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "SECOND_LOOKS", 0)
    looks.land("1/1.jsonl")
    looks.ingest()
    looks.look()
    looks.land("1/2.jsonl")

    def fail(*_: object) -> None:
        raise OSError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "known", fail)
        for _ in range(3):
            with pytest.raises(OSError, match="the store is away"):
                looks.look()
    assert looks.ingest() == ["1/2.jsonl"]


def test_an_inaccessible_file_is_named_and_found_later(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "_TURN_S", 0.0)
    looks.land("1/1.jsonl")
    looks.ingest()
    looks.land("1/2.jsonl")
    looks.land("1/3.jsonl")
    found, bad = files.found_file, [str(looks.folder / f"1/{n}.jsonl") for n in (1, 2)]

    def fail(path: str, *of: str) -> File | None:
        if path in bad:
            raise PermissionError(13, "Permission denied", path)
        return found(path, *of)

    with monkeypatch.context() as patch:
        patch.setattr(landing, "found_file", fail)
        assert [name for _ in range(3) for name in looks.ingest()] == ["1/3.jsonl"]
        assert looks.landing.unlisted == dict.fromkeys(bad, "Permission denied")
    assert looks.ingest() == ["1/2.jsonl"]
    assert looks.landing.unlisted == {}


def test_files_with_non_utf8_names_are_distinguished_and_recorded_once(looks: Looks) -> None:
    names = ["m\udcfcller.jsonl", "m\udcf6ller.jsonl", "d\udcfc/1.jsonl", "müller.jsonl"]
    for name in names:
        looks.land(name)
        os.utime(looks.folder / name, (5, 5))
    found = looks.landing.new()
    fault, of_folder = (
        f"its name is not UTF-8, and Spark cannot open it; rename the {thing}" for thing in ("file", "folder that it is in")
    )
    faults = {f.path.rpartition("/l/")[2]: f.fault for f in found}
    assert faults == {"m%FCller.jsonl": fault, "m%F6ller.jsonl": fault, "d%FC/1.jsonl": of_folder, "müller.jsonl": None}
    assert len(looks.ingest()) == 4
    assert looks.ledger.offsets("l") == {f"./{path}|5000|1{'|unread' if fault else ''}" for path, fault in faults.items()}
    assert looks.look() == Looks.look(looks) == []
    (looks.folder / names[0]).rename(looks.folder / "renamed.jsonl")
    assert looks.ingest() == ["renamed.jsonl"]
    assert looks.look() == []


def test_landing_folders_are_local() -> None:
    ledger: Ledger = memory_ledger()
    assert list(landing.landings({"l": "/in/l", "r": "s3a://in/r"}, ledger)) == ["l"]
