"""Ingests a recorded sequence of batches (rows and watermarks), with one commit for each table.

It is a tool for tests, also for those of users (`Sandbox.engine.ingestion.replay`): no command and no asset replays. The laws and the
comparison with Flink's recorded answers use it to write many batches at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import EVENT_TIME_RAW, SourceContract
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.timing import millis, timestamp
from platform_defs.engine.ingest.appended_rows import PARQUET_V2
from platform_defs.engine.ingest.clock import clock_rows
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.uncommitted import ATTEMPT, REPLAY, clear_uncommitted, is_left_over, newest_recorded
from platform_defs.engine.ingest.validate import IS_MARKER, REASON, VIOLATED, classify
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.ledger.ledger import Batch, SourceBatch, next_row

BATCH = "_batch"
"""The column with the index of a row's batch, from 0."""


@dataclass(frozen=True)
class RowCounts:
    """The number of a source's rows in a batch, their first and last event time (epoch ms), and how many rows violate a rule that warns."""

    rows: int
    first: int
    last: int
    warned: int = 0


@dataclass(frozen=True)
class Replay(LedgerWriter):
    """Ingests a recorded sequence of batches."""

    def __call__(self, rows: Mapping[str, DataFrame], watermarks: Sequence[Mapping[str, int]]) -> None:
        """Append batches. A batch should either have rows or set watermarks, which is not checked.

        Args:
            rows: by source, the result of `reader.read` with `_batch` (int), the index of the row's batch. Every row must satisfy
                its contract; only rules with the action `warn` may be violated. Duplicates are not checked, as the rows were ingested
                before.
            watermarks: for each batch, the watermarks that it sets (epoch ms), by source; empty for a batch with rows.

        Raises:
            IngestError: a row violates its contract, is a marker without an event, or belongs to none of the batches. No batch is
                committed.
            LakeError: another writer has committed a batch, or rows of one, since the replay began. No batch is committed.
        """
        with self.lake.writer("ledger"):
            batch = self._begin()
            head, now = batch.seq - 1, batch.now
            clear_uncommitted(self.spark, self.lake, batch, self.contracts)
            counts = {name: self._append_valid_rows(rows[name], self.contracts[name], head, len(watermarks), now) for name in rows}
            last, batches = self.ledger.newest_rows(), list[Batch]()
            for index, marks_of_batch in enumerate(watermarks):
                row_set = [
                    _row(last.get(n), n, head + 1 + index, now + index, marks_of_batch.get(n), counts.get(n, {}).get(index))
                    for n in self.contracts
                ]
                rows_on_clock = clock_rows({s.source: s for s in row_set}, self.contracts, head + 1 + index, now + index)
                on_clock = {s.source: s.watermark for s in rows_on_clock}
                row_set = [replace(s, watermark=on_clock.get(s.source, s.watermark)) for s in row_set]
                batches.append(tuple(row_set))
                last = {s.source: s for s in row_set}
            if batches:
                batch.commit(batches)

    def _append_valid_rows(self, frame: DataFrame, contract: SourceContract, head: int, batch_count: int, now: int) -> dict[int, RowCounts]:
        """Append a source's rows to its log; returns the counts by the index of the batch."""
        validated = classify(frame, contract, now).join(frame.select(ARRIVAL, BATCH), ARRIVAL)
        if contract.by_ingest_time:
            ingested_at = timestamp(F.col(BATCH) + F.lit(now))
            validated = validated.withColumns({EVENT_TIME: ingested_at, EVENT_TIME_RAW: ingested_at})
        validated = validated.persist()
        try:
            rejected = validated.select(_fault(contract).alias(REASON)).where(F.col(REASON).isNotNull()).first()
            if rejected is not None:
                raise IngestError.not_replayed(contract.name, rejected[REASON])
            time = millis(F.col(EVENT_TIME))
            measures = F.count("*"), F.min(time), F.max(time), F.count_if(F.size(VIOLATED) > 0)
            counts = validated.groupBy(BATCH).agg(*measures).collect()
            if unknown := sorted(row[BATCH] for row in counts if not 0 <= row[BATCH] < batch_count):
                raise IngestError.no_such_batch(contract.name, unknown, batch_count)
            seq = (F.col(BATCH) + head + 1).cast("bigint").alias(SEQ)
            log = validated.select(seq, *[f.name for f in log_schema(contract).fields if f.name != SEQ])
            self._append(log, contract, head, batch_count)
            return {batch: RowCounts(*of_batch) for batch, *of_batch in counts}
        finally:
            validated.unpersist()

    def _append(self, log: DataFrame, contract: SourceContract, head: int, batch_count: int) -> None:
        """Append the rows of all batches to a source's log, in one commit."""
        self.lake.append(
            log,
            contract.log,
            {ATTEMPT: {"seq": head + batch_count, "input": REPLAY}},
            after=self._newest_attempt(contract, head),
            pruned_by=[SEQ, EVENT_TIME, *contract.unique_key[:1]],
            writer_options=PARQUET_V2,
        )

    def _newest_attempt(self, contract: SourceContract, head: int) -> dict[str, Any] | None:
        """The attempt of the log's newest commit with rows, after which the replay is committed.

        Raises:
            LakeError: another writer has committed a batch, or rows of one, since the replay began.
        """
        newest = self.lake.newest_commit(contract.log, ATTEMPT)
        if self.ledger.head > head:
            raise LakeError.overtaken("ledger", "batch")
        if newest is not None and is_left_over(newest.value, newest_recorded(self.ledger, contract)[contract.log]):
            raise LakeError.overtaken(contract.log, ATTEMPT)
        return None if newest is None else newest.value


def _fault(contract: SourceContract) -> Column:
    """Why a validated row cannot be replayed; null for a row that can."""
    is_marker = F.when(F.col(IS_MARKER), F.lit("it is a marker; set its watermark by `watermarks`"))
    failing = [rule.name for rule in contract.rules if rule.action == "fail"]
    return F.coalesce(REASON, is_marker, *[F.when(F.array_contains(VIOLATED, name), F.lit(f"rule: {name}")) for name in failing])


def _row(last: SourceBatch | None, source: str, seq: int, now: int, watermark: int | None, counts: RowCounts | None) -> SourceBatch:
    row = next_row(
        last or SourceBatch(seq=seq, kind="rows", ingested_at=now, source=source),
        seq=seq,
        kind="rows" if watermark is None else "watermark",
        ingested_at=now,
    )
    if watermark is None and counts is None:
        return next_row(row, kind="inactive") if row.idle else row
    row = next_row(row, idle=False)
    if watermark is not None:
        row = next_row(row, watermark=watermark if row.watermark is None else max(watermark, row.watermark))
    if counts is None:
        return row
    return next_row(
        row,
        rows_read=counts.rows,
        accepted=counts.rows,
        warned=counts.warned,
        first_event_time=counts.first,
        last_event_time=counts.last,
        max_event_time=counts.last if row.max_event_time is None else max(counts.last, row.max_event_time),
    )
