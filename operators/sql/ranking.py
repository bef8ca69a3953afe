"""ROW_NUMBER with a limit: Top-N, window Top-N, deduplication and window deduplication."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, cast

from operators.aggregate import Aggregate
from operators.columns import FINAL_AT, RANK, RESULT_TIME, WINDOW_END, WINDOW_START
from operators.consecutive import Consecutive
from operators.deduplicate import Deduplicate
from operators.engine_columns import EVENT_TIME
from operators.errors import OperatorError
from operators.sql.errors import SqlError
from operators.sql.ranks import Ranks, ranks_of
from operators.sql.relations import (
    WINDOW_COLUMNS,
    WINDOW_TIME,
    Apply,
    Input,
    Item,
    Ranked,
    Relation,
    Select,
    Windowed,
    applied_operator,
    upserts,
    walk,
    window_column,
    windows_of,
)
from operators.sql.scope import Scope
from operators.sql.select_list import ARRIVAL_TIME
from operators.sql.selections import select
from operators.top_k import TopK
from operators.top_n import TopN
from operators.windows import Aligned, Session

_BOUNDS = (WINDOW_START, WINDOW_END)


def rank(scope: Scope, ranked: Ranked, is_shown: bool) -> Scope:
    """The rows of the first ranks, as the result of an operator.

    Args:
        scope: the rows with their rank, and the conditions.
        ranked: the same rows.
        is_shown: whether the query selects the rank.
    """
    ranks, others = ranks_of(ranked, scope)
    results = _apply(ranked, ranks, is_shown)
    where = None
    if isinstance(results.operator, TopK | Consecutive) and ranks.first > 1:
        where = f"{RANK} >= {ranks.first}"
    is_constant = isinstance(results.operator, Deduplicate)  # the rows may have a column `rank` of their own
    rank_item = Item(ranked.name, str(ranks.first)) if is_constant else Item.of_column(RANK, ranked.name)
    shown = [c for c in ranked.columns if is_shown or c != ranked.name]
    rows = select(results, [rank_item if c == ranked.name else _item(ranked, results, c) for c in shown], where)
    tables = {alias: {n: Item.of_column(n) for n in columns if n in rows.columns} for alias, columns in scope.tables.items()}
    return Scope(rows, tables, tuple(others))


def _item(ranked: Ranked, results: Apply, column: str) -> Item:
    """A column of the ranked rows in the results, which have the time of a window as `result_time`."""
    is_window_time = window_column(ranked.child, column) == WINDOW_TIME
    is_result_time = is_window_time and (isinstance(ranked.child, Windowed) or column not in results.columns)
    return Item.of_column(RESULT_TIME if is_result_time else column, column)


def _apply(ranked: Ranked, ranks: Ranks, is_shown: bool) -> Apply:
    child = ranked.child
    by = tuple(c for c in ranked.by if c not in _BOUNDS)
    if {*_BOUNDS} <= {*ranked.by} and not upserts(child):
        if isinstance(child, Windowed):
            return _rank_window_rows(ranked, child, by, ranks)
        if all(window_column(child, bound) == bound for bound in _BOUNDS):
            return _rank_window_results(ranked, child, by, ranks)
    if isinstance(child, Windowed):
        reason = "rows in windows are ranked in each window"
        raise SqlError.refused(f"{ranked.function.upper()}() over all windows", reason, "PARTITION BY window_start, window_end, ...")
    if _is_first_row(ranked, ranks) and not upserts(child) and (order := _time_order(ranked)):
        keep, kind = order
        return Apply(Deduplicate(by=ranked.by, keep=keep, order=kind, time=_time(ranked)), (child,), child.columns, child.times)
    return _top_n(ranked, ranks, is_shown)


def _is_first_row(ranked: Ranked, ranks: Ranks) -> bool:
    return ranked.function == "row_number" and ranks == Ranks(1, 1) and bool(ranked.by)


def _time_order(ranked: Ranked) -> tuple[Literal["first", "last"], Literal["event_time", "arrival"]] | None:
    """Which row an order by time alone puts first, and by which time; None for another order."""
    [first, *others] = ranked.order
    name, _, direction = first.partition(" ")
    if others or "NULLS" in direction:
        return None
    keep: Literal["first", "last"] = "last" if direction == "DESC" else "first"
    if name == ARRIVAL_TIME:
        return keep, "arrival"
    is_declared = all(relation.is_declared for relation in walk(ranked.child) if isinstance(relation, Input))
    return (keep, "event_time") if name in ranked.times and is_declared else None


def _time(ranked: Ranked) -> str:
    """The time of a deduplication; in order of arrival, any event time of the rows."""
    name = ranked.order[0].partition(" ")[0]
    return name if name != ARRIVAL_TIME else next(iter(ranked.times), EVENT_TIME)


def _require_row_number(ranked: Ranked) -> None:
    if ranked.function != "row_number":
        reason = "the rows of a window are numbered; ties are in order of arrival"
        raise SqlError.refused(f"{ranked.function.upper()}() in a window", reason, "use ROW_NUMBER()")


def _last_rank(ranks: Ranks, feature: str) -> int:
    if isinstance(ranks.last, str):
        reason = f"{feature} has one last rank for all windows"
        raise SqlError.refused(f"a last rank from the column {ranks.last}", reason, "write a number")
    return ranks.last


def _check_rank_is_free(columns: Sequence[str]) -> None:
    if RANK in map(str.lower, columns):
        way_out = "give the column another name in a view, as in SELECT rank AS old_rank"
        raise SqlError.refused("a column rank in rows that are ranked", "the rank is computed under this name", way_out)


def _without_window_columns(ranked: Ranked) -> Ranked:
    """Leave the columns of the window out of the order of its rows, which have the same values of them."""
    order = tuple(text for text in ranked.order if text.partition(" ")[0] not in WINDOW_COLUMNS)
    if not order:
        column = ranked.order[0].partition(" ")[0]
        raise SqlError.refused(f"ORDER BY {column} in a window", "it is the same for all rows of a window", "ORDER BY a column of the rows")
    return replace(ranked, order=order)


def _rank_window_rows(ranked: Ranked, windowed: Windowed, by: tuple[str, ...], ranks: Ranks) -> Apply:
    """Window deduplication or window Top-N of rows."""
    _require_row_number(ranked)
    last, added_columns = _last_rank(ranks, "a window Top-N"), (*_BOUNDS, RESULT_TIME, FINAL_AT)
    if isinstance(windowed.window, Session) and {*windowed.partition} != {*by}:
        partition_text = ", ".join(windowed.partition) or "no column"
        reason = f"sessions are those of the rows of a key, and PARTITION BY of SESSION names {partition_text}"
        way_out = "write the same columns, besides the window, in both"
        raise SqlError.refused(f"a rank in sessions by {', '.join(by) or 'no column'}", reason, way_out)
    window = cast(Aligned, windowed.window)
    ranked = _without_window_columns(ranked)
    order = _time_order(ranked)
    if order and order[1] == "arrival":
        raise SqlError.refused(
            "a window's rows in order of arrival", "the rows of a window are ordered by event time", "ORDER BY the event time"
        )
    if ranks == Ranks(1, 1) and by and order and _time(ranked) == windowed.time:
        operator = Deduplicate(by=by, keep=order[0], window=window, time=windowed.time)
        return Apply(operator, (windowed.child,), (*windowed.child.columns, *added_columns), (RESULT_TIME,), window)
    top = TopK(k=last, order_by=ranked.order, by=by, window=window, time=windowed.time)
    columns = tuple(c for c in windowed.child.columns if c not in (RESULT_TIME, FINAL_AT))
    _check_rank_is_free(columns)
    return Apply(top, (windowed.child,), (*columns, *_BOUNDS, RANK, RESULT_TIME, FINAL_AT), (RESULT_TIME,), window)


def _rank_window_results(ranked: Ranked, results: Relation, by: tuple[str, ...], ranks: Ranks) -> Apply:
    """Window Top-N of the results of a windowed operator, as one operator if it can be one."""
    _require_row_number(ranked)
    top, below = TopK(k=_last_rank(ranks, "a window Top-N"), order_by=ranked.order, by=by), applied_operator(results)
    columns = tuple(c for c in results.columns if c not in (RESULT_TIME, FINAL_AT) and not c == WINDOW_TIME == window_column(results, c))
    _check_rank_is_free(columns)
    added_columns = (RANK, RESULT_TIME, FINAL_AT)
    windows = windows_of(results)
    if (
        below
        and isinstance(results, Apply | Select)
        and (results is below or (isinstance(results, Select) and results.is_whole and results.child is below))
    ):
        try:
            consecutive = Consecutive(of=below.operator, then=top)
        except OperatorError:  # sessions: the second operator reads a table of the first one's results
            consecutive = None
        if consecutive is not None:
            own_columns = tuple(c for c in below.columns if c not in (RESULT_TIME, FINAL_AT))
            _check_rank_is_free(own_columns)
            return Apply(consecutive, below.inputs, (*own_columns, *added_columns), (RESULT_TIME,), windows)
    return Apply(top, (results,), (*columns, *added_columns), (RESULT_TIME,), windows)


def _top_n(ranked: Ranked, ranks: Ranks, is_shown: bool) -> Apply:
    child = ranked.child
    if any(c.startswith(ARRIVAL_TIME) for c in ranked.order):
        reason = "in order of arrival only the first or the last row of a key is kept"
        way_out = "ORDER BY a column; ties are in order of arrival"
        if not ranked.by and ranks == Ranks(1, 1):
            reason, way_out = "it has no PARTITION BY, and only the first or the last row of a key is kept", "add PARTITION BY"
        raise SqlError.refused(f"a Top-{ranks.last} in order of arrival", reason, way_out)
    is_numbered = is_shown or _needs_rank(ranked)
    if is_numbered:
        _check_rank_is_free(child.columns)
    top = TopN(
        by=ranked.by,
        order_by=ranked.order,
        rank_end=ranks.last,
        rank_start=ranks.first,
        function=cast(Literal["row_number", "rank", "dense_rank"], ranked.function),
        with_rank=is_numbered,
        unique_key=child.key,
    )
    top = replace(top, rises=_rises(child, top))
    return Apply(top, (child,), (*child.columns, *([RANK] if is_numbered else [])), child.times)


def _needs_rank(ranked: Ranked) -> bool:
    """Whether the rank is part of the key of the kept rows, because these are results without a key. Rows of a source have an arrival."""
    child = ranked.child
    return ranked.function == "row_number" and applied_operator(child) is not None and not child.key and RANK not in child.columns


def _rises(relation: Relation, top: TopN) -> str:
    """Why a new value never ranks a row after its old value, as for a count in descending order; empty if it can."""
    below = applied_operator(relation)
    if below is None or not isinstance(below.operator, Aggregate) or any(upserts(inputs) for inputs in below.inputs):
        return ""
    if any(isinstance(inputs, Select) and inputs.where for inputs in _above(below, relation)):  # rows that no longer match are deleted
        return ""
    names = {i.name: i.column or "" for i in relation.items} if isinstance(relation, Select) else {c: c for c in relation.columns}
    values = [order for order in top.order if order.column not in relation.key]
    why_never_moves_back = below.operator.why_never_moves_back
    reasons = [why_never_moves_back(names[o.column], (), is_descending=o.descending, nulls_first=o.nulls_first) for o in values]
    is_total = {*relation.key} <= {*top.partition, *(order.column for order in top.order)}
    return ", ".join(reasons) if values and all(reasons) and is_total else ""


def _above(below: Relation, top: Relation) -> Iterator[Relation]:
    """The relations from `top` down to `below`, without `below`."""
    while top is not below:
        yield top
        [top] = top.inputs
