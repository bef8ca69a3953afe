"""The quarantine (a dead-letter table for each source): lists rejected files and rows, and ingests them again.

`retry` requests that a file of which no row was read is read again: it writes a ledger batch, after which the next ingest treats the file
as new. `release` writes rejected rows to a new input file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import SourceContract
from operators.contract import SEQ
from platform_defs.engine.formats.files import RETRY, UNREAD, File, decoded, one_path
from platform_defs.engine.formats.unreadable_files import MISSING_LENGTH
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.ingest.release import RELEASED, Release, Released, is_named
from platform_defs.engine.ingest.uncommitted import clear_uncommitted, require_logs
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.known_files import uris_below
from platform_defs.engine.ledger.ledger import moved
from platform_defs.faults import point

_MOST_REASONS = 1_000


@dataclass(frozen=True)
class QuarantinedFile:
    """A file of which no row was read.

    Args:
        file: the file in its state at that time.
        seq: the number of the batch that quarantined it.
        reason: the reason in the quarantine.
        asked: whether a retry was requested.
    """

    file: File
    seq: int
    reason: str = ""
    asked: bool = False


@dataclass(frozen=True)
class RejectedRows:
    """The rows that were rejected for one reason.

    Args:
        source: their source.
        reason: the reason.
        rows: the number of rows.
        released: the number of them that were released.
    """

    source: str
    reason: str
    rows: int
    released: int


@dataclass(frozen=True)
class Quarantine(LedgerWriter):
    """Lists quarantined files and rows, and ingests them again.

    Args:
        folders: each source's folder.
    """

    folders: Mapping[str, str] = field(default_factory=dict)

    def files(self, source: str) -> list[QuarantinedFile]:
        """The files of which no row was read so far, ordered by path; a file that was read later is not included."""
        contract = self._contract(source)
        found = _quarantined(self.ledger.offsets_in_order(source), source, self.folders[source])
        reasons = self._reasons(contract, {f.seq for f in found})
        return [replace(f, reason=reasons.get((f.seq, f.file.path), "unknown")) for f in found]

    def rows(self, source: str) -> list[RejectedRows]:
        """Rejected rows by reason, the most frequent first, without the rows that stand for a whole file."""
        rows = rejected_rows(self, self._contract(source))
        if rows is None:
            return []
        counts = rows.groupBy("reason").agg(F.count("*").alias("n"), F.count(RELEASED).alias("released"))
        by_reason = counts.orderBy(F.desc("n"), "reason").limit(_MOST_REASONS).collect()
        return [RejectedRows(source, r["reason"], r["n"], r["released"]) for r in by_reason]

    def retry(self, source: str, named: Sequence[str] = ()) -> list[QuarantinedFile]:
        """Request, in one ledger batch, that files are read again unchanged; the next ingest reads them.

        Args:
            source: the source.
            named: the files, by path, URI, or the end of one; empty for all.

        Returns:
            The files.

        Raises:
            QuarantineError: a name matches no quarantined file, or a file whose rows were read before it changed.
            LedgerError: the source's log, its quarantine or the ledger has lost commits.
        """
        with self._writing(source):
            chosen = [f for f in self._chosen(source, named) if not f.asked and f.file.length != MISSING_LENGTH]
            known = self.ledger.known(source, [f.file for f in chosen])
            chosen = [replace(f, file=known.with_fault(f.file)) for f in chosen]
            for f in chosen:
                if named and f.file.fault is not None:
                    raise QuarantineError.not_retried(source, unquote(f.file.path), f.file.fault)
            chosen = [f for f in chosen if f.file.fault is None]
            if chosen:
                self._request_retry(source, [f.file.retry for f in chosen])
        return chosen

    def release(self, source: str, reasons: Sequence[str] = (), named: Sequence[str] = ()) -> list[Released]:
        """Write rejected rows to new input files as their raw text, each row once; the next ingest reads them.

        Args:
            source: the source.
            reasons: prefixes of the rows' reasons; empty for all.
            named: the files that contained the rows; empty for all.

        Returns:
            The files written, including those that finish an interrupted release.

        Raises:
            QuarantineError: the rows cannot be written in their original form.
            LedgerError: the source's log, its quarantine or the ledger has lost commits.
        """
        contract = self._contract(source)
        with self._writing(source):
            return Release(self, lambda lake: rejected_rows(self, contract, lake), contract, self.folders[source])(reasons, named)

    @contextmanager
    def _writing(self, source: str) -> Iterator[None]:
        """Hold the ledger's writer lock while the block runs, after a check that no log of the source has lost rows."""
        contract = self._contract(source)
        with self.lake.writer("ledger"):
            self.require()
            require_logs(self.lake, self.ledger, {source: contract})
            yield

    def _contract(self, source: str) -> SourceContract:
        if source not in self.contracts:
            raise QuarantineError.no_source(source, self.contracts)
        return self.contracts[source]

    def _chosen(self, source: str, named: Sequence[str]) -> list[QuarantinedFile]:
        found = self.files(source)
        for name in named:
            if not any(is_named(f.file.path, name) for f in found):
                raise QuarantineError.no_file(source, name, [unquote(f.file.path) for f in found])
        return [f for f in found if not named or any(is_named(f.file.path, name) for name in named)]

    def _request_retry(self, source: str, offsets: Sequence[str]) -> None:
        batch, last = self._begin(), self.ledger.last()[source]
        clear_uncommitted(self.spark, self.lake, batch, self.contracts)
        point("signals.before_ledger")
        batch.commit([(moved(last, seq=batch.seq, kind="retry", ingested_at=batch.now, offsets=tuple(offsets)),)])
        point("signals.after_ledger")

    def _reasons(self, contract: SourceContract, seqs: set[int]) -> dict[tuple[int, str], str]:
        if not seqs:
            return {}
        rows = self.lake.frame(self.spark, contract.quarantine)
        files = rows.where(F.col(SEQ).isin(*seqs) & (F.col("raw") == F.col("path"))).select(SEQ, "path", "reason").collect()
        paths = uris_below([row["path"] for row in files], self.folders[contract.name])
        return {(row[SEQ], _one_slash(path)): row["reason"] for row, path in zip(files, paths, strict=True)}


