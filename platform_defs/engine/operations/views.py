"""The views for users: tables, late rows, early results and earlier states of upserted tables; and their export and publishing."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from operators.columns import FINAL_AT, parameter
from operators.contract import Early
from operators.engine_columns import SEQ, drop_engine_columns
from operators.timing import instant
from operators.triggers import IS_FINAL, ROWS_SEEN
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.prepared_rows import FILTERED, LATE
from platform_defs.engine.inputs.progress import PROGRESS, Progress
from platform_defs.engine.inputs.reader import input_with_lateness
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import plan_if_small
from platform_defs.engine.lake.tables import LakeSnapshot
from platform_defs.engine.ledger.snapshot import last_with_rows
from platform_defs.engine.operations.export import View, export
from platform_defs.engine.operations.metrics import table_metrics
from platform_defs.engine.operations.publish import publish
from platform_defs.engine.operations.publish_to_topic import Published, publish_to_topic
from platform_defs.engine.operations.sink import Sink
from platform_defs.engine.operations.time_travel import UpsertedSnapshot, as_known_now, as_of, newest_snapshot


@dataclass(frozen=True)
class Log:
    """A snapshot of a source's event log.

    Args:
        id: the table's Delta id, which changes when the log is created again.
        schema: the table's columns.
        head: the last ledger batch with rows of the source.
        time_of: returns the time of a ledger batch in epoch ms; None for a batch that the ledger lacks or has replaced by a summary. In a
            lake restored from a backup, a batch with the same number has another time.
        rows: returns the rows of the batches after a given one, and rows without a batch number; all rows for 0.
    """

    id: str
    schema: StructType
    head: int
    time_of: Callable[[int], int | None]
    rows: Callable[[int], DataFrame]


@dataclass(frozen=True)
class Views:
    """Reads a lake's tables.

    Args:
        workspace: the session, the lake and its ledger.
        snapshot: returns a snapshot of an asset and its inputs.
        naming_lost_files: returns a context in which Spark's error about a missing data file names the file.
        sinks: the topics to which tables are published, by table.
        recorded_of_sink: returns a context that records an error in publishing a table to its topic.
    """

    workspace: Workspace
    snapshot: Callable[[str], Advance]
    naming_lost_files: Callable[[], AbstractContextManager[None]]
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    recorded_of_sink: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()

    def table(self, name: str) -> DataFrame:
        """A table of the lake; queries of a small table are planned as small queries.

        Raises:
            LakeError: the table lacks a data file.
        """
        lake, spark = LakeSnapshot.of(self.workspace.lake), self.workspace.spark  # all queries of the frame read one version
        with self.naming_lost_files():
            return plan_if_small(lake.read(spark, name)) if lake.exists(name) else lake.frame(spark, name)

    def log(self, source: str) -> Log | None:
        """A snapshot of a source's event log; None if it does not exist yet.

        Its rows include those without a batch number, and those of a batch that is not committed yet. Reading them raises `LakeError` if
        the log lacks a data file.
        """
        table, workspace = self.workspace.sources[source].log, self.workspace.take_snapshot()
        identity, head = workspace.lake.identity(table), last_with_rows(workspace.ledger, source)

        def rows(after: int) -> DataFrame:
            seq = F.col(SEQ)
            with self.naming_lost_files():
                events = workspace.lake.read(workspace.spark, table, within={SEQ: (after + 1, None)} if after else None, with_nulls=True)
                return plan_if_small(events.where(seq.isNull() | (seq > parameter(after, SEQ))) if after else events)

        def time_of(seq: int) -> int | None:
            times = workspace.ledger.history.times
            return times[seq - 1] if 0 < seq <= len(times) else None

        return None if identity is None else Log(identity, workspace.lake.schema(table), head, time_of, rows)

    def show(self, view: View) -> DataFrame:
        """The rows of a view.

        Raises:
            ViewError: no derived table has the name, or it has no step yet.
            OperatorError: an earlier state is asked for, and the table has no changelog or no step yet, or retention has removed the state.
        """
        view.check(self.workspace.lake, self.workspace.assets)
        if view.early:
            return self.with_early(view.table)
        if view.as_of is not None:
            return self.as_of(view.table, view.as_of)
        if view.event_times_to is not None:
            return self.of_event_times_to(view.table, view.event_times_to)
        return self.table(view.table)

    def export(self, view: View, folder: str) -> dict[str, Any]:
        """Write the rows of a view as a Delta table outside the lake; see `export`."""
        with self.naming_lost_files():
            return export(self.show(view), self.workspace.lake, folder)

    def late(self, asset: str, source: str) -> DataFrame:
        """A source's rows that arrived too late for an asset."""
        advance = self.snapshot(asset)
        rows = input_with_lateness(advance.workspace, advance.asset, advance.asset.inputs.index(source), advance.workspace.ledger.head)
        return drop_engine_columns(rows.where(LATE).drop(LATE, FILTERED))

    def with_early(self, asset: str) -> DataFrame:
        """An asset's results with `is_final` (boolean): the final results, and the early results of windows that are still open.

        A result that was shown early and is final now appears once, as final, even while another process advances the asset. Queries of
        small tables are planned as small queries.

        Raises:
            LakeError: a table lacks a data file.
        """
        with self.naming_lost_files():
            return plan_if_small(self._with_early(asset))

    def _with_early(self, asset: str) -> DataFrame:
        lake, spark, derived = LakeSnapshot.of(self.workspace.lake), self.workspace.spark, self.workspace.assets[asset]
        lake.delta_for_reading(derived.early)  # opened before the table, so that a result that becomes final in between is in the table
        commit = lake.newest_commit(asset, PROGRESS)  # it opens the table; the rows below are read at the opened version
        early = lake.read(spark, derived.early, lake.schema(derived.early)).drop(ROWS_SEEN)
        if commit is None:
            return early
        closed_to = Progress.from_metadata(asset, commit.value).closed_to
        final = lake.read(spark, asset).withColumn(IS_FINAL, F.lit(True))
        if not early.columns or not isinstance(derived.operator, Early) or derived.operator.early is None:
            return final
        still_open = early if closed_to is None else early.where(F.col(FINAL_AT) > instant(closed_to, FINAL_AT))
        return final.unionByName(still_open)

    def newest_snapshot(self, asset: str, earlier_state: Mapping[str, Any] | None = None) -> UpsertedSnapshot | None:
        """An upserted table as of its newest step, with its changelog, since an earlier state if given; see `time_travel`."""
        with self.naming_lost_files():
            snapshot = newest_snapshot(self.workspace, self.workspace.assets[asset], earlier_state)
            return snapshot and replace(snapshot, table=plan_if_small(snapshot.table), changelog=plan_if_small(snapshot.changelog))

    def as_of(self, asset: str, time: int) -> DataFrame:
        """An upserted table as it was at a time (epoch ms, by the ledger's clock)."""
        return as_of(self.workspace, self.workspace.assets[asset], time)

    def of_event_times_to(self, asset: str, time: int) -> DataFrame:
        """An upserted table computed from only the rows with event times up to `time` (epoch ms), however late they arrived."""
        return as_known_now(self.workspace, self.workspace.assets[asset], time)

    def metrics(self, asset: str) -> dict[str, int | float]:
        """The metrics of an upserted table; see `table_metrics`."""
        return table_metrics(self.snapshot(asset))

    def publish(self, asset: str, folder: str) -> int:
        """Write an upserted table's changes to a folder, as keyed upserts with tombstones; returns the last step in the folder."""
        with self.naming_lost_files():
            return publish(self.workspace, self.workspace.assets[asset], folder)

    def publish_to_topic(self, asset: str, upto: int | None = None) -> Published:
        """Write the steps of a table that its topic does not have yet; see `publish_to_topic`."""
        with self.recorded_of_sink(asset), self.naming_lost_files():
            return publish_to_topic(self.workspace, self.workspace.assets[asset], self.sinks[asset], upto)
