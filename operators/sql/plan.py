"""A text of several statements as a list of plans: what each statement computes, without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from operators.columns import quoted_name
from operators.errors import did_you_mean
from operators.select import Select as SelectRows
from operators.sql.dialect import Tree
from operators.sql.errors import SqlError
from operators.sql.names import find_name
from operators.sql.planner import Planner
from operators.sql.ranks import no_last_rank
from operators.sql.relations import Apply, Input, Named, Ranked, Relation, Select, Windowed, upserts, walk
from operators.sql.script import CreateView, Explain, Insert, Query, read_script
from operators.sql.select_list import name_expressions
from operators.sql.selections import rename_columns
from operators.sql.tables import CreateTable


@dataclass(frozen=True)
class Order:
    """How the rows of a query are printed.

    Args:
        by: the columns, each with its direction.
        limit: the number of rows; None for all.
    """

    by: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True)
class Plan:
    """One statement that computes something.

    Args:
        relation: what it computes.
        target: the table into which it inserts; empty for a query.
        is_explained: whether the statement is EXPLAIN.
        order: how a query's rows are printed.
    """

    relation: Relation
    target: str = ""
    is_explained: bool = False
    order: Order = Order()


@dataclass(frozen=True)
class Script:
    """The statements of a text.

    Args:
        declared: the tables of CREATE TABLE, by name.
        views: the views, by name.
        plans: the queries and INSERT and EXPLAIN statements, in the order of the text.
    """

    declared: Mapping[str, CreateTable]
    views: Mapping[str, Relation]
    plans: tuple[Plan, ...]

    @property
    def inserts(self) -> tuple[Plan, ...]:
        """The INSERT INTO statements, without those that are explained."""
        return tuple(plan for plan in self.plans if plan.target and not plan.is_explained)

    @property
    def targets(self) -> tuple[str, ...]:
        """The tables that are inserted into."""
        return tuple(plan.target for plan in self.inserts)


def plan(text: str, tables: Mapping[str, Relation] | None = None) -> Script:
    """The plans of a text of SQL statements.

    Args:
        text: statements of Flink SQL, separated by semicolons.
        tables: the relations of tables that the text does not declare.

    Raises:
        SqlError: a statement cannot be parsed, or a part of it has no operator; the message says why and what to write instead.
        OperatorError: an operator refuses a parameter.

    >>> script = plan('''
    ...     CREATE TABLE bids (item STRING, price DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
    ...     SELECT item, window_start, window_end, SUM(price) AS total
    ...     FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES) GROUP BY item, window_start, window_end;
    ... ''')
    >>> script.plans[0].relation.child.operator
    WindowedAggregate(by=('item',), window=Tumbling(size='10 minutes', offset=0), aggregates={'total': 'SUM(price)'}, time='ts', \
allowed_lateness=0, evictor=None, early=None, grouping_sets=None, purging=None)
    """
    script = _Script(dict(tables or {}))
    for statement in read_script(text):
        script.add(statement)
    return Script(script.declared, script.views, tuple(script.plans))


class _Script:
    """Collects the statements."""

    def __init__(self, tables: dict[str, Relation]) -> None:
        self.declared, self.views, self.plans = dict[str, CreateTable](), dict[str, Relation](), list[Plan]()
        self._tables = tables

    def add(self, statement: CreateTable | CreateView | Insert | Explain | Query) -> None:
        """Add a statement; those after it can read its table or view."""
        match statement:
            case CreateTable():
                self._declare(statement)
            case CreateView():
                relation = self._query(statement.query)
                self._register(statement.name, rename_columns(relation, statement.columns, f"CREATE VIEW {statement.name}"))
                self.views[statement.name] = self._tables[statement.name]
            case Insert():
                if statement.target in self.targets:
                    second = f"a second INSERT INTO {statement.target}"
                    raise SqlError.refused(second, "a table is computed by one operator", "insert into another table")
                relation = self._insert(statement.target, statement.query)
                self.plans.append(Plan(relation, statement.target))
                has_options = statement.target in self.declared and bool(self.declared[statement.target].options)
                self._tables[statement.target] = Named(statement.target, relation, has_options)
            case Explain():
                target = statement.target or ""
                planned = Plan(self._insert(target, statement.query), target) if target else self._plan_query(statement.query)
                self.plans.append(replace(planned, is_explained=True))
            case Query():
                self.plans.append(self._plan_query(statement.query))

    def _declare(self, table: CreateTable) -> None:
        if find_name(table.name, self.declared) or find_name(table.name, self.views):
            raise SqlError.refused(f"a second table {table.name!r}", "each table has a name of its own", "rename one of the two")
        known_relation = self._tables.get(table.name)
        self.declared[table.name] = table
        self._tables[table.name] = table.relation() if known_relation is None else table.relation_over(known_relation)

    def _register(self, name: str, relation: Relation) -> None:
        if find_name(name, self._tables):
            raise SqlError.refused(f"a second table {name!r}", "each table and view has a name of its own", "rename one of the two")
        if isinstance(relation, Select) and isinstance(relation.child, Apply) and not (relation.where and upserts(relation)):
            relation = replace(relation, child=Named(name, relation.child))  # readers of the view select from the operator's own result
        is_made = isinstance(relation, Apply) or (isinstance(relation, Select) and isinstance(relation.child, Apply))
        self._tables[name] = Named(name, relation) if is_made else relation

    def _query(self, tree: Tree) -> Relation:
        return Planner(self._tables).query(tree)

    def _insert(self, target: str, tree: Tree) -> Relation:
        """The relation of an INSERT. A declared target must have the columns of the query."""
        if find_name(target, self.views):
            reason = "it is a view, whose rows are those of its query"
            raise SqlError.refused(f"INSERT INTO {target}", reason, "insert into a table with another name")
        relation = self._table(target, self._named_as_target(target, tree))
        if target in self.declared:
            _check_columns(target, relation.columns, self._declared_names(target))
        return relation

    def _table(self, target: str, tree: Tree) -> Relation:
        """The relation of the table of an INSERT INTO. A query that only selects rows of a source is a result of `Select`."""
        relation, names = _check_complete(self._query(tree)), self._declared_names(target)
        if not isinstance(relation.child if isinstance(relation, Select) else relation, Input):
            return relation
        if relation.arrivals:
            way_out = "select the other columns; from a source without WATERMARK, result_time of the table is the time of the ingest"
            raise SqlError.refused(f"{relation.arrivals[0]} in INSERT INTO {target}", "PROCTIME() is no column", way_out)
        if len(names) == len(relation.columns) and not _are_reordered(relation.columns, names):
            relation = rename_columns(relation, names, f"INSERT INTO {target}")
        return Apply(SelectRows(), (relation,), relation.columns, relation.times)

    def _named_as_target(self, target: str, tree: Tree) -> Tree:
        """The query of an INSERT, whose columns get the names of those of a declared target, by position."""
        names = self._declared_names(target)
        if not isinstance(tree, exp.Select) or len(tree.expressions) != len(names) or any(e.is_star for e in tree.expressions):
            return tree
        if _are_reordered([selected.name for selected in name_expressions(tree.expressions)], names):
            return tree
        named = tree.copy()
        aliased = [
            e if isinstance(e, exp.Column | exp.Alias) and e.alias_or_name == name else exp.alias_(e.unalias(), name, quoted=True)
            for e, name in zip(named.expressions, names, strict=True)
        ]
        named.set("expressions", aliased)
        return named

    def _declared_names(self, target: str) -> list[str]:
        """The names of a declared table's columns; none of another table."""
        return [column.name for column in self.declared[target].stored] if target in self.declared else []

    @property
    def targets(self) -> list[str]:
        """The tables that are inserted into so far."""
        return [p.target for p in self.plans if not p.is_explained]

    def _plan_query(self, tree: Tree) -> Plan:
        """A query, whose outermost ORDER BY and LIMIT say how its rows are printed."""
        order, limit = tree.args.get("order"), tree.args.get("limit")
        if tree.args.get("offset"):
            raise SqlError.refused("OFFSET", "a query gives the first rows of its order", "write a larger LIMIT, and skip the first rows")
        if order or limit:
            tree = tree.copy()
            tree.set("order", None)
            tree.set("limit", None)
        planner = Planner(self._tables)
        relation = _check_complete(planner.query(tree))
        by = tuple(_direction(column, planner, tree, relation) for column in order.expressions) if order else ()
        return Plan(relation, order=Order(by, _row_count(limit) if limit else None))


