"""Runs a pipeline on an empty lake, for tests."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql.types import TimestampType

from assets.pipeline import Pipeline
from operators.errors import TidemarkError
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.settings import Settings


class FolderNotEmpty(TidemarkError, ValueError):
    """The folder of a sandbox has a lake already, so its files and results would be mixed with earlier ones."""

    @classmethod
    def of(cls, folder: Path) -> "FolderNotEmpty":
        """Name the folder."""
        return cls(f"`folder` is {str(folder)!r}, which has a lake already; legal: an empty folder. Delete it to run the pipeline again")


class Sandbox:
    """A pipeline on an empty lake in a temporary folder. It neither reads nor writes topics, whatever connections are set.

    Args:
        pipeline: the pipeline.
        folder: a folder without a lake, such as pytest's `tmp_path`. Files in its folder `landing` are input files.

    Raises:
        FolderNotEmpty: the folder has a lake already.
    """

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        if (folder / "lake").exists():
            raise FolderNotEmpty.of(folder)
        values = Settings(lake=str(folder / "lake"), landing=str(folder / "landing"))
        self.engine: Engine = make_engine(values, pipeline, with_topics=False)

    def land(self, source: str, name: str, text: str) -> None:
        """Put an input file into a source's landing folder.

        Args:
            source: the source.
            name: the file's name; its suffix names the format.
            text: the content.

        Raises:
            IngestError: the pipeline has no such source.
        """
        if source not in self.engine.sources:
            raise IngestError.no_source(source, self.engine.sources)
        folder = Path(self.engine.folders[source])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    def run(self, *, drain: bool = True) -> None:
        """Ingest the files, advance every table, and assert that every row is accounted for.

        Args:
            drain: whether to finalize every row, as if the input had ended; otherwise results are final only up to the watermark. A drain
                does not finalize rows of a source with processing time: they are finalized as the clock advances.

        Raises:
            AssertionError: the conservation law does not hold for a table.
        """
        self.engine.ingest()
        if drain:
            self.engine.drain()
        for name in self.engine.assets:
            self.engine.advance(name)
        for name in self.engine.assets:
            violations = [account for account in self.engine.accounts.days(name) if not account.holds]
            differing = self.engine.accounts.count_differences(name)
            assert not violations, f"the conservation law does not hold for {name}: {violations}"
            assert not differing, f"the ledger's counts differ from the rows of {name}'s event logs: {differing}"

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of a table, sorted with nulls last; by their text if a value, such as a map, has no order.

        Decimals are floats, and timestamps are datetimes in UTC without a time zone, except those within arrays, maps and structs.

        Args:
            table: a table of the pipeline, or `events/SOURCE` or `quarantine/SOURCE`.
            columns: the columns; by default all.
        """
        frame = self.engine.views.table(table)
        frame = frame.select(*columns) if columns else frame
        are_local = [isinstance(field.dataType, TimestampType) for field in frame.schema.fields]
        rows = [tuple(_plain(value, is_local) for value, is_local in zip(row, are_local, strict=True)) for row in frame.collect()]
        try:
            return sorted(rows, key=lambda row: [(value is None, value) for value in row])
        except TypeError:  # maps, for example, have no order
            return sorted(rows, key=repr)


def _plain(value: Any, is_local: bool) -> Any:
    if is_local and isinstance(value, datetime):  # PySpark's timestamps are in the time zone of the machine
        return value.astimezone(UTC).replace(tzinfo=None)
    return float(value) if isinstance(value, Decimal) else value
