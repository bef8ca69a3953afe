"""Views of a table (its present or earlier rows, or its rows with early results), and their export as a Delta table."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import DerivedAsset
from operators.errors import TidemarkError
from platform_defs.engine.formats.files import hadoop_file
from platform_defs.engine.lake.compaction import delete_removed_files
from platform_defs.engine.lake.errors import store_reason
from platform_defs.engine.lake.tables import Lake
from platform_defs.paths import PathError, canonical, require_outside
from platform_defs.safe_text import shortened, without_credentials

_log = logging.getLogger(__name__)
_EPOCH = datetime.fromtimestamp(0, UTC)
_PROBE = "_can_be_written"


class ViewError(TidemarkError, ValueError):
    """A view of a table is invalid or cannot be exported."""

    @classmethod
    def several(cls, given: list[str]) -> "ViewError":
        """More than one kind of view is given."""
        return cls(f"{' and '.join(f'`{name}`' for name in given)} are given; legal: only one of them")

    @classmethod
    def no_table(cls, name: str, tables: list[str]) -> "ViewError":
        """No table has the name."""
        return cls(f"`table` is {name!r}; legal: {', '.join(tables)}")

    @classmethod
    def no_rows(cls, name: str) -> "ViewError":
        """The table has no step yet."""
        return cls(f"{name} has no rows yet: no step of it is committed. `tidemark advance {name}` advances it up to its watermark")

    @classmethod
    def bad_time(cls, parameter: str, text: str) -> "ViewError":
        """A text is not a time."""
        return cls(f"`{parameter}` is {text!r}; legal: a time such as 2026-11-22T08:30:00Z; without an offset it is UTC")

    @classmethod
    def bad_folder(cls, folder: str, legal: str) -> "ViewError":
        """The table cannot be written to the folder."""
        return cls(f"`folder` is {without_credentials(folder)!r}; legal: {legal}")


class ExportFolderError(ViewError):
    """The target folder cannot be written to now, for a reason that may pass: its store, its disk or its permissions."""


@dataclass(frozen=True)
class View:
    """Which rows of a table to read.

    Args:
        table: a derived table.
        early: whether to add the early results of open windows or pairs, and the column `is_final`.
        as_of: read an upserted table as it was at this time (epoch ms, by the ledger's clock).
        event_times_to: compute an upserted table from only the rows with event times up to this one (epoch ms).
    """

    table: str
    early: bool = False
    as_of: int | None = None
    event_times_to: int | None = None

    def check(self, lake: Lake, tables: Mapping[str, DerivedAsset]) -> None:
        """Raise `ViewError` if no derived table has the name, or if its present rows or early results are asked for and it has none yet."""
        if self.table not in tables:
            raise ViewError.no_table(self.table, [*tables])
        early = [tables[self.table].early] if self.early else []
        if (self.is_present or self.early) and not any(lake.exists(name) for name in (self.table, *early)):
            raise ViewError.no_rows(self.table)

    @property
    def is_present(self) -> bool:
        """Whether the view is the table's present rows."""
        return not self.early and self.as_of is None and self.event_times_to is None

    def __post_init__(self) -> None:
        given = [name for name in ("early", "as_of", "event_times_to") if getattr(self, name) not in (None, False)]
        if len(given) > 1:
            raise ViewError.several(given)


def view_of(table: str, early: bool = False, as_of: str | None = None, event_times_to: str | None = None) -> View:
    """A view whose times are given as text, such as `2026-11-22T08:30:00Z`; a time without an offset is UTC.

    Raises:
        ViewError: a text is not a time, or more than one of `early`, `as_of` and `event_times_to` is given.
    """
    return View(table, early, _epoch_ms("as_of", as_of), _epoch_ms("event_times_to", event_times_to))


def _epoch_ms(parameter: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ViewError.bad_time(parameter, shortened(text)) from None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def write_fault(spark: SparkSession, folder: str) -> str | None:
    """Why Spark cannot create a file in a folder outside the lake, as the part of an error after `legal:`; None if Spark can.

    It is tried before the rows are written, because an error of that write could also be about a table that it reads.
    """
    try:
        files, path = hadoop_file(spark, f"{folder.rstrip('/')}/{_PROBE}")
        files.create(path, True).close()
        files.delete(path, False)
    except (PySparkException, Py4JJavaError, OSError) as error:
        return writable(store_reason(error))
    return None


def writable(reason: str) -> str:
    """The part of an error after `legal:`, for a folder that cannot be written to for a reason."""
    return f"a folder or a bucket to which this process and Spark can write ({reason})"


def export(rows: DataFrame, lake: Lake, folder: str) -> dict[str, Any]:
    """Write rows as the newest version of a Delta table outside the lake; returns its `folder` and the number of its `rows`.

    The files of earlier exports are deleted after the table's retention; see `delete_old_files`.

    Raises:
        ViewError: the folder is not a valid path, or overlaps the lake.
        ExportFolderError: the folder cannot be written to.
    """
    try:
        path = require_outside(canonical(folder), lake.root)
    except PathError as error:
        raise ViewError.bad_folder(folder, error.legal) from None
    if (fault := write_fault(rows.sparkSession, path)) is not None:
        raise ExportFolderError.bad_folder(folder, fault)
    delete_old_files(path, lake.storage_options)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
    return {"folder": path, "rows": rows.sparkSession.read.format("delta").load(path).count()}


def delete_old_files(path: str, storage_options: dict[str, str] | None) -> None:
    """Delete the files of earlier exports that left the table longer ago than its retention.

    Call it before a commit: a commit may write a checkpoint, which no longer names files whose retention has passed. The export can succeed
    without it, so an error is only logged.
    """
    try:
        delete_removed_files(path, storage_options)
    except (DeltaError, OSError, ValueError) as error:
        _log.warning("the old files of the export %s are not deleted: %s", without_credentials(path), store_reason(error))
