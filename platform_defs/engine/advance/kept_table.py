"""The table `kept_rows/<asset>`: the rows of a source that later steps of an asset need, so that a step need not read the whole log.

The kept rows have the columns of the log that the operator reads. They depend only on the log up to a point, which their commit records.
They are committed after the step: after a kill between the two commits they are behind, and the next step reads more of the log. The next
step makes the kept rows again from the log if they are missing, are ahead of the asset's table, or were made with other settings. The same
happens if the asset's table was deleted by hand, or replaced by an older copy: the step numbers of the asset's table are then lower than
those of the kept rows' commits.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import DerivedAsset
from operators.changelog import DELETE, OWN_CHANGE, UPDATE_BEFORE, difference
from operators.engine_columns import ARRIVAL, BATCH_TIME, PARTIAL, PERIOD_END, PERIOD_START, SEQ
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.identity import identity_of, parameters_as_text
from platform_defs.engine.inputs.same_inputs import input_identities
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import APPLICATION
from platform_defs.engine.lake.errors import MissingMetadataError
from platform_defs.engine.lake.small_queries import is_small, materialize
from platform_defs.engine.lake.table_columns import differing_columns

KEPT = "kept"
"""The metadata key of the commits of `kept_rows/<asset>`: up to where the rows are complete, in `by` a hash of what they depend on, and in
`ahead` the number of the commit minus that of its step, if that is not 0."""
_ID, _BY, _AHEAD = (SEQ, ARRIVAL), "by", "ahead"
_ADDED = (PERIOD_START, PERIOD_END, PARTIAL)


@dataclass(frozen=True)
class KeptTable:
    """Reads and writes the kept rows of an asset.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
    """

    workspace: Workspace
    asset: DerivedAsset

    def usable_metadata(self, number: int | None = None) -> dict[str, Any] | None:
        """The metadata of the newest commit, with the point up to which the rows are complete; None if there are no usable rows.

        Args:
            number: the number of the step that will change the rows, which can use only rows of an earlier step; None to only read them.
        """
        metadata = self._newest_metadata()
        if metadata is None or metadata.get(_BY) != self._made_by:
            return None
        return metadata if number is None or number + metadata.get(_AHEAD, 0) > self._committed else None

    def rows(self) -> DataFrame:
        """All kept rows."""
        return self.workspace.lake.read(self.workspace.spark, self.asset.kept)

    def has_columns_of(self, log: DataFrame) -> bool:
        """Whether the kept rows have the columns of the log's rows."""
        kept_columns = StructType([column for column in self.workspace.lake.schema(self.asset.kept).fields if column.name not in _ADDED])
        return not differing_columns(kept_columns, log.drop(BATCH_TIME).schema)

    def replace(self, rows: DataFrame, upto: dict[str, Any], number: int, pruned_by: Sequence[str]) -> None:
        """Replace all kept rows by other rows.

        Args:
            rows: the rows.
            upto: the point up to which they are complete, as metadata.
            number: the step's number.
            pruned_by: the columns for data skipping, in addition to those that identify a row.
        """
        lake, table = self.workspace.lake.live, self.asset.kept
        ahead = max(0, self._committed + 1 - number)
        metadata, skipping = self._metadata(upto, ahead), [*dict.fromkeys([*pruned_by, *_ID])]
        deletion_vectors = not is_small(rows)
        point("kept.before_commit")
        lake.overwrite(rows, table, metadata, number=number + ahead, pruned_by=skipping, deletion_vectors=deletion_vectors)
        point("kept.after_commit")

    def change(self, before: DataFrame, rows: DataFrame, upto: dict[str, Any], number: int) -> None:
        """Replace some kept rows by other rows.

        Args:
            before: the kept rows to replace.
            rows: the rows in their place.
            upto: the point up to which all kept rows are then complete, as metadata.
            number: the step's number.
        """
        lake, table = self.workspace.lake.live, self.asset.kept
        ahead = (self._newest_metadata() or {}).get(_AHEAD, 0)
        metadata, commit_number = self._metadata(upto, ahead), number + ahead
        changes = difference(before, rows.select(*before.columns), key=_ID, change=OWN_CHANGE)
        changes = changes.where(F.col(OWN_CHANGE) != UPDATE_BEFORE)
        point("kept.before_commit")
        if not lake.upsert(table, changes, _ID, is_deleted=f"c.`{OWN_CHANGE}` = '{DELETE}'", metadata=metadata, number=commit_number):
            is_same_row = (F.col(f"t.{SEQ}") == F.col(f"c.{SEQ}")) & (F.col(f"t.{ARRIVAL}") == F.col(f"c.{ARRIVAL}"))
            is_deleted, is_large = F.col(f"c.{OWN_CHANGE}") == DELETE, lake.is_large(table)
            changes = materialize(changes)
            lake.merge(
                table, changes, is_same_row, is_deleted=is_deleted, metadata=metadata, number=commit_number, deletion_vectors=is_large
            )
        point("kept.after_commit")

    def forget(self) -> None:
        """Make the kept rows unusable, so that the next step makes them from the log."""
        lake = self.workspace.lake.live
        if self._newest_metadata() is not None:
            lake.overwrite(lake.no_rows(self.workspace.spark, lake.schema(self.asset.kept)), self.asset.kept, {KEPT: {}})

    def _newest_metadata(self) -> dict[str, Any] | None:
        try:
            commit = self.workspace.lake.newest_commit(self.asset.kept, KEPT)
        except MissingMetadataError:  # its log was cleaned up by another program
            return None
        return None if commit is None else commit.value

    @property
    def _made_by(self) -> str:
        """A hash that changes when other rows may be needed: if a parameter of the operator, or the identity of a log, changes."""
        logs = input_identities(self.workspace, self.asset).values()
        parts = [identity_of(self.asset), repr(self.asset.operator.reads), parameters_as_text(self.asset.operator), *sorted(logs)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @property
    def _committed(self) -> int:
        """The number of the newest commit; 0 for none."""
        return self.workspace.lake.transaction(self.asset.kept, APPLICATION) or 0

    def _metadata(self, upto: dict[str, Any], ahead: int) -> dict[str, Any]:
        """The metadata of a commit. `ahead` is the commit's number minus that of its step: 0, unless the step numbers began again."""
        return {KEPT: {**upto, _BY: self._made_by} | ({_AHEAD: ahead} if ahead else {})}
