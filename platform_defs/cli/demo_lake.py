"""The demo's lake: recognizes the files that a demo made in its folder, and empties the folder without deleting anything else."""

import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any
from urllib.parse import unquote

from operators.errors import TidemarkError
from platform_defs.engine import Engine, LedgerError
from platform_defs.engine.accounting.recorded_account import FOLDER as ACCOUNTS
from platform_defs.engine.formats.files import TOPIC
from platform_defs.engine.ingest.stream import writer_name
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.operations.failures import FOLDER as FAILURES
from platform_defs.paths import is_within
from platform_defs.settings import HOME, Settings
from platform_defs.settings.values import PREFIX

FOLDER = HOME / "demo"
MARK = "_made_by_the_demo"
DAGSTER, LANDING, PREPARED_FOLDER = "_dagster", "landing", "_prepared"
_LOCKS, _TRASH = "_locks", "_trash-"
_CHECKPOINTS = "_checkpoints"
"""A folder that demos made until November 2026, when they used Spark's Structured Streaming."""
_KEPT = (MARK, DAGSTER, _LOCKS)
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_WRITTEN = rf"((part|cdc)-\d+-{_UUID}[\w.-]*\.parquet|deletion_vector_{_UUID}\.bin)"
_COMMIT = "commit-[0-9a-f]{32}"
_TABLE_FILE = re.compile(
    rf"_delta_log/.*|(_change_data/|{_COMMIT}/(_temporary/(.*/)?)?)?(\.{_WRITTEN}\.crc|{_WRITTEN}(#\d+)?)", re.ASCII | re.DOTALL
)
"""The files that Delta, Spark, Arrow and deltalake write into a table's folder; killed writes leave `#1` and `_temporary`."""
_TABLE_FOLDER = re.compile(rf"_delta_log(/.*)?|_change_data|{_COMMIT}(/_temporary(/.*)?)?", re.ASCII | re.DOTALL)
_PREPARED_FILE = re.compile(rf"{PREPARED_FOLDER}/\w+/(part-\d{{5}}\.csv|\.part-\d{{5}}\.csv\.tmp)", re.ASCII)
_STATUS_FOLDERS = (ACCOUNTS, FAILURES, *(f"{FAILURES}/{kind}" for kind in ("tables", "sources", "sinks")))
_STATUS_FILE = re.compile(rf"({'|'.join(_STATUS_FOLDERS)})/\w+\.json(#\d+)?", re.ASCII)
"""A recorded account or failure, or a temporary file that an interrupted write of one left."""
_NOTE = "The demo empties this folder each time it starts. `landed` lists its input: for files, modification time in ms, and size in bytes."
State = tuple[int, int] | None
"""A file's modification time in ms and its size; None for a file that the demo was about to land."""


class ForeignFolderError(TidemarkError, FileExistsError):
    """A folder contains a file that no demo made, so the demo neither empties it nor writes to it."""

    @classmethod
    def containing(cls, root: Path, content: str) -> "ForeignFolderError":
        """The folder contains something else."""
        return cls(
            f"`--lake` is '{root}', which contains something that no demo made: {content}. Nothing was deleted. "
            "Legal: a new or empty folder, or one of an earlier demo; choose another folder, or delete this one yourself"
        )

    @classmethod
    def overlapping(cls, root: Path, setting: str, folder: str) -> "ForeignFolderError":
        """The folder is inside a folder of the settings, or contains one."""
        return cls(f"`--lake` is '{root}', which overlaps {PREFIX}{setting}, {folder!r}; legal: a separate folder, by default {FOLDER}")


