"""Checks that a query has only clauses that are planned. The parser accepts the clauses of many dialects."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlglot import exp

from operators.sql.dialect import Flink, Tree
from operators.sql.errors import SqlError

_REASON, _WAY_OUT = "there is no operator for it", "leave it out"
_BY_ITEM = "deliver one row for each element, or select elements by number in a view, as in arr[1] AS x"
_LATERAL = ("LATERAL", "there is no operator that makes several rows of one", _BY_ITEM)
_UNNEST = ("UNNEST in FROM", "there is no operator that makes several rows of one", _BY_ITEM)

_PLANNED: Mapping[type, Sequence[str]] = {
    exp.Select: ("with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit", "offset"),
    exp.Subquery: ("this", "alias", "joins", "order", "limit", "offset"),
    exp.Table: ("this", "alias", "db", "catalog", "joins", "version"),
    exp.Join: ("this", "on", "side", "kind", "using", "method"),
    exp.Star: (),
    exp.Distinct: ("expressions",),
    exp.Group: ("expressions", "grouping_sets", "cube", "rollup"),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("expression", "limit_options"),
    exp.With: ("expressions",),
    exp.CTE: ("this", "alias"),
}
"""For each kind of node, the arguments that other modules plan, or refuse by an error of their own."""
_REFUSED: Mapping[str, tuple[str, str, str]] = {
    "qualify": (
        "QUALIFY",
        "Flink's pattern of a Top-N is a subquery",
        "write SELECT ... FROM (SELECT *, ROW_NUMBER() ... AS n ...) WHERE n <= N",
    ),
    "laterals": _LATERAL,
    "windows": ("WINDOW", "there is no OVER aggregation", "aggregate windows: GROUP BY window_start, window_end over HOP or CUMULATE"),
    "match": ("MATCH_RECOGNIZE", "there is no operator for patterns of rows", "join each pair of rows by an interval join"),
    "pivots": (
        "PIVOT or UNPIVOT",
        _REASON,
        "for PIVOT aggregate with a condition for each column, as in SUM(v) FILTER (WHERE k = 'x') AS x",
    ),
    "sample": ("TABLESAMPLE", "results are computed again and must not depend on random numbers", "filter by a hash of a column"),
    "locks": ("FOR UPDATE", "the rows of a query are not locked", _WAY_OUT),
    "kind": ("SELECT AS", "the rows of a query have columns", "write SELECT ROW(...) AS name"),
    "with_": ("WITH before a query in brackets", "it is part of a SELECT", "write WITH inside of the brackets"),
    "this": ("LIMIT inside of an expression", _REASON, _WAY_OUT),
    "expressions": ("LIMIT n BY", _REASON, "use ROW_NUMBER() ... <= n"),
    "key_expressions": ("USING KEY", _REASON, _WAY_OUT),
    "on": ("DISTINCT ON", "Flink has no such clause", "use ROW_NUMBER() ... = 1"),
}
"""By argument, what the error says about a clause that is not planned: its name, the reason, and what to write instead."""
_INNER: Mapping[str, tuple[str, str, str]] = {
    "order": (
        "ORDER BY of an inner query",
        "the rows of a table have no order",
        "use ROW_NUMBER with ORDER BY, or order the outermost query",
    ),
    "limit": ("LIMIT of an inner query", "the rows of a table have no order", "use ROW_NUMBER() ... <= N"),
    "offset": ("OFFSET of an inner query", "the rows of a table have no order", "use ROW_NUMBER() ... > N"),
}
"""The same for the clauses of an inner query."""


def check_clauses(tree: Tree) -> None:
    """Raise `SqlError` if a statement's query has a clause that is not planned."""
    for node in tree.walk():
        planned = _PLANNED.get(cast(Any, type(node)))
        unplanned = [name for name, value in node.args.items() if value and planned is not None and name not in planned]
        if unplanned:
            raise _unplanned_error(node, unplanned[0])
        if isinstance(node, exp.Version):
            _check_version(node)


def _check_version(version: Tree) -> None:
    kind, period = str(version.args.get("kind")), version.name.upper().replace("TIMESTAMP", "SYSTEM_TIME")
    if (period, kind) != ("SYSTEM_TIME", "AS OF"):
        raise SqlError.refused(f"FOR {period} {kind}", "a row is joined with the version at one time", "write FOR SYSTEM_TIME AS OF a.ts")


def _unplanned_error(node: Tree, name: str) -> SqlError:
    if isinstance(node, exp.Star):
        return SqlError.refused(_text(node), "Flink has no such list", "name the columns")
    if name in _REFUSED:
        return SqlError.refused(*_REFUSED[name])
    value: Any = node.args[name]
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    text = " ".join(_text(part) if isinstance(part, exp.Expr) else name.upper().replace("_", " ") for part in parts)
    return SqlError.refused(text, _REASON, _WAY_OUT)


def _text(tree: Tree) -> str:
    return tree.sql(dialect=Flink).strip()


def check_inner(tree: Tree) -> None:
    """Raise `SqlError` if a query that another query reads, or that is inserted, has ORDER BY, LIMIT or OFFSET."""
    for clause, reason in _INNER.items():
        if tree.args.get(clause):
            raise SqlError.refused(*reason)


def from_error(tree: Tree) -> SqlError:
    """The error for a part of FROM that is no table."""
    if isinstance(tree, exp.Unnest | exp.Lateral):
        return SqlError.refused(*(_UNNEST if isinstance(tree, exp.Unnest) else _LATERAL))
    return SqlError.refused(f"{type(tree).__name__.upper()} in FROM", "an operator reads tables", "deliver the rows to a source")
