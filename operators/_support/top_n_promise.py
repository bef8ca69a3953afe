"""The promise of a monotonic Top-N: a row that replaces another comes before it in the order, and no row is deleted.

Only the first rows of each partition are kept. If one of them moved back, or were deleted, a row that is not kept could take its rank. So
the rows that replace kept rows are compared with them. A row that is not kept may move back or be deleted: it stays behind the kept rows.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.ordering import Ordering
from operators._support.time_to_live import GENERATION, IS_CURRENT
from operators._support.top_n_plan import TopNQuery
from operators.changelog import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from operators.columns import quoted, quoted_name, temporary
from operators.contract import PROMISE_VIOLATED
from operators.engine_columns import tie_breakers

LAST_RANK = temporary("last_rank")
RANKING_COLUMNS = (LAST_RANK, GENERATION, IS_CURRENT)
"""The columns that a Top-N adds to rows while it ranks them."""
_FROM_NEWEST, _NEW_ROW, _MOVES_BACK, _BEFORE = (temporary(name) for name in ("from_newest", "new_row", "moves_back", "before"))
_RANK, _IS_LAST = (temporary(name) for name in ("rank", "is_last"))
_Columns = Callable[[str], Column]
"""Returns a column by its name, for one of the two rows that are compared."""


def row_tie_breakers(rows: DataFrame) -> list[Column]:
    """The columns that order rows of equal rank, without those that a Top-N adds."""
    return tie_breakers(rows, without=RANKING_COLUMNS)


def newest_of_keys(key: Sequence[str], rows: DataFrame) -> DataFrame:
    """The newest row of each key."""
    newest_first = Window.partitionBy(*key).orderBy(*[c.desc_nulls_last() for c in row_tie_breakers(rows)])
    return rows.withColumn(_FROM_NEWEST, F.row_number().over(newest_first)).where(F.col(_FROM_NEWEST) == 1).drop(_FROM_NEWEST)


def rows_not_replaced(query: TopNQuery, kept_rows: DataFrame, newest_rows: DataFrame) -> DataFrame:
    """The kept rows that no new row replaces. It fails while it is computed if a new row breaks the promise.

    Args:
        query: the Top-N, which is monotonic.
        kept_rows: the rows that were kept, with their ranks if the result has them.
        newest_rows: the newest row of each key among the new rows.
    """
    is_not_replaced = F.col(_MOVES_BACK).isNull()
    promise_violated = F.raise_error(F.lit(PROMISE_VIOLATED)).cast("boolean")
    return (
        _mark_moves_back(query, kept_rows, newest_rows)
        .where(F.when(is_not_replaced, True).when(F.col(_MOVES_BACK), promise_violated).otherwise(False))
        .drop(_MOVES_BACK)
    )


def keys_moving_back(query: TopNQuery, kept_rows: DataFrame, rows: DataFrame) -> DataFrame:
    """The keys of kept rows that new rows move back or delete."""
    return (
        _mark_moves_back(query, kept_rows, newest_of_keys(query.key, rows_of_known_change(query, rows)))
        .where(_MOVES_BACK)
        .select(*query.key)
    )


def keys_moved_back(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The keys with a row that came after the row that it replaced, or that was deleted, whether or not a rank could change."""
    ranked_rows = rows_of_known_change(query, rows)
    by_arrival = Window.partitionBy(*query.key).orderBy(*row_tie_breakers(ranked_rows))
    previous_order = F.lag(F.struct(*quoted(o.column for o in query.order))).over(by_arrival)
    rows_with_previous = ranked_rows.withColumn(_BEFORE, previous_order)
    is_deleted = F.col(quoted_name(query.change)) == DELETE if query.change else F.lit(False)
    is_behind = F.col(_BEFORE).isNotNull() & _is_behind(
        query.order, lambda c: F.col(quoted_name(c)), lambda c: F.col(f"{_BEFORE}.{quoted_name(c)}"), F.lit(False)
    )
    return rows_with_previous.where(is_behind | is_deleted).select(*query.key).distinct()


