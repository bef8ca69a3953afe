"""Replay: ingests many batches of rows and watermarks with one commit for each table, for example a recorded log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import EVENT_TIME_RAW, SourceContract
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.timing import millis, timestamp
from platform_defs.engine.ingest.appended_rows import PARQUET_V2
from platform_defs.engine.ingest.clock import clock_rows
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.uncommitted import ATTEMPT, REPLAY, clear_uncommitted, is_left_over, newest_named
from platform_defs.engine.ingest.validate import REASON, classify
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.ledger.ledger import Batch, SourceBatch, next_row

BATCH = "_batch"
"""The column with the index of a row's batch, from 0."""


@dataclass(frozen=True)
class Replay(LedgerWriter):
    """Ingests a recorded sequence of batches."""

    def __call__(self, rows: Mapping[str, DataFrame], watermarks: Sequence[Mapping[str, int]]) -> None:
        """Append batches. A batch either has rows, or sets watermarks.

        Args:
            rows: by source, the result of `reader.read` with `_batch` (int), the index of the row's batch. Every row must satisfy
                its contract. Duplicates are not checked, as the rows were ingested before.
            watermarks: for each batch, the watermarks that it sets (epoch ms), by source; empty for a batch with rows.

        Raises:
            IngestError: a row violates its contract, or a row belongs to none of the batches. No batch is
                committed.
            LakeError: another writer has committed a batch, or rows of one, since the replay began. No batch is committed.
        """
        with self.lake.writer("ledger"):
            batch = self._begin()
            head, now = batch.seq - 1, batch.now
            clear_uncommitted(self.spark, self.lake, batch, self.contracts)
            counts = {name: self._log(rows[name], self.contracts[name], head, len(watermarks), now) for name in rows}
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

    def _log(self, frame: DataFrame, contract: SourceContract, head: int, batches: int, now: int) -> dict[int, tuple[int, int, int]]:
        validated = classify(frame, contract, now).join(frame.select(ARRIVAL, BATCH), ARRIVAL)
        if contract.by_ingest_time:
            ingested_at = timestamp(F.col(BATCH) + F.lit(now))
            validated = validated.withColumns({EVENT_TIME: ingested_at, EVENT_TIME_RAW: ingested_at})
        validated = validated.persist()
        try:
            rejected = validated.where(F.col(REASON).isNotNull()).first()
            if rejected is not None:
                raise IngestError.not_replayed(contract.name, rejected[REASON])
            time = millis(F.col(EVENT_TIME))
            counts = validated.groupBy(BATCH).agg(F.count("*"), F.min(time), F.max(time)).collect()
            if unknown := sorted(row[BATCH] for row in counts if not 0 <= row[BATCH] < batches):
                raise IngestError.no_such_batch(contract.name, unknown, batches)
            seq = (F.col(BATCH) + head + 1).cast("bigint").alias(SEQ)
            log = validated.select(seq, *[f.name for f in log_schema(contract).fields if f.name != SEQ])
            self._append(log, contract, head, batches)
            return {batch: (count, first, last) for batch, count, first, last in counts}
        finally:
            validated.unpersist()

    def _append(self, log: DataFrame, contract: SourceContract, head: int, batches: int) -> None:
        """Append the rows of all batches to a source's log, in one commit."""
        self.lake.append(
            log,
            contract.log,
            {ATTEMPT: {"seq": head + batches, "input": REPLAY}},
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
        if newest is not None and is_left_over(newest.value, newest_named(self.ledger, contract)[contract.log]):
            raise LakeError.overtaken(contract.log, ATTEMPT)
        return None if newest is None else newest.value


def _row(
    last: SourceBatch | None, source: str, seq: int, now: int, watermark: int | None, rows: tuple[int, int, int] | None
) -> SourceBatch:
    row = next_row(
        last or SourceBatch(seq=seq, kind="rows", ingested_at=now, source=source),
        seq=seq,
        kind="rows" if watermark is None else "watermark",
        ingested_at=now,
    )
    if watermark is None and rows is None:
        return next_row(row, kind="inactive") if row.idle else row
    row = next_row(row, idle=False)
    if watermark is not None:
        row = next_row(row, watermark=watermark if row.watermark is None else max(watermark, row.watermark))
    if rows is None:
        return row
    count, first, newest = rows
    newest_event_time = newest if row.max_event_time is None else max(newest, row.max_event_time)
    return next_row(row, rows_read=count, accepted=count, first_event_time=first, last_event_time=newest, max_event_time=newest_event_time)
