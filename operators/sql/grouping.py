"""The expressions of GROUP BY: one key, or those of grouping sets."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import sqlglot
from sqlglot import exp

from operators.sql.dialect import WINDOW_FUNCTIONS, Tree, spark_sql
from operators.sql.errors import SqlError
from operators.windowed_aggregate import GROUPING_ID

GROUPING = (exp.Grouping, exp.GroupingId)
"""The functions that return which keys a result leaves out."""
_SETS = (exp.GroupingSets, exp.Cube, exp.Rollup)


def groups_of(tree: Tree) -> tuple[list[Tree], list[list[Tree]] | None]:
    """The distinct expressions of GROUP BY, and the expressions of each grouping set; None in place of the sets without grouping sets.

    If GROUP BY has several of GROUPING SETS, CUBE and ROLLUP, each combination of their sets is a set. Other expressions are in each set.

    Raises:
        SqlError: an expression has no counterpart.
    """
    group = tree.args.get("group")
    if group is None:
        return [], None
    for expression in group.expressions:
        if isinstance(expression, exp.Anonymous) and str(expression.this).upper() in WINDOW_FUNCTIONS:
            name = str(expression.this).upper()
            table = "TABLE t PARTITION BY k" if name == "SESSION" else "TABLE t"
            way_out = f"write FROM TABLE({name}({table}, DESCRIPTOR(ts), ...)) GROUP BY window_start, window_end"
            raise SqlError.refused(f"GROUP BY {name}(...)", "it is the old form of a window, which Flink has deprecated", way_out)
    clauses = [*_sets(group, tree.expressions)]
    sets = [[column for part in combination for column in part] for combination in product(*clauses)]
    columns: list[Tree] = []
    for column in (column for expression in sets for column in expression):
        columns += [] if column in columns else [column]
    has_sets = any(isinstance(expression, _SETS) for expression in group.expressions) or any(group.args.get(name) for name in _CLAUSES)
    return columns, [_drop_repeated(expression) for expression in sets] if has_sets else None


_CLAUSES = ("grouping_sets", "cube", "rollup")
"""The arguments in which the parser stores clauses that it does not store as expressions."""


def _drop_repeated(columns: Sequence[Tree]) -> list[Tree]:
    return [column for n, column in enumerate(columns) if column not in columns[:n]]


def _sets(group: Tree, listed: Sequence[Tree]) -> Iterator[list[list[Tree]]]:
    """The sets of each part of GROUP BY; an expression, and a list of expressions in brackets, has one set."""
    for part in [*group.expressions, *(clause for name in _CLAUSES for clause in group.args.get(name) or ())]:
        if isinstance(part, _SETS):
            yield _expand_sets(part, listed)
        else:
            yield [_columns(part, listed) if isinstance(part, exp.Tuple) else [_by_position(part, listed)]]


def _expand_sets(clause: Tree, listed: Sequence[Tree]) -> list[list[Tree]]:
    """The sets of GROUPING SETS, CUBE or ROLLUP."""
    if isinstance(clause, exp.GroupingSets):
        return [
            columns
            for expression in clause.expressions
            for columns in (_expand_sets(expression, listed) if isinstance(expression, _SETS) else [_columns(expression, listed)])
        ]
    parts, last = [_columns(expression, listed) for expression in clause.expressions], len(clause.expressions)
    if isinstance(clause, exp.Rollup):
        combinations_of_parts = [parts[:number] for number in range(last, -1, -1)]
    else:
        combinations_of_parts = [[*combination] for number in range(last, -1, -1) for combination in combinations(parts, number)]
    return [[column for part in combination for column in part] for combination in combinations_of_parts]


def _columns(tree: Tree, listed: Sequence[Tree]) -> list[Tree]:
    """The expressions of a list in brackets, or a single expression."""
    return [_by_position(column, listed) for column in (tree.expressions if isinstance(tree, exp.Tuple) else [tree.unnest()])]


def _by_position(group: Tree, listed: Sequence[Tree]) -> Tree:
    """An expression of GROUP BY. A number is the position of the expression in the SELECT list."""
    inner = group.unnest()
    if not isinstance(inner, exp.Literal) or inner.is_string:
        return group
    if not inner.name.isdecimal() or not 1 <= int(inner.name) <= len(listed):
        raise SqlError.refused(f"GROUP BY {inner.name}", "it is no position in the SELECT list", f"legal: 1 to {len(listed)}, or a column")
    return listed[int(inner.name) - 1].unalias()


def grouping(call: Tree, columns: Sequence[str], keys: Sequence[str], sets: object) -> Tree:
    """GROUPING or GROUPING_ID of key columns, computed from `grouping_id` of a result: one bit per column, the first is the highest.

    Raises:
        SqlError: there are no grouping sets, or no columns.
    """
    if sets is None:
        raise SqlError.refused(f"{spark_sql(call)} without grouping sets", "each result has every key", "leave it out: it is 0")
    if not columns:
        raise SqlError.refused(f"{spark_sql(call)} without columns", "it has one bit for each of its columns", "name columns of GROUP BY")
    bits = [f"((shiftright({GROUPING_ID}, {len(keys) - 1 - keys.index(c)}) & 1) * {1 << n})" for n, c in enumerate(reversed(columns))]
    return sqlglot.parse_one(f"({' + '.join(reversed(bits))})", dialect="spark")
