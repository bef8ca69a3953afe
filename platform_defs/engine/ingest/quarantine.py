"""The quarantine (a dead-letter table for each source): ingests rejected files and rows again, which `QuarantineList` lists.

`retry` requests that a file of which no row was read is read again: it writes a ledger batch, after which the next ingest treats the file
as new. `release` writes rejected rows to a new input file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import SourceContract
from operators.engine_columns import SEQ
from platform_defs.engine.faults import point
from platform_defs.engine.formats.reader import of_known_format
from platform_defs.engine.formats.unreadable_files import MISSING_LENGTH
from platform_defs.engine.ingest.clock import clock_rows
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.ingest.quarantine_list import RELEASED, QuarantinedFile, QuarantineList
from platform_defs.engine.ingest.release import Release, Released, is_named
from platform_defs.engine.ingest.uncommitted import clear_uncommitted, require_logs
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import next_row
from platform_defs.engine.ledger.snapshot import last_with_rejected_rows


@dataclass(frozen=True)
class Quarantine(LedgerWriter):
    """Ingests quarantined files and rows again.

    Args:
        listed: lists the quarantined files and rows.
    """

    listed: QuarantineList

    def retry(self, source: str, names: Sequence[str] = ()) -> list[QuarantinedFile]:
        """Request, in one ledger batch, that files are read again unchanged; the next ingest reads them.

        Args:
            source: the source.
            names: the files, by path, URI, or the last parts of the path; empty for all.

        Returns:
            The files that are to be read again.

        Raises:
            QuarantineError: a name matches no quarantined file, or a file that would be refused again, because it is empty, changed after
                its rows were read, or has an unknown format; or the named files were all deleted before they were read.
            LedgerError: the source's log, its quarantine or the ledger has lost commits.
        """
        with self._writing(source):
            selected = [quarantined for quarantined in self._select_files(source, names) if not quarantined.is_retry_requested]
            existing = [quarantined for quarantined in selected if quarantined.file.length != MISSING_LENGTH]
            if names and selected and not existing:
                raise QuarantineError.deleted(source, unquote(selected[0].file.path))
            selected = existing
            known_files = self.ledger.file_records(source, [quarantined.file for quarantined in selected])
            selected = [replace(quarantined, file=of_known_format(known_files.with_fault(quarantined.file))) for quarantined in selected]
            for quarantined in selected:
                if names and quarantined.file.fault is not None:
                    raise QuarantineError.not_retried(source, unquote(quarantined.file.path), quarantined.file.fault)
            selected = [quarantined for quarantined in selected if quarantined.file.fault is None]
            if selected:
                self._request_retry(source, [quarantined.file.retry for quarantined in selected])
        return selected

    def release(self, source: str, reasons: Sequence[str] = (), names: Sequence[str] = ()) -> list[Released]:
        """Write rejected rows to new input files as their raw text, each row once; the next ingest reads them.

        Args:
            source: the source.
            reasons: prefixes of the rows' reasons; empty for all.
            names: the files that contained the rows; empty for all.

        Returns:
            The files written, including those that finish an interrupted release.

        Raises:
            QuarantineError: the rows cannot be written in their original form.
            LedgerError: the source's log, its quarantine or the ledger has lost commits.
            LakeError: the quarantine lacks a data file.
        """
        contract = self.listed.contract(source)
        with self._writing(source), naming_lost_files(self.lake, [contract.quarantine]):
            return Release(self, lambda lake: rejected_rows(self, contract, lake), contract, self.listed.folders[source])(reasons, names)

    @contextmanager
    def _writing(self, source: str) -> Iterator[None]:
        """Hold the ledger's writer lock while the block runs, after a check that no log of the source has lost rows."""
        contract = self.listed.contract(source)
        with self.lake.writer("ledger"):
            self.require()
            require_logs(self.lake, self.ledger, {source: contract})
            yield

    def _select_files(self, source: str, names: Sequence[str]) -> list[QuarantinedFile]:
        files = self.listed.files(source)
        for name in names:
            if not any(is_named(quarantined.file.path, name) for quarantined in files):
                raise QuarantineError.no_file(source, name, [unquote(quarantined.file.path) for quarantined in files])
        return [quarantined for quarantined in files if not names or any(is_named(quarantined.file.path, name) for name in names)]

    def _request_retry(self, source: str, offsets: Sequence[str]) -> None:
        batch = self._begin()
        last = batch.known.newest_rows()
        clear_uncommitted(self.spark, self.lake, batch, self.contracts)
        point("control_batch.before_ledger")
        row = next_row(last[source], seq=batch.seq, kind="retry", ingested_at=batch.now, offsets=tuple(offsets))
        batch.commit([(row, *clock_rows(last, self.contracts, batch.seq, batch.now, {source}))])
        point("control_batch.after_ledger")


def rejected_rows(writer: LedgerWriter, contract: SourceContract, lake: Lake | None = None) -> DataFrame | None:
    """A source's quarantined rows, without those that stand for a whole file; None if there is no quarantine yet.

    Args:
        writer: the session, the lake and the ledger.
        contract: the source's contract.
        lake: the lake or snapshot to read; by default that of `writer`.
    """
    lake = lake or writer.lake
    if not lake.exists(contract.quarantine):
        return None
    rows = lake.read(writer.spark, contract.quarantine)
    marked = rows if RELEASED in rows.columns else rows.withColumn(RELEASED, F.lit(None).cast("string"))
    return marked.where((F.col(SEQ) <= last_with_rejected_rows(writer.ledger, contract.name)) & (F.col("raw") != F.col("path")))
