"""Maintenance: compact tables and shorten their logs, without losing the metadata of commits.

For each table, maintenance removes the rows that retention does not keep (see `retention`), compacts small files and deletes files that no
version of the last days needs. It then commits the metadata of earlier commits (progress, attempt, applied step) again, writes a
checkpoint, and deletes expired log entries before it.
Maintenance holds the table's writer lock meanwhile: other writers wait for it, and a table that already has a writer is skipped until
the next run. A table that cannot be maintained (a lost data file, an unsupported writer feature) is reported, and the other tables are
maintained. Copies of rows that a killed stream has left in the folders of its queries are deleted too, unless a stream runs.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JJavaError
from pyarrow.fs import FileSelector, FileType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from operators.errors import TidemarkError
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.early_results import SHOWN
from platform_defs.engine.advance.kept_table import KEPT
from platform_defs.engine.advance.running_queries import FOLDER as QUERIES
from platform_defs.engine.advance.running_queries import remove_queries
from platform_defs.engine.advance.snapshot import snapshot
from platform_defs.engine.faults import point
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.ingest.stream import writer_name
from platform_defs.engine.ingest.uncommitted import ATTEMPT, require_logs
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.lateness_decisions import DECIDED
from platform_defs.engine.inputs.progress import PROGRESS, ProgressError
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import write_checkpoint
from platform_defs.engine.lake.compaction import CONFLICTS, count_small_files
from platform_defs.engine.lake.data_files import filesystem
from platform_defs.engine.lake.errors import LakeBusy, LakeError, spark_condition, store_reason
from platform_defs.engine.lake.merged_files import FAULTS
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.ledger import TABLE, Ledger
from platform_defs.engine.operations.changelog_retention import ChangelogRetention
from platform_defs.engine.operations.decision_retention import DecisionRetention
from platform_defs.engine.operations.ledger_retention import LedgerRetention
from platform_defs.engine.operations.quarantine_retention import QuarantineRetention
from platform_defs.engine.operations.retention import KEEP_ALL, LakeRetention, LogRetention, Removal, Retention
from platform_defs.engine.operations.sink import Sink, SinkError
from platform_defs.engine.operations.topic import Topic

_IN_USE_S = 3600
_UNSUPPORTED = "Unsupported table features"
"""Part of the error text if deltalake cannot write to the table at all; other failed commits had a concurrent writer."""


class MaintenanceError(TidemarkError, RuntimeError):
    """Some tables could not be maintained. Each other table was, or has a writer and was skipped until the next run."""

    @classmethod
    def of(cls, failed: Mapping[str, str]) -> "MaintenanceError":
        """The tables, and why each could not be maintained."""
        each = "; ".join(f"{table}: {reason}" for table, reason in failed.items())
        return cls(
            f"{len(failed)} of the lake's tables could not be maintained, or only in part; the others were maintained, or skipped because "
            f"they have a writer. {each}"
        )

    @classmethod
    def check(cls, done: Iterable["Maintained"]) -> None:
        """Raise `MaintenanceError` if a table could not be maintained."""
        if failed := {m.table: m.failed for m in done if m.failed}:
            raise cls.of(failed)


@dataclass(frozen=True)
class Maintained:
    """The result of the maintenance of one table.

    Args:
        table: the table.
        before: the number of its data files before.
        after: the number of its data files after.
        removed: the number of deleted files, which no version within the retention needs. Of a table with deletion vectors, at most 1,000
            are counted.
        left: why the table was skipped until the next run; None if it was not.
        failed: why the table cannot be maintained; None if it can.
        rows_removed: the number of rows that retention has removed now.
        kept_from: the first day, step or batch of which all rows are kept; None if retention has never removed a row.
        held_back: why retention keeps rows that its setting would remove; None if there are none.
    """

    table: str
    before: int = 0
    after: int = 0
    removed: int = 0
    left: str | None = None
    failed: str | None = None
    rows_removed: int = 0
    kept_from: str | None = None
    held_back: str | None = None


def retention_of(rows_removed: int, kept_from: str | None, held_back: str | None) -> str | None:
    """What retention did to a table, in words; None if it has never removed a row and nothing is held back."""
    parts = [f"{rows_removed:,} rows removed"] if rows_removed else []
    parts += [] if kept_from is None else [f"kept from {kept_from} on"]
    parts += [] if held_back is None else [f"held back: {held_back}"]
    return "; ".join(parts) or None


@dataclass(frozen=True)
class _Table:
    """A table to maintain.

    Args:
        name: the table.
        writer: the name of its writer.
        keys: the metadata keys of its commits whose newest values must not be lost.
        retention: what removes its old rows; None to keep all.
    """

    name: str
    writer: str
    keys: Sequence[str]
    retention: Retention | None = None


@dataclass(frozen=True)
class Maintenance:
    """Maintains a lake.

    Args:
        spark: the session.
        lake: the lake.
        ledger: its ledger.
        sources: the sources, by name.
        assets: the derived assets, by name.
        small_files: compact a table that has this many files below 32 MiB.
        retention_hours: how long a file is kept that the newest version does not need; None for the table's own retention (Delta's
            default is 7 days). A shorter time breaks reads that take longer than it.
        lake_retention: how long changelogs, quarantines and the ledger keep their rows.
        folders: each source's folder of input files, by source.
        sinks: the topics to which tables are published, by table.
    """

    spark: SparkSession
    lake: Lake
    ledger: Ledger
    sources: Mapping[str, SourceContract]
    assets: Mapping[str, DerivedAsset]
    small_files: int = 16
    retention_hours: int | None = None
    lake_retention: LakeRetention = KEEP_ALL
    folders: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict, repr=False)

    def __call__(self) -> list[Maintained]:
        """Maintain the ledger and every existing table of the pipeline. Other tables in the lake are left as they are.

        A table with a writer is skipped until the next run, and a failure is reported.

        Raises:
            LedgerError: the ledger is incomplete, or a log has lost rows. Maintenance could then delete files that a restore needs.
            LakeError: a later version of Tidemark created the lake, or another process maintains it.
        """
        require_logs(self.lake, self.ledger, self.sources)
        with self.lake.writer("maintenance", "maintenance"):
            tables = [(table.name, partial(self._maintain_existing, table)) for table in self._tables()]
            queries = [(f"{QUERIES}/{table}", partial(self._remove_queries, table)) for table in self.lake.folders(QUERIES)]
            return [outcome for name, maintain in [*tables, *queries] if (outcome := _result_or_reason(name, maintain)) is not None]

    def _tables(self) -> Iterator[_Table]:
        for source in self.sources.values():
            yield _Table(source.log, "ledger", (ATTEMPT,), LogRetention(self._workspace, source, self._snapshot))
            rejected = QuarantineRetention(self._workspace, source, self.lake_retention.quarantines, self.folders.get(source.name))
            yield _Table(source.quarantine, "ledger", (ATTEMPT,), rejected)
        for asset in self.assets.values():
            if asset.operator.emits.upserts:
                changes = ChangelogRetention(self._workspace, asset, self.lake_retention.changelogs, partial(self._published, asset.name))
                yield _Table(asset.changelog, asset.name, (PROGRESS,), changes)
                yield _Table(asset.name, asset.name, (APPLIED,))
            else:
                yield _Table(asset.name, asset.name, (PROGRESS,))
            yield _Table(asset.decisions, asset.name, (DECIDED,), DecisionRetention(self._workspace, asset))
            yield _Table(asset.kept, asset.name, (KEPT,))
            yield _Table(asset.early, asset.name, (SHOWN,))
        yield _Table(TABLE, "ledger", (), LedgerRetention(self._workspace, self.lake_retention.ledger))  # last: it depends on the logs

    def _maintain_existing(self, table: _Table) -> Maintained | None:
        """Maintain a table; None if it does not exist."""
        if not self.lake.exists(table.name):
            return None
        planned = None if table.retention is None else table.retention.plan()  # it may take long, so without the lock
        with naming_lost_files(self.lake, [table.name]), self.lake.writer(table.writer, "maintenance"):
            return self._maintain(table, planned)

    def _remove_queries(self, table: str) -> Maintained | None:
        """Remove the files of a table's streaming queries that a killed stream has left; None while a stream runs.

        The table need not exist any more. The files are copies of rows, which must not stay longer than retention keeps these rows. No
        stream starts a query meanwhile, because it would need the table's lock. The lock of a running stream that names its folders by
        other paths is not found, so a stream is also assumed to run while the newest file is younger than an hour.
        """
        with self.lake.writer(table, "maintenance"):
            if self.lake.current_writer(writer_name(self.folders)) is not None or _is_in_use(self.lake, f"{QUERIES}/{table}"):
                return None
            return Maintained(f"{QUERIES}/{table}", removed=remove_queries(self.spark, self.lake, f"{QUERIES}/{table}"))

    @cached_property
    def _workspace(self) -> Workspace:
        return Workspace(self.spark, self.lake, self.ledger, self.sources, self.assets)

    def _snapshot(self, asset: str) -> Advance:
        return snapshot(Advance(self._workspace, self.assets[asset], 1))

    def _published(self, asset: str) -> int | None:
        """The last step of which the table's topic has all records; None if the table has no topic, or if the topic has no step."""
        if asset not in self.sinks:
            return None
        with Topic(self.spark, self.sinks[asset], asset, compacted=True) as topic:  # if the sink has `partitions`, a missing one is created
            newest = topic.newest()
        return None if newest is None else newest.step if newest.complete else newest.since

    def _maintain(self, table: _Table, planned: Removal | None) -> Maintained:
        before = _files(self._open(table))
        removal = Removal() if planned is None or table.retention is None else table.retention.remove(planned)
        self._compact(table)
        removed = self._vacuum(table)
        self._carry(table)
        self._checkpoint(table)
        outcome = Maintained(table.name, before, _files(self._open(table)), removed)
        return replace(outcome, rows_removed=removal.rows, kept_from=removal.kept_from, held_back=removal.held_back)

    def _open(self, table: _Table) -> DeltaTable:
        return DeltaTable(self.lake.path(table.name), storage_options=self.lake.storage_options)

    def _compact(self, table: _Table) -> None:
        if count_small_files(self._open(table)) < self.small_files:
            return
        point("maintenance.before_compact")
        self.ledger.compact() if table.name == TABLE else self.lake.optimize(self.spark, table.name)
        point("maintenance.after_compact")

    def _vacuum(self, table: _Table) -> int:
        """Delete files that no version needs, including those of killed writers."""
        files = self.lake.count_unneeded_files(self.spark, table.name, self.retention_hours)
        if files:
            point("maintenance.before_vacuum")
            self.lake.vacuum(self.spark, table.name, self.retention_hours)
            point("maintenance.after_vacuum")
        return files

    def _carry(self, table: _Table) -> None:
        """Commit the metadata of earlier commits again, unless the newest commit has all of it."""
        lake_snapshot = LakeSnapshot.of(self.lake)
        commits = {key: commit for key in table.keys if (commit := lake_snapshot.newest_commit(table.name, key)) is not None}
        delta = lake_snapshot.delta(table.name)
        if delta is not None and any(commit.version != delta.version() for commit in commits.values()):
            point("maintenance.before_carry")
            self.lake.carry_metadata(commits, delta)
            point("maintenance.after_carry")

    def _checkpoint(self, table: _Table) -> None:
        point("maintenance.before_checkpoint")
        write_checkpoint(self._open(table))
        point("maintenance.after_checkpoint")


