"""Computes a Top-N: drops rows that were replaced or retracted, then ranks the others."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from operators._support.time_to_live import GENERATION, IS_CURRENT, ends_at_or_after
from operators._support.top_n_plan import TopNQuery
from operators._support.top_n_promise import (
    LAST_RANK,
    newest_of_keys,
    row_tie_breakers,
    rows_not_replaced,
    rows_of_known_change,
)
from operators.changelog import COMMIT_VERSION, COMMITTED_AT, INSERT, UPDATE_AFTER
from operators.columns import RANK, as_comparable, check_distinct, check_present, quoted, quoted_name, temporary
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ, drop_engine_columns
from operators.errors import ColumnError

_RANK, _BALANCE, _FROM_NEWEST = (temporary(name) for name in ("rank", "balance", "from_newest"))
_IS_FIRST, _OF_FIRST = temporary("is_first"), temporary("of_first")


def rank_all(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The Top-N of all rows, without earlier results."""
    ranked_rows = rows_of_known_change(query, rows)
    if query.ttl is None:
        return _rank_rows(query, _current_rows_without_change(query, _with_last_rank(query, ranked_rows, query.partition)))
    rows_by_period = query.ttl.with_generation(query.partition, ranked_rows)
    current_rows = _current_rows_without_change(query, _with_last_rank(query, rows_by_period, (*query.partition, GENERATION)))
    return _rank_rows(query, current_rows.where(IS_CURRENT).drop(GENERATION, IS_CURRENT))


def rank_again(query: TopNQuery, kept_rows: DataFrame, rows: DataFrame) -> DataFrame:
    """The Top-N of the rows that were kept and of new rows, which replace the kept rows of their keys.

    It fails while it is computed if a new row, or a delete, breaks the promise of a monotonic input (see `top_n_promise`).
    """
    new_rows = rows_of_known_change(query, rows)
    remaining_rows = rows_not_replaced(query, kept_rows, newest_of_keys(query.key, new_rows)) if query.key else kept_rows
    remaining_rows = remaining_rows.drop(RANK) if query.with_rank else remaining_rows
    return _rank_rows(query, remaining_rows.unionByName(_current_rows_without_change(query, new_rows)))


def rows_still_needed(query: TopNQuery, rows: DataFrame, oldest: int | None) -> DataFrame:
    """The rows that later steps need to compute the Top-N: those that were not replaced or retracted.

    If rows are only added, they are the rows with the first ranks of each partition, up to `rank_end`. If the first row of a partition
    matters although it was replaced, it is kept too. The newest row of its key is then kept as well, even if that is a delete: without
    the newest row, the first row would count as current again.

    Args:
        query: the Top-N; `why_all_rows` is None.
        rows: the rows, with `seq` and `arrival`.
        oldest: see `KeepsRows`.
    """
    ranked_rows = rows_of_known_change(query, rows)
    if not query.needs_first_row:
        return _current_rows(query, ranked_rows) if query.key or query.change else _first_rows(query, ranked_rows, query.partition)
    rows_by_group = ranked_rows if query.ttl is None else query.ttl.with_periods(query.partition, ranked_rows)
    group = query.partition if query.ttl is None else (*query.partition, GENERATION)
    is_lasting = ends_at_or_after(None if query.ttl is None else oldest)
    by_arrival = Window.partitionBy(*group).orderBy(*row_tie_breakers(rows_by_group))
    marked = rows_by_group.withColumn(_IS_FIRST, (F.row_number().over(by_arrival) == 1) & is_lasting)
    if not query.key:
        return _first_rows(query, marked.where(is_lasting), group).drop(_IS_FIRST, GENERATION)
    newest_first = Window.partitionBy(*query.key).orderBy(*[c.desc_nulls_last() for c in row_tie_breakers(rows_by_group)])
    has_first_row = F.max(_IS_FIRST).over(Window.partitionBy(*query.key))
    numbered = marked.withColumns({_FROM_NEWEST: F.row_number().over(newest_first), _OF_FIRST: has_first_row})
    is_present = (F.col(query.change).isin(INSERT, UPDATE_AFTER) if query.change else F.lit(True)) & is_lasting
    needed = numbered.where(F.col(_IS_FIRST) | ((F.col(_FROM_NEWEST) == 1) & (F.col(_OF_FIRST) | is_present)))
    return needed.drop(_IS_FIRST, _FROM_NEWEST, _OF_FIRST, GENERATION)


def _first_rows(query: TopNQuery, rows: DataFrame, group: Sequence[str]) -> DataFrame:
    """The rows with the first ranks of their group, and its first row if that is marked. Only for rows that are never replaced."""
    ranked = _with_last_rank(query, rows, group).withColumn(_RANK, _rank_column(query, rows, group))
    is_shown = F.col(_RANK) <= (F.col(LAST_RANK) if isinstance(query.last, str) else F.lit(query.last))
    marked = F.col(_IS_FIRST) if _IS_FIRST in rows.columns else F.lit(False)
    return ranked.where(is_shown | marked).drop(_RANK, LAST_RANK)


