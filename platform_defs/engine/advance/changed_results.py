"""The changes of a correction: computed once, and merged into the table by deltalake if they are few, else by Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.days import timestamp_sql
from operators.changelog import DELETE, OWN_CHANGE, UPDATE_BEFORE
from operators.columns import FINAL_AT, are_rows_equal, temporary
from platform_defs.engine.lake.small_queries import collect, fetch_arrow, from_arrow, is_arrow_type
from platform_defs.engine.lake.tables import Lake

_FIRST, _LAST = temporary("first"), temporary("last")


@dataclass(frozen=True)
class ComputedChanges:
    """The rows of a table that a correction changes, with the kind of each change in `OWN_CHANGE`.

    Args:
        rows: the rows. If they are many, Spark has computed them, and keeps them.
        few_rows: the same rows as Arrow if they are few; else None.
        count: the number of rows.
        ends: the first and the last `final_at`, in epoch ms; zeros if there is no row.
    """

    rows: DataFrame
    few_rows: pa.Table | None
    count: int
    ends: tuple[int, int]

    @classmethod
    @contextmanager
    def compute(cls, changes: DataFrame) -> Iterator["ComputedChanges"]:
        """Compute changes once, and keep them until the block ends."""
        few_rows = fetch_arrow(changes) if is_arrow_type(changes.schema) else None
        if few_rows is not None:
            yield cls(changes, few_rows, few_rows.num_rows, _ends_of(few_rows))
            return
        computed = changes.persist()
        try:
            final_at = F.unix_millis(FINAL_AT)
            [(count, first, last)] = collect(computed.agg(F.count("*"), F.min(final_at), F.max(final_at)))
            yield cls(computed, None, count, (first or 0, last or 0))
        finally:
            computed.unpersist()

    def apply(self, lake: Lake, table: str, key: Sequence[str], metadata: dict[str, Any], number: int) -> None:
        """Merge the changes into a table, in one commit with the metadata.

        Args:
            lake: the lake.
            table: the table.
            key: the columns that identify a row of the table; if there are none, the changes are only inserts and deletes.
            metadata: the commit's metadata.
            number: the step's number.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        if self.few_rows is not None and self._upsert(lake, table, self.few_rows, key, metadata, number):
            return
        is_deleted = F.col(f"c.{OWN_CHANGE}") == DELETE
        rows = self.rows if self.few_rows is None else from_arrow(self.few_rows, self.rows)
        changed_rows = rows.drop(OWN_CHANGE)
        is_same_row = (
            are_rows_equal("t", "c", key) if key else are_rows_equal("t", "c", changed_rows.columns, changed_rows.schema) & is_deleted
        )
        is_in_range = F.col(f"t.{FINAL_AT}").between(*[F.expr(timestamp_sql(end)) for end in self.ends])
        newest_rows = rows.where(F.col(OWN_CHANGE) != UPDATE_BEFORE)
        lake.merge(
            table,
            newest_rows,
            is_same_row & is_in_range,
            is_deleted=is_deleted,
            metadata=metadata,
            number=number,
            stored=self.few_rows is not None,
        )

    def _upsert(self, lake: Lake, table: str, few_rows: pa.Table, key: Sequence[str], metadata: dict[str, Any], number: int) -> bool:
        """Merge the changes by deltalake; returns whether they were merged.

        They are not merged if the table is large, if deltalake cannot compare the columns by which rows are merged, or if several changes
        have one key. In the last case the table has several rows of that key, and Spark refuses the MERGE.
        """
        newest_rows = few_rows.filter(pc.field(OWN_CHANGE) != UPDATE_BEFORE)
        columns = [*key] or [name for name in few_rows.column_names if name != OWN_CHANGE]
        opened = lake.small_table(table, columns)
        if opened is None or (key and newest_rows.group_by(columns).aggregate([]).num_rows < newest_rows.num_rows):
            return False
        is_deleted = f"c.`{OWN_CHANGE}` = '{DELETE}'"
        only = f"t.`{FINAL_AT}` BETWEEN c.`{_FIRST}` AND c.`{_LAST}`" if key else is_deleted
        for column, end in zip((_FIRST, _LAST), self.ends, strict=True):  # deltalake cannot record a condition with a literal timestamp
            newest_rows = newest_rows.append_column(
                column, pa.repeat(pa.scalar(end * 1_000, few_rows.schema.field(FINAL_AT).type), newest_rows.num_rows)
            )
        lake.upsert_fetched(
            self.rows.sparkSession,
            opened,
            table,
            newest_rows,
            columns,
            metadata=metadata,
            number=number,
            is_deleted=is_deleted,
            only=only,
        )
        return True


def _ends_of(few_rows: pa.Table) -> tuple[int, int]:
    """The first and the last `final_at` of rows, in epoch ms, rounded down as Spark rounds it."""
    if not few_rows.num_rows:
        return 0, 0
    ends = few_rows.group_by([]).aggregate([(FINAL_AT, "min"), (FINAL_AT, "max")])
    first, last = (ends[f"{FINAL_AT}_{end}"].cast(pa.int64())[0].as_py() // 1_000 for end in ("min", "max"))
    return first, last
