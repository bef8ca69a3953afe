"""The root of a lake, a folder or URI that contains its tables; and the locks of its writers."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from py4j.protocol import Py4JJavaError
from pyarrow.fs import FileSelector, FileType, PyFileSystem
from pyspark.errors import PySparkException, PythonException

from platform_defs.engine.lake.errors import LakeBusy, LakeError, is_fault_of_disk, is_fault_of_store
from platform_defs.engine.lake.leases import Lease
from platform_defs.engine.lake.locks import holding_lock, waiting_process
from platform_defs.engine.lake.objects import StoreError, has_conditional_put
from platform_defs.engine.lake.waits import Purpose
from platform_defs.paths import canonical_of_tables, is_in_s3, is_local

_log = logging.getLogger(__name__)
_OF_PYTHON = "org.apache.spark.api.python.PythonException"


@dataclass(frozen=True)
class LakeRoot:
    """The root of a lake, and the locks of its writers.

    Args:
        root: a path or a URI that both Spark and deltalake support; it becomes canonical, see `paths.canonical_of_tables`.
        lease_s: for a URI, after how many seconds another writer can take the lock of a dead writer.
        leases: whether to keep the root as given, such as a `file://` URI, so that writers take leases, not file locks; only for tests.
        storage_options: deltalake's options for the store behind a URI; None for those of the environment.
    """

    root: str
    lease_s: float = 60.0
    leases: bool = False
    storage_options: dict[str, str] | None = field(default=None, compare=False, repr=False)
    _tested_stores: list[str] = field(default_factory=list, init=False, compare=False, repr=False)
    _leases: dict[str, Lease] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.leases:
            object.__setattr__(self, "root", canonical_of_tables(self.root))

    def path(self, table: str) -> str:
        """The path or URI of a table."""
        return f"{self.root.rstrip('/')}/{table}"

    def folders(self, below: str = "") -> list[str]:
        """The names of the folders in the lake's root, or in a folder below it; none if that folder does not exist."""
        if self.is_local:
            folder = Path(self.path(below))
            return sorted(f.name for f in folder.iterdir() if f.is_dir()) if folder.is_dir() else []
        try:
            files = PyFileSystem(cast(Any, DeltaStorageHandler(self.root, options=self.storage_options)))
        except TableNotFoundError:  # a `file://` URI: there is no lake yet
            return []
        infos = files.get_file_info(FileSelector(below, allow_not_found=True))
        return sorted(f.base_name for f in infos if f.type == FileType.Directory)

    @property
    def is_local(self) -> bool:
        """Whether the root is a local folder."""
        return is_local(self.root)

    def passing_fault(self, table: str, error: Exception) -> LakeError | None:
        """The error to raise for a fault of the store or the disk that a later try may not meet; None for any other `error`."""
        if not self.is_local:
            return LakeError.no_store(self.root, error) if is_fault_of_store(error) else None
        return LakeError.not_read([table], error) if is_fault_of_disk(error) else None

    @contextmanager
    def reporting_failed_commit(self, table: str) -> Iterator[None]:
        """Raise `LakeError` if a commit fails although no other writer has committed."""
        try:
            yield
        except CommitFailedError as error:
            raise (LakeError.not_committed(table, error) if self.is_local else LakeError.no_store(self.root, error)) from error

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Open the lake for writing while the block runs.

        Raises:
            LakeError: the lake is not writable, its disk is full or its store fails; the text says which. Other errors of the block are
                raised unchanged.
        """
        try:
            if self.is_local:
                Path(self.root).mkdir(parents=True, exist_ok=True)
                if not os.access(self.root, os.W_OK | os.X_OK):
                    raise LakeError.unusable(self.root, "it is read-only")
            yield
        except (OSError, DeltaError, PySparkException, Py4JJavaError) as error:
            text = str(error)
            if disk_full := re.search("No space left on device|Disk quota exceeded", text):
                raise LakeError.full(self.root, disk_full[0]) from error
            if isinstance(error, PythonException) or _OF_PYTHON in text:  # of a function in Python: its text is not about the lake
                raise
            if not_writable := re.search("Read-only file system|Permission denied|Not a directory|File exists", text):
                raise LakeError.unusable(self.root, not_writable[0]) from error
            if isinstance(error, OSError) and error.errno is None and not self.is_local:  # an error of the store, not of a local file
                raise LakeError.no_store(self.root, error) from error
            raise

    @contextmanager
    def writer(self, name: str, purpose: Purpose = "write", patience_s: float | None = None) -> Iterator[None]:
        """Hold the writer lock of an asset or the ledger while the block runs. A dead writer's lock is released.

        A writer waits while maintenance holds the lock; maintenance is refused while a writer holds it. Both wait for a stream, which calls
        `waiting_process` to find out that they wait. A stream does not wait, except for maintenance if `patience_s` gives a time.

        Raises:
            LakeBusy: another process holds the lock; the text names it, and since when it holds the lock.
            LakeError: see `opening`; or the store of a lake behind a URI lets two writers take the same lease.
        """
        with self.opening(), self._holding_lock(name, purpose, patience_s):
            yield

    def current_writer(self, name: str) -> str | None:
        """The error text that names the holder of an asset's lock; None if the lock is free. A new writer waits during this check."""
        if self.is_local and not Path(self.root, "_locks").exists():
            return None
        try:
            with self._holding_lock(name, "maintenance", may_request=False):
                return None
        except LakeBusy as busy:
            return str(busy)

    def waiting_process(self, name: str) -> str | None:
        """The process that waits for a stream to release a lock; None if there is none, or if the store does not answer.

        A stream calls this after it has committed a step, so a fault of the store must not make the step fail.
        """
        try:
            return waiting_process(Path(self.root, "_locks"), name) if self.is_local else self._lease(name).waiting_process()
        except (DeltaError, OSError) as error:
            _log.warning("cannot find out whether a process waits for %s; the next try is after the next step: %s", name, error)
            return None

    @contextmanager
    def _holding_lock(self, name: str, purpose: Purpose, patience_s: float | None = None, *, may_request: bool = True) -> Iterator[None]:
        if self.is_local:
            with holding_lock(Path(self.root, "_locks"), name, purpose, patience_s, may_request=may_request):
                yield
            return
        self._require_conditional_put()
        lease = replace(self._lease(name), purpose=purpose, patience_s=patience_s, may_request=may_request)
        with lease.holding():
            self._leases[name] = lease
            try:
                yield
            finally:
                del self._leases[name]

    def _lease(self, name: str) -> Lease:
        return Lease(self.path(f"_leases/{name.replace('/', '.')}"), name, self.lease_s, storage_options=self.storage_options)

    def _require_conditional_put(self) -> None:
        """Raise `LakeError` if two writers could both take a lease in the lake's S3 store. The store is tested once."""
        if not is_in_s3(self.root) or self._tested_stores:
            return
        try:
            if not has_conditional_put(self.path("_leases"), self.storage_options):
                raise LakeError.no_conditional_put(self.root)
        except (StoreError, OSError) as error:
            raise LakeError.no_store(self.root, error) from error
        self._tested_stores.append(self.root)

    def check_leases(self) -> None:
        """Raise `LakeError` unless this process still holds all leases that it took."""
        for lease in list(self._leases.values()):
            lease.check()
