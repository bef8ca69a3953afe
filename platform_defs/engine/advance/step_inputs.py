"""The inputs of a step that closes no range: rows of sources by batch, or the changes of a table by step."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, INSERT
from operators.columns import check_free
from operators.engine_columns import EVENT_TIME
from operators.timing import TimeKind
from platform_defs.engine.inputs.changelog_reader import newest_changes, upstream_table
from platform_defs.engine.inputs.prepared_rows import prepare_table_rows
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.span import ALL_TIMES, Span
from platform_defs.engine.inputs.table_changes import TableChanges, table_changes
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger.columns import pc


@dataclass(frozen=True)
class StepInputs(ABC):
    """Reads an asset's inputs.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
    """

    workspace: Workspace
    asset: DerivedAsset

    def names_former_keys(self, row_key: Sequence[str]) -> bool:
        """Whether the changes of the input have both keys of a row that moves from one key to another; false by default.

        Args:
            row_key: the columns by which a row replaces another (see `ByKey`).
        """
        return False

    @abstractmethod
    def all_rows(self, after: Progress) -> list[DataFrame]:
        """Each input's rows, up to and including the rows that the step to `after` handles."""

    @abstractmethod
    def new_rows(self, before: Progress, after: Progress) -> list[DataFrame] | None:
        """Each input's rows, or changed rows, that a step handles; None if deleted rows can no longer be read."""

    @abstractmethod
    def mergeable_rows(self, before: Progress, after: Progress) -> list[DataFrame] | None:
        """The rows that the operator can merge into its own rows: those of `new_rows`, if no row of the input was deleted or replaced.

        Otherwise, of an upserted table, if the operator reads change kinds, the last change of each key; else None.
        """

    @abstractmethod
    def clock(self, kind: TimeKind, after: Progress) -> int | None:
        """The time (epoch ms) by which keys expire in a step to `after`: a watermark or a processing time; None if there is none."""

    @abstractmethod
    def rows_since(self, first: int, kind: TimeKind, after: Progress) -> list[DataFrame]:
        """The rows of `all_rows` whose time of this kind is `first` (epoch ms) or later."""


@dataclass(frozen=True)
class SourceRows(StepInputs):
    """The rows of sources, by batch."""

    def all_rows(self, after: Progress) -> list[DataFrame]:
        """The rows up to the last batch that the step handles."""
        return self._rows(after.seq)

    def new_rows(self, before: Progress, after: Progress) -> list[DataFrame]:
        """The rows of the batches that the step handles."""
        return self._rows(after.seq, after=before.seq)

    def mergeable_rows(self, before: Progress, after: Progress) -> list[DataFrame]:
        """The rows of the batches that the step handles: no row of a source is deleted or replaced."""
        return self.new_rows(before, after)

    def clock(self, kind: TimeKind, after: Progress) -> int | None:
        """The asset's watermark after the last batch that the step handles; by processing time, the time of that batch."""
        return clock_of_sources(self.workspace, self.asset, kind, after.seq)

    def rows_since(self, first: int, kind: TimeKind, after: Progress) -> list[DataFrame]:
        """The rows since `first`, up to the last batch that the step handles; by processing time, the rows of the batches since `first`."""
        if kind == "event":
            return self._rows(after.seq, Span(first))
        first_batch, times = self.workspace.ledger.processing_times(after.seq)
        return self._rows(after.seq, after=first_batch + (pc.sum(pc.less(times, first)).as_py() or 0))

    def _rows(self, head: int, span: Span = ALL_TIMES, after: int = 0) -> list[DataFrame]:
        return [read_input(self.workspace, self.asset, index, head, span, after) for index in range(len(self.asset.inputs))]


