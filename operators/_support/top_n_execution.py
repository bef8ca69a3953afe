"""Computes a Top-N: drops rows that were replaced or taken back, then ranks the others."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from operators._support.top_n_plan import TimeToLive, TopNQuery
from operators.changelog import COMMIT_VERSION, COMMITTED_AT, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from operators.columns import RANK, check_distinct, check_present, check_time, comparable, same_rows, temporary
from operators.contract import ARRIVAL, BATCH_TIME, EVENT_TIME, SEQ, plain, tie_breakers
from operators.errors import ColumnError, OperatorError

_LAST_RANK, _RANK, _BALANCE, _FROM_NEWEST = (temporary(name) for name in ("last_rank", "rank", "balance", "from_newest"))
_MS, _STARTS, _GENERATION, _IS_CURRENT = (temporary(name) for name in ("ms", "starts", "generation", "is_current"))
_ADDED = (_LAST_RANK, _GENERATION, _IS_CURRENT)


def rank_all(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The Top-N of all rows, from nothing."""
    known = _of_known_change(query, rows)
    if query.ttl is None:
        return _ranked(query, _in_force(query, _with_last_rank(query, known, query.partition)))
    parted = _with_generation(query.partition, query.ttl, known)
    in_force = _in_force(query, _with_last_rank(query, parted, (*query.partition, _GENERATION)))
    return _ranked(query, in_force.where(_IS_CURRENT).drop(_GENERATION, _IS_CURRENT))


def rank_again(query: TopNQuery, kept: DataFrame, rows: DataFrame) -> DataFrame:
    """The Top-N of the rows that were kept and of new rows, which replace the kept rows of their keys."""
    new = _in_force(query, _of_known_change(query, rows))
    kept = kept.drop(RANK) if query.with_rank else kept
    is_replaced = same_rows("kept", "new", query.key)
    others = kept.alias("kept").join(new.select(*query.key).alias("new"), is_replaced, "left_anti") if query.key else kept
    return _ranked(query, others.unionByName(new))


