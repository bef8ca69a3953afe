"""The root of a lake: the folder or URI below which its tables lie, and who may write to them."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from py4j.protocol import Py4JJavaError
from pyarrow.fs import FileSelector, FileType, PyFileSystem
from pyspark.errors import PySparkException

from platform_defs.engine.formats.files import is_local
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.engine.lake.locks import Lease, Purpose, locked
from platform_defs.paths import canonical_of_tables


@dataclass(frozen=True)
class LakeRoot:
    """Where a lake lies, and who writes to it.

    Args:
        root: a path or a URI that both Spark and deltalake understand; it gets its one spelling, see `paths.canonical_of_tables`.
        lease_s: for a URI, how many seconds after a writer died another may take its place.
        leases: whether a `file://` URI stays one, whose writers take leases in place of file locks; for tests alone.
    """

    root: str
    lease_s: float = 60.0
    leases: bool = False
    _leases: dict[str, Lease] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.leases:
            object.__setattr__(self, "root", canonical_of_tables(self.root))

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.root.rstrip('/')}/{table}"

    def folders(self, below: str = "") -> list[str]:
        """The names of the folders of the lake's root, or of a folder below it; none where there is no such folder."""
        if self.is_local:
            found = Path(self.path(below))
            return sorted(f.name for f in found.iterdir() if f.is_dir()) if found.is_dir() else []
        try:
            files = PyFileSystem(cast(Any, DeltaStorageHandler(self.root)))
        except TableNotFoundError:  # a URI of this machine: there is no lake yet
            return []
        listed = files.get_file_info(FileSelector(below, allow_not_found=True))
        return sorted(f.base_name for f in listed if f.type == FileType.Directory)

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return is_local(self.root)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the lake for writing while the block runs.

        Raises:
            LakeError: it cannot be written to, from the start or half-way through; it says why.
        """
        try:
            if self.is_local:
                Path(self.root).mkdir(parents=True, exist_ok=True)
                if not os.access(self.root, os.W_OK | os.X_OK):
                    raise LakeError.unusable(self.root, "it is read-only")
            yield
        except (OSError, DeltaError, PySparkException, Py4JJavaError) as error:
            text = str(error)
            if full := re.search("No space left on device|Disk quota exceeded", text):
                raise LakeError.full(self.root, full[0]) from error
            if closed := re.search("Read-only file system|Permission denied|Not a directory|File exists", text):
                raise LakeError.unusable(self.root, closed[0]) from error
            raise

    @contextmanager
    def writer(self, name: str, purpose: Purpose = "write") -> Iterator[None]:
        """Be the one writer of an asset (or of the ledger) while the block runs; a dead one's place is freed.

        A writer that meets maintenance waits for it, and maintenance that meets a writer is refused.

        Raises:
            LakeError: somebody else is; it says who, and since when.
        """
        with self.opened(), self._held(name, purpose):
            yield

    def busy(self, name: str) -> str | None:
        """Who is the writer of an asset just now, and since when; None for nobody. A writer that comes meanwhile waits for the answer."""
        if self.is_local and not Path(self.root, "_locks").exists():
            return None
        try:
            with self._held(name, "maintenance"):
                return None
        except LakeBusy as busy:
            return str(busy)

    @contextmanager
    def _held(self, name: str, purpose: Purpose) -> Iterator[None]:
        if self.is_local:
            with locked(Path(self.root, "_locks"), name, purpose):
                yield
            return
        lease = Lease(self.path(f"_leases/{name.replace('/', '.')}"), name, self.lease_s, purpose)
        with lease.held():
            self._leases[name] = lease
            try:
                yield
            finally:
                del self._leases[name]

    def still_mine(self) -> None:
        """Pass if this process still is the writer of all that it took."""
        for lease in list(self._leases.values()):
            lease.check()
