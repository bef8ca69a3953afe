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
from operators.sql.join_names import JoinNames
from operators.sql.joins import ReadColumns, check_key, columns_read_later
from operators.sql.relations import Apply, Item, Named, Relation, Select, Windowed, upserts
from operators.sql.scope import Scope
from operators.sql.selections import select

_RESERVED = (RESULT_TIME, FINAL_AT, SEQ, ARRIVAL, EVENT_TIME)
_FILTERED = "right"
"""As in a right join, conditions on the right side are not applied before the join: they do not decide which version is valid."""


def as_of_join(conditions: Conditions, how: str, at: Tree, read: ReadColumns) -> Scope:
    """The rows of the left side, each with a version of its key.

    Args:
        conditions: those of ON.
        how: which left rows are kept.
        at: the time of the version.
        read: the columns that the query reads later.

    Raises:
        SqlError: the time is not that of the left row, or a condition has no place in the operator.
        OperatorError: the operator refuses a parameter.
    """
    check_key(conditions)
    _check(conditions, how)
    left = conditions.sides[0]
    by_arrival = left.is_arrival(at)
    right = _versions(conditions, by_arrival=by_arrival)
    conditions = replace(conditions, sides=(left, right))
    read = columns_read_later(conditions, _FILTERED, read)
    preserved = PRESERVED.get(how, (0,))
    names = JoinNames.of(conditions, _FILTERED, read.columns, read.names, preserved, _RESERVED, {})
    left_time = _arrival_time(left) if by_arrival else _time(left, at)
    operator = AsOfJoin(
        on=names.keys,
        how=cast(How, how),
        as_of="arrival" if by_arrival else "event_time",
        left_time=names.time(0, left_time) if left_time in left.relation.columns else EVENT_TIME,
        right_time=EVENT_TIME if by_arrival else names.time(1, _version_time(right)),
    )
    sides = names.side(0, left.condition(conditions.of_side[0])), names.side(1, None)
    columns = operator.result_columns(sides[0].columns, sides[1].columns)
    joined = Apply(operator, sides, columns, (*[t for t in [operator.left_time] if t in columns], RESULT_TIME))
    where = names.residual(conditions, _FILTERED)
    rows = joined if where is None else select(joined, [Item.of_column(c) for c in columns], where)
    return Scope(rows, names.tables(how))


def _versions(conditions: Conditions, *, by_arrival: bool) -> Scope:
    """The versions of each key. Those of a view with the newest row of each key are the rows that it reads (Flink's versioned view).

    Raises:
        SqlError: the right side has only the current row of each key.
    """
    right = conditions.sides[1]
    if not upserts(right.relation):
        return right
    newest, items, is_whole = _operator_below(right.relation)
    operator, keys = newest.operator, {item.column for _, item in conditions.keys}
    order = "arrival" if by_arrival else "event_time"
    is_newest = isinstance(operator, Deduplicate) and (operator.keep, operator.order) == ("last", order)
    if not is_newest or not is_whole or keys != {item.name for item in items if item.column in operator.emits.key}:
        reason = "it has only the current row of each key, and a join looks up earlier ones"
        last = f"the last row by {order.replace('_', ' ')} of each key of the join"
        way_out = f"read the source of the versions, or a view with {last} (ROW_NUMBER() ... = 1)"
        raise SqlError.refused(f"FOR SYSTEM_TIME AS OF over {next(iter(right.tables))}", reason, way_out)
    return replace(right, relation=select(newest.inputs[0], items))


def _operator_below(relation: Relation) -> tuple[Apply, Sequence[Item], bool]:
    """The operator whose result a relation selects, the columns over that result, and whether the relation has all of the result's rows."""
    match relation:
        case Apply():
            return relation, [Item.of_column(c) for c in relation.columns], True
        case Named():
            newest, items, is_whole = _operator_below(relation.child)
            return newest, items, is_whole and not relation.has_options
        case Select():
            newest, items, is_whole = _operator_below(relation.child)
            merged = select(Select(newest, tuple(items), None), relation.items)
            return newest, merged.items if isinstance(merged, Select) else items, is_whole and relation.where is None
        case _:
            raise AssertionError(relation)  # only operators upsert


def _check(conditions: Conditions, how: str) -> None:
    if how not in get_args(How):
        way_out = "write JOIN or LEFT JOIN"
        raise SqlError.refused(f"{how.upper()} JOIN with FOR SYSTEM_TIME AS OF", "a version is looked up for each left row", way_out)
    if any(isinstance(side.relation, Windowed) for side in conditions.sides):
        raise SqlError.refused("FOR SYSTEM_TIME AS OF with windows", "versions have no windows", "aggregate the windows of the result")
    if conditions.lower is not None or conditions.upper is not None:
        reason = "the version at the left row's time is used, however old it is"
        way_out = "leave them out, or declare the table that is inserted into, with 'tidemark.max-age' in WITH"
        raise SqlError.refused("bounds of the times in addition to FOR SYSTEM_TIME AS OF", reason, way_out)
    if how != "inner" and (conditions.others or conditions.of_side[0] or conditions.of_side[1]):
        extra = [*conditions.others, *conditions.of_side[0], *conditions.of_side[1]][0]
        condition, reason = spark_sql(extra), "an outer join with a version has equalities only"
        way_out = f"select CASE WHEN {condition} THEN ... END for a column of the version, or filter in a query that reads the result"
        raise SqlError.refused(f"the condition {condition}", reason, way_out)


def _time(left: Scope, at: Tree) -> str:
    """The column of the left row's event time."""
    column = left.resolve(at).column if isinstance(at, exp.Column) and left.has(at) else None
    if column is None or column not in left.relation.times:
        legal = f"legal: {', '.join(left.relation.times) or 'none'}, or a PROCTIME() column"
        raise SqlError.refused(f"FOR SYSTEM_TIME AS OF {spark_sql(at)}", "it is no event time of the left side", legal)
    return column


def _arrival_time(left: Scope) -> str:
    return next(iter(left.relation.times), EVENT_TIME)


def _version_time(right: Scope) -> str:
    """The event time of the versions."""
    times = right.relation.times
    if len(times) != 1:
        reason = f"its versions have {len(times)} event times" if times else "its versions have no event time"
        way_out = "declare one by WATERMARK FOR in CREATE TABLE"
        raise SqlError.refused(f"FOR SYSTEM_TIME AS OF over {next(iter(right.tables))}", reason, way_out)
    return times[0]
