"""Lists the quarantine of a lake: the files of which no row was read, and the rejected rows by reason. It needs no Spark session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assets.contracts import SourceContract
from operators.engine_columns import SEQ
from platform_defs.engine.formats.files import RETRY, UNREAD, File, decoded_path, one_path
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.lake.sql_rows import sql_rows
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.known_files import uris_below
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.snapshot import last_with_rejected_rows

RELEASED = "released"
"""The quarantine's column with the name of the file in which a row was released; null or absent if it was not."""
_MOST_REASONS = 1_000


@dataclass(frozen=True)
class QuarantinedFile:
    """A file of which no row was read.

    Args:
        file: the file, in the state in which it was quarantined.
        seq: the number of the batch that quarantined it.
        reason: the reason in the quarantine.
        is_retry_requested: whether a retry was requested.
    """

    file: File
    seq: int
    reason: str = ""
    is_retry_requested: bool = False


@dataclass(frozen=True)
class RejectedRows:
    """The rows that were rejected for one reason.

    Args:
        source: their source.
        reason: the reason.
        rows: the number of rows.
        released: how many of these rows were released.
    """

    source: str
    reason: str
    rows: int
    released: int


@dataclass(frozen=True)
class QuarantineList:
    """Lists quarantined files and rows.

    Args:
        lake: the lake.
        ledger: its ledger.
        contracts: the sources, by name.
        folders: each source's folder.
    """

    lake: Lake
    ledger: Ledger
    contracts: Mapping[str, SourceContract]
    folders: Mapping[str, str]

    def files(self, source: str) -> list[QuarantinedFile]:
        """The files of which no row was read so far, ordered by path; a file that was read later is not included.

        Raises:
            QuarantineError: no source has the name.
            LakeError: the quarantine lacks a data file.
        """
        contract = self.contract(source)
        files = _files_in_quarantine(self.ledger.offsets_in_order(source), source, self.folders[source])
        reasons_by_path = self._reasons(contract) if files else {}
        reasons = [reasons_by_path.get(decoded_path(quarantined.file.path), (quarantined.seq, "unknown")) for quarantined in files]
        return [replace(quarantined, seq=seq, reason=reason) for quarantined, (seq, reason) in zip(files, reasons, strict=True)]

    def rows(self, source: str) -> list[RejectedRows]:
        """Rejected rows by reason, without the rows that stand for a whole file: the 1,000 most frequent reasons, the most frequent first.

        Raises:
            QuarantineError: no source has the name.
            LakeError: the quarantine lacks a data file.
        """
        table = self.contract(source).quarantine
        if not self.lake.exists(table):
            return []
        released = f"count({RELEASED})" if RELEASED in self.lake.schema(table).fieldNames() else "0"
        counts = f"SELECT reason, count(*) AS n, {released} AS released FROM quarantined"
        rejected = f"WHERE {SEQ} <= {last_with_rejected_rows(self.ledger, source)} AND raw <> path"
        most = f"GROUP BY reason ORDER BY n DESC, reason LIMIT {_MOST_REASONS}"
        by_reason = sql_rows(self.lake, {"quarantined": table}, f"{counts} {rejected} {most}").to_pylist()
        return [RejectedRows(source, r["reason"], r["n"], r["released"]) for r in by_reason]

    def contract(self, source: str) -> SourceContract:
        """The contract of a source.

        Raises:
            QuarantineError: no source has the name.
        """
        if source not in self.contracts:
            raise QuarantineError.no_source(source, self.contracts)
        return self.contracts[source]

    def _reasons(self, contract: SourceContract) -> dict[str, tuple[int, str]]:
        """By a file's decoded path, the batch and the reason of its newest failure."""
        if not self.lake.exists(contract.quarantine):
            return {}
        last = last_with_rejected_rows(self.ledger, contract.name)
        sql = f"SELECT {SEQ}, path, reason FROM quarantined WHERE {SEQ} <= {last} AND raw = path ORDER BY {SEQ}"
        files = sql_rows(self.lake, {"quarantined": contract.quarantine}, sql).to_pylist()
        paths = uris_below([row["path"] for row in files], self.folders[contract.name])
        return {decoded_path(path): (row[SEQ], row["reason"]) for row, path in zip(files, paths, strict=True)}


def _files_in_quarantine(offsets: Sequence[tuple[int, str]], source: str, folder: str) -> list[QuarantinedFile]:
    """The quarantined files according to the ledger's newest record of each, ordered by path.

    Args:
        offsets: the recorded offsets with their batch numbers, ordered by batch.
        source: the source.
        folder: the source's present folder.
    """
    files_by_path: dict[str, QuarantinedFile] = {}
    paths = uris_below([offset.split("|")[0] for _, offset in offsets], folder)
    for (seq, offset), path in zip(offsets, paths, strict=True):
        _, modified, length, *status = offset.split("|")
        plain, file = decoded_path(path), File(int(modified), path, int(length), source, folder=one_path(folder))
        if not status:
            files_by_path.pop(plain, None)
        elif status[0] == UNREAD:
            files_by_path[plain] = QuarantinedFile(file, seq)
        elif status[0] == RETRY and plain in files_by_path:
            files_by_path[plain] = replace(files_by_path[plain], is_retry_requested=True)
    return [files_by_path[plain] for plain in sorted(files_by_path)]
