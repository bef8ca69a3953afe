"""Append the rows of a step to a table, in one commit with its progress."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from operators.columns import FINAL_AT, RESULT_TIME
from platform_defs.engine.advance.corrections import is_corrected
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.progress import Progress, commit_step, require_same_columns
from platform_defs.engine.inputs.workspace import Workspace


@dataclass(frozen=True)
class AppendedTable:
    """Writes a table to which rows are appended. A step is a single commit, so a killed run leaves nothing to recover.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
    """

    workspace: Workspace
    asset: DerivedAsset

    def append(self, rows: DataFrame, after: Progress) -> int:
        """Commit rows with a progress; returns the number of rows."""
        require_same_columns(self.workspace.lake, self.asset, rows)
        pruned_by = [column for column in (FINAL_AT, RESULT_TIME) if column in rows.columns]
        point("advance.before_commit")
        change_feed = is_corrected(self.asset, self.workspace.assets)
        row_count = commit_step(self.workspace.lake, self.asset, rows, after, pruned_by, change_feed=change_feed)
        point("advance.after_commit")
        return row_count
