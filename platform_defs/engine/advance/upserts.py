"""Upserting: a step's changes are committed to the changelog with its progress, and folded into the current table.

The changelog's commit is the one that counts. The table's own tells up to which step it is folded, so that folding again after a kill
changes nothing.
"""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, CHANGED_AT, DELETE, UPDATE_BEFORE, net
from operators.columns import check_free, of_keys, parameter, same_rows
from operators.contract import ByKey, NewRows, Upsert
from platform_defs.engine.inputs.changelog_reader import FOLDED, STEP, steps_of, upserted
from platform_defs.engine.inputs.progress import Progress, ProgressError, commit_step, is_emptied, progress
from platform_defs.engine.inputs.reader import Reading
from platform_defs.engine.lake.table_columns import differing_columns
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
        beside = F.length(CHANGE).cast("bigint")  # a number that each change has
        stamps = {STEP: parameter(after.step, beside), CHANGED_AT: F.timestamp_millis(parameter(self.reading.ledger.now(), beside))}
        point("advance.before_changelog")
        lake, rows = self.reading.lake, changes.withColumns(stamps)
        held = lake.schema(self.asset.changelog)
        if held.fields and not is_emptied(progress(lake, self.asset)) and (differing := differing_columns(held, rows.schema)):
            raise ProgressError.other_columns(self.asset.name, differing)
        written = commit_step(lake, self.asset, rows, after, [STEP, *upserted(self.asset).key])
        point("advance.after_changelog")
        replace(self, reading=replace(self.reading, lake=lake.live))._fold()
        return written

    def current(self, like: DataFrame) -> DataFrame:
        """The current table with the columns of a frame; without rows where there is none yet."""
        return self.reading.lake.read(self.reading.spark, self.asset.name, like.schema).select(*like.columns)

    def current_of(self, like: DataFrame, keys: DataFrame) -> DataFrame:
        """The current rows with one of some keys; of a large table from the files that can hold one."""
        rows = self.current(like)
        if self.reading.lake.is_large(self.asset.name):
            for column, ends in _extent(keys).items():
                rows = rows.where(F.col(f"`{column}`").between(*ends))
        return of_keys(rows, keys, keys.columns)

    def recover(self) -> None:
        """Fold what a killed step committed and did not fold.

        Raises:
            ProgressError: the changelog is lost, or has lost its newest steps, and the table has not.
        """
        if not isinstance(self.asset.operator.emits, Upsert):
            return
        if self.reading.lake.delta(self.asset.changelog) is not None:
            self._fold()
        elif (folded := self.reading.lake.newest(self.asset.name, FOLDED)) is not None:
            raise ProgressError.lost_changelog(self.asset.name, self.asset.changelog, folded.value["step"])

    def _fold(self) -> None:
        """Bring the current table up to the changelog. Idempotent: what is folded is told by the table's own commit."""
        lake, key = self.reading.lake, upserted(self.asset).key
        now, folded = progress(lake, self.asset), lake.newest(self.asset.name, FOLDED)
        applied = {FOLDED: {"step": now.step, "seq": now.seq, "generation": now.generation}}
        if folded is not None and (folded.value["step"], folded.value.get("generation", 0)) == (now.step, now.generation):
            return
        generation = 0 if folded is None else folded.value.get("generation", 0)
        if folded is not None and generation == now.generation and folded.value["step"] > now.step:
            raise ProgressError.shorter_changelog(self.asset.name, self.asset.changelog, folded.value["step"], now.step)
        emptied = folded is not None and now.generation > 0 and not folded.value["seq"]  # it may have other columns from now on
        if folded is None or emptied or generation != now.generation:
            rows = self._unapplied(0, now.step).where(F.col(CHANGE) != DELETE).drop(CHANGE, CHANGED_AT, STEP)
            point("advance.before_create")
            lake.overwrite(rows, self.asset.name, applied, number=now.step, pruned_by=self._ranged, followed=True, marked=True)
            point("advance.after_create")
        else:
            unapplied, same = self._unapplied(folded.value["step"], now.step), same_rows("t", "c", key)
            if lake.is_large(self.asset.name):
                within = lake.extent(self.asset.changelog, key, {STEP: (folded.value["step"] + 1, now.step)})
                same = reduce(lambda a, b: a & b, [F.col(f"t.`{c}`").between(*ends) for c, ends in within.items()], same)
            point("advance.before_fold")
            lake.merge(self.asset.name, unapplied, same, is_deleted=F.col(f"c.{CHANGE}") == DELETE, metadata=applied, number=now.step)
            point("advance.after_fold")

    @property
    def _ranged(self) -> list[str]:
        """The columns by which files of the current table are chosen: those of its key, and those that tell which rows a step touches."""
        reads = self.asset.operator.reads
        touches = (reads.touches or ()) if isinstance(reads, NewRows) else reads.key if isinstance(reads, ByKey) else ()
        return [*dict.fromkeys([*touches, *upserted(self.asset).key])]

    def _unapplied(self, after: int, upto: int) -> DataFrame:
        """The last change of each key in the steps `after < step <= upto`."""
        changelog = steps_of(self.reading, self.asset, after, upto)
        if upto - after == 1:  # in one step a key has one row that comes, or goes: an operator's promise (`Upsert`)
            return changelog.where(F.col(CHANGE) != UPDATE_BEFORE)
        return net(changelog, key=upserted(self.asset).key, order=STEP)


def _extent(keys: DataFrame) -> dict[str, tuple[Any, Any]]:
    """Between which values the whole numbers and strings among keys lie; a column that holds a null is left out."""
    columns = [f.name for f in keys.schema if isinstance(f.dataType, IntegralType | StringType)]
    if not columns:
        return {}
    ends = [F.struct(F.min(f"`{c}`"), F.max(f"`{c}`"), F.bool_or(F.col(f"`{c}`").isNull())).alias(c) for c in columns]
    [extents] = keys.agg(*ends).collect()
    return {c: (low, high) for c, (low, high, null) in zip(columns, extents, strict=True) if null is False}
