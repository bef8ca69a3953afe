"""Retention of quarantines: remove old rejected rows."""

from dataclasses import dataclass

from assets.contracts import SourceContract
from assets.days import day_of
from operators.timing import DAY_MS
from platform_defs.engine.faults import point
from platform_defs.engine.formats.files import hadoop_file, one_path
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.sql_rows import before_sql, sql_rows
from platform_defs.engine.operations.retention import Removal, unfinished_ingest


@dataclass(frozen=True)
class QuarantineRetention:
    """Removes rows from the quarantine of one source, by whole days (UTC) of the time at which they were rejected.

    Args:
        workspace: the session, the lake and its ledger.
        contract: the source.
        retention: how long rows are kept, in ms; None to remove no more rows.
        folder: the source's folder of input files; None if it has none.
    """

    workspace: Workspace
    contract: SourceContract
    retention: int | None
    folder: str | None

    def plan(self) -> Removal | None:
        """What is to be removed; None if the quarantine keeps its rows for ever and none was removed before."""
        lake, table = self.workspace.lake, self.contract.quarantine
        removed_before, kept_from = lake.transaction(table, RETENTION), self._kept_from()
        if self.retention is None:
            return None if removed_before is None else Removal(kept_from=kept_from)
        first_kept_day = (self.workspace.ledger.wall_clock() - self.retention) // DAY_MS
        if removed_before is not None and first_kept_day <= removed_before:
            return Removal(kept_from=kept_from)
        sql = f"SELECT count(*) AS rows FROM rejected WHERE {_rejected_before(first_kept_day)}"
        rows = sql_rows(lake, {"rejected": table}, sql).to_pylist()[0]["rows"]
        if not rows:
            return Removal(kept_from=kept_from)
        if (reason := self._held_back()) is not None:
            return Removal(kept_from=kept_from, held_back=reason)
        return Removal(rows, str(day_of(first_kept_day * DAY_MS)), number=first_kept_day)

    def _kept_from(self) -> str | None:
        """The first day that no earlier removal has cut; None if no row was ever removed."""
        removed_before = self.workspace.lake.transaction(self.contract.quarantine, RETENTION)
        return None if removed_before is None else str(day_of(removed_before * DAY_MS))

    def remove(self, planned: Removal) -> Removal:
        """Remove the planned rows. The caller holds the ledger's lock.

        Raises:
            LakeError: another writer has committed.
        """
        lake, table = self.workspace.lake, self.contract.quarantine
        delta = lake.delta(table)
        if planned.number is None:
            return planned
        if delta is None:  # the table was deleted after `plan`
            return Removal()
        if (reason := self._held_back()) is not None:
            return Removal(kept_from=self._kept_from(), held_back=reason)
        point("retention.before_quarantine")
        lake.remove(self.workspace.spark, table, _rejected_before(planned.number), planned.number, delta)
        point("retention.after_quarantine")
        return planned

    def _held_back(self) -> str | None:
        """Why no row may be removed: an ingest or a release was interrupted, and the next one still needs its rows. None if none was."""
        if (reason := unfinished_ingest(self.workspace, self.contract, self.contract.quarantine)) is not None:
            return reason
        if self.folder is not None and self._has_unfinished_release(self.folder):
            return f"a release of rows of {self.contract.name} was interrupted; run `tidemark quarantine release` again"
        return None

    def _has_unfinished_release(self, folder: str) -> bool:
        files, path = hadoop_file(self.workspace.spark, one_path(folder))
        names = [str(s.getPath().getName()) for s in files.listStatus(path)] if files.exists(path) else []
        return any(name.startswith(".released-") for name in names)


def _rejected_before(day: int) -> str:
    """The condition for rows that were rejected before a day (since 1970), except those for a whole file, in the SQL of DataFusion."""
    return f"{before_sql('ingested_at', day * DAY_MS)} AND raw <> path"
