"""GROUP BY: the aggregate of each window, or the aggregate of each key that is updated as rows are added."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sqlglot import exp

from operators.aggregate import Aggregate
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.sql.aggregate_calls import aggregates_in, check_aggregate, not_grouped, reads_only_aggregates
from operators.sql.dialect import Tree, spark_sql
from operators.sql.errors import SqlError
from operators.sql.grouping import GROUPING, grouping, groups_of
from operators.sql.names import find_name, free_name
from operators.sql.relations import WINDOW_COLUMNS, WINDOW_TIME, Apply, Item, Relation, Windowed, window_column, windows_of
from operators.sql.scope import Scope, over_error, replace_outermost
from operators.sql.select_list import Selected, name_expressions, with_distinct_names
from operators.sql.selections import select, with_result_time
from operators.sql.windowing import check_condition, steps_of
from operators.windowed_aggregate import WindowedAggregate
from operators.windows import AnyWindow, Cumulative, Session, Sliding

_BOUNDS = (WINDOW_START, WINDOW_END)
_LITERALS = ("true", "false", "null")
"""The words that Spark never reads as a name. Other names stay without quotes, since the text is part of the identity of tables."""
ALL_ROWS = "all_rows"
"""The key column of a total without GROUP BY."""


@dataclass
class _Plan:
    """Collects the parts of an aggregation.

    Args:
        scope: the rows.
        relation: the rows below the windows.
        keys: the key columns of the operator, by their SQL over the rows.
        added: key columns that are no columns of the rows.
        aggregates: the aggregates by name.
        sets: the key columns of each grouping set; None if there is one key.
    """

    scope: Scope
    relation: Relation
    keys: dict[str, str] = field(default_factory=dict[str, str])
    added: list[Item] = field(default_factory=list[Item])
    aggregates: dict[str, str] = field(default_factory=dict[str, str])
    sets: tuple[tuple[str, ...], ...] | None = None

    def aggregate(self, tree: Tree, name: str) -> str:
        """The name of an aggregate. The aggregate is added if there is no equal one."""
        sql = self.sql(tree)
        for equal_name, text in self.aggregates.items():
            if text == sql:
                return equal_name
        used_names = [*self.aggregates, *self.keys.values(), *WINDOW_COLUMNS, RESULT_TIME, FINAL_AT, SEQ, ARRIVAL]
        new_name = free_name(name, used_names)
        self.aggregates[new_name] = sql
        return new_name

    def sql(self, tree: Tree) -> str:
        """An aggregate in Spark SQL over the rows."""
        for node in tree.walk():
            if isinstance(node, exp.Window):
                raise over_error(node)
            check_aggregate(node)
        return spark_sql(self.scope.replace_names(tree))


def aggregate(scope: Scope, tree: Tree) -> Relation:
    """The rows of a query with GROUP BY or aggregates.

    Raises:
        SqlError: there are grouping sets without windows, rows in windows are not grouped by their window, or an expression has no
            counterpart.
        OperatorError: the operator refuses a parameter.
    """
    groups, sets, listed = *groups_of(tree), name_expressions(tree.expressions)
    windowed = scope.relation if isinstance(scope.relation, Windowed) else None
    windows = windowed.window if windowed else windows_of(scope.relation)
    bounds = _bounds(scope, groups, windowed, windows)
    _check_sets(sets or (), bounds)
    if bounds and windowed is None and isinstance(windows, Sliding | Cumulative):
        # a result is in the step at whose end its window ends; `window_start` is not the start of that step, and becomes a key
        windows, bounds = steps_of(windows), [bound for bound in bounds if _window_column(scope, bound, windows) != WINDOW_START]
    plan = _Plan(scope, windowed.child if windowed else scope.relation)
    for expression in groups:
        if expression not in bounds:
            _add_key(plan, expression, listed, (*_BOUNDS, RESULT_TIME, FINAL_AT) if bounds else ())
    if sets is not None:
        plan.sets = tuple(tuple(plan.keys[scope.item(key, "").sql] for key in keys if key not in bounds) for keys in sets)
    for expression in listed:  # first, so that an expression over an equal aggregate uses the query's name for it
        if expression.name != "*" and reads_only_aggregates(expression.tree):
            plan.aggregate(expression.tree, expression.name)
    items = [_item(plan, expression, bool(bounds)) for expression in listed]
    having = _having_condition(plan, tree.args.get("having"), bool(bounds))
    if not bounds and not plan.keys:
        _add_constant_key(plan)
    rows = _rows(plan, windowed)
    results = _windowed(plan, windowed, cast(AnyWindow, windows), rows) if bounds else _aggregate_stream(plan, rows)
    return select(results, with_distinct_names(items), having)


def _check_sets(sets: Sequence[Sequence[Tree]], bounds: Sequence[Tree]) -> None:
    """Raise `SqlError` unless each grouping set contains the bounds of the window."""
    if sets and (not bounds or any(bound not in keys for bound in bounds for keys in sets)):
        reason = "only results of windows can have several keys, and each set needs the bounds of the window"
        way_out = "write GROUP BY window_start, window_end, GROUPING SETS (...), or a statement for each set"
        raise SqlError.refused("GROUPING SETS, CUBE or ROLLUP without windows", reason, way_out)


def _window_column(scope: Scope, tree: Tree, windows: AnyWindow | None) -> str | None:
    """The name of the window's column that an expression reads; None for another expression."""
    return None if windows is None or not isinstance(tree, exp.Column) else window_column(scope.relation, scope.resolve(tree).column)


