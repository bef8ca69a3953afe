"""Joins: of two streams within an interval of time, and of two streams in windows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sqlglot import exp

from operators._support.interval_join_checks import ResultTime
from operators._support.join_columns import How
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.errors import OperatorError
from operators.interval_join import IntervalJoin
from operators.sql.dialect import Tree
from operators.sql.durations import words
from operators.sql.errors import SqlError
from operators.sql.join_conditions import KEEPS, PRESERVED, Bound, Conditions
from operators.sql.join_names import JoinNames
from operators.sql.relations import WINDOW_COLUMNS, Apply, Item, Relation, Windowed, is_by_ingest, windows_of
from operators.sql.scope import Scope, texts_of_coalesce
from operators.window_join import WindowJoin
from operators.windows import Session

_AT_ONCE = Bound(0, is_open=False)


@dataclass(frozen=True)
class ReadColumns:
    """The columns that the rest of a query reads.

    Args:
        columns: the columns; None for all of them.
        names: for columns of the SELECT list, the names that it gives them.
        coalesced: the keys that the query reads as COALESCE of both sides. For each: the texts of the two columns; the number of the key,
            or the column of the window; and the name that the SELECT list gives it.
    """

    columns: tuple[Tree, ...] | None
    names: tuple[tuple[Tree, str], ...] = ()
    coalesced: tuple[tuple[frozenset[str], int | str, str], ...] = ()


def join(conditions: Conditions, how: How, read: ReadColumns) -> Scope:
    """The rows of a join.

    Raises:
        SqlError: the join has no key, or its state would have no bound.
        OperatorError: the operator refuses a parameter.
    """
    conditions.bound_by_windows()
    check_key(conditions)
    read = columns_read_later(conditions, how, read)
    if conditions.are_windowed != any(isinstance(side.relation, Windowed) for side in conditions.sides):
        reason = "rows in windows are joined with rows in the same windows"
        raise SqlError.refused("a join of windows with rows without windows", reason, "use the windowing function on both sides")
    if conditions.are_windowed:
        return _window_join(conditions, how, read)
    _check_bounds(conditions)
    return _interval_join(conditions, how, read)


def columns_read_later(conditions: Conditions, how: How, read: ReadColumns) -> ReadColumns:
    """The columns that the query reads from the join's result. COALESCE of a key's two sides is the key in the result."""
    if read.columns is None:
        return read
    coalesced: dict[frozenset[str], tuple[int | str, str]] = {}
    columns: list[Tree] = []
    pushed_conditions = [tree for side in (0, 1) if side not in KEEPS[how] for tree in conditions.of_side[side]]
    used_columns = conditions.used | {id(column) for tree in pushed_conditions for column in tree.find_all(exp.Column)}
    for column in (c for c in read.columns if id(c) not in used_columns):
        parent: Tree = column.parent
        texts = texts_of_coalesce(parent)
        key = None if texts is None else _key_of(conditions, parent)
        if texts is None or key is None:
            columns.append(column)
        else:
            coalesced[texts] = key, parent.parent.alias if isinstance(parent.parent, exp.Alias) else ""
    return replace(read, columns=tuple(columns), coalesced=tuple((texts, *key) for texts, key in coalesced.items()))


def _key_of(conditions: Conditions, tree: Tree) -> int | str | None:
    """The number of the key, or the column of the window, if an expression is COALESCE of its two sides; None for anything else."""
    columns = [tree.this, *tree.expressions]
    if not all(any(side.has(c) for side in conditions.sides) for c in columns) or conditions.sides_of(tree) != {0, 1}:
        return None
    left, right = sorted(columns, key=conditions.side_of)
    items = conditions.sides[0].resolve(left), conditions.sides[1].resolve(right)
    if conditions.are_windowed and items[0].column == items[1].column and items[0].column in conditions.windows:
        return items[0].column
    return next((n for n, pair in enumerate(conditions.keys) if (pair[0].sql, pair[1].sql) == (items[0].sql, items[1].sql)), None)


def scope_of_join(rows: Relation, names: JoinNames, how: How, read: ReadColumns) -> Scope:
    """The rows of a join with the names of the query."""
    keys = {texts: names.keys[key] if isinstance(key, int) else key for texts, key, _ in read.coalesced}
    return Scope(rows, names.tables(how), coalesced={texts: Item.of_column(column) for texts, column in keys.items()})


def names_of_join(conditions: Conditions, how: How, read: ReadColumns, preserved: Sequence[int], reserved: Sequence[str]) -> JoinNames:
    """The names of a join's columns; see `JoinNames.of`."""
    key_names = {key: name for _, key, name in read.coalesced if isinstance(key, int) and name}
    return JoinNames.of(conditions, how, read.columns, read.names, preserved, reserved, key_names)


def check_key(conditions: Conditions) -> None:
    """Raise `SqlError` unless a condition is an equality of the two sides. Equalities of windows do not count."""
    if not conditions.keys:
        reason = "every row would be compared with every other"
        raise SqlError.refused(
            "a join without an equality of the two sides",
            reason,
            "add ON a.key = b.key; if there is no key, add a column with a constant to both sides, and compare these",
        )


