"""The watermark of a source after a batch."""

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import BatchExpression, BatchStatistics, BoundedOutOfOrderness, Generated, SourceContract
from operators.timing import millis
from platform_defs.engine.ingest.batch_counts import BatchCounts, is_good
from platform_defs.engine.ingest.clock import follows_clock
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.validate import FIRST_TIME, LAST_TIME
from platform_defs.engine.lake.errors import data_exception
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.ledger.ledger import SourceBatch


def watermark_after(
    contract: SourceContract, counts: BatchCounts, validated: DataFrame, last: SourceBatch | None, lowest: int | None, now: int
) -> int | None:
    """The source's watermark after a batch; None if it has none yet. It is never lower than before the batch.

    Args:
        contract: the source's contract.
        counts: the counts of the batch's rows.
        validated: the batch's validated rows.
        last: the source's row of the ledger batch before this one.
        lowest: the lowest of the newest event times of the source's inputs; None if no input has rows (see `PartitionTimes.lowest`).
        now: the batch's time in epoch ms.

    Raises:
        IngestError: a watermark generator raised an error or returned a value that is no watermark, or a `BatchExpression` failed for a
            row or gave a time that is not in the years 1 to 9999.
    """
    strategy = contract.watermark
    if isinstance(strategy, BoundedOutOfOrderness):
        newest = now if follows_clock(contract) else counts.last if lowest is None else lowest
        mark = None if newest is None else newest - strategy.bound_ms - 1
    elif isinstance(strategy, BatchExpression):
        mark = _expression_mark(strategy, contract, validated) if counts.good else None
    else:
        mark = _generated_mark(strategy, contract, counts, last, now) if isinstance(strategy, Generated) else counts.watermark
    return max((watermark for watermark in (mark, last and last.watermark) if watermark is not None), default=None)


def _expression_mark(strategy: BatchExpression, contract: SourceContract, validated: DataFrame) -> int | None:
    value = F.expr(strategy.watermark).cast("timestamp").alias("watermark")
    try:
        [row] = collect(validated.where(is_good()).agg(value).select(millis(F.col("watermark")).alias("watermark")))
    except PySparkException as error:
        if (condition := data_exception(error)) is None:
            raise
        raise IngestError.watermark_failed(contract.name, strategy.watermark, condition) from error
    mark = row["watermark"]
    if mark is not None and not FIRST_TIME <= mark <= LAST_TIME:
        raise IngestError.watermark_out_of_range(contract.name, strategy.watermark, mark)
    return mark


def _generated_mark(strategy: Generated, contract: SourceContract, counts: BatchCounts, last: SourceBatch | None, now: int) -> int | None:
    if counts.first is None or counts.last is None:
        return None
    newest_before = last and last.max_event_time
    statistics = BatchStatistics(
        rows=counts.good,
        first_event_time=counts.first,
        last_event_time=counts.last,
        mean_event_time=float(counts.last if counts.mean is None else counts.mean),
        newest_event_time=counts.last if newest_before is None else max(newest_before, counts.last),
        watermark=last and last.watermark,
        ingested_at=now,
    )
    try:
        mark: Any = strategy.instance.on_batch(statistics)
    except Exception as error:
        raise IngestError.generator_failed(contract.name, statistics, error) from error
    if mark is not None and (not isinstance(mark, int) or isinstance(mark, bool) or not FIRST_TIME <= mark <= LAST_TIME):
        raise IngestError.bad_watermark(contract.name, mark, statistics)
    return mark
