"""The demo's own lake: which folder it is, what in it the demo made, and how it is emptied without touching anything else."""

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
from platform_defs.engine.ingest.stream import writer_name
from platform_defs.engine.lake.tables import LakeError
from platform_defs.paths import is_within
from platform_defs.settings import HOME, PREFIX, Settings

FOLDER = HOME / "demo"
MARK = "_made_by_the_demo"
DAGSTER, LANDING, PREPARED_ASIDE = "_dagster", "landing", "_prepared"
_LOCKS, _TRASH = "_locks", "_trash-"
_CHECKPOINTS = "_checkpoints"
"""Of Spark's streaming query, which found the files until November 2026."""
_KEPT = (MARK, DAGSTER, _LOCKS)
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_WRITTEN = rf"((part|cdc)-\d+-{_UUID}[\w.-]*\.parquet|deletion_vector_{_UUID}\.bin)"
_COMMIT = "commit-[0-9a-f]{32}"
_TABLE_FILE = re.compile(
    rf"_delta_log/.*|(_change_data/|{_COMMIT}/(_temporary/(.*/)?)?)?(\.{_WRITTEN}\.crc|{_WRITTEN}(#\d+)?)", re.ASCII | re.DOTALL
)
"""What Delta, Spark and deltalake write into a table's folder; `#1` and `_temporary` are left by writes that were killed."""
_TABLE_FOLDER = re.compile(rf"_delta_log(/.*)?|_change_data|{_COMMIT}(/_temporary(/.*)?)?", re.ASCII | re.DOTALL)
_PREPARED_FILE = re.compile(rf"{PREPARED_ASIDE}/\w+/(part-\d{{5}}\.csv|\.part-\d{{5}}\.csv\.tmp)", re.ASCII)
_NOTE = "The demo empties this folder each time it starts. `landed` lists its input files: modification time in ms, and bytes."
State = tuple[int, int] | None
"""A file's modification time in ms and its length; None for a file that the demo was about to land."""


class NotTheDemos(TidemarkError, FileExistsError):
    """A folder holds something that the demo did not make, so the demo neither empties it nor writes to it."""

    @classmethod
    def holding(cls, root: Path, content: str) -> "NotTheDemos":
        """Something else is in the folder."""
        return cls(
            f"`--lake` is '{root}', which holds {content}, which no demo made; nothing was deleted. "
            "Legal: a folder that is absent, empty or a demo's own; name another one, or delete it yourself if nothing in it is needed"
        )

    @classmethod
    def overlapping(cls, root: Path, setting: str, folder: str) -> "NotTheDemos":
        """The folder lies in one that the settings name, or the other way round."""
        return cls(f"`--lake` is '{root}', which overlaps {PREFIX}{setting}, {folder!r}; legal: a folder of its own, by default {FOLDER}")


