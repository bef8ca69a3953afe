"""Retention of quarantines and changelogs: old rows of a quarantine are removed, old steps of a changelog are replaced by their result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, SourceContract
from assets.days import day_of
from operators.changelog import CHANGE, CHANGED_AT, INSERT, STEP
from operators.timing import DAY_MS, timestamp
from platform_defs.engine.formats.files import hadoop_file, one_path
from platform_defs.engine.inputs.changelog_reader import APPLIED, result_of_changelog, steps_of
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.reader import Reading
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.small_queries import collected
from platform_defs.engine.lake.sql_rows import sql_rows
from platform_defs.engine.operations.retention import Removal, before_sql, unfinished_ingest
from platform_defs.faults import point


@dataclass(frozen=True)
class Retentions:
    """How long the lake keeps what no setting of a source is about, in ms of the wall clock; None for ever.

    Args:
        changelogs: the steps of upserted tables.
        quarantines: rejected rows. A file of which no row was read stays listed until it is read.
    """

    changelogs: int | None = None
    quarantines: int | None = None


KEEP_ALL = Retentions()
"""Nothing is removed."""


@dataclass(frozen=True)
class QuarantineRetention:
    """Removes rows from the quarantine of one source, by whole days (UTC) of the time at which they were rejected.

    Args:
        reading: reads the lake.
        contract: the source.
        retention: in ms; None to remove nothing more.
        folder: the source's folder of input files; None if it has none.
    """

    reading: Reading
    contract: SourceContract
    retention: int | None
    folder: str | None

    def plan(self) -> Removal | None:
        """What is to be removed; None if nothing is, and nothing was."""
        lake, table = self.reading.lake, self.contract.quarantine
        known = lake.transaction(table, RETENTION)
        kept_from = None if known is None else str(day_of(known * DAY_MS))
        if self.retention is None:
            return None if known is None else Removal(kept_from=kept_from)
        first = (self.reading.ledger.now() - self.retention) // DAY_MS
        found = sql_rows(lake, {"rejected": table}, f"SELECT count(*) AS rows FROM rejected WHERE {_rejected_before(first)}").to_pylist()
        if (known is not None and first <= known) or not found[0]["rows"]:
            return Removal(kept_from=kept_from)
        if (why := self._held_back()) is not None:
            return Removal(kept_from=kept_from, held_back=why)
        return Removal(found[0]["rows"], str(day_of(first * DAY_MS)), number=first)

    def remove(self, planned: Removal) -> Removal:
        """Remove the planned rows. The caller holds the ledger's lock.

        Raises:
            LakeError: another writer has committed.
        """
        lake, table = self.reading.lake, self.contract.quarantine
        seen = lake.delta(table)
        if planned.number is None or seen is None:
            return planned
        if (why := self._held_back()) is not None:
            return Removal(held_back=why)
        point("retention.before_quarantine")
        lake.remove(self.reading.spark, table, _rejected_before(planned.number), planned.number, seen)
        point("retention.after_quarantine")
        return planned

    def _held_back(self) -> str | None:
        """Why no row may leave: an ingest or a release was interrupted, and the next one goes on with its rows."""
        if (why := unfinished_ingest(self.reading, self.contract, self.contract.quarantine)) is not None:
            return why
        if self.folder is not None and self._has_unfinished_release(self.folder):
            return f"a release of rows of {self.contract.name} was interrupted; run `tidemark quarantine release` again"
        return None

    def _has_unfinished_release(self, folder: str) -> bool:
        files, path = hadoop_file(self.reading.spark, one_path(folder))
        names = [str(s.getPath().getName()) for s in files.listStatus(path)] if files.exists(path) else []
        return any(name.startswith(".released-") for name in names)


def _rejected_before(day: int) -> str:
    """The rows that were rejected before a day, without those that stand for a whole file, in the SQL of DataFusion."""
    return f"{before_sql('ingested_at', day * DAY_MS)} AND raw <> path"


@dataclass(frozen=True)
class ChangelogRetention:
    """Replaces the oldest steps of a table's changelog by the rows that they resulted in, as inserts of the last of these steps.

    So the table's state after each later step can still be read, and the table can be made again from its changelog.

    Args:
        reading: reads the lake.
        asset: the upserted table.
        retention: in ms; None to replace nothing more.
        published: returns the last step that a topic has of the table; None if it is published to no topic.
    """

    reading: Reading
    asset: DerivedAsset
    retention: int | None
    published: Callable[[], int | None]

    def plan(self) -> Removal | None:
        """What is to be replaced; None if nothing is, and nothing was."""
        lake, table = self.reading.lake, self.asset.changelog
        known = lake.transaction(table, RETENTION)
        kept_from = None if known is None else f"step {known}"
        if self.retention is None:
            return None if known is None else Removal(kept_from=kept_from)
        old = self._last_old_step(self.reading.ledger.now() - self.retention)
        floor, why = self._floor(old)
        if floor <= (known or 0):
            return Removal(kept_from=kept_from, held_back=why)
        return Removal(kept_from=f"step {floor}", held_back=why, number=floor)

    def remove(self, planned: Removal) -> Removal:
        """Replace the planned steps. The caller holds the lock of the table's writer.

        Raises:
            LakeError: another writer has committed.
        """
        if planned.number is None:
            return planned
        lake, table, upto = self.reading.lake, self.asset.changelog, planned.number
        pinned = self.reading.pinned(self.asset.name)
        [counted] = sql_rows(pinned.lake, {"changes": table}, f"SELECT count(*) AS rows FROM changes WHERE {STEP} <= {upto}").to_pylist()
        base = self._result(pinned, upto).persist()
        try:
            kept = base.count()
            point("retention.before_changelog")
            lake.replace_rows(base, table, f"{STEP} <= {upto}", upto)
            point("retention.after_changelog")
        finally:
            base.unpersist()
        return Removal(counted["rows"] - kept, planned.kept_from, planned.held_back)

    def _last_old_step(self, before: int) -> int:
        """The last step that is older than a time, as are all steps before it; 0 if there is none."""
        later = f"min(CASE WHEN {before_sql(CHANGED_AT, before)} THEN NULL ELSE {STEP} END)"
        sql = f"SELECT {later} AS later, max({STEP}) AS newest FROM changes"
        [found] = sql_rows(self.reading.lake, {"changes": self.asset.changelog}, sql).to_pylist()
        return (found["newest"] or 0) if found["later"] is None else found["later"] - 1

    def _floor(self, old: int) -> tuple[int, str | None]:
        """The last step that may be replaced, and what limits it, if it is not the age of the steps."""
        lake, name = self.reading.lake, self.asset.name
        applied = lake.newest(name, APPLIED)
        limits: Mapping[str, int | None] = {
            "the table itself has not applied": 0 if applied is None else applied.value["step"],
            **{
                f"{reader.name} has not read": now.read.get(name, 0)
                for reader in self.reading.assets.values()
                if name in reader.inputs and (now := stored_progress(lake, reader)).seq
            },
            "its topic does not have": self.published(),
        }
        why, floor = min(((why, step) for why, step in limits.items() if step is not None), key=lambda limit: limit[1])
        return (floor, f"{why} the steps after {floor} yet") if floor < old else (old, None)

    def _result(self, pinned: Reading, upto: int) -> DataFrame:
        """The rows after a step, as inserts of that step at the time of the newest replaced step."""
        newest = steps_of(pinned, self.asset, 0, upto).agg(F.max(CHANGED_AT).alias(CHANGED_AT))
        [(at,)] = collected(newest.select(F.unix_millis(CHANGED_AT)))
        stamps = {CHANGE: F.lit(INSERT), STEP: F.lit(upto).cast("bigint"), CHANGED_AT: timestamp(F.lit(at).cast("bigint"))}
        rows = result_of_changelog(pinned, self.asset, upto).withColumns(stamps)
        return rows.select(*[f"`{c}`" for c in pinned.lake.schema(self.asset.changelog).fieldNames()])
