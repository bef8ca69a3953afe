"""Finds duplicates: rows that have the key of an ingested row, and an event time within the duplicate horizon of that row's event time."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.contracts import SourceContract
from operators.columns import temporary
from operators.engine_columns import ARRIVAL, EVENT_TIME
from operators.timing import instant, length_ms, millis
from platform_defs.engine.ingest.validate import IS_MARKER, REASON
from platform_defs.engine.inputs.retained import RemovedRows
from platform_defs.engine.lake.small_queries import MOST_FETCHED_ROWS, is_small, materialize_and_count

_TIME, _POSITION, _RUN, _ROWS, _COUNT = (temporary(name) for name in ("time", "position", "run", "rows", "count"))
_LOGGED = -1
"""The position of the rows of the log: before all new rows."""
OLDER = "older than the rows that retention keeps, so a duplicate could not be recognized"
"""Why a row of a source with a key is quarantined: retention may have removed the row that it duplicates."""
_BROADCAST = 1_000_000
"""The largest number of new rows whose keys are broadcast."""


def duplicates(rows: DataFrame, log: DataFrame, key: Sequence[str], horizon: int, count: int) -> tuple[DataFrame, int] | None:
    """The rows that are duplicates, and their number.

    Rows are compared in order of arrival. A row is a duplicate if an *ingested* row before it, of this batch or in the log, has the same
    key and an event time at most `horizon` away. A row with a null in its key is no duplicate.

    Args:
        rows: the new rows, with `arrival` and `event_time`.
        log: rows of the log, including all within the horizon of any new row.
        key: the key columns.
        horizon: the duplicate horizon, in ms.
        count: the number of new rows.

    Returns:
        `arrival` of each duplicate, and the number of duplicates; None if there is none.
    """
    new_rows, logged_rows = _rows_with_key(rows, key, F.col(ARRIVAL)), _rows_with_key(log, key, F.lit(_LOGGED).cast("bigint"))
    if count < MOST_FETCHED_ROWS and is_small(new_rows) and is_small(logged_rows):  # the repeated keys alone would be a second job
        suspects = new_rows.unionByName(logged_rows.join(new_rows, list(key), "left_semi"))
    else:
        keys, number = materialize_and_count(_repeated_keys(new_rows, logged_rows, key, count))
        if not number:
            return None
        suspects = new_rows.unionByName(logged_rows).join(keys, list(key), "left_semi")
    rows_of_run = F.expr(f"array_sort(collect_list(struct({_POSITION}, {_TIME})))").alias(_ROWS)
    runs = _runs(suspects, key, horizon).groupBy(*key, _RUN).agg(rows_of_run)
    found, number = materialize_and_count(runs.select(F.explode(_duplicates_of_run(horizon)).alias(ARRIVAL)))
    return (found, number) if number else None


def quarantine_unknown_duplicates(rows: DataFrame, contract: SourceContract, removed: RemovedRows | None) -> DataFrame:
    """Quarantine each validated row that may be a duplicate of a row that retention has removed from the log.

    Args:
        rows: the result of `validate.classify`.
        contract: the source's contract.
        removed: what retention has removed from the source's log; None for nothing.
    """
    if removed is None:
        return rows
    known_from = removed.before + length_ms(contract.duplicate_horizon, "duplicate_horizon")
    is_older = F.col(REASON).isNull() & ~F.col(IS_MARKER) & (F.col(EVENT_TIME) < instant(known_from, EVENT_TIME))
    return rows.withColumn(REASON, F.when(is_older, F.lit(OLDER)).otherwise(F.col(REASON)))


def _rows_with_key(frame: DataFrame, key: Sequence[str], position: Column) -> DataFrame:
    has_key = F.lit(True)
    for column in key:
        has_key = has_key & F.col(column).isNotNull()
    return frame.where(has_key).select(*key, millis(F.col(EVENT_TIME)).alias(_TIME), position.alias(_POSITION))


def _repeated_keys(new_rows: DataFrame, logged_rows: DataFrame, key: Sequence[str], rows: int) -> DataFrame:
    """The keys that occur more than once among the new rows, or among the new rows and in the log; usually few."""
    keys = new_rows.select(*key)
    is_much_smaller = rows <= _BROADCAST and not is_small(logged_rows)
    new_keys = F.broadcast(keys) if is_much_smaller else keys  # avoids a shuffle of the log, the larger side
    repeated_keys = keys.groupBy(*key).agg(F.count("*").alias(_COUNT)).where(F.col(_COUNT) > 1).select(*key)
    return repeated_keys.unionByName(logged_rows.select(*key).join(new_keys, list(key), "left_semi")).distinct()


def _runs(rows: DataFrame, key: Sequence[str], horizon: int) -> DataFrame:
    """Each key's rows with their run. A run ends at a gap longer than the horizon, so no row is a duplicate of a row of another run."""
    by_time = Window.partitionBy(*key).orderBy(_TIME)
    starts_run = F.when(F.col(_TIME) - F.lag(_TIME).over(by_time) > horizon, 1).otherwise(0)
    return rows.withColumn(_RUN, starts_run).withColumn(_RUN, F.sum(_RUN).over(by_time))


def _duplicates_of_run(horizon: int) -> Column:
    """The positions of the new rows of a run that are not ingested: those that are within the horizon of an ingested row before them.

    The rows of the log come first, and all of them are ingested. A new row without an ingested row within the horizon is ingested too.
    """
    is_near = f"exists(ingested, other -> abs(other.{_TIME} - row.{_TIME}) <= {horizon})"
    with_row = f"IF(row.{_POSITION} = {_LOGGED} OR NOT {is_near}, array_append(ingested, row), ingested)"
    no_rows = f"cast(array() AS array<struct<{_POSITION}: bigint, {_TIME}: bigint>>)"
    ingested = f"aggregate({_ROWS}, {no_rows}, (ingested, row) -> {with_row}, ingested -> ingested.{_POSITION})"
    return F.expr(f"array_except({_ROWS}.{_POSITION}, {ingested})")
