"""Ingest: writes raw rows to event logs and the ledger, each row exactly once.

A micro-batch has `seq` = head + 1. Its rows are appended to the logs and quarantines with this `seq`; then the ledger batch is committed.
A kill before the ledger's commit leaves uncommitted rows: the ledger does not have their `seq`. The next try reuses these rows if it has
the same input; otherwise it removes them. Readers ignore them, because they read only rows up to the source's newest batch in the ledger.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import SourceContract
from operators.columns import parameter
from operators.engine_columns import EVENT_TIME, SEQ
from operators.timing import length_ms
from platform_defs.engine.faults import point
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.read_errors import may_pass
from platform_defs.engine.formats.reader import is_columnar, of_known_format, read
from platform_defs.engine.formats.schema_registry import RegistryError
from platform_defs.engine.formats.topics import Partition
from platform_defs.engine.formats.unreadable_files import CheckedFiles, ReadRetries, Unread, isolate_unreadable
from platform_defs.engine.ingest import event_time_spread
from platform_defs.engine.ingest.appended_rows import PARQUET_V2, log_rows, quarantine_rows
from platform_defs.engine.ingest.attempts import GOOD, attempt_of, is_same_input
from platform_defs.engine.ingest.batch_counts import BatchCounts, counts_of, is_good, measures, ranged_key
from platform_defs.engine.ingest.batch_watermark import watermark_after
from platform_defs.engine.ingest.clock import clock_rows
from platform_defs.engine.ingest.duplicates import duplicates, quarantine_unknown_duplicates
from platform_defs.engine.ingest.duplicates_in_memory import duplicates_in_memory, rows_of_arrivals
from platform_defs.engine.ingest.errors import IngestError, UnreadError
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.ingest.partition_times import FILES, PartitionTimes, newest_by_input
from platform_defs.engine.ingest.schema_evolution import refused_columns, with_new_columns
from platform_defs.engine.ingest.topic_ids import changed_ranges
from platform_defs.engine.ingest.topic_ranges import starts_of_unread
from platform_defs.engine.ingest.uncommitted import (
    ATTEMPT,
    clear_uncommitted,
    is_left_over,
    newest_recorded,
    remove_uncommitted,
    require_logs,
    take_over,
)
from platform_defs.engine.ingest.validate import classify
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.inputs.retained import removed_rows_of
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.data_skipping import Ends
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.plan_inputs import record_sizes
from platform_defs.engine.lake.small_queries import collect, materialize_and_measure
from platform_defs.engine.lake.tables import LakeSnapshot
from platform_defs.engine.lake.waits import MAINTENANCE_PATIENCE_S, Purpose
from platform_defs.engine.ledger.ledger import Batch, SourceBatch, next_row
from platform_defs.engine.ledger.open_batch import OpenBatch
from platform_defs.engine.ledger.snapshot import last_with_rows


@dataclass(frozen=True)
class _SourceResult:
    """The result for one source: its ledger row (None if no file could be read), and the files that could not be read now."""

    source_batch: SourceBatch | None
    unread: Sequence[Unread]


@dataclass(frozen=True)
class Ingest(LedgerWriter):
    """Ingests micro-batches.

    Args:
        retries: creates the retries of one source's reads. A read is retried if its failure is not caused by the file's content.
        purpose: the purpose of the ledger's lock. Other writers wait for a `stream`.
        topics: the topics of the sources that read from Kafka. The ledger's new rows leave out the partitions of other topics.
        looks: the newest look of a stream for the input of each source; empty if no stream has looked.
        with_more_files: the sources with more files than the present batch reads, as the newest look of a stream found them.
    """

    retries: Callable[[], ReadRetries] = field(default=ReadRetries, kw_only=True)
    purpose: Purpose = field(default="write", kw_only=True)
    topics: Mapping[str, Topics] = field(default_factory=dict, kw_only=True, repr=False)
    looks: dict[str, Look] = field(default_factory=dict, kw_only=True, repr=False)
    with_more_files: set[str] = field(default_factory=set, kw_only=True, repr=False)

    def files(self, files: Sequence[File]) -> Batch | None:
        """Ingest files as one batch; files that the ledger records already are skipped.

        Returns:
            The batch; None if no file was new.

        Raises:
            IngestError: rows violate a rule with the action `fail`, a file has a new column that the contract refuses, or a watermark
                generator or the watermark of a batch failed.
            UnreadError: files could not be read now; all others were ingested.
        """
        with self.lake.writer("ledger", self.purpose, MAINTENANCE_PATIENCE_S):
            batch = self._begin()  # before the lookup of new files, so that this batch fails if another writer commits after it
            new_files = self._new_files_by_source(files, batch)
            committed, unread = self._ingest_batch(new_files, batch) if new_files else (None, [])
        if unread:
            raise UnreadError(unread, [committed] if committed else [])
        return committed

    def _new_files_by_source(self, files: Sequence[File], batch: OpenBatch) -> dict[str, list[File]]:
        new_by_source: dict[str, list[File]] = {}
        for source in sorted({f.source for f in files}):
            of_source = [f for f in files if f.source == source]
            known_files, ends = batch.known.file_records(source, [f for f in of_source if not f.is_range]), batch.known.topic_ends(source)
            new = [f for f in of_source if not f.is_range and not known_files.has_present_state(f)]
            new_by_path = {f.path: of_known_format(known_files.with_fault(f)) for f in new}
            new_by_path |= {f.path: f for f in of_source if f.is_range and f.modified >= ends.get(f.path, f.modified)}
            new_by_source |= {source: sorted(new_by_path.values())} if new_by_path else {}
        return new_by_source

    def _ingest_batch(self, files: Mapping[str, Sequence[File]], batch: OpenBatch) -> tuple[Batch | None, list[Unread]]:
        last, contracts = batch.known.newest_rows(), self.contracts
        attempts = {name: attempt_of(batch.seq, contracts[name], files[name], batch.now) for name in files}
        require_logs(self.lake, batch.known, self.contracts)
        clear_uncommitted(self.spark, self.lake, batch, self.contracts, attempts)
        results = self._in_parallel(lambda name: self._ingest_source(batch, contracts[name], files[name], last.get(name)), list(files))
        unread = [failure for result in results for failure in result.unread]
        rows = tuple(result.source_batch for result in results if result.source_batch is not None)
        if not rows:
            return None, unread
        point("ingest.before_ledger")
        committed = rows + self._inactive_rows(batch, self.looks, {row.source for row in rows})
        committed += clock_rows(last, self.contracts, batch.seq, batch.now, {row.source for row in committed})
        batch.commit([committed])
        point("ingest.after_ledger")
        return committed, unread

    def _in_parallel(self, work: Callable[[str], _SourceResult], names: Sequence[str]) -> list[_SourceResult]:
        """Ingest all sources in parallel: one source is planned and committed while another's rows are processed."""
        with ThreadPoolExecutor(len(names)) as pool:
            return list(pool.map(work, names))

    def _ingest_source(self, batch: OpenBatch, contract: SourceContract, files: Sequence[File], last: SourceBatch | None) -> _SourceResult:
        """Ingest a source's files. Damaged files are quarantined, and files that cannot be read now are skipped."""
        retries, unread, applied_contract = self.retries(), list[Unread](), contract
        while files:
            try:
                for column in refused_columns(self.spark, contract, files):
                    raise IngestError.refused(contract.name, column)
                applied_contract = with_new_columns(self.spark, self.lake, contract, files)
                source_batch = self._ingest_once(batch, applied_contract, files, last)
                if not (changed := changed_ranges(self.spark, files)):
                    starts = starts_of_unread(unread, batch.known.topic_ends(contract.name))
                    return _SourceResult(replace(source_batch, offsets=(*source_batch.offsets, *starts)), unread)
                checked = CheckedFiles([f for f in files if f not in [c.file for c in changed]], changed)
            except RegistryError as error:
                return _SourceResult(None, [*unread, *[Unread(file, str(error)) for file in files]])
            except (PySparkException, Py4JJavaError) as error:
                used_before = retries.used
                checked = isolate_unreadable(self.spark, applied_contract, files, retries)
                has_unreadable = checked.unread or [f.fault for f in checked.files] != [f.fault for f in files]
                if not has_unreadable and not (may_pass(error) and (retries.used > used_before or retries.wait())):
                    raise
            files, unread = checked.files, unread + checked.unread
            clear_uncommitted(self.spark, self.lake, batch, {contract.name: contract})
        return _SourceResult(None, unread)

    def _ingest_once(self, batch: OpenBatch, contract: SourceContract, files: Sequence[File], last: SourceBatch | None) -> SourceBatch:
        """Write the rows of a source's files to its log and quarantine; returns its ledger row. An unreadable file is an error of Spark."""
        validated, measured = self._computed_once(contract, files, batch.now)
        try:
            of_topics = any(f.is_range for f in files)
            counts = counts_of(contract, measured or collect(validated.agg(*measures(contract, with_bytes=of_topics)))[0].asDict())
            if counts.bytes is not None and counts.read:
                record_sizes({Partition.of(f.path).topic for f in files if f.is_range}, counts.bytes // counts.read)
            repeated = self._find_duplicates(validated, contract, counts, last_with_rows(batch.known, contract.name))
            attempt = attempt_of(batch.seq, contract, files, batch.now) | {GOOD: counts.good}
            accepted = self._write(validated, repeated, contract, counts, batch, attempt, of_topics)
            blank = SourceBatch(seq=batch.seq, kind="rows", ingested_at=batch.now, source=contract.name)
            wall_clock, look, has_more = self.ledger.wall_clock(), self.looks.get(contract.name), contract.name in self.with_more_files
            newest, topics = newest_by_input(validated, files, counts.last), self.topics.get(contract.name)
            partitions = PartitionTimes.read(last.partitions if last else ()).after_batch(newest, topics, wall_clock)
            lowest = partitions.lowest(wall_clock, contract.idle_timeout, newest.get(FILES), look, has_more_files=has_more)
            return replace(
                next_row(last or blank, seq=batch.seq, kind="rows", ingested_at=batch.now, idle=False),
                watermark=watermark_after(contract, counts, validated, last, lowest, batch.now),
                max_event_time=max((t for t in (counts.last, last and last.max_event_time) if t is not None), default=None),
                first_event_time=counts.first,
                last_event_time=counts.last,
                rows_read=counts.read,
                accepted=accepted,
                duplicate=counts.good - accepted,
                quarantined=counts.quarantined,
                markers=counts.markers,
                warned=counts.warned,
                offsets=tuple(f.offset for f in files),
                spread=self._spread(validated, counts),
                partitions=partitions.recorded,
            )
        finally:
            validated.unpersist()

    def _computed_once(self, contract: SourceContract, files: Sequence[File], now: int) -> tuple[DataFrame, dict[str, Any] | None]:
        """The validated rows, and their measures if these are computed already. Rows are cached unless it is cheaper to read them again."""
        validated = self._validate(contract, files, now)
        few = materialize_and_measure(validated, measures(contract, with_bytes=any(f.is_range for f in files)))
        if few is not None:
            return few
        # each query would parse a text file again; a columnar file is cheaper to read again than to cache
        return (validated if is_columnar(files) else validated.persist()), None

    def _validate(self, contract: SourceContract, files: Sequence[File], now: int) -> DataFrame:
        """The rows of files with typed columns, and `REASON`: why a row is quarantined, or null."""
        classified = classify(read(self.spark, contract, files), contract, now, self.ledger.wall_clock())
        return quarantine_unknown_duplicates(classified, contract, removed_rows_of(self.lake, contract) if contract.unique_key else None)

    def _spread(self, validated: DataFrame, counts: BatchCounts) -> tuple[int, ...]:
        """The quantiles of the rows' event times if these are unevenly distributed; otherwise empty."""
        uneven = event_time_spread.is_uneven(counts.good, counts.first, counts.last, counts.mean, counts.deviation)
        return event_time_spread.quantiles(validated, is_good()) if uneven else ()

    def _find_duplicates(
        self, validated: DataFrame, contract: SourceContract, counts: BatchCounts, newest: int
    ) -> tuple[DataFrame, int] | None:
        """`arrival` of each duplicate, and their number; None for none. Logged rows of the batches up to `newest` are compared too."""
        if not contract.unique_key or counts.first is None or counts.last is None:
            return None
        horizon = length_ms(contract.duplicate_horizon, "duplicate_horizon")
        times = event_time_spread.ranges(validated, is_good(), counts.first, counts.last, horizon)
        ranges: dict[str, Ends | list[Ends]] = {EVENT_TIME: [*times]}
        ranges |= dict.fromkeys(ranged_key(contract), (counts.min_key, counts.max_key))
        if (found := duplicates_in_memory(self.lake, validated, contract, ranges, newest)) is not None:
            return (rows_of_arrivals(self.spark, found), len(found)) if found else None
        log = self.lake.read(self.spark, contract.log, log_schema(contract), ranges)
        logged = log.where(F.col(SEQ) <= parameter(newest, SEQ))
        return duplicates(validated.where(is_good()), logged, contract.unique_key, horizon, counts.good)

    def _write(
        self,
        validated: DataFrame,
        repeated: tuple[DataFrame, int] | None,
        contract: SourceContract,
        counts: BatchCounts,
        batch: OpenBatch,
        attempt: dict[str, Any],
        has_offsets: bool,
    ) -> int:
        """Append the rows to the log and the quarantine; returns the number of the batch's rows in the log."""
        to_append = counts.good if repeated is None else counts.good - repeated[1]
        log = log_rows(validated, None if repeated is None else repeated[0], contract, batch.seq)
        appended = self._append(contract, batch, attempt, log, contract.log, to_append, [SEQ, EVENT_TIME, *contract.unique_key[:1]])
        if appended != to_append:
            raise IngestError.miscounted(contract.name, to_append, appended)
        point("ingest.after_log")
        quarantined = quarantine_rows(validated, batch.seq, batch.now, has_offsets=has_offsets)
        appended_rejects = self._append(contract, batch, attempt, quarantined, contract.quarantine, counts.quarantined, [SEQ])
        if appended_rejects != counts.quarantined:
            raise IngestError.miscounted(contract.name, counts.quarantined, appended_rejects)
        point("ingest.after_quarantine")
        return appended

    def _append(
        self,
        contract: SourceContract,
        batch: OpenBatch,
        attempt: dict[str, Any],
        rows: DataFrame,
        table: str,
        count: int,
        pruned_by: Sequence[str],
    ) -> int:
        """Append rows, unless an earlier try appended the same rows; returns the number of the batch's rows in the table."""
        snapshot = LakeSnapshot.of(self.lake)
        left_over, named_seq = snapshot.newest_commit(table, ATTEMPT), newest_recorded(batch.known, contract)[table]
        if self.ledger.head >= batch.seq:
            raise LakeError.overtaken("ledger", "batch")
        if left_over is not None and not is_same_input(left_over.value, attempt) and is_left_over(left_over.value, named_seq):
            raise LakeError.overtaken(table, ATTEMPT)  # another writer has appended rows since this one removed uncommitted rows
        if left_over is not None and is_same_input(left_over.value, attempt):
            if left_over.rows == count and left_over.value == attempt:
                take_over(snapshot, table, left_over)
                return count
            remove_uncommitted(self.spark, snapshot, table, batch.seq - 1, batch)
            left_over = self.lake.newest_commit(table, ATTEMPT)
        if count == 0:
            return 0
        point("ingest.before_append")
        return self.lake.append(
            rows,
            table,
            {ATTEMPT: attempt},
            after=None if left_over is None else left_over.value,
            pruned_by=pruned_by,
            widen=True,
            only_uncommitted=not named_seq,
            writer_options=PARQUET_V2,
        )
