"""What is new in the sources' folders: the files that the ledger does not record as they are now.

A folder whose modification time has not changed holds the files it held before, so it is passed over when the ledger records all of them;
in one that has changed, only files that are not recorded are looked at. A recorded file that changes, in place or by a rename, is found
otherwise, and some network file systems keep no times of folders: therefore each look also takes a second look at `SECOND_LOOKS` recorded
files, in turn, and lists their folders. Behind a URI there are no such times, and Spark lists every file.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock

from platform_defs.engine.formats.files import File, found_file, is_hidden, is_local, one_path
from platform_defs.engine.ledger.ledger import Ledger

SECOND_LOOKS = 1_000
"""How many recorded files of a source each look takes a second look at."""
_SETTLES_AFTER_S = 2.0
"""No file can be added to a folder without changing its time once it was listed this long after that time was first seen."""
_TURN_S = 60.0
"""The second looks begin again with the first file at most so often."""
_AT_ONCE = 10_000
"""Files that the ledger is asked about at once: what it records of them is kept in objects meanwhile."""


@dataclass
class _Folder:
    """A folder as it was listed last.

    Args:
        modified: its modification time in ns.
        first_seen: when it was first seen with this time, in seconds that never go back.
        folders: the paths of the folders in it.
        links: the paths of the links in it.
        recorded: the names of its files whose rows were read.
        refused: the names of its files that are recorded, though no row of them was read; such a file may be mended at any time.
        is_settled: whether it was listed so long after its time was first seen that it cannot gain a file and keep the time.
        is_whole: whether that is so, and all of its files are recorded: while it keeps its time, nothing in it is new.
    """

    modified: int
    first_seen: float
    folders: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    is_settled: bool = False
    is_whole: bool = False


class Landing:
    """Finds new files below one source's folder of this machine.

    Args:
        source: the source.
        folder: its folder.
        ledger: the lake's ledger.
        clock: seconds that never go back.
    """

    def __init__(self, source: str, folder: str, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._folder, self._ledger, self._clock = source, folder, ledger, clock
        self.unlisted: dict[str, str] = {}
        """The folders, and the files, that the newest look could not look at, by path, and why."""
        self._mutex = Lock()
        self._forget()

    def _forget(self) -> None:
        self._folders: dict[str, _Folder] = {}
        self._head, self._head_at = 0, 0
        self._second: Iterator[tuple[str, str]] = iter(())
        self._second_began = -_TURN_S

    @property
    def links(self) -> list[str]:
        """The links that the looks so far have passed over, by path."""
        with self._mutex:
            return sorted(link for folder in self._folders.values() for link in folder.links)

    def forget(self) -> None:
        """Look at everything the next time, as the first look of a process does."""
        with self._mutex:
            self._forget()

    def new(self) -> list[File]:
        """The files that the ledger does not record as they are now, the oldest first."""
        with self._mutex:
            self._follow_ledger()
            self.unlisted = {}
            listed, again = [*self._changed()], self._looked_at_again()
            found = [*listed, *again]
            new, with_rows = self._new_and_read([file for _, of_folder in found for file in of_folder.values()])
            for n, (path, of_folder) in enumerate(found):
                read = {name for name, file in of_folder.items() if file in with_rows}
                self._note(self._folders.get(path), of_folder, new, read)
                if n < len(listed):
                    self._trust(path, of_folder, new)
            return sorted(new)

    def _new_and_read(self, files: Sequence[File]) -> tuple[set[File], set[File]]:
        """The files that the ledger does not record as they are now, and the others of which rows were read."""
        new, with_rows = set[File](), set[File]()
        for first in range(0, len(files), _AT_ONCE):
            some = files[first : first + _AT_ONCE]
            known = self._ledger.known(self._source, some)
            fresh = {file for file in some if not known.holds(file)}
            new |= fresh
            with_rows |= {file for file in some if file not in fresh and known.has_rows(file)}
        return new, with_rows

    def _follow_ledger(self) -> None:
        """Start anew where the ledger is another than before, or files were asked for again."""
        history, head = self._ledger.history, self._head
        if head > history.head or (head and (history.times[head - 1] != self._head_at or self._asked_again(head, history.head))):
            self._forget()
        self._head, self._head_at = history.head, history.times[-1] if history.head else 0

    def _asked_again(self, after: int, upto: int) -> bool:
        return any(row.kind == "retry" for entry in self._ledger.entries()[after:upto] for row in entry)

    def _changed(self) -> Iterator[tuple[str, dict[str, File]]]:
        """The folders that may hold new files, each with its files that are not recorded, by name."""
        root = one_path(self._folder)
        waiting, present = [root], set[str]()
        while waiting:
            path = waiting.pop()
            known = self._folders.get(path)
            try:
                modified = Path(path).stat().st_mtime_ns
                if known is None or not known.is_whole or known.modified != modified:
                    listed, files = self._listed(path, root, modified, known)
                    self._folders[path] = known = listed
                    yield path, files
                elif known.refused:
                    yield path, self._found(path, known.refused, root)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.unlisted[path] = error.strerror or str(error)
                continue
            present.add(path)
            waiting += known.folders
        self._folders = {path: folder for path, folder in self._folders.items() if path in present}

    def _listed(self, path: str, root: str, modified: int, known: _Folder | None) -> tuple[_Folder, dict[str, File]]:
        """List a folder; returns what it holds, and those of its files that are not recorded."""
        now = self._clock()
        alike = known is not None and known.modified == modified
        found, names = _Folder(modified, known.first_seen if known is not None and alike else now), list[str]()
        recorded = known.recorded if known is not None else set[str]()
        with os.scandir(path) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_symlink():
                    found.links.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    found.folders.append(entry.path)
                elif entry.name in recorded:
                    found.recorded.add(entry.name)
                else:
                    names.append(entry.name)
        found.is_settled = now - found.first_seen >= _SETTLES_AFTER_S
        return found, self._found(path, names, root)

    def _looked_at_again(self) -> list[tuple[str, dict[str, File]]]:
        """Some recorded files as they are now, by folder. A folder whose turn begins is listed at the next look, whatever its time."""
        named = dict[str, list[str]]()
        turns = [*islice(self._second, SECOND_LOOKS)]
        if not turns and self._clock() - self._second_began >= _TURN_S:
            self._second, self._second_began = self._in_turn(), self._clock()
            turns = [*islice(self._second, SECOND_LOOKS)]
        for path, name in turns:
            folder = self._folders.get(path)
            if folder is not None and name in folder.recorded:
                named.setdefault(path, []).append(name)
        root = one_path(self._folder)
        return [(path, self._found(path, names, root)) for path, names in named.items()]

    def _found(self, path: str, names: Iterable[str], root: str) -> dict[str, File]:
        """Files of a folder as they are now, by name, but for those that are gone; one that cannot be looked at is noted."""
        found: dict[str, File] = {}
        for name in names:
            try:
                file = found_file(f"{path}/{name}", self._source, root)
            except OSError as error:
                self.unlisted[f"{path}/{name}"] = error.strerror or str(error)
                continue
            found |= {} if file is None else {name: file}
        return found

    def _in_turn(self) -> Iterator[tuple[str, str]]:
        for path, folder in list(self._folders.items()):
            folder.is_whole = False
            yield from ((path, name) for name in list(folder.recorded))

    @staticmethod
    def _note(folder: _Folder | None, files: Mapping[str, File], new: set[File], read: set[str]) -> None:
        """Take down which files of a folder are recorded, and which of them were read."""
        if folder is None:
            return
        fresh = {name for name, file in files.items() if file in new}
        folder.recorded.difference_update(fresh)
        folder.recorded.update(read)
        folder.refused.difference_update(files)
        folder.refused.update(files.keys() - fresh - read)
        folder.is_whole = folder.is_whole and not fresh

    def _trust(self, path: str, files: Mapping[str, File], new: set[File]) -> None:
        """Pass a folder over from now on that was listed whole, and of which all is recorded."""
        folder, missed = self._folders.get(path), any(f.startswith(f"{path}/") for f in self.unlisted)
        if folder is not None:
            folder.is_whole = folder.is_settled and not missed and not new.intersection(files.values())


def landings(folders: Mapping[str, str], ledger: Ledger) -> dict[str, Landing]:
    """What finds new files in the folders of this machine, by source."""
    return {source: Landing(source, folder, ledger) for source, folder in folders.items() if is_local(folder)}