@dataclass(frozen=True)
class DemoLake:
    """The folder of a demo.

    Args:
        root: the folder, an absolute path without links.
    """

    root: Path

    @property
    def landing(self) -> Path:
        """The input files, with one folder for each source."""
        return self.root / LANDING

    def settings(self, values: Settings, **changes: Any) -> Settings:
        """The settings with the demo's lake, input files and Dagster instance in place of the user's.

        The user's lake may be this folder, as it is with the settings of the command that opens the UI of a demo. `begin` refuses the
        folder unless all of its content is a demo's.

        Raises:
            ForeignFolderError: the folder is not the user's lake, and overlaps it or the user's input files.
        """
        for setting, folder in (("LAKE", values.lake), ("LANDING", values.landing_root)):
            overlaps = is_within(str(self.root), folder) or is_within(folder, str(self.root))
            if overlaps and values.lake != str(self.root):
                raise ForeignFolderError.overlapping(self.root, setting, folder)
        paths = {"lake": str(self.root), "landing": str(self.landing), "dagster_home": str(self.root / DAGSTER)}
        return values.model_copy(update={**paths, **changes})

    def begin(self, engine: Engine) -> None:
        """Empty the folder if all of its content is a demo's, and mark it as a demo's folder.

        All writers' locks are taken first, so that nothing is deleted during a running stream, advance or maintenance.

        Raises:
            ForeignFolderError: the folder contains something else.
            LakeError: another process writes to the lake.
        """
        if self.root.exists() and not self.root.is_dir():
            raise ForeignFolderError.containing(self.root, "a file")
        if self.root.exists() and any(self.root.iterdir()):
            self._recorded_files()  # before a lock file is written to a folder that may be someone else's
            self._require_known_names(engine)
            with ExitStack() as locks:
                for name in ("maintenance", writer_name(engine.folders), "ledger", *engine.assets):
                    locks.enter_context(engine.lake.writer(name))
                self.require_own(engine)
                self._clear()
        self.root.mkdir(parents=True, exist_ok=True)
        self._write_mark({})

    def record_planned_files(self, names: Iterable[str]) -> None:
        """Record that the demo is about to land files, such as `orders/part-00000.csv`."""
        self._write_mark({**self._recorded_files(), **dict.fromkeys(names)})

    def record_topics(self, topics: Iterable[str]) -> None:
        """Record that the demo sends rows to topics, each of which a source of its name reads."""
        self.record_planned_files(f"{topic}/{TOPIC}{topic}" for topic in topics)

    def record_landed_files(self) -> None:
        """Record the modification time and the size of every planned file that has landed."""
        states = {name: _state(self.landing / name) for name in self._recorded_files() if (self.landing / name).exists()}
        self._write_mark({**self._recorded_files(), **states})

    def require_own(self, engine: Engine) -> None:
        """Raise unless all content of the folder is a demo's: its mark, the files of its tables, and rows of its input files.

        Raises:
            ForeignFolderError: the folder has other content.
        """
        self._require_known_names(engine)
        landed = self._recorded_files()
        landed |= {str(path.with_name(f".{path.name}.tmp")): None for path in map(PurePosixPath, landed)}  # of a killed demo
        landings = [folder / LANDING for folder in (self.root, *_trash_folders(self.root))]
        files = [file for landing in landings for file in _files(landing)]
        for name, state in [*files, *_ingested_files(self.root, engine)]:
            if name not in landed or landed[name] not in (None, state):
                raise ForeignFolderError.containing(self.root, f"rows or a file of {name!r}")

    def _require_known_names(self, engine: Engine) -> None:
        """Raise if a file or folder has a name that no demo uses. Input files may have any name here: `require_own` checks them."""
        tables = {"ledger", *(t for s in engine.sources.values() for t in (s.log, s.quarantine))}
        tables |= {t for a in engine.assets.values() for t in (a.name, a.changelog, a.decisions, a.kept, a.early)}
        unknown = next(_unknown_paths(self.root, tables), None)
        if unknown is not None:
            raise ForeignFolderError.containing(self.root, repr(unknown.relative_to(self.root).as_posix()))

    def _clear(self) -> None:
        """Delete all but the mark, the locks and the Dagster instance.

        Each entry is first moved as a whole, so that after a kill it is either in the lake or among the trash.
        """
        trash = Path(mkdtemp(prefix=_TRASH, dir=self.root))
        for entry in sorted(self.root.iterdir(), key=lambda e: e.name == "ledger"):  # the ledger last, as the checks above read it
            if entry.name not in _KEPT and entry != trash:
                entry.rename(trash / entry.name)
        shutil.rmtree(trash)

    def _recorded_files(self) -> dict[str, State]:
        """The files that the mark lists, by source and name, with their states."""
        try:
            marked = json.loads((self.root / MARK).read_text("utf-8"))["landed"]
            return {str(name): state and (int(state[0]), int(state[1])) for name, state in marked.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            content = f"{sorted(e.name for e in self.root.iterdir())[0]!r} and no readable {MARK}"
            raise ForeignFolderError.containing(self.root, content) from None

    def _write_mark(self, landed: dict[str, State]) -> None:
        """Replace the mark atomically."""
        new_mark = self.root / f"{MARK}.new"
        new_mark.write_text(json.dumps({"note": _NOTE, "landed": landed}), "utf-8")
        new_mark.replace(self.root / MARK)


def _unknown_paths(root: Path, tables: Collection[str], *, is_trash: bool = False) -> Iterator[Path]:
    """The files and folders whose names no demo uses, in a demo's folder and in the trash folders in it."""
    for entry in _entries(root):
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and entry.name.startswith(_TRASH):
            yield from _unknown_paths(Path(entry.path), tables, is_trash=True)
        elif is_folder and (entry.name in (LANDING, _CHECKPOINTS) or (entry.name in (DAGSTER, _LOCKS) and not is_trash)):
            continue
        elif not (entry.name in (MARK, f"{MARK}.new") and entry.is_file(follow_symlinks=False)):
            yield from _unknown_in(entry, root, tables)


def _unknown_in(entry: os.DirEntry[str], root: Path, tables: Collection[str]) -> Iterator[Path]:
    """The entry itself if it is unknown, otherwise the unknown entries below it."""
    is_folder = entry.is_dir(follow_symlinks=False)
    if entry.is_symlink() or not _is_known(Path(entry.path).relative_to(root).as_posix(), is_folder, tables):
        yield Path(entry.path)
    elif is_folder:
        for below in _entries(Path(entry.path)):
            yield from _unknown_in(below, root, tables)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, ordered by name; none if a running writer has deleted it."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda e: e.name)
    except FileNotFoundError:
        return []


def _is_known(path: str, is_folder: bool, tables: Collection[str]) -> bool:
    """Whether a demo writes a file or a folder with this path, relative to the lake's root."""
    if is_folder and (path in tables or any(t.startswith(f"{path}/") for t in tables)):
        return True
    if is_folder and (path in (PREPARED_FOLDER, *_STATUS_FOLDERS) or path.rpartition("/")[0] == PREPARED_FOLDER):
        return True
    if not is_folder and (_PREPARED_FILE.fullmatch(path) or _STATUS_FILE.fullmatch(path)):
        return True
    names = [path.removeprefix(f"{t}/") for t in tables if path.startswith(f"{t}/")]
    pattern = _TABLE_FOLDER if is_folder else _TABLE_FILE
    return any(pattern.fullmatch(name) for name in names)


def _trash_folders(root: Path) -> Iterator[Path]:
    """The trash folders that earlier demos did not delete completely, at any depth."""
    for entry in root.iterdir():
        if entry.name.startswith(_TRASH) and entry.is_dir():
            yield entry
            yield from _trash_folders(entry)


def _files(landing: Path) -> Iterator[tuple[str, State]]:
    """Every file below a folder, with its state; links are files."""
    for below, folders, names in os.walk(landing):
        linked = [name for name in folders if Path(below, name).is_symlink()]
        for path in (Path(below, name) for name in [*names, *linked]):
            yield path.relative_to(landing).as_posix(), _state(path)


def _state(path: Path) -> State:
    status = path.lstat()
    return status.st_mtime_ns // 1_000_000, status.st_size


def _ingested_files(root: Path, engine: Engine) -> Iterator[tuple[str, State]]:
    """The files and the ranges of offsets of topics that the ledger records, by source and name, with their states."""
    for source in engine.sources:
        try:
            offsets = engine.ledger.offsets(source)
        except (LakeError, LedgerError, OSError) as error:
            raise ForeignFolderError.containing(root, f"a ledger that cannot be read ({error})") from None
        for offset in offsets:
            path, modified, length = offset.split("|")[:3]
            name = path.rpartition("/")[0] if path.startswith(TOPIC) else PurePosixPath(unquote(path)).name  # of a range, the topic
            yield f"{source}/{name}", (int(modified), int(length))