def _check_bounds(conditions: Conditions) -> None:
    left, right = (side.relation for side in conditions.sides)
    if conditions.lower is None and conditions.upper is None and conditions.have_equal_ends:
        conditions.times = conditions.add_time_of_windows(0), conditions.add_time_of_windows(1)
        conditions.lower = conditions.upper = _AT_ONCE
        return
    for index, relation in enumerate((left, right)):
        if not relation.times and not is_by_ingest(relation) and windows_of(relation) is None:
            side = ("left", "right")[index]
            way_out = "declare WATERMARK FOR in CREATE TABLE, or join a table of final results"
            raise SqlError.refused(f"a join whose {side} side has no event time", "the join could never forget a row", way_out)
    lower, upper = conditions.lower, conditions.upper
    if lower is None or upper is None:
        missing = "bounds of the times" if lower is None and upper is None else "a lower bound" if lower is None else "an upper bound"
        reason = "a regular join keeps every row of both sides forever"
        way_out = (
            "bound one event time by the other, as in a.ts BETWEEN b.ts - INTERVAL '4' HOUR AND b.ts, join both sides in windows, "
            "or look up the version of b at the time of a: a JOIN b FOR SYSTEM_TIME AS OF a.ts"
        )
        raise SqlError.refused(f"a join without {missing}", reason, way_out)


def _interval_join(conditions: Conditions, how: How, read: ReadColumns) -> Scope:
    lower, upper, times = conditions.lower, conditions.upper, conditions.times
    assert lower is not None
    assert upper is not None
    assert times is not None
    names = names_of_join(conditions, how, read, PRESERVED[how], (RESULT_TIME, FINAL_AT, SEQ, ARRIVAL, EVENT_TIME))
    left_time, right_time = (names.time(index, times[index]) for index in (0, 1))
    residual = names.residual(conditions, how)
    operator = IntervalJoin(
        on=names.keys,
        lower=words(lower.ms),
        upper=words(upper.ms),
        lower_exclusive=lower.is_open,
        upper_exclusive=upper.is_open,
        how=cast(Any, how),
        residual=residual,
        left_time=left_time,
        right_time=right_time,
    )
    sides = tuple(names.side(index, _pushed_condition(conditions, how, index)) for index in (0, 1))
    columns = _columns(operator, sides)
    rows = Apply(operator, sides, columns, (*times_in_result((left_time, right_time), columns), RESULT_TIME))
    return scope_of_join(rows, names, how, read)


def _window_join(conditions: Conditions, how: How, read: ReadColumns) -> Scope:
    left, right = (cast(Windowed, side.relation) for side in conditions.sides)
    missing = [c for c in (WINDOW_START, WINDOW_END) if c not in conditions.windows]
    if missing:
        reason = "a result of rows in windows is final when its window ends"
        way_out = "add ON L.window_start = R.window_start AND L.window_end = R.window_end"
        raise SqlError.refused(f"a join of windows without an equality of {' and '.join(missing)}", reason, way_out)
    if isinstance(left.window, Session) or isinstance(right.window, Session):
        why = "Flink joins the sessions of each side that have equal bounds, but a window join makes sessions of the rows of both sides"
        way_out = "aggregate the sessions of each side, and join the results on their key, window_start and window_end"
        raise SqlError.refused("a join of rows in sessions", why, way_out)
    if left.window != right.window:
        raise SqlError.refused(
            "a join of different windows", f"the windows are {left.window} and {right.window}", "use the same windows on both sides"
        )
    reserved = (*WINDOW_COLUMNS, RESULT_TIME, FINAL_AT, SEQ, ARRIVAL, EVENT_TIME)
    names = names_of_join(conditions, how, read, PRESERVED[how], reserved)
    left_time, right_time = names.time(0, left.time), names.time(1, right.time)
    operator = WindowJoin(
        on=names.keys,
        window=left.window,
        how=how,
        residual=names.residual(conditions, how),
        left_time=left_time,
        right_time=right_time,
    )
    sides = tuple(names.side(index, _pushed_condition(conditions, how, index)) for index in (0, 1))
    rows = Apply(operator, sides, _columns(operator, sides), (RESULT_TIME,), left.window)
    return scope_of_join(rows, names, how, read)


def times_of_results(join: IntervalJoin) -> tuple[str, ...]:
    """The time columns that are the `result_time` of every result: by default, a time that is never earlier than the other.

    >>> times_of_results(IntervalJoin(on="k", lower=0, upper="1 hour", left_time="ordered_at", right_time="paid_at"))
    ('paid_at',)
    """
    if join.result_time != "later":
        return (join.left_time if join.result_time == "left" else join.right_time,)
    is_left = join.how in ("inner", "left", "semi", "anti") and join.interval.upper <= 0
    is_right = join.how in ("inner", "right") and join.interval.lower >= 0
    return tuple(time for time, is_result_time in ((join.left_time, is_left), (join.right_time, is_right)) if is_result_time)


def with_time_of(join: IntervalJoin, column: str) -> IntervalJoin:
    """The join with the time of the left or the right row as that of its results, if every result has a row with this time column.

    >>> with_time_of(IntervalJoin(on="k", lower=0, upper=9, how="left", left_time="a", right_time="b"), "a").result_time
    'left'
    >>> with_time_of(IntervalJoin(on="k", lower=0, upper=9, how="left", left_time="a", right_time="b"), "b").result_time
    'later'
    """
    sides: dict[str, ResultTime] = {join.right_time: "right", join.left_time: "left"}
    try:
        return replace(join, result_time=sides.get(column, join.result_time))
    except OperatorError:
        return join


def _pushed_condition(conditions: Conditions, how: How, index: int) -> str | None:
    """The condition that filters a side before the join; None for a side whose unmatched rows are kept."""
    return conditions.sides[index].condition(conditions.of_side[index]) if index not in KEEPS[how] else None


def _columns(operator: IntervalJoin | WindowJoin, sides: Sequence[Relation]) -> tuple[str, ...]:
    left, right = sides
    return operator.result_columns(left.columns, right.columns)


def times_in_result(times: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The times that are columns of the result."""
    return [t for t in times if t in columns]
