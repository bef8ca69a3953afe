"""Checks of SQL expressions against the columns that they can read, before any row is read and without a Spark session."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from assets.contract_checks import ContractError
from assets.names import fold_case
from operators.errors import did_you_mean
from operators.nondeterministic import WITHOUT_PARENTHESES

_ROWS = frozenset(
    {"inline", "inline_outer", "json_tuple", "stack", "variant_explode", "variant_explode_outer", "window", "session_window"}
    | {"any", "every", "some", "try_sum", "try_avg"}
)
"""Generators, windows and aggregates that the parser knows as ordinary functions."""
_PARSED_AS_FUNCTIONS: dict[type[exp.Expr], str] = {exp.CurrentUser: "current_user", exp.SessionUser: "session_user"}
"""Functions that the parser reads as functions, and not as columns, even if no parentheses follow."""


def check_expression(parameter: str, expression: str, columns: Sequence[str], owner: str, engine_columns: Sequence[str] = ()) -> None:
    """Raise `ContractError` if an expression reads a column that does not exist.

    Args:
        parameter: the parameter that has the expression, for the error.
        expression: SQL. What the parser does not understand is left to Spark, which checks it before the first row is read.
        columns: the columns that the expression can read.
        owner: whose columns these are, for the error, such as `source 'rides'`.
        engine_columns: columns that the engine adds, which the error does not list.
    """
    if (unknown := unknown_column(expression, [*columns, *engine_columns])) is not None:
        raise _no_column(parameter, expression, unknown, columns, owner)


def check_row_by_row(parameter: str, expression: str) -> None:
    """Raise `ContractError` if SQL is certainly not one expression that Spark can compute from one row.

    Args:
        parameter: the parameter that has the expression, for the error.
        expression: SQL. What the parser does not understand is left to Spark.
    """
    try:
        select = sqlglot.parse_one(f"SELECT {expression}", dialect="spark")
    except SqlglotError:
        return
    items = select.expressions
    if len(items) != 1 or isinstance(items[0], exp.Alias | exp.Star) or any(map(reads_rows, select.walk())):
        legal = "one expression over one row, without a name: no aggregates, window functions and generators, such as explode"
        raise ContractError.bad_value(parameter, expression, legal)


def reads_rows(node: exp.Expr) -> bool:
    """Whether a part of an expression reads several rows, or gives several: an aggregate, a window function or a generator."""
    parent = node.parent
    is_comparison = isinstance(parent, exp.Like | exp.ILike) and parent.expression is node  # as in `k LIKE ANY ('a', 'b')`
    is_any = isinstance(node, exp.Any) and not is_comparison
    return is_any or isinstance(node, exp.AggFunc | exp.Window | exp.UDTF) or bool(function_names(node) & _ROWS)


def function_names(node: exp.Expr) -> set[str]:
    """The names of a function in SQL, in lower case; none for another expression."""
    if isinstance(node, exp.Anonymous):
        return {node.name.lower()}
    return {name.lower() for name in node.sql_names()} if isinstance(node, exp.Func) else set()


def check_bare_names(parameter: str, expression: str, columns: Iterable[str]) -> None:
    """Raise `ContractError` if a name in an expression over rows is no column, but a function that Spark calls without parentheses.

    Args:
        parameter: the parameter that has the expression, for the error.
        expression: SQL.
        columns: the columns that the expression can read.
    """
    if (name := bare_function(_names_in(expression), columns)) is not None:
        legal = "an expression whose value depends on the rows alone"
        raise ContractError.bad_value(parameter, expression, f"{legal}; {name} is no column, but Spark's function of the same name")


def bare_function(names: Iterable[str], columns: Iterable[str]) -> str | None:
    """The first name that is no column, but a function that Spark calls without parentheses; None if there is none."""
    functions = WITHOUT_PARENTHESES - {fold_case(column) for column in columns}
    return next((name for name in names if fold_case(name) in functions), None)


def check_columns_exist(
    parameter: str,
    names: Iterable[str],
    columns: Sequence[str],
    owner: str,
    engine_columns: Sequence[str] = (),
    expression: str | None = None,
) -> None:
    """Raise `ContractError` if one of the names is not a column; see `check_expression`.

    Args:
        parameter: the parameter, for the error.
        names: the names.
        columns: the columns.
        owner: whose columns these are, for the error.
        engine_columns: further columns, which the error does not list.
        expression: the value of the parameter, for the error; None if the name itself is the value.
    """
    folded_columns = {fold_case(column) for column in (*columns, *engine_columns)}
    for name in names:
        if fold_case(name) not in folded_columns:
            raise _no_column(parameter, name if expression is None else expression, name, columns, owner)


def check_named_columns(
    parameter: str, names: Iterable[str], columns: Sequence[str], owner: str, engine_columns: Sequence[str] = ()
) -> None:
    """Raise `ContractError` unless each name is exactly that of a column; see `check_expression`. Delta and Arrow do not ignore case."""
    for name in names:
        if name not in columns and name not in engine_columns:
            raise _no_column(parameter, name, name, columns, owner)


def _no_column(parameter: str, expression: str, unknown: str, columns: Sequence[str], owner: str) -> ContractError:
    """The error for a column that does not exist."""
    name_in_expression = "" if expression == unknown else f"{unknown!r} is no column of {owner}; "
    return ContractError.bad_value(
        parameter, expression, f"{name_in_expression}the columns of {owner} are {', '.join(columns)}{did_you_mean(unknown, columns)}"
    )


def unknown_column(expression: str, columns: Sequence[str]) -> str | None:
    """The first name in an expression that is neither a column nor a lambda's parameter; None if there is none, or it is not certain."""
    folded_columns = {fold_case(column) for column in columns}
    return next((name for name in columns_read(expression) if fold_case(name) not in folded_columns), None)


def columns_read(expression: str) -> tuple[str, ...]:
    """The names in an expression that can only be columns; none if the parser does not understand it, or it has a subquery."""
    return tuple(name for name in _names_in(expression) if name.lower() not in WITHOUT_PARENTHESES)


@lru_cache(maxsize=1024)  # each tick of a sensor makes an engine, which checks the pipeline
def _names_in(expression: str) -> tuple[str, ...]:
    """The names in an expression that no parentheses follow; none if the parser does not understand it, or it has a subquery."""
    try:
        tree = sqlglot.parse_one(expression, dialect="spark")
    except SqlglotError:
        return ()
    if tree is None or tree.find(exp.Query) is not None:  # a subquery has columns of its own
        return ()
    return tuple(name for node in tree.find_all(exp.Column, *_PARSED_AS_FUNCTIONS) if (name := _first_name(node)) != "*")


def _first_name(node: exp.Expr) -> str:
    return node.parts[0].name if isinstance(node, exp.Column) else _PARSED_AS_FUNCTIONS[type(node)]