def without_ranks(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The partitions whose last rank is null, zero or less: the columns of a partition, and `rank_end`."""
    rows = _of_known_change(query, rows)
    if query.ttl:
        rows = _with_generation(query.partition, query.ttl, rows).where(_IS_CURRENT).drop(_GENERATION, _IS_CURRENT)
    if not isinstance(query.last, str):
        return rows.limit(0).select(*query.partition, F.lit(None).cast("int").alias("rank_end"))
    first = F.min_by(F.struct(F.col(query.last).alias(_LAST_RANK)), F.struct(*tie_breakers(rows)))[_LAST_RANK].alias(_LAST_RANK)
    last_ranks = rows.groupBy(*query.partition).agg(first).where(F.coalesce(F.col(_LAST_RANK), F.lit(0)) < 1)
    return last_ranks.select(*query.partition, F.col(_LAST_RANK).alias("rank_end"))


def check_rows(query: TopNQuery, rows: DataFrame) -> None:
    """Raise `ColumnError` unless the rows have every column that the query names, with its type."""
    check_present(rows, [o.column for o in query.order], "order_by")
    check_present(rows, query.partition, "by")
    check_present(rows, query.key, "unique_key")
    check_present(rows, [query.change] if query.change else [], "change")
    if isinstance(query.last, str):
        check_present(rows, [query.last], "rank_end")
        found = rows.schema[query.last].dataType
        if not isinstance(found, IntegralType):
            raise ColumnError.not_whole("rank_end", query.last, found.simpleString())
    if query.ttl and query.ttl.by == "event":
        check_time(rows, EVENT_TIME, "ttl")
    check_distinct([*rows.columns, *([RANK] if query.with_rank else [])])


def _of_known_change(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The rows whose change kind is known; for a monotonic input the new rows only."""
    kinds = (INSERT, UPDATE_AFTER) if query.is_monotonic else (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
    return rows.where(F.col(query.change).isin(*kinds)) if query.change else rows


def _with_generation(partition: Sequence[str], ttl: TimeToLive, rows: DataFrame) -> DataFrame:
    """Rows with their `_GENERATION`, and whether that is the newest of the partition.

    A partition without a row for longer than the time to live expires; its next row starts its next generation, counted from 0.
    """
    if ttl.by == "processing" and BATCH_TIME not in rows.columns:
        raise OperatorError.bad_value("ttl_by", ttl.by, "event: a frame has no processing time of its rows; or let the engine run it")
    timed = plain(rows.withColumn(_MS, F.unix_millis(EVENT_TIME if ttl.by == "event" else BATCH_TIME)))
    in_time = Window.partitionBy(*partition).orderBy(_MS)
    starts = F.coalesce((F.col(_MS) - F.lag(_MS).over(in_time) > ttl.ms).cast("int"), F.lit(0))
    until_now = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counted = timed.withColumn(_STARTS, starts).withColumn(_GENERATION, F.sum(_STARTS).over(until_now)).drop(_STARTS, _MS)
    return counted.withColumn(_IS_CURRENT, F.col(_GENERATION) == F.max(_GENERATION).over(Window.partitionBy(*partition)))


def _with_last_rank(query: TopNQuery, rows: DataFrame, group: Sequence[str]) -> DataFrame:
    """Rows with the last rank of their group, which is its first row's, if a column holds it."""
    if not isinstance(query.last, str):
        return rows
    arrived = Window.partitionBy(*group).orderBy(*_tie_breakers(plain(rows))).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return rows.withColumn(_LAST_RANK, F.first(query.last).over(arrived))


def _in_force(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The rows that were neither replaced nor taken back, without the change column."""
    if not query.key:
        return _not_taken_back(rows, query.change) if query.change else rows
    newest_first = Window.partitionBy(*query.key).orderBy(*[c.desc_nulls_last() for c in _tie_breakers(rows)])
    newest = rows.withColumn(_FROM_NEWEST, F.row_number().over(newest_first)).where(F.col(_FROM_NEWEST) == 1).drop(_FROM_NEWEST)
    return newest.where(F.col(query.change).isin(INSERT, UPDATE_AFTER)).drop(query.change) if query.change else newest


def _not_taken_back(rows: DataFrame, change: str) -> DataFrame:
    """Of equal rows, the newest that remain after each row that was taken back removed the oldest of them.

    A row is not taken back if none is present at that moment. With a balance of additions less removals after each change, the number
    of rows that remain is the last balance less the smallest balance below zero.
    """
    ignored = (SEQ, ARRIVAL, EVENT_TIME, COMMIT_VERSION, COMMITTED_AT, change, *_ADDED)
    equal = Window.partitionBy(*[comparable(F.col(f"`{f.name}`"), f.dataType) for f in rows.schema.fields if f.name not in ignored])
    is_added = F.col(change).isin(INSERT, UPDATE_AFTER)
    in_order = equal.orderBy(*_tie_breakers(rows))
    balance = F.sum(F.when(is_added, 1).otherwise(-1)).over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    last = F.last(_BALANCE).over(in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    remaining = last - F.least(F.lit(0), F.min(_BALANCE).over(equal))
    counted = rows.withColumn(_BALANCE, balance).withColumn(_BALANCE, remaining).where(is_added)
    from_newest = F.count("*").over(equal) - F.row_number().over(in_order)
    return counted.withColumn(_FROM_NEWEST, from_newest).where(F.col(_FROM_NEWEST) < F.col(_BALANCE)).drop(_FROM_NEWEST, _BALANCE, change)


def _ranked(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The rows with a rank that is asked for."""
    order = [o.by() for o in query.order]
    ties = [c.asc_nulls_first() for c in _tie_breakers(rows)] if query.function == "row_number" else []
    function = {"row_number": F.row_number, "rank": F.rank, "dense_rank": F.dense_rank}[query.function]
    rank = function().over(Window.partitionBy(*query.partition).orderBy(*order, *ties))
    last = F.col(_LAST_RANK) if isinstance(query.last, str) else F.lit(query.last)
    shown = rows.withColumn(_RANK, rank).where((F.col(_RANK) <= last) & (F.col(_RANK) >= query.first)).drop(_LAST_RANK)
    return shown.withColumnRenamed(_RANK, RANK) if query.with_rank else shown.drop(_RANK)


def _tie_breakers(rows: DataFrame) -> list[Column]:
    """The columns that order rows of equal rank, without those that are added here."""
    return tie_breakers(rows.drop(*_ADDED))
