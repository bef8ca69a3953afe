"""The numbered records of a lease, of which only the newest counts. If two processes write the next number at once, one is refused.

In S3 each record is an object, which is created by a conditional put. Other stores behind a URI have conditional puts too, each in its own
way, and deltalake supports all of these stores. There, a lease is a Delta table without rows, and each record is the metadata of an empty
commit.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import obstore
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from obstore.store import S3Store

from platform_defs.engine.lake.commits import CommitOptions, commit_infos, commit_options, metadata_of, write_actions, write_checkpoint
from platform_defs.engine.lake.objects import StoreError, store_at
from platform_defs.paths import is_in_s3

Record = dict[str, Any]
_CLEAN_UP_EVERY = 20  # records; older ones are deleted
_SHORT_LOG = {"delta.logRetentionDuration": "interval 10 seconds"}
"""The log retention of a table that is a lease: its log is cleaned up after each checkpoint, since only the newest commit counts."""
_SCHEMA = Schema.from_arrow(pa.schema([("nothing", pa.string())]))
"""The schema of a table that is a lease, which never has rows."""
_LOG = "_delta_log/"


@dataclass(frozen=True)
class NumberedRecord:
    """A record and its number.

    Args:
        number: the number.
        record: `id`, `holder`, `purpose` and `until` (epoch s) of a lease that is held; None if it is free.
        table: the lease's table at this version, if it is opened already.
    """

    number: int
    record: Record | None
    table: DeltaTable | None = field(default=None, compare=False, repr=False)


class LeaseRecords(Protocol):
    """The records of one lease. Every method raises `DeltaError` or `OSError` if the store fails."""

    def newest(self) -> NumberedRecord | None:
        """The newest record; None if nobody has taken the lease yet."""
        ...

    def write(self, after: NumberedRecord | None, record: Record | None) -> NumberedRecord | None:
        """Write the record that follows another one, the first one after None; returns None if another process came first."""
        ...


def lease_records(uri: str, storage_options: dict[str, str] | None) -> LeaseRecords:
    """The records of a lease.

    Args:
        uri: the URI of its folder.
        storage_options: deltalake's options for the store.
    """
    return _Objects(uri, storage_options) if is_in_s3(uri) else _Commits(uri, storage_options)


@dataclass(frozen=True)
class _Objects:
    """Records that are objects, `<number>.json`. The newest is never deleted."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)

    def newest(self) -> NumberedRecord | None:
        """The newest record, by two requests: one lists the records, and one reads the newest."""
        with _reporting_faults():
            while names := self._names():
                if names[-1].startswith(_LOG):
                    return _Commits(self.uri, self.storage_options).before_first_object()
                with suppress(FileNotFoundError):  # deleted in the meantime, as there is a newer one
                    return NumberedRecord(
                        int(names[-1].removesuffix(".json")), json.loads(bytes(obstore.get(self._store, names[-1]).bytes()))
                    )
        return None

    def write(self, after: NumberedRecord | None, record: Record | None) -> NumberedRecord | None:
        """Create the next record's object, and check that it is the newest.

        For a process that was paused, a number may be free because its object was deleted; then there are later ones.
        """
        written = NumberedRecord(0 if after is None else after.number + 1, record)
        with _reporting_faults():
            try:
                obstore.put(self._store, _object(written.number), json.dumps(record).encode(), mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return None
            if record is None:
                return written
            names = self._names()
            if names[-1:] != [_object(written.number)]:
                return None
        if len(names) >= _CLEAN_UP_EVERY or names[0].startswith(_LOG):
            with suppress(StoreError, OSError):  # the next clean-up tries again
                obstore.delete(self._store, names[:-1])
        return written

    def _names(self) -> list[str]:
        """The names of all records, the newest last; before them the objects of a lease of an earlier version, which was a table."""
        names = (item["path"] for page in obstore.list(self._store) for item in page)
        return sorted(names, key=lambda name: (not name.startswith(_LOG), name))

    @property
    def _store(self) -> S3Store:
        return store_at(self.uri, self.storage_options)


def _object(number: int) -> str:
    return f"{number:020}.json"


@contextmanager
def _reporting_faults() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise OSError(str(error)) from error


@dataclass(frozen=True)
class _Commits:
    """Records that are commits of a Delta table."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)

    def newest(self) -> NumberedRecord | None:
        """The record of the newest commit."""
        try:
            table = self._open()
        except TableNotFoundError:
            return None
        version, info = next(commit_infos(table), (table.version(), dict[str, Any]()))
        return NumberedRecord(version, metadata_of(info).get("lease"), table)

    def before_first_object(self) -> NumberedRecord | None:
        """The newest record, numbered as the one before the first object: leases in S3 were tables in earlier versions."""
        newest = self.newest()
        return None if newest is None else NumberedRecord(-1, newest.record)

    def write(self, after: NumberedRecord | None, record: Record | None) -> NumberedRecord | None:
        """Make the next commit, on the version that was read. It is not tried again on a later one."""
        if after is None:
            self._create()
        newest = after if after is not None and after.table is not None else self.newest()
        if newest is None or newest.table is None or (newest.record if after is None else newest.number != after.number):
            return None
        try:
            write_actions(newest.table, [], "append", _SCHEMA, _options(record))
        except CommitFailedError:
            if self._open().version() == newest.number:  # no other process has committed, so the store itself failed
                raise
            return None
        if (newest.number + 1) % _CLEAN_UP_EVERY == 0:
            self._clean_up(newest.number + 1, record)
        return NumberedRecord(newest.number + 1, record)

    def _create(self) -> None:
        options = _options(None)  # without retries: to create the table again would release a lease that a process holds
        try:
            DeltaTable.create(self.uri, _SCHEMA, "error", configuration=_SHORT_LOG, storage_options=self.storage_options, **options)
        except DeltaError:
            if self.newest() is None:  # no other process has created it, so the store itself failed
                raise

    def _clean_up(self, number: int, record: Record | None) -> None:
        """Write a checkpoint and delete the log before it: if the log grew, each heartbeat would cost more than the previous one."""
        with suppress(DeltaError, OSError):  # the next clean-up tries again
            table = self._open()
            if table.version() != number:  # another process has taken the lease
                return
            if not _SHORT_LOG.items() <= table.metadata().configuration.items():  # an earlier version created it
                table.alter.set_table_properties(_SHORT_LOG, **_options(record))
            write_checkpoint(table)

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self.uri, storage_options=self.storage_options)
        except TableNotFoundError:
            raise
        except DeltaError:
            return DeltaTable(self.uri, storage_options=self.storage_options)  # its log may have been cleaned up during the first try


def _options(record: Record | None) -> CommitOptions:
    return commit_options({"lease": record})
