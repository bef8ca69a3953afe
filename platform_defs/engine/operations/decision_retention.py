"""Retention of recorded lateness decisions: remove those of rows that have left the event logs."""

from dataclasses import dataclass

from assets.contracts import DerivedAsset
from operators.engine_columns import SEQ
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.stored_rows import first_batch_in_log
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.sql_rows import sql_rows
from platform_defs.engine.operations.retention import Removal


@dataclass(frozen=True)
class DecisionRetention:
    """Removes decisions from `verdicts/<asset>`, by whole batches.

    Decisions have no setting of their own: a decision is needed only as long as its row is in the event log.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the table for which the decisions were recorded.
    """

    workspace: Workspace
    asset: DerivedAsset

    def plan(self) -> Removal | None:
        """What is to be removed; None if there is nothing to remove and no decision was ever removed."""
        lake, table = self.workspace.lake, self.asset.decisions
        earlier_upto = lake.transaction(table, RETENTION) or 0
        upto = self._last_batch_without_rows()
        sql = f"SELECT count(*) AS rows FROM decisions WHERE {_upto_condition(upto)}"
        rows = sql_rows(lake, {"decisions": table}, sql).to_pylist()[0]["rows"] if upto > earlier_upto else 0
        if not rows:
            return Removal(kept_from=f"batch {earlier_upto + 1}") if earlier_upto else None
        return Removal(rows, f"batch {upto + 1}", number=upto)

    def remove(self, planned: Removal) -> Removal:
        """Remove the planned decisions. The caller holds the lock of the asset's writer.

        Raises:
            LakeError: another writer has committed.
        """
        lake, table = self.workspace.lake, self.asset.decisions
        delta = lake.delta(table)
        if planned.number is None:
            return planned
        if delta is None:  # the table was deleted after `plan`
            return Removal()
        point("retention.before_decisions")
        lake.remove(self.workspace.spark, table, _upto_condition(planned.number), planned.number, delta)
        point("retention.after_decisions")
        return planned

    def _last_batch_without_rows(self) -> int:
        """The last batch up to which no log of the asset's sources has a row; 0 for none."""
        head = self.workspace.ledger.head  # read before the logs: a batch that is committed in between may have rows
        sources = [upstream.name for upstream in self.workspace.inputs_of(self.asset) if upstream.is_source]
        if not sources:
            return 0
        first_batches = [first for name in sources if (first := first_batch_in_log(self.workspace, name)) is not None]
        return min(first_batches, default=head + 1) - 1


def _upto_condition(upto: int) -> str:
    """The condition for the decisions of the batches up to one, in the SQL of DataFusion."""
    return f"{SEQ} <= {upto}"