def _check_columns(target: str, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise `SqlError` unless the columns of a query are those of the table that it is inserted into."""
    if _are_reordered(columns, names):
        reason = f"columns are inserted by position, and the query selects {', '.join(columns)}"
        raise SqlError.refused(f"INSERT INTO {target}", reason, f"select them in the order of the table: {', '.join(names)}")
    if [*names] != [*columns]:
        listed = f"the table's columns are {', '.join(names)}, and the query's are {', '.join(columns)}"
        is_same = [name.lower() for name in names] == [column.lower() for column in columns]
        way_out = "declare the names in the same case" if is_same else "select one column for each of the table, in their order"
        raise SqlError.refused(f"INSERT INTO {target}", listed, way_out)


def _are_reordered(columns: Sequence[str], names: Sequence[str]) -> bool:
    """Whether columns have the same names in another order. Their case has no effect."""
    own, others = [c.lower() for c in columns], [n.lower() for n in names]
    return own != others and sorted(own) == sorted(others)


def _row_count(limit: Tree) -> int:
    """The number of rows of LIMIT or FETCH FIRST."""
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        raise SqlError.refused("FETCH with PERCENT or WITH TIES", "it is no number of rows", "write FETCH FIRST 5 ROWS ONLY, or LIMIT 5")
    number = (limit.args.get("count") or exp.Literal.number(1)) if isinstance(limit, exp.Fetch) else limit.expression
    if not (isinstance(number, exp.Literal) and number.name.isdecimal()):
        raise SqlError.refused(f"LIMIT {number.sql()}", "it is no number of rows", "write a whole number")
    return int(number.name)


def _direction(tree: Tree, planner: Planner, query: Tree, relation: Relation) -> str:
    column = tree.this
    name = None
    if isinstance(column, exp.Column):
        name = planner.selected_name(query, column) if column.table else find_name(column.name, relation.columns)
    if name is None:
        reason = f"rows are printed in the order of their columns, which are {', '.join(relation.columns)}"
        way_out = f"select it with a name, and order by that{did_you_mean(column.name, relation.columns)}"
        raise SqlError.refused(f"ORDER BY {column.sql()}", reason, way_out)
    nulls = "FIRST" if tree.args.get("nulls_first") else "LAST"
    return f"{quoted_name(name)} {'DESC' if tree.args.get('desc') else 'ASC'} NULLS {nulls}"


def _check_complete(relation: Relation) -> Relation:
    """The relation; refused if it returns rows in windows or ranks without a limit, which only an operator can read."""
    for below in walk(relation):
        if isinstance(below, Ranked):
            raise no_last_rank(below)
        if isinstance(below, Windowed):
            reason = "rows in windows are read by an operator"
            raise SqlError.refused("a query that ends with windows", reason, "aggregate, join, rank or deduplicate them")
    return relation