@dataclass(frozen=True)
class DemoLake:
    """The folder of a demo.

    Args:
        root: the folder, an absolute path without links.
    """

    root: Path

    @property
    def landing(self) -> Path:
        """The input files, one folder a source."""
        return self.root / LANDING

    def settings(self, values: Settings, **more: Any) -> Settings:
        """The settings with the demo's own lake, input files and Dagster instance in place of the user's.

        Raises:
            NotTheDemos: the folder overlaps the user's lake or input files.
        """
        for setting, folder in (("LAKE", values.lake), ("LANDING", values.landing_root)):
            overlaps = is_within(str(self.root), folder) or is_within(folder, str(self.root))
            if overlaps and values.lake != str(self.root):
                raise NotTheDemos.overlapping(self.root, setting, folder)
        own = {"lake": str(self.root), "landing": str(self.landing), "dagster_home": str(self.root / DAGSTER)}
        return values.model_copy(update={**own, **more})

    def begin(self, engine: Engine) -> None:
        """Empty the folder where it is provably a demo's own, and mark it as such.

        Every writer's place is taken first, so nothing is deleted beneath a running stream, advance or maintenance.

        Raises:
            NotTheDemos: the folder holds something else.
            LakeError: another process writes to the lake.
        """
        if self.root.exists() and not self.root.is_dir():
            raise NotTheDemos.holding(self.root, "a file")
        if self.root.exists() and any(self.root.iterdir()):
            self._landed()  # before a lock is put into a folder that may be another's
            self._require_known_names(engine)
            with ExitStack() as places:
                for name in ("maintenance", writer_name(engine.folders), "ledger", *engine.assets):
                    places.enter_context(engine.lake.writer(name))
                self.require_own(engine)
                self._clear()
        self.root.mkdir(parents=True, exist_ok=True)
        self._write_mark({})

    def plan(self, names: Iterable[str]) -> None:
        """Note the files, such as `orders/part-00000.csv`, that the demo is about to land."""
        self._write_mark({**self._landed(), **dict.fromkeys(names)})

    def landed(self) -> None:
        """Note the state of every file that has landed."""
        states = {name: _state(self.landing / name) for name in self._landed() if (self.landing / name).exists()}
        self._write_mark({**self._landed(), **states})

    def require_own(self, engine: Engine) -> None:
        """Pass if all that the folder holds is the demo's: its mark, files that its tables consist of, and rows of its own input files.

        Raises:
            NotTheDemos: something else is there.
        """
        self._require_known_names(engine)
        landed = self._landed()
        landed |= {str(path.with_name(f".{path.name}.tmp")): None for path in map(PurePosixPath, landed)}  # of a demo that was killed
        landings = [folder / LANDING for folder in (self.root, *_trash_folders(self.root))]
        found = [file for landing in landings for file in _files(landing)]
        for name, state in [*found, *_ingested(self.root, engine)]:
            if name not in landed or landed[name] not in (None, state):
                raise NotTheDemos.holding(self.root, f"rows or a file of {name!r}")

    def _require_known_names(self, engine: Engine) -> None:
        """Pass if a demo writes files and folders of all the names below the folder; input files are told apart by their state."""
        tables = {"ledger", *(t for s in engine.sources.values() for t in (s.log, s.quarantine))}
        tables |= {t for a in engine.assets.values() for t in (a.name, a.changelog, a.verdicts, a.early)}
        unknown = next(_unknown(self.root, tables), None)
        if unknown is not None:
            raise NotTheDemos.holding(self.root, repr(unknown.relative_to(self.root).as_posix()))

    def _clear(self) -> None:
        """Delete all but the locks and the Dagster instance; each entry is moved aside whole first, so a kill leaves none torn."""
        trash = Path(mkdtemp(prefix=_TRASH, dir=self.root))
        for entry in sorted(self.root.iterdir(), key=lambda e: e.name == "ledger"):  # the ledger, which is asked above, last
            if entry.name not in _KEPT and entry != trash:
                entry.rename(trash / entry.name)
        shutil.rmtree(trash)

    def _landed(self) -> dict[str, State]:
        """The files that the mark lists."""
        try:
            marked = json.loads((self.root / MARK).read_text("utf-8"))["landed"]
            return {str(name): state and (int(state[0]), int(state[1])) for name, state in marked.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            content = f"{sorted(e.name for e in self.root.iterdir())[0]!r} and no legible {MARK}"
            raise NotTheDemos.holding(self.root, content) from None

    def _write_mark(self, landed: dict[str, State]) -> None:
        """A reader sees the old mark or the new one."""
        hidden = self.root / f"{MARK}.new"
        hidden.write_text(json.dumps({"note": _NOTE, "landed": landed}), "utf-8")
        hidden.replace(self.root / MARK)


def _unknown(root: Path, tables: Collection[str], *, is_trash: bool = False) -> Iterator[Path]:
    """What lies below a demo's folder, or below what an earlier demo moved aside in it, and has no name that a demo gives."""
    for entry in _entries(root):
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and entry.name.startswith(_TRASH):
            yield from _unknown(Path(entry.path), tables, is_trash=True)
        elif is_folder and (entry.name in (LANDING, _CHECKPOINTS) or (entry.name in (DAGSTER, _LOCKS) and not is_trash)):
            continue
        elif not (entry.name in (MARK, f"{MARK}.new") and entry.is_file(follow_symlinks=False)):
            yield from _unknown_in(entry, root, tables)


def _unknown_in(entry: os.DirEntry[str], root: Path, tables: Collection[str]) -> Iterator[Path]:
    """What is unknown of an entry and of all below it; of a folder that is unknown itself, nothing below it is listed."""
    is_folder = entry.is_dir(follow_symlinks=False)
    if entry.is_symlink() or not _is_known(Path(entry.path).relative_to(root).as_posix(), is_folder, tables):
        yield Path(entry.path)
    elif is_folder:
        for below in _entries(Path(entry.path)):
            yield from _unknown_in(below, root, tables)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, by name; nothing where a running writer has deleted it meanwhile."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda e: e.name)
    except FileNotFoundError:
        return []


def _is_known(path: str, is_folder: bool, tables: Collection[str]) -> bool:
    """Whether a demo writes a file or a folder of a name, which is relative to the folder that holds the tables."""
    if is_folder and (path in tables or any(t.startswith(f"{path}/") for t in tables)):
        return True
    if is_folder and (path == PREPARED_ASIDE or path.rpartition("/")[0] == PREPARED_ASIDE):
        return True
    names = [path.removeprefix(f"{t}/") for t in tables if path.startswith(f"{t}/")]
    pattern = _TABLE_FOLDER if is_folder else _TABLE_FILE
    return any(pattern.fullmatch(name) for name in names) or (not is_folder and _PREPARED_FILE.fullmatch(path) is not None)


def _trash_folders(root: Path) -> Iterator[Path]:
    """What earlier demos moved aside and did not delete to the end, at any depth."""
    for entry in root.iterdir():
        if entry.name.startswith(_TRASH) and entry.is_dir():
            yield entry
            yield from _trash_folders(entry)


def _files(landing: Path) -> Iterator[tuple[str, State]]:
    """Every file below a folder; links are files."""
    for below, folders, names in os.walk(landing):
        linked = [name for name in folders if Path(below, name).is_symlink()]
        for path in (Path(below, name) for name in [*names, *linked]):
            yield path.relative_to(landing).as_posix(), _state(path)


def _state(path: Path) -> State:
    found = path.lstat()
    return found.st_mtime_ns // 1_000_000, found.st_size


def _ingested(root: Path, engine: Engine) -> Iterator[tuple[str, State]]:
    """The files that the ledger has rows of, by source and name."""
    for source in engine.sources:
        try:
            offsets = engine.ledger.offsets(source)
        except (LakeError, LedgerError, OSError) as error:
            raise NotTheDemos.holding(root, f"a ledger that cannot be read ({error})") from None
        for offset in offsets:
            path, modified, length = offset.split("|")[:3]
            yield f"{source}/{PurePosixPath(unquote(path)).name}", (int(modified), int(length))