def _result_or_reason(name: str, maintain: Callable[[], Maintained | None]) -> Maintained | None:
    """The result of a table's maintenance, also if it was skipped or failed; None if the table does not exist."""
    try:
        return maintain()
    except (LakeBusy, *CONFLICTS, CommitFailedError) as busy:
        message = store_reason(busy) if isinstance(busy, CommitFailedError) else str(busy).splitlines()[0]
        if isinstance(busy, CommitFailedError) and _UNSUPPORTED in str(busy):
            return Maintained(name, failed=message)
        return Maintained(name, left=message)
    except (PySparkException, Py4JJavaError) as error:  # before OSError and others: an error message of Spark may quote rows
        return Maintained(name, failed=f"Spark failed with {spark_condition(error)}")
    except (ConnectionsError, LakeError, LedgerError, ProgressError, SinkError, *FAULTS) as error:
        reason = str(error) if isinstance(error, TidemarkError) else store_reason(error)
        return Maintained(name, failed=f"{type(error).__name__}: {reason}".splitlines()[0])


def _is_in_use(lake: Lake, folder: str) -> bool:
    """Whether a file below a folder was written in the last hour, by the wall clock."""
    files = filesystem(lake.root, lake.storage_options).get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
    since = (time.time() - _IN_USE_S) * 1e9
    return any(file.type == FileType.File and file.mtime_ns is not None and file.mtime_ns > since for file in files)


def _files(table: DeltaTable) -> int:
    return len(table.file_uris())