@dataclass(frozen=True)
class TableRows(StepInputs):
    """The rows of a table, by step. When the table is read for the first time, all of its rows are new.

    An operator that reads change kinds gets each row with the kind `+I`; if it merges changes, it gets each change with its own kind.

    Args:
        upstream: the table.
    """

    upstream: DerivedAsset

    def names_former_keys(self, row_key: Sequence[str]) -> bool:
        """Whether the table is upserted, all columns of its key are in `row_key`, and the asset's preparation keeps them.

        The changelog then has each row that another one replaces. In final results, and in a table with other key columns, the row that is
        replaced stays, so the changes do not have it.
        """
        emits, preparation = self.upstream.operator.emits, self.asset.preparation(0)
        return emits.upserts and {*emits.key} <= {*row_key} and (preparation is None or preparation.keeps(emits.key))

    @property
    def changes(self) -> TableChanges:
        """Reads what the table's steps changed."""
        return table_changes(self.workspace, self.upstream)

    def all_rows(self, after: Progress) -> list[DataFrame]:
        """The table's rows as of the last step to read.

        Raises:
            ProgressError: the table's state after this step can no longer be read.
        """
        step = after.read[self.upstream.name]
        rows = self.changes.rows(step)
        if rows is None:
            raise ProgressError.lost_state(self.asset.name, self.upstream.name, step)
        return [self._as_inserts(rows)]

    def new_rows(self, before: Progress, after: Progress) -> list[DataFrame] | None:
        """The rows that the table's steps to read have changed; all rows if no step was read before."""
        read = before.read.get(self.upstream.name, 0)
        if not read:
            return self.all_rows(after)
        changed = self.changes.changed_rows(read, after.read[self.upstream.name])
        return None if changed is None else [self._as_inserts(changed)]

    def mergeable_rows(self, before: Progress, after: Progress) -> list[DataFrame] | None:
        """The new rows of final results without corrections; of an upserted table, the last change of each key (see `StepInputs`)."""
        read, upto = before.read.get(self.upstream.name, 0), after.read[self.upstream.name]
        if not read or self.changes.has_only_additions(read, upto):
            return self.new_rows(before, after)
        kind = self.asset.operator.reads.change
        if kind is None or not self.upstream.operator.emits.upserts:
            return None
        changes = newest_changes(self.workspace, self.upstream, read, upto).withColumnRenamed(CHANGE, kind)
        return [self._prepared(changes, kind)]

    def clock(self, kind: TimeKind, after: Progress) -> int | None:
        """The table's watermark as of the last step to read, whatever the kind; None for an upserted table.

        Later batches of the ledger, and results that are not closed yet, have no effect.
        """
        return self.changes.watermark(after.read[self.upstream.name])

    def rows_since(self, first: int, kind: TimeKind, after: Progress) -> list[DataFrame]:
        """The table's rows with an event time of `first` or later, as of the last step to read; rows of tables have no other time."""
        return [rows.where(Span(first).holds(EVENT_TIME)) for rows in self.all_rows(after)]

    def _as_inserts(self, rows: DataFrame) -> DataFrame:
        kind = self.asset.operator.reads.change
        if kind is None:
            return self._prepared(rows)
        check_free(rows, kind)
        return self._prepared(rows.withColumn(kind, F.lit(INSERT)), kind)

    def _prepared(self, rows: DataFrame, *added: str) -> DataFrame:
        return prepare_table_rows(self.asset, 0, rows, [column for column in rows.columns if column not in (EVENT_TIME, *added)])


def step_inputs(workspace: Workspace, asset: DerivedAsset) -> StepInputs:
    """The inputs of an asset: source rows, or the changes of a table if it reads one."""
    upstream = upstream_table(asset, workspace.tables_of(asset))
    return SourceRows(workspace, asset) if upstream is None else TableRows(workspace, asset, upstream)


def clock_of_sources(workspace: Workspace, asset: DerivedAsset, kind: TimeKind, seq: int) -> int | None:
    """The time (epoch ms) by which keys expire after a batch: the asset's watermark, or the batch's processing time; None if none."""
    if kind == "event":
        return operator_timeline(workspace, asset).after[seq]
    return workspace.ledger.processing_time(seq)
