"""Finds new files in a folder on this machine: files that the ledger does not record in their present state.

A folder with an unchanged modification time has the same files as before; it is skipped if the ledger records all of them. In a changed
folder, only files that are not recorded are examined. This alone would miss changes of recorded files, and all changes on network file
systems whose folders have no modification times. Each look therefore also examines `SECOND_LOOKS` recorded files again, in rotation, and
the next look lists the folders that the rotation has reached.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock

from pyspark.sql import SparkSession

from platform_defs.engine.formats.files import File, found_file, is_hidden, one_path
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.new_files import FileFinder
from platform_defs.engine.ledger.ledger import Ledger

SECOND_LOOKS = 1_000
"""The number of recorded files of a source that each look examines again."""
_STABLE_AFTER_S = 2.0
"""In seconds. If a folder is listed this long after its modification time was first seen, any file added later changes that time."""
_SHORTEST_ROTATION_S = 60.0
"""The shortest duration of one rotation through all recorded files, in seconds."""
_AT_ONCE = 10_000
"""The number of files in one lookup in the ledger. The result of a lookup is kept in memory."""


@dataclass
class _Folder:
    """The result of the last listing of a folder.

    Args:
        modified: its modification time in ns.
        first_seen: when this modification time was first seen, in seconds of a monotonic clock.
        folders: the paths of the folders in it.
        links: the paths of the symbolic links in it.
        recorded: the names of its files whose rows were read.
        refused: the names of its recorded files of which no row was read. Each look examines them: they may be corrected at any time.
        is_stable: whether it was listed `_STABLE_AFTER_S` after its modification time was first seen.
        is_complete: whether it is stable and all of its files are recorded. It has no new file until its modification time changes.
    """

    modified: int
    first_seen: float
    folders: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    is_stable: bool = False
    is_complete: bool = False


class LocalFileFinder(FileFinder):
    """Finds new files in one source's folder on this machine.

    Args:
        source: the source.
        folder: its folder.
        ledger: the lake's ledger.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, source: str, folder: str, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(source, folder, ledger)
        self._clock, self._mutex = clock, Lock()
        self._forget()

    def _forget(self) -> None:
        self._folders: dict[str, _Folder] = {}
        self._head, self._head_at = 0, 0
        self._rotating_files: Iterator[tuple[str, str]] = iter(())
        self._rotation_began = -_SHORTEST_ROTATION_S

    @property
    def links(self) -> list[str]:
        """The symbolic links that were skipped so far, by path."""
        with self._mutex:
            return sorted(link for folder in self._folders.values() for link in folder.links)

    def forget(self) -> None:
        """Make the next look examine everything, as the first look of a process does."""
        with self._mutex:
            self._forget()

    def prepare(self, spark: SparkSession) -> None:
        """Create the folder if it is missing; raises `IngestError` if the folder cannot be created or may not be read."""
        try:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IngestError.no_folder(self._source, self._folder, error.strerror or str(error)) from error
        if not os.access(self._folder, os.R_OK | os.X_OK):
            raise IngestError.no_folder(self._source, self._folder, "it may not be read")

    def new(self, spark: SparkSession | None = None) -> list[File]:
        """The files that the ledger does not record in their present state, the oldest first."""
        with self._mutex:
            self._follow_ledger()
            self.unlisted = {}
            listed, reexamined = [*self._changed_folders()], self._files_to_check_again()
            folders = [*listed, *reexamined]
            new, with_rows = self._new_and_read([file for _, files in folders for file in files.values()])
            for number, (path, files) in enumerate(folders):
                read_names = {name for name, file in files.items() if file in with_rows}
                self._note_files(self._folders.get(path), files, new, read_names)
                if number < len(listed):
                    self._mark_complete(path, files, new)
            return sorted(new)

    def _new_and_read(self, files: Sequence[File]) -> tuple[set[File], set[File]]:
        """The files that the ledger does not record in their present state; and those of the other files of which rows were read."""
        new, with_rows = set[File](), set[File]()
        for start in range(0, len(files), _AT_ONCE):
            chunk = files[start : start + _AT_ONCE]
            known_files = self._ledger.file_records(self._source, chunk)
            new_in_chunk = {file for file in chunk if not known_files.has_present_state(file)}
            new |= new_in_chunk
            with_rows |= {file for file in chunk if file not in new_in_chunk and known_files.has_rows(file)}
        return new, with_rows

    def _follow_ledger(self) -> None:
        """Forget all listings if the ledger was replaced by another one, or if retries of files were requested."""
        history, head = self._ledger.history, self._head
        if head > history.head or (head and (history.times[head - 1] != self._head_at or self._has_retries(head, history.head))):
            self._forget()
        self._head, self._head_at = history.head, history.times[-1] if history.head else 0

    def _has_retries(self, after: int, upto: int) -> bool:
        return any(row.kind == "retry" for batch in self._ledger.batches()[after:upto] for row in batch)

    def _changed_folders(self) -> Iterator[tuple[str, dict[str, File]]]:
        """The folders that may have new files, each with its files that are not recorded, by name."""
        root = one_path(self._folder)
        waiting, present = [root], set[str]()
        while waiting:
            path = waiting.pop()
            folder = self._folders.get(path)
            try:
                modified = Path(path).stat().st_mtime_ns
                if folder is None or not folder.is_complete or folder.modified != modified:
                    listing, files = self._list_folder(path, root, modified, folder)
                    self._folders[path] = folder = listing
                    yield path, files
                elif folder.refused:
                    yield path, self._existing_files(path, folder.refused, root)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.unlisted[path] = error.strerror or str(error)
                continue
            present.add(path)
            waiting += folder.folders
        self._folders = {path: folder for path, folder in self._folders.items() if path in present}

    def _list_folder(self, path: str, root: str, modified: int, folder: _Folder | None) -> tuple[_Folder, dict[str, File]]:
        """List a folder; returns the listing, and the files that are not recorded."""
        now = self._clock()
        is_unchanged = folder is not None and folder.modified == modified
        listing, names = _Folder(modified, folder.first_seen if folder is not None and is_unchanged else now), list[str]()
        recorded = folder.recorded if folder is not None else set[str]()
        with os.scandir(path) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_symlink():
                    listing.links.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    listing.folders.append(entry.path)
                elif entry.name in recorded:
                    listing.recorded.add(entry.name)
                else:
                    names.append(entry.name)
        listing.is_stable = now - listing.first_seen >= _STABLE_AFTER_S
        return listing, self._existing_files(path, names, root)

    def _files_to_check_again(self) -> list[tuple[str, dict[str, File]]]:
        """Some recorded files in their present state, by folder. The next look lists each folder that the rotation has reached."""
        names_by_folder = dict[str, list[str]]()
        next_files = [*islice(self._rotating_files, SECOND_LOOKS)]
        if not next_files and self._clock() - self._rotation_began >= _SHORTEST_ROTATION_S:
            self._rotating_files, self._rotation_began = self._rotation(), self._clock()
            next_files = [*islice(self._rotating_files, SECOND_LOOKS)]
        for path, name in next_files:
            folder = self._folders.get(path)
            if folder is not None and name in folder.recorded:
                names_by_folder.setdefault(path, []).append(name)
        root = one_path(self._folder)
        return [(path, self._existing_files(path, names, root)) for path, names in names_by_folder.items()]

    def _existing_files(self, path: str, names: Iterable[str], root: str) -> dict[str, File]:
        """Some files of a folder in their present state, by name, without missing ones. `unlisted` gets files that cannot be examined."""
        files_by_name: dict[str, File] = {}
        for name in names:
            try:
                file = found_file(f"{path}/{name}", self._source, root)
            except OSError as error:
                self.unlisted[f"{path}/{name}"] = error.strerror or str(error)
                continue
            if file is not None:
                files_by_name[name] = file
        return files_by_name

    def _rotation(self) -> Iterator[tuple[str, str]]:
        """The folder and the name of each recorded file. Folders that are reached are no longer complete, so the next look lists them."""
        for path, folder in list(self._folders.items()):
            folder.is_complete = False
            yield from ((path, name) for name in list(folder.recorded))

    @staticmethod
    def _note_files(folder: _Folder | None, files: Mapping[str, File], new: set[File], read_names: set[str]) -> None:
        """Keep in memory which files of a folder are recorded, and which of these were read."""
        if folder is None:
            return
        new_names = {name for name, file in files.items() if file in new}
        folder.recorded.difference_update(new_names)
        folder.recorded.update(read_names)
        folder.refused.difference_update(files)
        folder.refused.update(files.keys() - new_names - read_names)
        folder.is_complete = folder.is_complete and not new_names

    def _mark_complete(self, path: str, files: Mapping[str, File], new: set[File]) -> None:
        """Mark a folder as complete if it was listed without errors, is stable, and all of its files are recorded."""
        folder, has_unlisted = self._folders.get(path), any(f.startswith(f"{path}/") for f in self.unlisted)
        if folder is not None:
            folder.is_complete = folder.is_stable and not has_unlisted and not new.intersection(files.values())
