"""The ranks that the conditions of a query keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlglot import exp

from operators.sql.dialect import MIRRORED, Tree, spark_sql
from operators.sql.errors import SqlError
from operators.sql.relations import Ranked
from operators.sql.scope import Scope


@dataclass(frozen=True)
class Ranks:
    """The ranks that a query keeps.

    Args:
        first: the first rank that is kept, from 1.
        last: the last rank that is kept, or the column that contains it.
    """

    first: int
    last: int | str


def ranks_of(ranked: Ranked, scope: Scope) -> tuple[Ranks, list[Tree]]:
    """The ranks that the conditions of a query keep, and the other conditions.

    Args:
        ranked: the rows with their rank.
        scope: the same rows, and the conditions.

    Raises:
        SqlError: the conditions give no last rank, or compare the rank with a column that the query does not have.
    """
    first, last, others = 1, list[int | str](), list[Tree]()
    for condition in _split_between(scope.conditions):
        comparison = _rank_comparison(ranked, scope, condition)
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


def no_last_rank(ranked: Ranked) -> SqlError:
    """The error for rows with a rank that no condition limits."""
    named, name = ("", "n") if ranked.name.startswith("EXPR$") else (f" AS {ranked.name}", ranked.name)
    reason = "only the first rows of each partition have a bounded state"
    way_out = f"{'' if named else 'give it a name with AS n, and '}add WHERE {name} <= N in an outer query that reads only these rows"
    return SqlError.refused(f"{ranked.function.upper()}(){named} without a last rank", reason, way_out)


def _last_of(ranked: Ranked, bounds: Sequence[int | str]) -> int | str:
    """The smallest of several last ranks."""
    if not bounds:
        raise no_last_rank(ranked)
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    if len(numbers) == len(bounds):
        return min(numbers)
    if len(bounds) > 1:
        reason = f"{' and '.join(map(str, bounds))} are its last ranks, and an operator has one number or one column"
        raise SqlError.refused(f"a rank {ranked.name} with several limits", reason, "keep one, and filter by the other in an outer query")
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


def _rank_comparison(ranked: Ranked, scope: Scope, tree: Tree) -> tuple[Any, int | str] | None:
    """The comparison of a rank in a condition, and the bound; None if the condition does not read the rank."""
    if not any(_is_rank(ranked, scope, column) for column in tree.find_all(exp.Column)):
        return None
    sides = [tree.this.unnest(), tree.expression.unnest()] if type(tree) in MIRRORED else []
    are_ranks = [isinstance(side, exp.Column) and _is_rank(ranked, scope, side) for side in sides]
    if sum(are_ranks) != 1:  # a condition of another kind, or the rank is a part of an expression, as in `3 >= n + 1`
        raise _no_bound(tree)
    operation, bound = (cast(Any, type(tree)), sides[1]) if are_ranks[0] else (MIRRORED[type(tree)], sides[0])
    if isinstance(bound, exp.Literal) and not bound.is_string and bound.name.isdecimal():
        return operation, int(bound.name)
    column = scope.resolve(bound).column if isinstance(bound, exp.Column) else None
    if column is None:
        raise _no_bound(tree)
    return operation, column


def _is_rank(ranked: Ranked, scope: Scope, column: Tree) -> bool:
    return column.name.lower() == ranked.name.lower() and scope.resolve(column).column == ranked.name


def _no_bound(tree: Tree) -> SqlError:
    legal = "a comparison with a whole number (<, <=, =, >=, >, BETWEEN), or <= a column of the rows"
    return SqlError.refused(f"the condition {spark_sql(tree)} on a rank", "a rank is compared with a bound", f"legal: {legal}")