def unranked_partitions(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The partitions whose last rank is null, zero or less: the columns of a partition, and `rank_end`."""
    rows = rows_of_known_change(query, rows)
    if query.ttl:
        rows = query.ttl.current_rows(query.partition, rows)
    if not isinstance(query.last, str):
        return rows.limit(0).select(*query.partition, F.lit(None).cast("int").alias("rank_end"))
    first_rank_end = F.min_by(F.struct(F.col(query.last).alias(LAST_RANK)), F.struct(*row_tie_breakers(rows)))[LAST_RANK].alias(LAST_RANK)
    last_ranks = rows.groupBy(*query.partition).agg(first_rank_end).where(F.coalesce(F.col(LAST_RANK), F.lit(0)) < 1)
    return last_ranks.select(*query.partition, F.col(LAST_RANK).alias("rank_end"))


def count_other_rank_ends(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The number of rows of each partition whose last rank differs from the partition's: the columns of a partition, and `rows`.

    With a time to live, a row is compared with the last rank of its own period.
    """
    rows = rows_of_known_change(query, rows)
    if not isinstance(query.last, str):
        return rows.limit(0).select(*query.partition, F.lit(0).cast("bigint").alias("rows"))
    group = query.partition
    if query.ttl:
        rows, group = query.ttl.with_generation(query.partition, rows), (*group, GENERATION)
    has_other_end = ~F.col(quoted_name(query.last)).eqNullSafe(F.col(LAST_RANK))
    return _with_last_rank(query, rows, group).where(has_other_end).groupBy(*query.partition).agg(F.count("*").alias("rows"))


def check_rows(query: TopNQuery, rows: DataFrame) -> None:
    """Raise `ColumnError` unless the rows have every column that the query names, with its type."""
    check_present(rows, [o.column for o in query.order], "order_by")
    check_present(rows, query.partition, "by")
    check_present(rows, query.key, "unique_key")
    check_present(rows, [query.change] if query.change else [], "change")
    if isinstance(query.last, str):
        check_present(rows, [query.last], "rank_end")
        data_type = rows.schema[query.last].dataType
        if not isinstance(data_type, IntegralType):
            raise ColumnError.not_whole("rank_end", query.last, data_type.simpleString())
    if query.ttl:
        query.ttl.check(rows)
    check_distinct([*rows.columns, *([RANK] if query.with_rank else [])])


def _with_last_rank(query: TopNQuery, rows: DataFrame, group: Sequence[str]) -> DataFrame:
    """Rows with `LAST_RANK`, if the last rank is a column: its value in the first row of the group. Else the rows unchanged."""
    if not isinstance(query.last, str):
        return rows
    by_arrival = (
        Window.partitionBy(*group)
        .orderBy(*row_tie_breakers(drop_engine_columns(rows)))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return rows.withColumn(LAST_RANK, F.first(query.last).over(by_arrival))


def _current_rows_without_change(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The rows that were neither replaced nor retracted, without the change column."""
    present = _current_rows(query, rows)
    return present.drop(query.change) if query.change else present


def _current_rows(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The rows that were neither replaced nor retracted."""
    if not query.key:
        return _drop_retracted(rows, query.change) if query.change else rows
    newest = newest_of_keys(query.key, rows)
    return newest.where(F.col(query.change).isin(INSERT, UPDATE_AFTER)) if query.change else newest


def _drop_retracted(rows: DataFrame, change: str) -> DataFrame:
    """Drop the rows that were retracted: each retraction removes the oldest of the rows that are equal to it, so the newest remain.

    A retraction is ignored if there is no equal row at that moment. The balance after a change is the number of additions less the number
    of retractions. The number of rows that remain is the last balance less the smallest balance below zero.
    """
    # with a time to live, equal rows of other periods are no candidates: an earlier one has expired, so the generation counts here
    ignored_columns = (SEQ, ARRIVAL, EVENT_TIME, COMMIT_VERSION, COMMITTED_AT, change, LAST_RANK, IS_CURRENT)
    equal_rows = Window.partitionBy(
        *[as_comparable(F.col(quoted_name(f.name)), f.dataType) for f in rows.schema.fields if f.name not in ignored_columns]
    )
    is_added = F.col(change).isin(INSERT, UPDATE_AFTER)
    by_arrival = equal_rows.orderBy(*row_tie_breakers(rows))
    balance = F.sum(F.when(is_added, 1).otherwise(-1)).over(by_arrival.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    last_balance = F.last(_BALANCE).over(by_arrival.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    remaining = last_balance - F.least(F.lit(0), F.min(_BALANCE).over(equal_rows))
    rows_with_balance = rows.withColumn(_BALANCE, balance).withColumn(_BALANCE, remaining).where(is_added)
    newer_rows = F.count("*").over(equal_rows) - F.row_number().over(by_arrival)
    return rows_with_balance.withColumn(_FROM_NEWEST, newer_rows).where(F.col(_FROM_NEWEST) < F.col(_BALANCE)).drop(_FROM_NEWEST, _BALANCE)


def _rank_rows(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The rows whose rank is from the first to the last rank to show."""
    rank = _rank_column(query, rows, query.partition)
    last_rank = F.col(LAST_RANK) if isinstance(query.last, str) else F.lit(query.last)
    shown_rows = rows.withColumn(_RANK, rank).where((F.col(_RANK) <= last_rank) & (F.col(_RANK) >= query.first))
    columns = quoted(c for c in rows.columns if c != LAST_RANK)
    return shown_rows.select(*columns, *([F.col(_RANK).alias(RANK)] if query.with_rank else []))


def _rank_column(query: TopNQuery, rows: DataFrame, group: Sequence[str]) -> Column:
    order = [o.sort_expression() for o in query.order]
    ties = [c.asc_nulls_first() for c in row_tie_breakers(rows)] if query.function == "row_number" else []
    function = {"row_number": F.row_number, "rank": F.rank, "dense_rank": F.dense_rank}[query.function]
    return function().over(Window.partitionBy(*group).orderBy(*order, *ties))
