"""The ranks that the conditions of a query keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlglot import exp

from operators.sql.dialect import MIRRORED, Tree, spark_sql
from operators.sql.errors import SqlError
from operators.sql.names import find_name
from operators.sql.relations import Ranked


@dataclass(frozen=True)
class Ranks:
    """The ranks that a query keeps.

    Args:
        first: the first rank that is kept, from 1.
        last: the last rank that is kept, or the column that contains it.
    """

    first: int
    last: int | str


def ranks_of(ranked: Ranked, conditions: Sequence[Tree]) -> tuple[Ranks, list[Tree]]:
    """The ranks that conditions keep, and the other conditions.

    Raises:
        SqlError: the conditions give no last rank.
    """
    first, last, others = 1, list[int | str](), list[Tree]()
    for condition in _split_between(conditions):
        comparison = _rank_comparison(ranked, condition)
        if comparison is None:
            others.append(condition)
            continue
        operation, bound = comparison
        if operation in (exp.GTE, exp.GT, exp.EQ):
            if isinstance(bound, str):
                raise _no_bound(condition)
            first = max(first, bound + (operation is exp.GT))
        if operation in (exp.LTE, exp.LT, exp.EQ):
            if isinstance(bound, str) and operation is not exp.LTE:
                raise _no_bound(condition)
            last.append(bound - 1 if operation is exp.LT and isinstance(bound, int) else bound)
    ranks = Ranks(first, _last_of(ranked, last))
    if isinstance(ranks.last, int) and ranks.last < first:
        refused = f"a rank {ranked.name} of at least {first} and at most {ranks.last}"
        reason = "no row has it: ranks start at 1" if ranks.last < 1 else "no row has it"
        raise SqlError.refused(refused, reason, f"write WHERE {ranked.name} <= N")
    return ranks, others


def _last_of(ranked: Ranked, bounds: Sequence[int | str]) -> int | str:
    """The smallest of several last ranks."""
    name = ranked.name
    if not bounds:
        reason = "only the first rows of each partition have a bounded state"
        named, name = ("", "n") if name.startswith("EXPR$") else (f" AS {name}", name)
        way_out = f"{'' if named else 'give it a name with AS n, and '}add WHERE {name} <= N{'' if named else ' in an outer query'}"
        raise SqlError.refused(f"{ranked.function.upper()}(){named} without a last rank", reason, way_out)
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    if len(numbers) == len(bounds):
        return min(numbers)
    if len(bounds) > 1:
        reason = f"{' and '.join(map(str, bounds))} are its last ranks, and an operator has one number or one column"
        raise SqlError.refused(f"a rank {name} with several limits", reason, "keep one, and filter by the other in an outer query")
    return bounds[0]


def _split_between(conditions: Sequence[Tree]) -> list[Tree]:
    split: list[Tree] = []
    for condition in conditions:
        if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
            split += [
                exp.GTE(this=condition.this, expression=condition.args["low"]),
                exp.LTE(this=condition.this, expression=condition.args["high"]),
            ]
        else:
            split.append(condition)
    return split


def _rank_comparison(ranked: Ranked, tree: Tree) -> tuple[Any, int | str] | None:
    """The comparison of a rank in a condition, and the bound; None if the condition does not read the rank."""
    if not any(c.name.lower() == ranked.name.lower() for c in tree.find_all(exp.Column)):
        return None
    if type(tree) not in MIRRORED:
        raise _no_bound(tree)
    is_left = isinstance(tree.this, exp.Column) and tree.this.name.lower() == ranked.name.lower()
    operation = cast(Any, type(tree)) if is_left else MIRRORED[type(tree)]
    bound = tree.expression if is_left else tree.this
    if isinstance(bound, exp.Literal) and not bound.is_string and bound.name.isdecimal():
        return operation, int(bound.name)
    column = find_name(bound.name, ranked.child.columns) if isinstance(bound, exp.Column) else None
    if column is None:
        raise _no_bound(tree)
    return operation, column


def _no_bound(tree: Tree) -> SqlError:
    legal = "a comparison with a whole number (<, <=, =, >=, >, BETWEEN), or <= a column of the rows"
    return SqlError.refused(f"the condition {spark_sql(tree)} on a rank", "a rank is compared with a bound", f"legal: {legal}")
