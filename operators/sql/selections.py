"""Selections from relations: some rows and columns of one, or the columns of windows' results with their time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from operators.columns import RESULT_TIME
from operators.sql.dialect import parse_spark
from operators.sql.errors import SqlError
from operators.sql.names import combined, free_name
from operators.sql.relations import Item, Named, Ranked, Relation, Select, Windowed


def with_result_time(relation: Relation) -> tuple[Relation, str]:
    """The results of windows with `result_time` added if it is not selected, and the name of that column."""
    if isinstance(relation, Named):
        child, name = with_result_time(relation.child)
        return replace(relation, child=child), name
    if not isinstance(relation, Select):
        return relation, RESULT_TIME
    child, time = with_result_time(relation.child)
    existing_name = next((item.name for item in relation.items if item.column == time), None)
    if existing_name is not None:
        return replace(relation, child=child), existing_name
    name = free_name(time, relation.columns)
    return replace(relation, child=child, items=(*relation.items, Item.of_column(time, name))), name


def rename_columns(relation: Relation, names: Sequence[str], clause: str) -> Relation:
    """A relation with the names of a column list.

    Args:
        relation: the relation.
        names: a name for each column, in order; empty to keep the names.
        clause: the clause that has the list, for errors.

    Raises:
        SqlError: there are more or fewer names than columns, a name is there twice, or only an operator can read the relation.
    """
    if not names:
        return relation
    if isinstance(relation, Ranked | Windowed):
        reason = "it names rows in windows, or with a rank, which an operator reads"
        raise SqlError.refused(f"the column list of {clause}", reason, "name the columns with AS in the SELECT list")
    if len(names) != len(relation.columns):
        listed = f"it names {len(names)} columns, and the query has {len(relation.columns)}"
        raise SqlError.refused(clause, listed, "write one name for each column")
    repeated = [name for n, name in enumerate(names) if name.lower() in {earlier.lower() for earlier in names[:n]}]
    if repeated:
        raise SqlError.refused(clause, f"it names two columns {repeated[0]!r}", "write names that differ in more than case")
    items = [Item.of_column(column, name) for column, name in zip(relation.columns, names, strict=True)]
    return select(relation, items, None, relation.arrivals)


def select(base: Relation, items: Sequence[Item], where: str | None = None, arrivals: Sequence[str] = ()) -> Relation:
    """Some rows and columns of a relation. A selection below is merged into the new one. Returns the relation if nothing changes."""
    if where is None and [(i.name, i.column) for i in items] == [(c, c) for c in base.columns] and {*arrivals} == {*base.arrivals}:
        return base
    if not isinstance(base, Select):
        return Select(base, tuple(items), where, tuple(arrivals))
    below = {item.name: item for item in base.items}
    items = [replace(below[i.column], name=i.name) if i.column else Item(i.name, _inline_columns(i.sql, below)) for i in items]
    conditions = [sql for sql in (base.where, where and _inline_columns(where, below)) if sql]
    return Select(base.child, tuple(items), combined(conditions), tuple(arrivals))


def _inline_columns(sql: str, below: dict[str, Item]) -> str:
    """An expression over the columns of a selection, rewritten over the columns of the relation below it."""
    tree = parse_spark(sql)

    def replace_column(node: Any) -> Any:
        if not isinstance(node, exp.Column) or node.name not in below:
            return node
        inner = parse_spark(below[node.name].sql)
        is_call = isinstance(inner, exp.Func) and not isinstance(inner, exp.Binary)  # AND, OR and RLIKE are functions of sqlglot too
        return inner if is_call or isinstance(inner, exp.Column | exp.Literal) else exp.Paren(this=inner)

    return tree.transform(replace_column, copy=False).sql(dialect="spark", copy=False)
