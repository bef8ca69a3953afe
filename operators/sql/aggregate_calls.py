"""The aggregates in a query's expressions, and those that have no counterpart."""

from typing import Any

from sqlglot import exp

from operators.sql.dialect import Tree
from operators.sql.errors import SqlError
from operators.sql.grouping import GROUPING

_ORDERED = "it depends on the order in which rows are read"
_FIRST = (_ORDERED, "MIN_BY(v, ts), with the event time ts")
_LAST = (_ORDERED, "MAX_BY(v, ts), with the event time ts")
_REFUSED = {
    "COLLECT": ("Tidemark has no type MULTISET", "SORT_ARRAY(ARRAY_AGG(v))"),
    "JSON_ARRAYAGG": ("Spark has no such aggregate", "TO_JSON(SORT_ARRAY(ARRAY_AGG(v)))"),
    "JSON_OBJECTAGG": ("Spark has no such aggregate", "an array of objects, TO_JSON(SORT_ARRAY(ARRAY_AGG(STRUCT(k, v))))"),
    "FIRST_VALUE": _FIRST,
    "FIRST": _FIRST,
    "ANY_VALUE": _FIRST,
    "LAST_VALUE": _LAST,
    "LAST": _LAST,
}
"""Aggregates that Tidemark does not have, by name: why each is refused, and what to write instead."""


def is_aggregate(tree: Tree) -> bool:
    """Whether a query aggregates its rows."""
    return any(tree.args.get(clause) for clause in ("group", "having")) or any(aggregates_in(e) for e in tree.expressions)


def aggregates_in(tree: Tree) -> list[Tree]:
    """The outermost aggregates of an expression, without those of OVER clauses."""
    aggregates: list[Tree] = []

    def visit(node: Any) -> None:
        if isinstance(node, exp.Window | exp.Query):
            return
        if isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup) and not isinstance(node, GROUPING):
            aggregates.append(node)
            return
        for child in node.iter_expressions():
            visit(child)

    visit(tree)
    return aggregates


def reads_only_aggregates(tree: Tree) -> bool:
    """Whether an expression reads no column outside of aggregates, so that it is an aggregate itself."""
    inner = aggregates_in(tree)
    within = {id(c) for aggregated in inner for c in aggregated.find_all(exp.Column)}
    return bool(inner) and all(id(c) in within for c in tree.find_all(exp.Column))


def check_aggregate(node: Tree) -> None:
    """Raise `SqlError` if an expression is an aggregate that has no counterpart."""
    if (name := _aggregate_name(node)) in _REFUSED:
        reason, way_out = _REFUSED[name]
        raise SqlError.refused(name, reason, f"write {way_out}")


def _aggregate_name(node: Tree) -> str:
    """The name of an aggregate; empty for another expression."""
    if isinstance(node, exp.JSONObjectAgg):
        return "JSON_OBJECTAGG"
    if isinstance(node, exp.AnonymousAggFunc):
        return str(node.name)
    return node.sql_name() if isinstance(node, exp.AggFunc) else ""


def not_grouped(column: Tree, in_windows: bool) -> SqlError:
    """The error for a column outside of aggregates that is no key."""
    keys, call = "window_start, window_end, ..." if in_windows else "...", column.find_ancestor(exp.Anonymous)
    of_one_row = "" if call is None else f" ({call.name.upper()} is read as a function of one row)"
    filtered = ", or filter by it in WHERE" if column.find_ancestor(exp.Having) else ""
    reason = f"it is neither in GROUP BY nor in an aggregate{of_one_row}"
    return SqlError.refused(f"the column {column.sql()}", reason, f"add it: GROUP BY {keys}, {column.name}{filtered}")