def _bounds(scope: Scope, groups: Sequence[Tree], windowed: Windowed | None, windows: AnyWindow | None) -> list[Tree]:
    """The columns of windows in GROUP BY. Those of sessions' results, or one bound alone of windows' results, are keys like others."""
    bounds = [expression for expression in groups if _window_column(scope, expression, windows)]
    columns = {_window_column(scope, bound, windows) for bound in bounds}
    missing = [c for c in _BOUNDS if c not in columns]
    if windowed and missing:
        reason = "a result of rows in windows is final when its window ends"
        raise SqlError.refused(f"an aggregate of windows without {' and '.join(missing)}", reason, "GROUP BY window_start, window_end, ...")
    is_key = windowed is None and isinstance(windows, Session)  # no window has the results of several sessions
    return [] if missing or is_key else bounds


def _add_key(plan: _Plan, tree: Tree, listed: Sequence[Selected], reserved: Sequence[str]) -> None:
    """Add a key column: a column of the rows, or a computed one; by the name that the query gives it, unless that is reserved."""
    item = plan.scope.item(tree, "")
    names = [
        expression.name
        for expression in listed
        if expression.name != "*" and isinstance(expression.tree, type(tree)) and plan.scope.item(expression.tree, "") == item
    ]
    key_name = names[0] if names else item.column or f"key_{len(plan.keys)}"
    if key_name == item.column and key_name not in reserved:
        plan.keys[item.sql] = key_name
        return
    if item.column and item.column not in reserved and find_name(key_name, plan.relation.columns):
        plan.keys[item.sql] = item.column  # the name is that of another column: the query renames the key afterwards
        return
    name = free_name(key_name, [*plan.relation.columns, *plan.keys.values(), *reserved])
    plan.keys[item.sql] = name
    plan.added.append(Item(name, item.sql, item.column))


def _add_constant_key(plan: _Plan) -> None:
    """Add the key of a total: one value for all rows, which the query does not select. An upserted table has a key."""
    name = free_name(ALL_ROWS, [*plan.relation.columns, *plan.aggregates])
    plan.keys["true"] = name
    plan.added.append(Item(name, "true"))


def _item(plan: _Plan, expression: Selected, in_windows: bool) -> Item:
    """A column of the result, over the operator's columns."""
    if expression.name == "*":
        raise SqlError.refused("SELECT * with GROUP BY", "an aggregate has its key and its aggregates only", "name the columns")
    if expression.tree.find(exp.Window):
        way_out = "rank the rows of a subquery: SELECT ..., ROW_NUMBER() OVER (...) AS n FROM (SELECT ... GROUP BY ...)"
        raise SqlError.refused("OVER in a query with GROUP BY", "each query is one operator", way_out)
    if reads_only_aggregates(expression.tree):
        return Item.of_column(plan.aggregate(expression.tree, expression.name), expression.name)
    return _compute_item(plan, expression.tree, expression.name, in_windows)


