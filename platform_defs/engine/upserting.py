"""Upserting: a step's changes are committed to the changelog with its progress, and folded into the current table.

The changelog's commit is the one that counts. The table's own tells up to which step it is folded, so that folding again after a kill
changes nothing.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, CHANGED_AT, DELETE, net
from operators.columns import check_free, same_rows
from operators.contract import Upsert
from platform_defs.engine.following import FOLDED, STEP, upserted
from platform_defs.engine.progress import Progress, progress
from platform_defs.engine.reading import Reading
from platform_defs.faults import point


@dataclass(frozen=True)
class Upserting:
    """Writes one asset's changes.

    Args:
        reading: reads the lake.
        asset: the asset.
    """

    reading: Reading
    asset: DerivedAsset

    def commit(self, changes: DataFrame, after: Progress) -> int:
        """Commit changes to the changelog with a progress, then fold them into the current table; returns how many they are."""
        check_free(changes, STEP)
        check_free(changes, CHANGED_AT)
        told = {STEP: F.lit(after.step).cast("bigint"), CHANGED_AT: F.timestamp_millis(F.lit(self.reading.ledger.now()))}
        changes = changes.withColumns(told).persist()
        try:
            count = changes.count()
            point("advance.before_changelog")
            self.reading.lake.append(changes, self.asset.changelog, after.metadata(), pruned_by=[STEP])
            point("advance.after_changelog")
            self._fold()
            return count
        finally:
            changes.unpersist()

    def current(self, like: DataFrame) -> DataFrame:
        """The current table with the columns of a frame; without rows where there is none yet."""
        return self.reading.lake.read(self.reading.spark, self.asset.name, like.schema).select(*like.columns)

    def recover(self) -> None:
        """Fold what a killed step committed and did not fold."""
        if isinstance(self.asset.operator.emits, Upsert) and self.reading.lake.delta(self.asset.changelog) is not None:
            self._fold()

    def _fold(self) -> None:
        """Bring the current table up to the changelog. Idempotent: what is folded is told by the table's own commit."""
        lake, key = self.reading.lake, upserted(self.asset).key
        now = progress(lake, self.asset)
        reached = now.step
        changelog = self.reading.spark.read.format("delta").load(lake.path(self.asset.changelog))
        if lake.delta(self.asset.name) is None:
            point("advance.before_create")
            lake.append(
                changelog.drop(CHANGE, CHANGED_AT, STEP).limit(0),
                self.asset.name,
                {FOLDED: {"step": 0, "seq": 0}},
                pruned_by=key,
                followed=True,
            )
            point("advance.after_create")
        folded = lake.newest(self.asset.name, FOLDED)
        if folded is None or folded.value["step"] == reached:
            return
        due = net(changelog.where((F.col(STEP) > folded.value["step"]) & (F.col(STEP) <= reached)), key=key, order=STEP)
        same = same_rows("t", "c", key)
        point("advance.before_fold")
        lake.merge(self.asset.name, due, same, gone=F.col(f"c.{CHANGE}") == DELETE, metadata={FOLDED: {"step": reached, "seq": now.seq}})
        point("advance.after_fold")
