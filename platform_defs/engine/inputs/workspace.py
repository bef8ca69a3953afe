"""The workspace that every part of the engine works on: the session, the lake, its ledger, the sources and the tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import EVENT_TIME_RAW, DerivedAsset, SourceContract
from operators.changelog import OWN_COPIES, bag_difference
from operators.columns import FINAL_AT, parameter, temporary
from operators.engine_columns import BATCH_TIME, EVENT_TIME, SEQ, WATERMARK
from operators.timing import ClosedRange, timestamp
from platform_defs.engine.inputs.input import Input, input_named
from platform_defs.engine.inputs.lateness_decisions import DECIDED, DECISION_SCHEMA, generation_of, rows_with_decisions
from platform_defs.engine.inputs.prepared_rows import LATE, ClassifiedRows, classify
from platform_defs.engine.inputs.progress import Progress, readers_of, results_table, stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.result_rows import result_rows
from platform_defs.engine.inputs.retained import Cut, KeptDays, cut_of, has_lost_rows, kept_days
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.inputs.source_lateness import rows_with_lateness
from platform_defs.engine.inputs.span import EVER, Span
from platform_defs.engine.inputs.waited_for import awaited_inputs, watermark_key
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.snapshot import LedgerSnapshot, last_with_rows
from platform_defs.engine.ledger.watermarks import NOTHING, Timeline

_TIME_MS = temporary("time_ms")


@dataclass(frozen=True)
class Workspace:
    """The session, the lake, its ledger, the sources and the tables; reads the inputs of tables.

    Args:
        spark: the session.
        lake: the lake.
        ledger: its ledger.
        sources: the sources, by name.
        assets: the derived assets, by name.
    """

    spark: SparkSession
    lake: Lake
    ledger: Ledger
    sources: Mapping[str, SourceContract]
    assets: Mapping[str, DerivedAsset]
    _timelines: dict[str, tuple[int, Timeline]] = field(default_factory=dict, compare=False)

    def take_snapshot(self, *assets: str) -> "Workspace":
        """This workspace on a snapshot: first of the given assets' tables, then of the ledger, then of the tables that they read.

        This order makes the snapshot consistent: the ledger has each batch, and the inputs have each step, that a table's progress names.
        """
        lake = LakeSnapshot.of(self.lake)
        for name in assets:
            lake.delta_for_reading(results_table(self.assets[name]))
            lake.delta_for_reading(name)
        ledger = LedgerSnapshot.of(self.ledger)
        for table in self._upstream_tables(assets):  # before its changelog, which then has each step that the table has applied
            lake.delta_for_reading(table)
        return replace(self, lake=lake, ledger=ledger)

    def _upstream_tables(self, names: Sequence[str]) -> list[str]:
        """The tables that the named tables are computed from, directly or through other tables."""
        tables = [table.name for name in names for table in self.tables_of(self.assets[name])]
        return [*dict.fromkeys([*tables, *(self._upstream_tables(tables) if tables else [])])]

    def input_named(self, name: str) -> Input:
        """The source or the table of a name."""
        return input_named(name, self.sources, self.assets)

    def inputs_of(self, asset: DerivedAsset) -> list[Input]:
        """The inputs of an asset, in the order of its operator's inputs."""
        return [self.input_named(name) for name in asset.inputs]

    def tables_of(self, asset: DerivedAsset) -> list[DerivedAsset]:
        """The tables among an asset's inputs."""
        return [upstream.table for upstream in self.inputs_of(asset) if upstream.table is not None]

    def input_identities(self, asset: DerivedAsset) -> dict[str, str]:
        """The identity of each of an asset's inputs; inputs without a table are left out."""
        identities = {upstream.name: upstream.identity(self.lake) for upstream in self.inputs_of(asset)}
        return {name: identity for name, identity in identities.items() if identity is not None}

    def steps_read(self, read: Mapping[str, int]) -> dict[str, str]:
        """For each derived input, the id of the step with a given number. A step that its table's log no longer has is left out."""
        identities = {name: self.input_named(name).step_id(self.lake, step) for name, step in read.items() if name in self.assets}
        return {name: identity for name, identity in identities.items() if identity is not None}

    def require_same_inputs(self, asset: DerivedAsset, now: Progress) -> None:
        """Raise unless the inputs are still the tables from which an asset's rows were computed.

        Raises:
            ProgressError: an input was rebuilt since, has lost the step up to which the asset has read it, or has lost rows that the asset
                has not handled.
        """
        snapshot = replace(self, lake=LakeSnapshot.of(self.lake))  # each table is opened once
        identities = snapshot.input_identities(asset)
        last_steps = {name: self.input_named(name).last_step(snapshot.lake) for name in now.read if name in self.assets}
        shortened = {name for name, last in last_steps.items() if last is not None and last < now.read[name]}
        present_steps = snapshot.steps_read({name: now.read[name] for name in now.steps_read if name in now.read})
        replaced_steps = {name for name, step in present_steps.items() if step != now.steps_read[name]}  # lost and then replaced
        replaced = sorted({name for name, identity in now.inputs.items() if identities.get(name) != identity} | shortened | replaced_steps)
        if replaced:
            raise ProgressError.input_replaced(asset.name, replaced, readers_of(self.assets, [asset.name]))
        snapshot.require_rows(asset, now)

    def require_rows(self, asset: DerivedAsset, now: Progress) -> None:
        """Raise unless the logs still have all rows that an asset has not handled.

        Raises:
            ProgressError: retention has removed some of them.
        """
        for upstream in self.inputs_of(asset) if now.seq else []:
            cut = self.cut(upstream.name) if upstream.is_source else None
            if cut is not None and has_lost_rows(cut, asset, now):
                raise ProgressError.lost_rows(asset.name, upstream.name)

    def timeline(self, name: str) -> Timeline:
        """The watermark of a source, or the one that readers of a derived asset see. Only new batches are computed."""
        upstream, workspace = self.input_named(name), self.on_one_ledger()
        return workspace._cached_timeline(
            f"seen:{name}", lambda earlier, history: upstream.timeline(history, earlier, workspace.operator_timeline)
        )

    def operator_timeline(self, asset: DerivedAsset) -> Timeline:
        """An asset's own watermark over the ledger."""
        workspace = self.on_one_ledger()

        def extend(earlier: Timeline, _: History) -> Timeline:
            return watermarks.of_operator([workspace.timeline(name) for name in awaited_inputs(asset)], earlier)

        return workspace._cached_timeline(f"own:{asset.name}", extend, asset)

    def on_one_ledger(self) -> "Workspace":
        """This workspace on a snapshot of the ledger: a summary that maintenance commits during a computation has no effect on it."""
        ledger = LedgerSnapshot.of(self.ledger)
        return self if ledger is self.ledger else replace(self, ledger=ledger)

    def _cached_timeline(self, key: str, extend: Callable[[Timeline, History], Timeline], asset: DerivedAsset | None = None) -> Timeline:
        """A cached timeline, extended to the ledger's head.

        It is computed again if the ledger is shorter, or begins with another summary. Before the end of a summary it has no values.
        """
        history = self.ledger.history
        summarized, timeline = self._timelines.get(key, (-1, NOTHING))
        if summarized != history.summarized or len(timeline.after) > history.head + 1:
            timeline = self._timeline_after_summary(history, asset)
        if len(timeline.after) != history.head + 1:
            timeline = extend(timeline, history)
            self._timelines[key] = history.summarized, timeline
        return timeline

    def _timeline_after_summary(self, history: History, asset: DerivedAsset | None) -> Timeline:
        """A timeline up to the end of the summary with which the ledger begins; for an asset, with the recorded watermark."""
        summary, key = history.summary, asset and watermark_key(asset, self.input_named)
        if summary is None or key is None or key not in summary.watermarks:
            return watermarks.after_summary(history.summarized)
        return watermarks.after_summary(summary.upto, summary.watermarks[key], is_known=True)

    def input(self, asset: DerivedAsset, index: int, head: int, span: Span = EVER, after: int = 0) -> DataFrame:
        """The rows of an input, up to a batch, that are not late.

        Args:
            asset: the asset that reads.
            index: the input's index.
            head: the last batch to read.
            span: the event times to read.
            after: the batch after which to read.

        Returns:
            The source's columns with `seq`, `arrival` and `event_time`; of a derived asset its columns, with `result_time` renamed to
            `event_time`. If the asset prepares the input, the columns that it selects in place of the input's own, and only the rows that
            satisfy the condition. Also `WATERMARK`, `SESSION` or `BATCH_TIME`, if the operator reads that.
        """
        rows = self.classified(asset, index, head, span, after).read_rows()
        needs_batch_times = self.input_named(asset.inputs[index]).is_source and asset.operator.reads.ttl_by == "processing"
        return self._with_batch_times(rows, head, after) if needs_batch_times else rows

    def ends(self, asset: DerivedAsset, index: int, head: int, span: Span, after: int) -> tuple[int, int] | None:
        """The oldest and the newest event time (epoch ms) of the rows that `input` returns; None if it returns none."""
        time = F.unix_millis(EVENT_TIME)
        [(first, last)] = collect(self.input(asset, index, head, span, after).agg(F.min(time), F.max(time)))
        return None if first is None else (first, last)

    def _with_batch_times(self, rows: DataFrame, head: int, after: int) -> DataFrame:
        """Rows with `BATCH_TIME`: the time when each row's batch was committed."""
        first, arrived = self.ledger.processing_times(head, after)
        batches = pa.table({SEQ: pa.array(range(first + 1, head + 1), pa.int64()), _TIME_MS: arrived})
        times = self.spark.createDataFrame(batches).select(SEQ, timestamp(F.col(_TIME_MS)).alias(BATCH_TIME))
        return rows.join(times, SEQ, "left").select(*rows.columns, BATCH_TIME)

    def with_lateness(self, asset: DerivedAsset, index: int, head: int, span: Span = EVER, after: int = 0) -> DataFrame:
        """All rows of an input, up to a batch, with `LATE` and `FILTERED` (boolean).

        A row of a table is late only if the table was idle (see `result_rows`). A filtered row is never late, and the operator does not
        read it. The rows of a source also have `WATERMARK` or `SESSION`, if the operator reads those.
        """
        return self.classified(asset, index, head, span, after).with_late_and_filtered()

    def classified(self, asset: DerivedAsset, index: int, head: int, span: Span = EVER, after: int = 0) -> ClassifiedRows:
        """All rows of an input, and the conditions of late and filtered rows, which `with_lateness` adds as columns, at some cost."""
        name = asset.inputs[index]
        if (table := self.input_named(name).table) is not None:
            rows, late = result_rows(self, asset, table, span)
            columns = [column for column in rows.columns if column not in (EVENT_TIME, LATE, WATERMARK)]
        else:
            rows, late = self._source_rows(asset, index, head, span, after)
            columns = self.sources[name].struct.fieldNames()
        return classify(asset, index, rows, late, columns)

    def _source_rows(self, asset: DerivedAsset, index: int, head: int, span: Span, after: int) -> tuple[DataFrame, Column | None]:
        """All rows of a source, up to a batch, and the condition of late rows; None in its place if no row is late.

        The rows have `WATERMARK` or `SESSION`, if the operator reads those. If the condition is the column `LATE`, they have it too.
        """
        name, reads, ends = asset.inputs[index], asset.operator.reads, (span.first, span.last)
        rows = self.log(name, head, span, after, with_raw_time=False)
        if reads.is_by_arrival(index):
            return rows, None
        if reads.recorded:
            decisions = self._decisions(asset, self.ledger.source(name).batches_with_rows(after, head, ends)[SEQ])
            return rows_with_decisions(rows, decisions, index), F.col(LATE)
        watermark_by_batch = watermarks.possibly_late_batches(self.ledger.source(name), self.operator_timeline(asset), after, head, ends)
        return rows_with_lateness(rows, asset.operator, watermark_by_batch)

    def _decisions(self, asset: DerivedAsset, batches: pa.ChunkedArray) -> DataFrame:
        """The recorded lateness decisions of some batches, and maybe of others; none of an earlier generation of the table."""
        if not len(batches) or not self.has_decisions(asset):
            return self.lake.no_rows(self.spark, DECISION_SCHEMA)
        return self.lake.read(self.spark, asset.decisions, DECISION_SCHEMA, {SEQ: (batches[0].as_py(), batches[-1].as_py())})

    def cut(self, source: str) -> Cut | None:
        """What retention has removed from a source's log; None for nothing."""
        return cut_of(self.lake, self.sources[source])

    def first_batch_in_log(self, source: str, upto: int | None = None) -> int | None:
        """The first batch up to `upto` of which the source's log still has rows; None if there is none."""
        cut, rows = self.cut(source), self.ledger.source(source).batches_with_rows(0, upto)
        batches = zip(*[rows[column].to_pylist() for column in ("seq", "accepted", "last_event_time")], strict=True)
        return next((seq for seq, accepted, last in batches if cut is None or cut.remaining_rows(seq, accepted, last)), None)

    def kept_days(self, asset: DerivedAsset) -> KeptDays | None:
        """The days for which an asset can still be computed from its inputs; None for all."""
        return kept_days(self.lake, asset, self.inputs_of(asset), self.sources)

    def has_decisions(self, asset: DerivedAsset) -> bool:
        """Whether lateness decisions are recorded for the present generation of an asset's table."""
        newest = self.lake.newest_commit(asset.decisions, DECIDED)
        return newest is not None and generation_of(newest.value) == stored_progress(self.lake, asset).generation

    def table(self, name: str, column: str, span: Span) -> DataFrame:
        """The rows of an existing table whose time in a column lies in a span."""
        return span.rows_of(self.lake.read(self.spark, name, within={column: (span.first, span.last)}), column)

    def differing_days(self, table: str, closing: ClosedRange, recomputed: DataFrame) -> dict[date, tuple[int, int]]:
        """The days (of `final_at`) in a range on which a table differs from `recomputed`, with the numbers of missing and extra rows."""
        final_at_range = {FINAL_AT: (closing.after, closing.upto)}
        stored = self.lake.read(self.spark, table, recomputed.schema, final_at_range).where(closing.holds(FINAL_AT))
        copies = F.col(OWN_COPIES)
        by_day = bag_difference(stored, recomputed, OWN_COPIES).groupBy(F.col(FINAL_AT).cast("date").alias("day"))
        rows_by_day = collect(by_day.agg(F.sum(F.greatest(copies, F.lit(0))), F.sum(F.greatest(-copies, F.lit(0)))))
        return {day: (missing, extra) for day, missing, extra in rows_by_day}

    def log(self, source: str, head: int, span: Span = EVER, after: int = 0, *, with_raw_time: bool = True) -> DataFrame:
        """The rows of a source's event log in a span of event times, after a batch and up to another.

        Rows after the newest batch with rows of the source are uncommitted, and left out.
        """
        contract, seq = self.sources[source], F.col(SEQ)
        head = last_with_rows(self.ledger, source, head)
        ranges = {EVENT_TIME: (span.first, span.last), SEQ: (after + 1, head)}
        schema = StructType([field for field in log_schema(contract) if with_raw_time or field.name != EVENT_TIME_RAW])
        is_read = (seq <= parameter(head, SEQ)) & span.holds(EVENT_TIME)
        is_read = is_read & (seq > parameter(after, SEQ)) if after else is_read
        return self.lake.read(self.spark, contract.log, schema, ranges).where(is_read)

    def rows_by_batch(self, source: str, head: int, after: int) -> dict[int, int]:
        """The number of rows that `log` returns for each batch `after < seq <= head`."""
        last = last_with_rows(self.ledger, source, head)
        values = self.lake.few_numbers(self.sources[source].log, SEQ, {SEQ: (after + 1, last)})
        if values is None:
            return {row[SEQ]: row["count"] for row in collect(self.log(source, head, after=after).groupBy(SEQ).count())}
        counts = pc.value_counts(values.drop_null()).to_pylist()
        return {count["values"]: count["counts"] for count in counts if after < count["values"] <= last}