def _compute_item(plan: _Plan, tree: Tree, name: str, in_windows: bool) -> Item:
    """An expression over keys, windows and aggregates."""
    inner = {id(aggregated): aggregated for aggregated in aggregates_in(tree)}

    def replace_node(node: Any) -> Any:
        if isinstance(node, GROUPING):
            return grouping(node, [_key_argument(plan, key) for key in node.expressions], tuple(plan.keys.values()), plan.sets)
        if id(node) in inner:
            return exp.column(exp.to_identifier(plan.aggregate(node, f"value_{len(plan.aggregates)}"), quoted=True))
        key = _result_column(plan, node, in_windows)
        if key is not None:
            return exp.column(exp.to_identifier(key, quoted=not key.isidentifier() or key.lower() in _LITERALS))
        if isinstance(node, exp.Column):
            raise not_grouped(node, in_windows)
        return node

    replaced = replace_outermost(tree, replace_node)
    if isinstance(replaced, exp.Column):
        return Item.of_column(replaced.name, name)
    return Item(name, spark_sql(replaced))


def _result_column(plan: _Plan, node: Tree, in_windows: bool) -> str | None:
    """The result's column for an expression that is a key or a column of the window; None for another expression."""
    if isinstance(node, exp.Column):
        item = plan.scope.resolve(node)
        window = window_column(plan.scope.relation, item.column) if in_windows else None
        return plan.keys.get(item.sql) or (RESULT_TIME if window == WINDOW_TIME else window)
    if isinstance(node, exp.Expr) and not isinstance(node, exp.Literal) and [*node.find_all(exp.Column)] and not aggregates_in(node):
        return plan.keys.get(spark_sql(plan.scope.replace_names(node)))
    return None


def _key_argument(plan: _Plan, tree: Tree) -> str:
    """The key column that an argument of GROUPING is."""
    name = plan.keys.get(plan.scope.item(tree, "").sql)
    if name is None:
        raise not_grouped(tree, in_windows=True)
    return name


def _having_condition(plan: _Plan, tree: Tree | None, in_windows: bool) -> str | None:
    return None if tree is None else _compute_item(plan, tree.this, "having", in_windows).sql


def _rows(plan: _Plan, windowed: Windowed | None) -> Relation:
    """The rows that the operator reads: those that the conditions accept, with computed keys."""
    where = plan.scope.condition(plan.scope.conditions)
    if windowed:
        check_condition(windowed, where, "use HAVING")
    child = plan.relation
    return select(child, [*(Item.of_column(c) for c in child.columns), *plan.added], where, child.arrivals)


def _windowed(plan: _Plan, windowed: Windowed | None, windows: AnyWindow, rows: Relation) -> Relation:
    key_columns = tuple(plan.keys.values())
    if isinstance(windows, Session):
        _check_session(plan, windowed, key_columns)
    if not plan.aggregates:
        plan.aggregates["rows_in_window"] = "COUNT(*)"
    rows, time = (rows, windowed.time) if windowed else with_result_time(rows)
    operator = WindowedAggregate(by=key_columns, window=windows, aggregates=plan.aggregates, time=time, grouping_sets=plan.sets)
    return Apply(operator, (rows,), operator.result_columns(rows.columns), (RESULT_TIME,), windows)


def _check_session(plan: _Plan, windowed: Windowed | None, by: Sequence[str]) -> None:
    """Raise `SqlError` unless sessions are partitioned by the key of the operator."""
    partition = windowed.partition if windowed else ()
    keys = {plan.keys.get(Item.of_column(c).sql, c) for c in partition}
    if keys != {*by}:
        partition_text = ", ".join(partition) or "no column"
        reason = f"sessions are those of the rows of a key, and PARTITION BY names {partition_text}"
        way_out = "write the same columns in PARTITION BY of SESSION and in GROUP BY"
        raise SqlError.refused(f"sessions grouped by {', '.join(by) or 'no column'}", reason, way_out)


def _aggregate_stream(plan: _Plan, rows: Relation) -> Relation:
    """The aggregate of each key over all rows so far."""
    key_columns = tuple(plan.keys.values())
    if not plan.aggregates:
        way_out = "add an aggregate such as COUNT(*) AS number, or keep the first row of each key with ROW_NUMBER() ... = 1"
        raise SqlError.refused("GROUP BY without an aggregate", "an aggregate has at least one", way_out)
    operator = Aggregate(by=key_columns, aggregates=plan.aggregates)
    times = (EVENT_TIME,) if EVENT_TIME in plan.aggregates else ()
    return Apply(operator, (rows,), (*key_columns, *plan.aggregates), times)
