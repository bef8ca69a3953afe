"""Names in queries: columns by their table, and the SQL of a column."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, count

from sqlglot import exp, tokens

from operators.errors import did_you_mean
from operators.sql.dialect import Tree
from operators.sql.errors import SqlError

_PLAIN = re.compile(r"[A-Za-z_]\w*")


def column_sql(name: str) -> str:
    """A column's name in Spark SQL, quoted if it must be.

    >>> column_sql("item"), column_sql("table"), column_sql("EXPR$0")
    ('item', '`table`', '`EXPR$0`')
    """
    is_plain = _PLAIN.fullmatch(name) and name.upper() not in tokens.Tokenizer.KEYWORDS
    return name if is_plain else f"`{name.replace('`', '``')}`"


def find(name: str, known: Iterable[str]) -> str | None:
    """The known name that is equal to a name, or differs from it in case only."""
    names = list(known)
    if name in names:
        return name
    return next((one for one in names if one.lower() == name.lower()), None)


def require_name(name: str, known: Sequence[str], kind: str = "column") -> str:
    """The known name that is equal to a name.

    Raises:
        SqlError: there is none.
    """
    match = find(name, known)
    if match is None:
        raise SqlError.unknown(kind, name, f"{', '.join(known)}{did_you_mean(name, known)}")
    return match


def free(name: str, taken: Iterable[str]) -> str:
    """A name that is not taken: the name itself, or with a number, as Flink names columns that both sides of a join have.

    >>> free("id", ["id", "v"]), free("id", ["id", "ID0"]), free("v", [])
    ('id0', 'id1', 'v')
    """
    names = {one.lower() for one in taken}
    candidates = chain([name], (f"{name}{number}" for number in count()))
    return next(one for one in candidates if one.lower() not in names)


def conjuncts(tree: Tree | None) -> list[Tree]:
    """The conditions of a conjunction."""
    if tree is None:
        return []
    if isinstance(tree, exp.Paren) and isinstance(tree.this, exp.And):
        return conjuncts(tree.this)
    return [*conjuncts(tree.left), *conjuncts(tree.right)] if isinstance(tree, exp.And) else [tree]
