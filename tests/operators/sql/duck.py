"""Plans as SQL of DuckDB, written from the definitions of the operators: a second implementation of plans, without Spark."""

from collections.abc import Sequence

from operators import (
    Aggregate,
    AsOfJoin,
    Consecutive,
    Cumulative,
    Deduplicate,
    IntervalJoin,
    Session,
    Sliding,
    TopK,
    TopN,
    WindowedAggregate,
    WindowJoin,
)
from operators._support.ordering import Ordering
from operators.columns import names
from operators.contract import Operator
from operators.sql.relations import Apply, Input, Named, Relation, Select
from operators.windows import AnyWindow


def sql_of(relation: Relation) -> str:
    """The rows of a plan."""
    match relation:
        case Input():
            return f"SELECT * FROM {relation.name}"
        case Named():
            return sql_of(relation.child)
        case Select():
            items = ", ".join(f'{item.sql} AS "{item.name}"' for item in relation.items)
            where = f" WHERE {relation.where}" if relation.where else ""
            return f"SELECT {items} FROM ({sql_of(relation.child)}){where}"
        case Apply():
            return _applied(relation)
        case _:
            raise AssertionError(relation)


def in_windows(rows: str, time: str, window: AnyWindow, by: Sequence[str] = ()) -> str:
    """Rows once for each of their windows, with the columns `window_start`, `window_end` and `result_time`; sessions are those of `by`."""
    ms, timed = f'epoch_ms("{time}")', f'SELECT * FROM ({rows}) WHERE "{time}" IS NOT NULL'
    if isinstance(window, Session):
        key = ", ".join(f'"{column}"' for column in by) or "true"
        starts = (
            f"SELECT *, coalesce({ms} - lag({ms}) OVER (PARTITION BY {key} ORDER BY {ms}) > {window.gap_ms}, true) AS starts FROM ({timed})"
        )
        numbered = f"SELECT *, count_if(starts) OVER (PARTITION BY {key} ORDER BY {ms}) AS session FROM ({starts})"
        of_session = f"OVER (PARTITION BY {key}, session)"
        bounds = f"SELECT *, min({ms}) {of_session} AS start_ms, max({ms}) {of_session} + {window.gap_ms} AS end_ms FROM ({numbered})"
        return _with_bounds(bounds, "start_ms, end_ms, starts, session")
    period = window.period if isinstance(window, Sliding) else window.longest
    newest = f"(floor(({ms} - {window.origin}) / {period}) * {period} + {window.origin})::BIGINT"
    if isinstance(window, Cumulative):
        bounds, number = f"{newest} AS start_ms, start_ms + (nth + 1) * {window.pane} AS end_ms", window.longest // window.pane
    else:
        bounds, number = f"{newest} - nth * {period} AS start_ms, start_ms + {window.longest} AS end_ms", -(-window.longest // period)
    each = f"SELECT *, {bounds} FROM ({timed}), (SELECT unnest(range({number})) AS nth)"
    return _with_bounds(f"SELECT * FROM ({each}) WHERE {ms} >= start_ms AND {ms} < end_ms", "start_ms, end_ms, nth")


def _with_bounds(rows: str, excluded: str) -> str:
    bounds = "epoch_ms(start_ms) AS window_start, epoch_ms(end_ms) AS window_end, epoch_ms(end_ms - 1) AS result_time"
    return f"SELECT * EXCLUDE ({excluded}), {bounds} FROM ({rows})"


def _applied(relation: Apply) -> str:
    inputs = [sql_of(one) for one in relation.inputs]
    if isinstance(relation.operator, IntervalJoin | AsOfJoin | WindowJoin):
        return _join(relation, *inputs)
    return _of_one_input(relation.operator, *inputs)


def _join(relation: Apply, left: str, right: str) -> str:
    match relation.operator:
        case IntervalJoin() as operator:
            within = f"epoch_ms({{right}}) - epoch_ms({{left}}) BETWEEN {operator.interval.lower} AND {operator.interval.upper}"
            others = f" AND ({operator.residual})" if operator.residual else ""
            return _joined(relation, operator, f"{operator.how} JOIN", within + others, left, right)
        case WindowJoin() as operator:
            left, right = (
                in_windows(rows, time, operator.window) for rows, time in ((left, operator.left_time), (right, operator.right_time))
            )
            bounds = ", ".join(f'{name} AS "right {name}"' for name in ("window_start", "window_end"))
            right = f"SELECT * EXCLUDE (window_start, window_end, result_time), {bounds} FROM ({right})"
            equal = 'window_start = "right window_start" AND window_end = "right window_end"'
            others = f" AND ({operator.residual})" if operator.residual else ""
            return _joined(relation, operator, f"{operator.how} JOIN", equal + others, left, right)
        case AsOfJoin() as operator:
            return _joined(relation, operator, f"ASOF {operator.how} JOIN", "{left} >= {right}", left, right)
        case _:
            raise AssertionError(relation)


def _of_one_input(operator: Operator, rows: str) -> str:
    match operator:
        case Aggregate():
            values = ", ".join(f'{sql} AS "{name}"' for name, sql in operator.aggregates.items())
            return f"SELECT {', '.join(operator.key)}, {values} FROM ({rows}) GROUP BY ALL"
        case WindowedAggregate():
            values = ", ".join(f'{sql} AS "{name}"' for name, sql in operator.aggregates.items())
            columns = ", ".join([*operator.key, "window_start", "window_end", "result_time"])
            return f"SELECT {columns}, {values} FROM ({in_windows(rows, operator.time, operator.window, operator.key)}) GROUP BY ALL"
        case TopK():
            by = names(operator.by)
            rows = rows if operator.window is None else in_windows(rows, operator.time, operator.window, by)
            ranked = _numbered(rows, (*by, "window_start", "window_end"), _order(operator.order))
            return f"SELECT * FROM ({ranked}) WHERE rank <= {operator.k}"
        case Consecutive():
            return _of_one_input(operator.then, _of_one_input(operator.of, rows))
        case TopN():
            ranked = _numbered(rows, operator.partition, _order(operator.order))
            ranks = f"rank BETWEEN {operator.rank_start} AND {operator.rank_end}"
            return f"SELECT * {'' if operator.with_rank else 'EXCLUDE (rank)'} FROM ({ranked}) WHERE {ranks}"
        case Deduplicate():
            order, key = [f"{operator.time} {'DESC' if operator.keep == 'last' else 'ASC'}"], operator.key
            if operator.window is not None:
                rows, key = in_windows(rows, operator.time, operator.window, key), (*key, "window_start", "window_end")
            return f"SELECT * EXCLUDE (rank) FROM ({_numbered(rows, key, order)}) WHERE rank = 1"
        case _:
            raise AssertionError(operator)


def _order(order: Sequence[Ordering]) -> list[str]:
    return [f"{o.column} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}" for o in order]


def _numbered(rows: str, by: tuple[str, ...], order: list[str]) -> str:
    partition = f"PARTITION BY {', '.join(by)} " if by else ""
    return f"SELECT *, row_number() OVER ({partition}ORDER BY {', '.join(order)}) AS rank FROM ({rows})"


def _joined(relation: Apply, join: IntervalJoin | AsOfJoin | WindowJoin, kind: str, condition: str, left: str, right: str) -> str:
    """The join, with the columns of both sides by their names in the result: a plan gives each column a name of its own."""
    keys = ", ".join(f'"{k}" AS "right {k}"' for k in join.names.key)
    equal = " AND ".join(f'"{k}" = "right {k}"' for k in join.names.key)
    time = f'"right {join.right_time}"' if join.right_time in join.names.key else f'"{join.right_time}"'
    both = join.how not in ("semi", "anti")
    own = [c for one in (relation.inputs if both else relation.inputs[:1]) for c in one.columns if c not in join.names.key]
    columns = [*(f'COALESCE("{k}", "right {k}") AS "{k}"' if both else f'"{k}"' for k in join.names.key), *(f'"{c}"' for c in own)]
    if isinstance(join, WindowJoin):
        ends = {name: f'COALESCE({name}, "right {name}")' if both else name for name in ("window_start", "window_end")}
        columns += [f"{bound} AS {name}" for name, bound in ends.items()]
        columns.append(f"epoch_ms(epoch_ms({ends['window_end']}) - 1) AS result_time")
    renamed = f"SELECT {keys}, * EXCLUDE ({', '.join(join.names.key)}) FROM ({right})"
    matches = condition.format(left=f'"{join.left_time}"', right=time)
    return f"SELECT {', '.join(columns)} FROM ({left}) {kind} ({renamed}) ON {equal} AND {matches}"
