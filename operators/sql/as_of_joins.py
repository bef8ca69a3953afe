"""FOR SYSTEM_TIME AS OF: joins each row with the version of its key at the row's time (temporal join) or at its arrival (lookup join)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast, get_args

from sqlglot import exp

from operators.as_of_join import AsOfJoin, How
from operators.columns import FINAL_AT, RESULT_TIME
from operators.deduplicate import Deduplicate
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.sql.dialect import Tree, spark_sql
from operators.sql.errors import SqlError
from operators.sql.join_conditions import PRESERVED, Conditions
from operators.sql.joins import ReadColumns, check_key, columns_read_later, names_of_join, scope_of_join, times_in_result
from operators.sql.ranks import no_last_rank
from operators.sql.relations import Apply, Input, Item, Named, Ranked, Relation, Select, Windowed, upserts
from operators.sql.scope import Scope
from operators.sql.selections import select

_RESERVED = (RESULT_TIME, FINAL_AT, SEQ, ARRIVAL, EVENT_TIME)
_HOW_FOR_CONDITIONS = "right"
"""As in a right join, conditions on the right side are not applied before the join, because they do not decide which version is valid."""


def as_of_join(conditions: Conditions, how: str, at: Tree, read: ReadColumns) -> Scope:
    """The rows of the left side, each with a version of its key.

    Args:
        conditions: the conditions of ON.
        how: which left rows are kept.
        at: the time of the version.
        read: the columns that the query reads later.

    Raises:
        SqlError: the join has no equality of the two sides, is neither inner nor left, or has windows, a rank, bounds of the times or a
            condition that the operator does not support; the time is no event time of the left side; or the right side has no versions with
            one event time.
        OperatorError: the operator refuses a parameter.
    """
    check_key(conditions)
    _check_how(conditions, how)
    _check_sides(conditions)
    left = conditions.sides[0]
    by_arrival = left.is_arrival(at)
    right = _versions(conditions, by_arrival=by_arrival)
    conditions = replace(conditions, sides=(left, right))
    read = columns_read_later(conditions, _HOW_FOR_CONDITIONS, read)
    names = names_of_join(conditions, _HOW_FOR_CONDITIONS, read, PRESERVED[how], _RESERVED)
    left_time = _result_time_of_lookup(left) if by_arrival else _left_event_time(left, at)
    operator = AsOfJoin(
        on=names.keys,
        how=cast(How, how),
        as_of="arrival" if by_arrival else "event_time",
        left_time=names.time(0, left_time) if left_time in left.relation.columns else EVENT_TIME,
        right_time=EVENT_TIME if by_arrival else names.time(1, _version_time(right)),
    )
    sides = names.side(0, left.condition(conditions.of_side[0])), names.side(1, None)
    columns = operator.result_columns(sides[0].columns, sides[1].columns)
    joined = Apply(operator, sides, columns, (*times_in_result([operator.left_time], columns), RESULT_TIME))
    where = names.residual(conditions, _HOW_FOR_CONDITIONS)
    rows = joined if where is None else select(joined, [Item.of_column(c) for c in columns], where)
    return scope_of_join(rows, names, _HOW_FOR_CONDITIONS, read)


def _versions(conditions: Conditions, *, by_arrival: bool) -> Scope:
    """The rows that are versions of the keys. A view with the newest row of each key (Flink's versioned view) is replaced by its input.

    Raises:
        SqlError: the right side has only the current row of each key, or is declared with options.
    """
    right = conditions.sides[1]
    if not upserts(right.relation):
        return right
    newest, items, is_whole = _operator_below(right.relation)
    operator, keys = newest.operator, {item.column for _, item in conditions.keys}
    order = "arrival" if by_arrival else "event_time"
    is_newest = isinstance(operator, Deduplicate) and (operator.keep, operator.order) == ("last", order)
    part = f"FOR SYSTEM_TIME AS OF over {next(iter(right.tables))}"
    if not is_newest or not is_whole or keys != {item.name for item in items if item.column in operator.emits.key}:
        reason = "it has only the current row of each key, and a join looks up earlier ones"
        last = f"the last row by {order.replace('_', ' ')} of each key of the join"
        way_out = f"read the source of the versions, or a view with {last} (ROW_NUMBER() ... = 1)"
        raise SqlError.refused(part, reason, way_out)
    if _has_options(right.relation):
        raise SqlError.refused(part, "it is declared with options, which may leave out versions", "read a view with the same query")
    return replace(right, relation=select(newest.inputs[0], items))


def _operator_below(relation: Relation) -> tuple[Apply, Sequence[Item], bool]:
    """The operator whose result a relation selects, the columns over that result, and whether the relation has all rows of the result."""
    match relation:
        case Apply():
            return relation, [Item.of_column(c) for c in relation.columns], True
        case Named():
            return _operator_below(relation.child)
        case Select():
            newest, items, is_whole = _operator_below(relation.child)
            merged = cast(Select, select(Select(newest, tuple(items)), relation.items))
            return newest, merged.items, is_whole and relation.where is None
        case _:
            raise AssertionError(relation)  # only operators upsert, and rows in windows or with a rank are refused before


def _has_options(relation: Relation) -> bool:
    """Whether a table that a relation selects is declared with options."""
    return isinstance(relation, Select | Named) and (_has_options(relation.child) or (isinstance(relation, Named) and relation.has_options))


def _check_sides(conditions: Conditions) -> None:
    """Raise `SqlError` if a side has windows or a rank, or if the times are bounded."""
    for relation in (side.relation for side in conditions.sides):
        if isinstance(relation, Windowed):
            way_out = "join in a view, and apply the windowing function to that view"
            raise SqlError.refused("FOR SYSTEM_TIME AS OF with windows", "versions have no windows", way_out)
        if isinstance(relation, Ranked):
            raise no_last_rank(relation)
    if conditions.lower is not None or conditions.upper is not None:
        reason = "the version at the left row's time is used, however old it is"
        way_out = "leave it out, or declare the table of INSERT INTO with the option 'tidemark.max-age'"
        raise SqlError.refused("a bound of the times in addition to FOR SYSTEM_TIME AS OF", reason, way_out)


def _check_how(conditions: Conditions, how: str) -> None:
    """Raise `SqlError` if the operator has no such join, or not with these conditions."""
    if how not in get_args(How):
        way_out = "write JOIN or LEFT JOIN"
        raise SqlError.refused(f"{how.upper()} JOIN with FOR SYSTEM_TIME AS OF", "a version is looked up for each left row", way_out)
    if how != "inner" and (conditions.others or conditions.of_side[0] or conditions.of_side[1]):
        extra = [*conditions.others, *conditions.of_side[0], *conditions.of_side[1]][0]
        condition, reason = spark_sql(extra), "an outer join with a version has equalities only"
        way_out = f"select CASE WHEN {condition} THEN ... END for a column of the version, or filter in a query that reads the result"
        raise SqlError.refused(f"the condition {condition}", reason, way_out)


def _left_event_time(left: Scope, at: Tree) -> str:
    """The column of the left row's event time."""
    column = left.resolve(at).column if isinstance(at, exp.Column) and left.has(at) else None
    if column is None or column not in left.relation.times:
        legal = f"legal: {', '.join(left.relation.times) or 'none'}, or a PROCTIME() column"
        raise SqlError.refused(f"FOR SYSTEM_TIME AS OF {spark_sql(at)}", "it is no event time of the left side", legal)
    return column


def _result_time_of_lookup(left: Scope) -> str:
    """The left side's first event time, which is the time of a lookup join's results; the time of the ingest if it has none."""
    return next(iter(left.relation.times), EVENT_TIME)


def _version_time(right: Scope) -> str:
    """The event time of the versions."""
    times = right.relation.times
    if len(times) != 1:
        reason = f"its versions have {len(times)} event times" if times else "its versions have no event time"
        way_out = "declare one by WATERMARK FOR in CREATE TABLE"
        if not isinstance(right.relation, Input):
            in_view = "select an event time of its rows in the view: a column with WATERMARK FOR in CREATE TABLE, or `window_time`"
            way_out = f"read a view that selects only one of {', '.join(times)}" if times else in_view
        raise SqlError.refused(f"FOR SYSTEM_TIME AS OF over {next(iter(right.tables))}", reason, way_out)
    return times[0]
