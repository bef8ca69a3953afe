"""The event time of each relation in a query. The engine calls it `event_time`; the query names one of its own columns."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from sqlglot import exp

from assets.operator_parameters import first_operator
from operators.as_of_join import AsOfJoin
from operators.columns import FINAL_AT, RESULT_TIME
from operators.contract import Operator
from operators.deduplicate import Deduplicate
from operators.engine_columns import EVENT_TIME
from operators.interval_join import IntervalJoin
from operators.select import Select as SelectRows
from operators.sql.dialect import parse_spark
from operators.sql.errors import SqlError
from operators.sql.joins import times_of_results, with_time_of
from operators.sql.relations import WINDOW_TIME, Apply, Input, Named, Relation, Select, applied_operator, result_column
from operators.top_n import TopN

_PARAMETERS = ("time", "left_time", "right_time")
"""The parameters in which an operator gets the name of the event-time column of an input."""


def with_event_times(name: str, apply: Apply) -> Operator:
    """The operator of a table, changed to read `event_time` of each input in place of the column that the query names.

    Args:
        name: the table.
        apply: the operator and its inputs.

    Raises:
        SqlError: the query names a column that is not the event time of the input.
    """
    operator: Any = apply.operator
    first: Any = first_operator(operator)
    times = _time_columns(first)
    for time, below in zip(times.values(), apply.inputs, strict=False):
        _check_time(name, time, below)
    timed = replace(first, **dict.fromkeys(times, EVENT_TIME)) if times else first
    return timed if first is operator else replace(operator, of=timed)


def with_result_times(apply: Apply, made: Mapping[str, Relation]) -> Apply:
    """The operator over inputs that have the event times that the query names: a join below can have the time of its left or right row.

    Args:
        apply: the operator and its inputs.
        made: the relations of the tables that exist already, by table; their results have one event time for all readers.
    """
    times = _time_columns(first_operator(apply.operator)).values()
    return replace(apply, inputs=tuple(_with_result_time(below, time, made) for below, time in zip_longest(apply.inputs, times)))


def _time_columns(operator: Any) -> dict[str, str]:
    """The column that each event-time parameter of an operator names, in the order of its inputs."""
    return {parameter: getattr(operator, parameter) for parameter in _PARAMETERS if hasattr(operator, parameter)}


def _with_result_time(below: Relation, time: str | None, made: Mapping[str, Relation]) -> Relation:
    """The relation. If possible, the results of a join in it have the column `time`, the time of one of their rows, as their event time."""
    match below:
        case Named() if below.name in made:
            return replace(below, child=_over_operator(below.child, applied_operator(made[below.name])))
        case Named():
            return replace(below, child=_with_result_time(below.child, time, made))
        case Select():
            column = next((item.column for item in below.items if item.name == time), None)
            return replace(below, child=_with_result_time(below.child, column, made))
        case Apply(operator=TopN() | Deduplicate(window=None)):
            return replace(below, inputs=(_with_result_time(below.inputs[0], time, made),))
        case Apply(operator=IntervalJoin() as join) if time is not None and not _is_event_time(below, time):
            return replace(below, operator=with_time_of(join, time))
        case _:
            return below


def _over_operator(relation: Relation, apply: Apply | None) -> Relation:
    """The relation, which selects from another operator's result: this can have a time that the query of the table does not select."""
    if isinstance(relation, Select | Named):
        return replace(relation, child=_over_operator(relation.child, apply))
    return apply or relation


def is_result_time(relation: Relation, name: str) -> bool:
    """Whether a column is a time that an operator adds to its results. Tables that read the results have `event_time` in its place."""
    return name in (RESULT_TIME, FINAL_AT) or (name == WINDOW_TIME and result_column(relation, name) == RESULT_TIME)


def _check_time(name: str, time: str, below: Relation) -> None:
    if time == EVENT_TIME or _is_event_time(below, time):
        return
    operator = below if isinstance(below, Apply) else applied_operator(below)
    join = operator.operator if operator else None
    if isinstance(join, IntervalJoin):
        why = f"the event time of a join's result is the later one of its rows' times, and {time} is not always that"
        raise SqlError.refused(f"{time} as the event time of {name}", why, _time_to_use(join, time))
    why = f"the event time of a table is that of its results, and {time} is that of one of its inputs"
    raise SqlError.refused(f"{time} as the event time of {name}", why, "use window_time, or join in another order")


def _time_to_use(join: IntervalJoin, time: str) -> str:
    """What to write instead of a column of a join's results that is not always their event time."""
    result_time = with_time_of(join, time).result_time
    if result_time != join.result_time:  # the table is made already, with another time
        return f"declare the join's table with 'tidemark.result-time' = '{result_time}' in WITH, or write the join again in the query"
    times = [name for name in (join.left_time, join.right_time) if name in times_of_results(with_time_of(join, name))]
    return f"use {' or '.join(times)}" if times else f"use an inner join, and {join.left_time} or {join.right_time}"


def _is_event_time(relation: Relation, name: str | None) -> bool:
    """Whether a column is the event time that the engine uses for the rows of a relation."""
    match relation:
        case Input():
            return name in relation.times
        case Named():
            return _is_event_time(relation.child, name)
        case Select():
            item = next((item for item in relation.items if item.name == name), None)
            if item is not None and item.is_time:  # GREATEST of the two times of pairs
                below = applied_operator(relation.child)
                return getattr(below and below.operator, "result_time", "later") == "later"
            return _is_event_time(relation.child, item and item.column)
        case Apply(operator=TopN() | Deduplicate(window=None) | SelectRows()):
            return _is_event_time(relation.inputs[0], name)  # these operators keep the event time of their rows
        case Apply(operator=IntervalJoin() as join):
            return name == RESULT_TIME or name in times_of_results(join)
        case Apply(operator=AsOfJoin() as join):
            return name in (RESULT_TIME, join.left_time)
        case _:
            return name == RESULT_TIME


def with_engine_time(sql: str, own_columns: set[str], upstream: Relation) -> str:
    """An expression that reads the engine's `event_time` in place of an event time that is no column of the input."""
    times = {*upstream.times} - own_columns
    if not times:
        return sql

    def replace_time(node: Any) -> Any:
        return exp.column(EVENT_TIME) if isinstance(node, exp.Column) and node.name in times else node

    tree = parse_spark(sql)
    if not any(column.name in times for column in tree.find_all(exp.Column)):
        return sql
    return tree.transform(replace_time, copy=False).sql(dialect="spark", copy=False)
