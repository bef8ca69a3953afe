"""Names in queries: columns by their table, and the SQL of a column."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, count

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from operators.columns import quoted_name
from operators.errors import did_you_mean
from operators.sql.dialect import Tree
from operators.sql.errors import SqlError

_PLAIN = re.compile(r"[A-Za-z_]\w*")
_KEYWORDS = {*Spark.Tokenizer.KEYWORDS, "CONNECT_BY_ROOT", "IF"}
"""The words that sqlglot does not read as a name in an expression of Spark."""


def column_sql(name: str) -> str:
    """A column's name in Spark SQL, quoted if it must be.

    >>> column_sql("item"), column_sql("table"), column_sql("EXPR$0")
    ('item', '`table`', '`EXPR$0`')
    """
    is_plain = _PLAIN.fullmatch(name) and name.upper() not in _KEYWORDS
    return name if is_plain else quoted_name(name)


def find_name(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that is equal to a name, else the first that differs from it in case only; None if there is none."""
    candidate_names = list(candidates)
    if name in candidate_names:
        return name
    return next((candidate for candidate in candidate_names if candidate.lower() == name.lower()), None)


def require_name(name: str, candidates: Sequence[str]) -> str:
    """The column that is equal to a name, else the first that differs from it in case only.

    Raises:
        SqlError: there is no such column.
    """
    match = find_name(name, candidates)
    if match is None:
        raise SqlError.unknown("column", name, f"{', '.join(candidates)}{did_you_mean(name, candidates)}")
    return match


def free_name(name: str, used_names: Iterable[str]) -> str:
    """A name that is not used yet: the name itself, or the name with a number, as Flink names columns that both sides of a join have.

    >>> free_name("id", ["id", "v"]), free_name("id", ["id", "ID0"]), free_name("v", [])
    ('id0', 'id1', 'v')
    """
    lower_names = {candidate.lower() for candidate in used_names}
    candidates = chain([name], (f"{name}{number}" for number in count()))
    return next(candidate for candidate in candidates if candidate.lower() not in lower_names)


def conjuncts(tree: Tree | None) -> list[Tree]:
    """The conditions that AND combines: one for any other expression, none for None."""
    if tree is None:
        return []
    inner = tree.unnest()
    # the text of a condition in several brackets is part of the identity of stored tables; if it has a subquery, there is no such table
    is_split = isinstance(inner, exp.And) and (inner is tree or tree.this is inner or inner.find(exp.Select) is not None)
    return [*conjuncts(inner.left), *conjuncts(inner.right)] if is_split else [tree]


def combined(conditions: Sequence[str]) -> str | None:
    """Conditions in Spark SQL, combined by AND; None if there are none."""
    if len(conditions) > 1:
        return " AND ".join(f"({condition})" for condition in conditions)
    return conditions[0] if conditions else None