def rejected_rows(of: LedgerWriter, contract: SourceContract, lake: Lake | None = None) -> DataFrame | None:
    """A source's quarantined rows, without those that stand for a whole file; None if there is no quarantine yet.

    Args:
        of: the session, the lake and the ledger.
        contract: the source's contract.
        lake: the lake or snapshot to read; by default that of `of`.
    """
    lake = lake or of.lake
    if lake.delta(contract.quarantine) is None:
        return None
    rows = lake.frame(of.spark, contract.quarantine)
    marked = rows if RELEASED in rows.columns else rows.withColumn(RELEASED, F.lit(None).cast("string"))
    return marked.where((F.col(SEQ) <= of.ledger.head) & (F.col("raw") != F.col("path")))


def _quarantined(offsets: Sequence[tuple[int, str]], source: str, folder: str) -> list[QuarantinedFile]:
    """The quarantined files according to the ledger's newest record of each, ordered by path.

    Args:
        offsets: the recorded offsets with their batch numbers, ordered by batch.
        source: the source.
        folder: the source's present folder.
    """
    found: dict[str, QuarantinedFile] = {}
    paths = uris_below([offset.split("|")[0] for _, offset in offsets], folder)
    for (seq, offset), path in zip(offsets, paths, strict=True):
        _, modified, length, *mark = offset.split("|")
        plain, file = decoded(path), File(int(modified), path, int(length), source, folder=one_path(folder))
        if not mark:
            found.pop(plain, None)
        elif mark[0] == UNREAD:
            found[plain] = QuarantinedFile(file, seq)
        elif mark[0] == RETRY and plain in found:
            found[plain] = replace(found[plain], asked=True)
    return [found[plain] for plain in sorted(found)]


def _one_slash(path: str) -> str:
    return File(0, path, 0, "").path
