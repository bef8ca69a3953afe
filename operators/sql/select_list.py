"""The SELECT list and the conditions of a query over rows, without aggregates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from operators.sql.dialect import Tree, spark
from operators.sql.errors import SqlError
from operators.sql.names import free
from operators.sql.relations import WINDOW_COLUMNS, Item, Ranked, Relation, Windowed, select
from operators.sql.scope import Scope, over_refused

_RANKS = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}


@dataclass(frozen=True)
class Selected:
    """One expression of a SELECT list.

    Args:
        name: the name of its column.
        tree: its tree, without the alias.
    """

    name: str
    tree: Tree


def selected(expressions: Sequence[Tree]) -> list[Selected]:
    """The expressions of a SELECT list with their names; an expression without a name is `EXPR$0`, `EXPR$1` and so on, as in Flink."""
    listed: list[Selected] = []
    for number, tree in enumerate(expressions):
        inner = tree.this if isinstance(tree, exp.Alias) else tree
        is_star = isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star))
        own = inner.name if isinstance(inner, exp.Column) else ""
        listed.append(Selected("*" if is_star else tree.alias or own or f"EXPR${number}", inner))
    return listed


def project(scope: Scope, expressions: Sequence[Tree]) -> Relation:
    """The rows of a query without aggregates: the columns of its SELECT list, and the rows that its conditions accept."""
    listed = selected(expressions)
    ranks = [one for one in listed if isinstance(one.tree, exp.Window)]
    rows = [one for one in listed if one not in ranks]
    if not ranks:
        return _rows(scope, items_of(scope, rows), rows)
    if len(ranks) > 1 or type(ranks[0].tree.this) not in _RANKS:
        raise over_refused(ranks[-1].tree)
    return _ranked(scope, rows, ranks[0])


def items_of(scope: Scope, listed: Sequence[Selected]) -> list[Item]:
    """The columns of a SELECT list, with `*` expanded; names that stand for a row's arrival are no columns."""
    columns: list[Item] = []
    for one in listed:
        if one.name == "*":
            items = scope.visible(one.tree.table if isinstance(one.tree, exp.Column) else "")
        else:
            items = [] if scope.is_arrival(one.tree) and not _is_column(scope, one.tree) else [scope.item(one.tree, one.name)]
        columns += items
    return numbered(columns)


def _is_column(scope: Scope, tree: Tree) -> bool:
    return isinstance(tree, exp.Column) and scope.has(tree)


def numbered(items: Sequence[Item]) -> list[Item]:
    """Items with different names: of several with the same name, all but the first get a number, as in Flink."""
    renamed: list[Item] = []
    for item in items:
        renamed.append(replace(item, name=free(item.name, [i.name for i in renamed])))
    return renamed


def _rows(scope: Scope, items: Sequence[Item], listed: Sequence[Selected]) -> Relation:
    where = scope.condition(scope.conditions)
    if isinstance(scope.relation, Windowed):
        return _in_windows(scope.relation, items, where)
    return select(scope.relation, items, where, _arrivals(scope, listed))


def _arrivals(scope: Scope, listed: Sequence[Selected]) -> list[str]:
    """The names of the SELECT list that stand for a row's arrival."""
    if any(one.name == "*" for one in listed):
        return [*scope.relation.arrivals]
    return [one.name for one in listed if scope.is_arrival(one.tree)]


def _in_windows(rows: Windowed, items: Sequence[Item], where: str | None) -> Relation:
    """A selection of rows in windows, as windows of a selection of rows."""
    renamed = [i.name for i in items if i.column in WINDOW_COLUMNS and i.name != i.column]
    if renamed or any(i.column is None and any(c in i.sql for c in WINDOW_COLUMNS) for i in items):
        raise _windows_changed(renamed[0] if renamed else "")
    if where and any(c in where for c in WINDOW_COLUMNS):
        raise SqlError.refused(f"the condition {where}", "windows are not filtered before their operator", "filter the operator's result")
    own = [i for i in items if i.column not in WINDOW_COLUMNS]
    time = next((i.name for i in own if i.column == rows.time), None)
    if time is None:
        time = free(rows.time, [i.name for i in own])
        own = [*own, Item.of_column(rows.time, time)]
    names = {i.column: i.name for i in own if i.column}
    missing = [c for c in rows.partition if c not in names]
    own += [Item.of_column(c, free(c, [i.name for i in own])) for c in missing]
    names |= {i.column: i.name for i in own if i.column}
    return Windowed(select(rows.of, own, where, rows.arrivals), rows.window, time, tuple(names[c] for c in rows.partition))


def _windows_changed(name: str) -> SqlError:
    why = "the operator that reads the rows names the windows window_start and window_end"
    return SqlError.refused(f"another name of a window's bound {name!r}", why, "rename it in the outermost SELECT")


def _ranked(scope: Scope, rows: Sequence[Selected], rank: Selected) -> Relation:
    """Rows with their number in an order; columns that only the order needs are not visible."""
    items, over = items_of(scope, rows), rank.tree
    if over.args.get("spec") is not None:
        raise over_refused(over)
    visible = tuple(i.name for i in items)
    keys = [_key(scope, items, tree) for tree in over.args.get("partition_by") or ()]
    ordered: list[Tree] = over.args["order"].expressions if over.args.get("order") else []
    if not ordered:
        raise SqlError.refused(spark(over), "ROW_NUMBER has no order", "add ORDER BY to the OVER clause")
    arrivals = [tree for tree in ordered if scope.is_arrival(tree.this)]
    if arrivals and len(ordered) > 1:
        raise SqlError.refused(
            spark(over), "a row's arrival decides alone", "order by it alone, or by columns: ties are in order of arrival"
        )
    order = [_direction(tree, "" if arrivals else _key(scope, items, tree.this)) for tree in ordered]
    order_columns = tuple(f"{ARRIVAL_TIME}{order[0]}" for _ in arrivals) or tuple(order)
    return Ranked(_rows(scope, items, rows), _RANKS[type(over.this)], tuple(keys), order_columns, rank.name, visible)


ARRIVAL_TIME = "PROCTIME()"
"""The order of arrival, in `Ranked.order`."""


def _key(scope: Scope, items: list[Item], tree: Tree) -> str:
    """The name of an expression that rows are divided or ordered by; it is added to the items if it is not among them."""
    item = scope.item(tree, "")
    known = next((i.name for i in items if i.sql == item.sql), None)
    if known is not None:
        return known
    name = free(item.column or f"key_{len(items)}", [i.name for i in items])
    items.append(Item(name, item.sql, item.column))
    return name


def _direction(tree: Tree, column: str) -> str:
    """A column of ORDER BY with its direction; nulls are the smallest values unless the query says otherwise."""
    descending, nulls_first = bool(tree.args.get("desc")), bool(tree.args.get("nulls_first"))
    quoted = column if column.isidentifier() or not column else f"`{column}`"
    nulls = "" if nulls_first != descending else f" NULLS {'FIRST' if nulls_first else 'LAST'}"
    return f"{quoted}{' DESC' if descending else ''}{nulls}"
