"""Joins: of two streams within an interval of time, and of two streams in windows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from sqlglot import exp

from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.interval_join import IntervalJoin
from operators.sql.dialect import Tree
from operators.sql.durations import words
from operators.sql.errors import SqlError
from operators.sql.join_conditions import KEEPS, PRESERVED, Bound, Conditions
from operators.sql.join_names import JoinNames
from operators.sql.relations import WINDOW_COLUMNS, Apply, Item, Relation, Windowed, windows_of, with_result_time
from operators.sql.scope import Scope, texts_of_coalesce
from operators.window_join import WindowJoin

How = Literal["inner", "left", "right", "full", "semi", "anti"]
_AT_ONCE = Bound(0, is_open=False)


@dataclass(frozen=True)
class Wanted:
    """The columns that the rest of a query reads.

    Args:
        columns: the columns; None for all of them.
        names: for columns of the SELECT list, the names that it gives them.
        coalesced: the keys of the join that the query reads as COALESCE of both sides: the texts of the two columns, the number of the
            key, or the column of the window, and the name that the SELECT list gives it.
    """

    columns: tuple[Tree, ...] | None
    names: tuple[tuple[Tree, str], ...] = ()
    coalesced: tuple[tuple[frozenset[str], int | str, str], ...] = ()


def join(found: Conditions, how: How, wanted: Wanted) -> Scope:
    """The rows of a join.

    Raises:
        SqlError: the join has no key, or its state would have no bound.
        OperatorError: the operator refuses a parameter.
    """
    check_key(found)
    wanted = read_later(found, how, wanted)
    if found.are_windowed != any(isinstance(side.relation, Windowed) for side in found.sides):
        why = "rows in windows are joined with rows in the same windows"
        raise SqlError.refused("a join of windows with rows without windows", why, "use the windowing function on both sides")
    if found.are_windowed:
        return _window_join(found, how, wanted)
    _check_bounds(found)
    return _interval_join(found, how, wanted)


def read_later(found: Conditions, how: How, wanted: Wanted) -> Wanted:
    """The columns that are read from the join's result; COALESCE of a key's two sides is the key in the result."""
    if wanted.columns is None:
        return wanted
    coalesced: dict[frozenset[str], tuple[int | str, str]] = {}
    columns: list[Tree] = []
    pushed = [tree for which in (0, 1) if which not in KEEPS[how] for tree in found.of_side[which]]
    used = found.used | {id(column) for tree in pushed for column in tree.find_all(exp.Column)}
    for column in (c for c in wanted.columns if id(c) not in used):
        parent: Tree = column.parent
        texts = texts_of_coalesce(parent)
        key = None if texts is None else _key_of(found, parent)
        if texts is None or key is None:
            columns.append(column)
        else:
            coalesced[texts] = key, parent.parent.alias if isinstance(parent.parent, exp.Alias) else ""
    return replace(wanted, columns=tuple(columns), coalesced=tuple((texts, *key) for texts, key in coalesced.items()))


def _key_of(found: Conditions, tree: Tree) -> int | str | None:
    """The number of the key of which a COALESCE has both sides, or the column of the window; None for anything else."""
    columns = [tree.this, *tree.expressions]
    if not all(any(side.has(c) for side in found.sides) for c in columns) or found.sides_of(tree) != {0, 1}:
        return None
    left, right = sorted(columns, key=found.side_of)
    items = found.sides[0].resolve(left), found.sides[1].resolve(right)
    if found.are_windowed and items[0].column == items[1].column and items[0].column in found.windows:
        return items[0].column
    return next((n for n, pair in enumerate(found.keys) if (pair[0].sql, pair[1].sql) == (items[0].sql, items[1].sql)), None)


def _scope(apply: Apply, names: JoinNames, how: How, wanted: Wanted) -> Scope:
    """The rows of a join with the names of the query."""
    keys = {texts: names.keys[key] if isinstance(key, int) else key for texts, key, _ in wanted.coalesced}
    return Scope(apply, names.tables(how), coalesced={texts: Item.of_column(column) for texts, column in keys.items()})


def _names(found: Conditions, how: How, wanted: Wanted, reserved: Sequence[str]) -> JoinNames:
    given = {key: name for _, key, name in wanted.coalesced if isinstance(key, int) and name}
    return JoinNames.of(found, how, wanted.columns, wanted.names, PRESERVED[how], reserved, given)


def check_key(found: Conditions) -> None:
    """Raise `SqlError` unless there is an equality of the two sides, besides those of windows."""
    if not [pair for pair in found.keys if not _is_window_pair(pair)]:
        why = "every row would be compared with every other"
        raise SqlError.refused(
            "a join without an equality of the two sides", why, "add ON a.key = b.key; for no key, a constant of both sides"
        )


def _is_window_pair(pair: tuple[Item, Item]) -> bool:
    return pair[0].column == pair[1].column and pair[0].column in (WINDOW_START, WINDOW_END)


def _check_bounds(found: Conditions) -> None:
    left, right = (side.relation for side in found.sides)
    if windows_of(left) and windows_of(right) and found.lower is None and found.upper is None:
        pairs = {pair[0].column for pair in found.keys if _is_window_pair(pair)}
        if {WINDOW_START, WINDOW_END} <= pairs:
            timed = [with_result_time(side.relation) for side in found.sides]
            sides = [Scope(relation, side.tables) for (relation, _), side in zip(timed, found.sides, strict=True)]
            found.sides, found.times = (sides[0], sides[1]), (timed[0][1], timed[1][1])
            found.lower = found.upper = _AT_ONCE
            return
    for which, relation in enumerate((left, right)):
        if not relation.times:
            side = ("left", "right")[which]
            way_out = "declare WATERMARK FOR in CREATE TABLE, or join a table of final results"
            raise SqlError.refused(f"a join whose {side} side has no event time", "the join could never forget a row", way_out)
    if found.lower is None or found.upper is None:
        missing = "bounds of the times" if found.lower is found.upper else "a lower bound" if found.lower is None else "an upper bound"
        why = "a regular join keeps every row of both sides forever"
        way_out = "bound one event time by the other, as in a.ts BETWEEN b.ts - INTERVAL '4' HOUR AND b.ts, or join both sides in windows"
        raise SqlError.refused(f"a join without {missing}", why, way_out)


def _interval_join(found: Conditions, how: How, wanted: Wanted) -> Scope:
    lower, upper, times = found.lower, found.upper, found.times
    assert lower is not None
    assert upper is not None
    assert times is not None
    names = _names(found, how, wanted, (RESULT_TIME, FINAL_AT, SEQ, ARRIVAL, EVENT_TIME))
    left_time, right_time = (names.time(which, times[which]) for which in (0, 1))
    residual = names.residual(found, how)
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
    sides = tuple(names.side(which, _pushed(found, how, which)) for which in (0, 1))
    columns = _columns(operator, sides)
    return _scope(Apply(operator, sides, columns, (*_kept((left_time, right_time), columns), RESULT_TIME)), names, how, wanted)


def _window_join(found: Conditions, how: How, wanted: Wanted) -> Scope:
    left, right = (cast(Windowed, side.relation) for side in found.sides)
    missing = [c for c in (WINDOW_START, WINDOW_END) if c not in found.windows]
    if missing:
        why = "a result of rows in windows is final when its window ends"
        way_out = "add ON L.window_start = R.window_start AND L.window_end = R.window_end"
        raise SqlError.refused(f"a join of windows without an equality of {' and '.join(missing)}", why, way_out)
    if left.window != right.window:
        raise SqlError.refused(
            "a join of different windows", f"the windows are {left.window} and {right.window}", "use the same windows on both sides"
        )
    reserved = (*WINDOW_COLUMNS, RESULT_TIME, FINAL_AT, SEQ, ARRIVAL, EVENT_TIME)
    names = _names(found, how, wanted, reserved)
    left_time, right_time = names.time(0, left.time), names.time(1, right.time)
    operator = WindowJoin(
        on=names.keys,
        window=left.window,
        how=how,
        residual=names.residual(found, how),
        left_time=left_time,
        right_time=right_time,
    )
    sides = tuple(names.side(which, _pushed(found, how, which)) for which in (0, 1))
    return _scope(Apply(operator, sides, _columns(operator, sides), (RESULT_TIME,), left.window), names, how, wanted)


def _pushed(found: Conditions, how: How, which: int) -> str | None:
    """The condition by which a side is filtered before the join: not for a side whose unmatched rows are kept."""
    return found.sides[which].condition(found.of_side[which]) if which not in KEEPS[how] else None


def _columns(operator: IntervalJoin | WindowJoin, sides: Sequence[Relation]) -> tuple[str, ...]:
    left, right = sides
    return operator.result_columns(left.columns, right.columns)


def _kept(times: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [t for t in times if t in columns]