def rows_of_known_change(query: TopNQuery, rows: DataFrame) -> DataFrame:
    """The rows whose change kind is known; for a monotonic input without the old rows of updates."""
    kinds = (INSERT, UPDATE_AFTER, DELETE) if query.is_monotonic else (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
    return rows.where(F.col(query.change).isin(*kinds)) if query.change else rows


def _mark_moves_back(query: TopNQuery, kept_rows: DataFrame, newest_rows: DataFrame) -> DataFrame:
    """The kept rows with `_MOVES_BACK`: whether the new row that replaces a row breaks the promise; null if none replaces it."""
    columns: list[str] = [*dict.fromkeys([*query.key, *(o.column for o in query.order), *([query.change] if query.change else [])])]
    new_rows = newest_rows.select(F.struct(*quoted(columns)).alias(_NEW_ROW))
    loses_a_tie = F.col(f"kept.{_IS_LAST}") if _may_lose_a_tie(query) else F.lit(False)
    is_behind = _is_behind(
        query.order, lambda c: F.col(f"new.{_NEW_ROW}.{quoted_name(c)}"), lambda c: F.col(f"kept.{quoted_name(c)}"), loses_a_tie
    )
    is_deleted = F.col(f"{_NEW_ROW}.{quoted_name(query.change)}") == DELETE if query.change else F.lit(False)
    moves_back = F.when(F.col(_NEW_ROW).isNotNull(), is_deleted | is_behind).alias(_MOVES_BACK)
    has_same_key = reduce(
        lambda a, b: a & b, [F.col(f"kept.{quoted_name(c)}").eqNullSafe(F.col(f"new.{_NEW_ROW}.{quoted_name(c)}")) for c in query.key]
    )
    compared = _mark_last_ties(query, kept_rows).alias("kept").join(new_rows.alias("new"), has_same_key, "left")
    return compared.select(*[F.col(f"kept.{quoted_name(c)}") for c in kept_rows.columns], moves_back)


def _may_lose_a_tie(query: TopNQuery) -> bool:
    """Whether a row may move back without a change of its order: an update moves a row to the end of its ties."""
    return query.function == "row_number" and query.can_tie


def _mark_last_ties(query: TopNQuery, kept_rows: DataFrame) -> DataFrame:
    """The kept rows; if rows can lose ties, with `_IS_LAST`: whether a row that is not kept may be equal to the kept row in the order.

    That is possible only for the rows that are equal to the last one of a partition in which all ranks are taken.
    """
    if not _may_lose_a_tie(query):
        return kept_rows
    partition, order = Window.partitionBy(*query.partition), F.struct(*quoted(o.column for o in query.order))
    by_order = partition.orderBy(*[o.sort_expression() for o in query.order], *[c.asc_nulls_first() for c in row_tie_breakers(kept_rows)])
    ranked = kept_rows.withColumn(_RANK, F.row_number().over(by_order))
    last_order = F.max(F.when(F.col(_RANK) == query.last, F.struct(order.alias("order")))).over(partition)
    return ranked.withColumn(_IS_LAST, F.coalesce(last_order["order"].eqNullSafe(order) & last_order.isNotNull(), F.lit(False))).drop(_RANK)


def _is_behind(order: Sequence[Ordering], new_column: _Columns, old_column: _Columns, is_behind_if_equal: Column) -> Column:
    """Whether a new row comes after an old one.

    Args:
        order: the order.
        new_column: returns a column of the new row.
        old_column: returns a column of the old row.
        is_behind_if_equal: the result for rows that are equal in the order.
    """
    is_behind = is_behind_if_equal
    for ordering in reversed(order):
        new_value, old_value = new_column(ordering.column), old_column(ordering.column)
        is_behind = _is_after(ordering, new_value, old_value) | (new_value.eqNullSafe(old_value) & is_behind)
    return is_behind


def _is_after(order: Ordering, new_value: Column, old_value: Column) -> Column:
    """Whether a new row comes after an old one by one column."""
    is_after_by_null = new_value.isNotNull() if order.nulls_first else old_value.isNotNull()
    is_after_by_value = new_value < old_value if order.descending else new_value > old_value
    return F.when(new_value.isNull() != old_value.isNull(), is_after_by_null).otherwise(F.coalesce(is_after_by_value, F.lit(False)))
