"""The SELECT list and the conditions of a query over rows, without aggregates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from operators.columns import quoted_name
from operators.engine_columns import EVENT_TIME
from operators.sql.dialect import Tree, spark_sql
from operators.sql.errors import SqlError
from operators.sql.names import free_name
from operators.sql.relations import WINDOW_COLUMNS, Item, Ranked, Relation, Windowed
from operators.sql.scope import Scope, over_error
from operators.sql.selections import select
from operators.sql.windowing import check_condition, reads_window

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


def name_expressions(expressions: Sequence[Tree]) -> list[Selected]:
    """The expressions of a SELECT list with their names; an expression without a name is `EXPR$0`, `EXPR$1` and so on, as in Flink."""
    listed: list[Selected] = []
    for number, tree in enumerate(expressions):
        inner = tree.this if isinstance(tree, exp.Alias) else tree
        is_star = isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star))
        column_name = inner.name if isinstance(inner, exp.Column) else ""
        listed.append(Selected("*" if is_star else tree.alias or column_name or f"EXPR${number}", inner))
    return listed


def project(scope: Scope, expressions: Sequence[Tree]) -> Relation:
    """The rows of a query without aggregates: the columns of its SELECT list, and the rows that its conditions accept."""
    listed = name_expressions(expressions)
    ranks = [position for position, expression in enumerate(listed) if isinstance(expression.tree, exp.Window)]
    if not ranks:
        return _rows(scope, items_of(scope, listed), listed)
    if len(ranks) > 1 or type(listed[ranks[0]].tree.this) not in _RANKS:
        raise over_error(listed[ranks[-1]].tree)
    return _rank_rows(scope, listed, ranks[0])


def items_of(scope: Scope, listed: Sequence[Selected]) -> list[Item]:
    """The columns of a SELECT list, with `*` expanded; names that stand for a row's arrival are no columns."""
    return with_distinct_names(_expanded(scope, listed))


def _expanded(scope: Scope, listed: Sequence[Selected]) -> list[Item]:
    columns: list[Item] = []
    for expression in listed:
        if expression.name == "*":
            items = scope.visible(expression.tree.table if isinstance(expression.tree, exp.Column) else "")
        else:
            items = [] if scope.is_arrival(expression.tree) else [scope.item(expression.tree, expression.name)]
        columns += items
    return columns


def with_distinct_names(items: Sequence[Item]) -> list[Item]:
    """Items with different names: of several with the same name, all but the first get a number, as in Flink."""
    renamed: list[Item] = []
    for item in items:
        renamed.append(replace(item, name=free_name(item.name, [i.name for i in renamed])))
    return renamed


def _rows(scope: Scope, items: Sequence[Item], listed: Sequence[Selected]) -> Relation:
    where = scope.condition(scope.conditions)
    if isinstance(scope.relation, Windowed):
        return _select_in_windows(scope.relation, items, where)
    return select(scope.relation, items, where, _arrivals(scope, listed))


def _arrivals(scope: Scope, listed: Sequence[Selected]) -> list[str]:
    """The names of the SELECT list that stand for a row's arrival."""
    own_names = [expression.name for expression in listed if scope.is_arrival(expression.tree)]
    has_star = any(expression.name == "*" for expression in listed)
    return [*dict.fromkeys([*scope.relation.arrivals, *own_names])] if has_star else own_names


def _select_in_windows(rows: Windowed, items: Sequence[Item], where: str | None) -> Relation:
    """A selection of rows in windows, as windows of a selection of rows."""
    for item in items:
        if item.name != item.column and reads_window(item.sql):
            reason = "the operator that reads the rows names the windows window_start and window_end"
            raise SqlError.refused(f"{item.sql} AS {item.name} of rows in windows", reason, "select it in the outermost SELECT")
    check_condition(rows, where, "filter the operator's result")
    own_items = [i for i in items if i.column not in WINDOW_COLUMNS]
    is_engine_time = rows.time == EVENT_TIME and rows.time not in rows.child.columns  # the time of the ingest
    time = EVENT_TIME if is_engine_time else next((i.name for i in own_items if i.column == rows.time), None)
    if time is None:
        time = free_name(rows.time, [i.name for i in own_items])
        own_items = [*own_items, Item.of_column(rows.time, time)]
    names = {i.column: i.name for i in own_items if i.column}
    missing = [c for c in rows.partition if c not in names]
    own_items += [Item.of_column(c, free_name(c, [i.name for i in own_items])) for c in missing]
    names |= {i.column: i.name for i in own_items if i.column}
    return Windowed(select(rows.child, own_items, where, rows.arrivals), rows.window, time, tuple(names[c] for c in rows.partition))


def _rank_rows(scope: Scope, listed: Sequence[Selected], position: int) -> Relation:
    """Rows with their number in an order; columns that only the order needs are not visible.

    Args:
        scope: the rows.
        listed: the SELECT list.
        position: that of the rank in the list.
    """
    before, rank, after = _expanded(scope, listed[:position]), listed[position], _expanded(scope, listed[position + 1 :])
    over_clause = rank.tree
    if over_clause.args.get("spec") is not None:
        raise over_error(over_clause)
    name = rank.name.lower()
    if isinstance(scope.relation, Windowed) and name in WINDOW_COLUMNS and any(i.name == name for i in (*before, *after)):
        raise SqlError.refused(f"a rank AS {rank.name}", "rows in windows have a column of this name", "give the rank another name")
    items = with_distinct_names([*before, Item(rank.name, ""), *after])
    columns = tuple(i.name for i in items)
    rank_name = items.pop(len(before)).name
    keys = [_key(scope, items, tree) for tree in over_clause.args.get("partition_by") or ()]
    ordered: list[Tree] = over_clause.args["order"].expressions if over_clause.args.get("order") else []
    if not ordered:
        raise SqlError.refused(spark_sql(over_clause), "its rows have no order", "add ORDER BY to the OVER clause")
    arrivals = [tree for tree in ordered if scope.is_arrival(tree.this)]
    if arrivals and len(ordered) > 1:
        raise SqlError.refused(
            spark_sql(over_clause),
            "no two rows have the same arrival, so other columns have no effect",
            "order by it alone, or by columns: ties are in order of arrival",
        )
    order = [_direction(tree, "" if arrivals else _key(scope, items, tree.this)) for tree in ordered]
    order_columns = tuple(f"{ARRIVAL_TIME}{order[0]}" for _ in arrivals) or tuple(order)
    return Ranked(_rows(scope, items, listed), _RANKS[type(over_clause.this)], tuple(keys), order_columns, rank_name, columns)


ARRIVAL_TIME = "PROCTIME()"
"""The order of arrival, in `Ranked.order`."""


def _key(scope: Scope, items: list[Item], tree: Tree) -> str:
    """The column of an expression in PARTITION BY or ORDER BY. The expression is added to the items if it is not among them."""
    item = scope.item(tree, "")
    existing_name = next((i.name for i in items if i.sql == item.sql), None)
    if existing_name is not None:
        return existing_name
    name = free_name(item.column or f"key_{len(items)}", [i.name for i in items])
    items.append(Item(name, item.sql, item.column))
    return name


def _direction(tree: Tree, column: str) -> str:
    """A column of ORDER BY with its direction; nulls are the smallest values unless the query says otherwise."""
    descending, nulls_first = bool(tree.args.get("desc")), bool(tree.args.get("nulls_first"))
    quoted = column if column.isidentifier() or not column else quoted_name(column)
    nulls = "" if nulls_first != descending else f" NULLS {'FIRST' if nulls_first else 'LAST'}"
    return f"{quoted}{' DESC' if descending else ''}{nulls}"
