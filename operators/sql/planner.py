"""Queries as relations: the FROM clause with its joins, then the ranks, then the aggregates or the SELECT list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from operators.sql.aggregate_calls import is_aggregate
from operators.sql.aggregates import aggregate
from operators.sql.as_of_joins import as_of_join
from operators.sql.clauses import check_inner, from_error
from operators.sql.dialect import Tree
from operators.sql.errors import SqlError
from operators.sql.join_conditions import sort_conditions
from operators.sql.joins import How, ReadColumns, join
from operators.sql.names import conjuncts, find_name
from operators.sql.ranking import rank
from operators.sql.relations import Ranked, Relation, Windowed
from operators.sql.scope import Scope, table_names
from operators.sql.select_list import items_of, name_expressions, project
from operators.sql.selections import rename_columns
from operators.sql.windowing import WindowFunction

_SET_OPERATIONS: Mapping[type, tuple[str, str]] = {
    exp.Union: (
        "there is no operator for the union of tables",
        "write a statement for each part; rows that arrive in one source are rows of one stream",
    ),
    exp.Intersect: ("there is no operator for it", "write EXISTS, with bounds of the times"),
    exp.Except: ("there is no operator for it", "write NOT EXISTS, with bounds of the times"),
}
"""Why each operation on two queries is refused, and what to write instead."""


@dataclass(frozen=True)
class Planner:
    """Plans queries over known tables.

    Args:
        tables: the relation of each table and view.
    """

    tables: Mapping[str, Relation] = field(default_factory=dict[str, Relation])

    def query(self, tree: Tree) -> Relation:
        """The relation of a query.

        Raises:
            SqlError: a part of the query has no operator.
            OperatorError: an operator refuses a parameter.
        """
        if isinstance(tree, exp.Subquery):
            check_inner(tree)
            if tree.args.get("joins") or isinstance(tree.this, exp.Table):
                kind = "join" if tree.args.get("joins") or tree.this.args.get("joins") else "table"
                raise SqlError.refused(
                    f"a {kind} in brackets", "it is no query", "write SELECT ... FROM ... in the brackets, or leave them out"
                )
            return self.query(tree.this)
        if isinstance(tree, exp.SetOperation):
            raise SqlError.refused(type(tree).__name__.upper(), *_SET_OPERATIONS[type(tree)])
        if not isinstance(tree, exp.Select):
            raise SqlError.refused(type(tree).__name__.upper(), "it is no query", "write SELECT ... FROM ...")
        return self._with_ctes(tree)._select(tree)

    def _with_ctes(self, tree: Tree) -> "Planner":
        planner = self
        for cte in tree.ctes:
            relation = rename_columns(planner.query(cte.this), cte.alias_column_names, f"WITH {cte.alias}")
            planner = Planner({**planner.tables, cte.alias: relation})
        return planner

    def selected_name(self, tree: Tree, column: Tree) -> str | None:
        """The name that the SELECT list of a query gives to a column of one of its tables; None if it does not select the column."""
        if not isinstance(tree, exp.Select):
            return None
        scope = self._with_ctes(tree)._rows(tree)
        try:
            sql = scope.resolve(column).sql
        except SqlError:  # the columns of a join are those that the query reads
            return None
        listed = name_expressions(tree.expressions)
        columns = [e if isinstance(e.tree, exp.Column | exp.Star) else replace(e, tree=exp.Null()) for e in listed]
        return next((item.name for item in items_of(scope, columns) if item.sql == sql), None)

    def _select(self, tree: Tree) -> Relation:
        scope = self._rows(tree)
        if tree.args.get("distinct"):
            tree = _group_distinct(tree, scope)
        return aggregate(scope, tree) if is_aggregate(tree) else project(scope, tree.expressions)

    def _rows(self, tree: Tree) -> Scope:
        """The rows from which a query selects or aggregates."""
        check_inner(tree)
        scope = self._scope_of_from(tree)
        if isinstance(scope.relation, Ranked):
            scope = rank(scope, scope.relation, _shows_rank(tree, scope.relation.name))
        return scope

    def _scope_of_from(self, tree: Tree) -> Scope:
        """The rows of FROM and its joins, with the conditions of WHERE that no join uses."""
        from_ = tree.args.get("from_")
        if from_ is None:
            way_out = f"add FROM one of {table_names(self.tables)}" if self.tables else "declare a table, and add FROM"
            raise SqlError.refused("a query without FROM", "an operator has an input", way_out)
        read, where = _read_columns(tree), conjuncts(tree.args["where"].this if tree.args.get("where") else None)
        scope = self._table(from_.this)
        joins: list[tuple[How, Tree, Scope]] = [
            (_how(clause), clause, self._joined_table(clause)) for clause in tree.args.get("joins") or ()
        ]
        for number, (how, clause, right) in enumerate(joins, 1):
            is_used = _is_used(clause, how, scope, right, [(later[0], later[2]) for later in joins[number:]])
            used = [c for c in where if is_used(c)]
            scope, where = self._join(scope, right, how, clause, used, read), [c for c in where if c not in used]
        for clause in [c for c in where if _is_semi(c)]:
            scope, where = self._semi(scope, clause, read), [c for c in where if c is not clause]
        return replace(scope, conditions=tuple(where))

    def _table(self, tree: Tree) -> Scope:
        """A table, a view, a subquery or a windowing function of FROM."""
        if tree.args.get("joins"):  # the parser's tree of a JOIN b JOIN c ON ... ON ...
            way_out = "write each ON after its own JOIN, or the inner join as a subquery: (SELECT ... FROM ...) AS b"
            raise SqlError.refused("a join inside of another join", "joins are planned from left to right", way_out)
        if isinstance(tree, exp.Subquery):
            return _named(self.query(tree.this if isinstance(tree.this, exp.Query) else tree), tree)
        if not isinstance(tree, exp.Table):
            raise from_error(tree)
        if tree.args.get("version") is not None:
            way_out = "write a JOIN b FOR SYSTEM_TIME AS OF a.ts"
            raise SqlError.refused("FOR SYSTEM_TIME AS OF", "it is for the right side of a join", way_out)
        function = WindowFunction.read(tree)
        if function is not None:
            return _named(function.windowed(lambda data: self._table(data).relation), tree)
        name = find_name(tree.name, self.tables)
        if name is None:
            raise SqlError.unknown("table", tree.name, table_names(self.tables))
        return _named(self.tables[name], tree)

    def _joined_table(self, clause: Tree) -> Scope:
        """The right side of a join, without FOR SYSTEM_TIME AS OF."""
        table = clause.this
        if _version(clause) is not None:
            table = table.copy()
            table.set("version", None)
        return self._table(table)

    def _join(self, left: Scope, right: Scope, how: How, clause: Tree, where: Sequence[Tree], read: ReadColumns) -> Scope:
        """The rows of a join, with the conditions of WHERE that it uses."""
        if {*left.tables} & {*right.tables}:
            names = ", ".join(sorted(name or "a subquery" for name in {*left.tables} & {*right.tables}))
            raise SqlError.refused(f"a second table under the name {names}", "its columns would be ambiguous", "write an alias: AS b")
        on = [*conjuncts(clause.args.get("on")), *(_equality_of_using(left, right, c.name) for c in clause.args.get("using") or ())]
        version = _version(clause)
        if version is not None:
            return as_of_join(sort_conditions(left, right, on), how, version.expression, read)
        return join(sort_conditions(left, right, [*on, *where]), how, read)

    def _semi(self, left: Scope, tree: Tree, read: ReadColumns) -> Scope:
        """The left rows with a match (EXISTS, IN), or without one (NOT EXISTS, NOT IN)."""
        outer = tree.unnest()
        is_anti, condition = (True, outer.this.unnest()) if isinstance(outer, exp.Not) else (False, outer)
        inner = condition.this if isinstance(condition, exp.Exists) else condition.args["query"].this
        while isinstance(inner, exp.Subquery):
            check_inner(inner)
            inner = inner.this
        if not isinstance(inner, exp.Select) or not inner.args.get("from_") or inner.args.get("joins") or is_aggregate(inner):
            reason = "a semi join has one table on its right, and no aggregates of its rows"
            raise SqlError.refused("this subquery of WHERE", reason, "write FROM one table or subquery")
        check_inner(inner)
        right = self._with_ctes(inner)._table(inner.args["from_"].this)
        conditions = conjuncts(inner.args["where"].this if inner.args.get("where") else None)
        for inner_condition in conditions:
            _add_tables(inner_condition, right, left)
        if isinstance(condition, exp.In):
            _add_tables(condition.this, left, right)
            conditions = [*conditions, exp.EQ(this=condition.this.copy(), expression=_first_column(inner, right, left))]
        return join(sort_conditions(left, right, conditions), "anti" if is_anti else "semi", read)


def _add_tables(tree: Tree, own: Scope, other: Scope) -> None:
    """Add the table's name to each column that a query's own table and one of the other query have: the own table has precedence."""
    for column in tree.find_all(exp.Column):
        tables = [alias for alias, columns in own.tables.items() if find_name(column.name, columns) is not None]
        if not column.table and other.has(column) and len(tables) == 1 and tables[0]:
            column.set("table", exp.to_identifier(tables[0]))


def _named(relation: Relation, tree: Tree) -> Scope:
    """A relation under the names that FROM gives to the table and to its columns."""
    name = tree.alias_or_name
    return Scope.of(rename_columns(relation, tree.alias_column_names, f"AS {name}"), name)


def _how(tree: Tree) -> How:
    if tree.args.get("method"):
        raise SqlError.refused(f"{tree.args['method']} JOIN", "a join names its key", "write ON a.key = b.key AND ...")
    kind, side = (tree.args.get("kind") or "").upper(), (tree.args.get("side") or "").upper()
    how_by_side: dict[str, How] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}
    is_semi = kind in ("SEMI", "ANTI")
    if side in ("RIGHT", "FULL") if is_semi else kind == "OUTER" and not side:
        legal = "write LEFT, RIGHT, FULL, LEFT SEMI or LEFT ANTI JOIN"
        raise SqlError.refused(f"{side} {kind} JOIN".strip(), "Flink has no such join", legal)
    if is_semi:
        return "semi" if kind == "SEMI" else "anti"
    return how_by_side.get(side, "inner")


def _equality_of_using(left: Scope, right: Scope, column: str) -> Tree:
    tables = [next((alias for alias, columns in side.tables.items() if find_name(column, columns)), "") for side in (left, right)]
    left_column, right_column = (exp.column(column, table=table or None) for table in tables)
    return exp.EQ(this=left_column, expression=right_column)


def _version(clause: Tree) -> Tree | None:
    """FOR SYSTEM_TIME AS OF of a join."""
    return clause.this.args.get("version") if isinstance(clause.this, exp.Table) else None


def _is_used(clause: Tree, how: How, left: Scope, right: Scope, later: Sequence[tuple[How, Scope]]) -> Callable[[Tree], bool]:
    """Whether a join uses a condition of WHERE: an inner join treats conditions on its own columns as conditions of ON.

    No condition is used before a join that adds rows without a match, which WHERE removes. A name that a later table has too is ambiguous.
    """
    adds_rows = any(how_later in ("right", "full") for how_later, _ in later)
    visible_later = [table for how_later, table in later if how_later not in ("semi", "anti")]

    def is_own(column: Tree) -> bool:
        is_ambiguous = not column.table and any(table.has(column) for table in visible_later)
        return (left.has(column) or right.has(column)) and not is_ambiguous

    def is_used(tree: Tree) -> bool:
        if how != "inner" or adds_rows or _version(clause) is not None or _is_semi(tree):
            return False
        return all(is_own(column) for column in tree.find_all(exp.Column))

    return is_used


def _is_semi(tree: Tree) -> bool:
    outer = tree.unnest()
    condition = outer.this.unnest() if isinstance(outer, exp.Not) else outer
    return isinstance(condition, exp.Exists) or (isinstance(condition, exp.In) and condition.args.get("query") is not None)


def _first_column(inner: Tree, right: Scope, left: Scope) -> Tree:
    """The expression that a subquery of IN selects, with the tables of its columns."""
    if len(inner.expressions) != 1:
        raise SqlError.refused("IN with several columns", "one column is compared", "write EXISTS with an equality for each column")
    column = inner.expressions[0].unalias().copy()
    if isinstance(column, exp.Column) and not column.table:
        column.set("table", exp.to_identifier(next(iter(right.tables))))
    _add_tables(column, right, left)
    return column


def _own_columns(tree: Tree) -> list[Tree]:
    """The columns that a query's own clauses read, with those of its subqueries in WHERE, but not those of FROM."""
    parts = [*tree.expressions, *(tree.args.get(name) for name in ("where", "group", "having", "order"))]
    joins = tree.args.get("joins") or ()
    parts += [part for join in joins for part in (join.args.get("on"), join.this.args.get("version"))]
    return [column for part in parts if part is not None for column in part.find_all(exp.Column)]


def _read_columns(tree: Tree) -> ReadColumns:
    columns = _own_columns(tree)
    has_star = any(isinstance(e, exp.Star) or (isinstance(e, exp.Column) and isinstance(e.this, exp.Star)) for e in tree.expressions)
    aliased_columns = [(e.unalias(), e.alias_or_name) for e in tree.expressions if isinstance(e.unalias(), exp.Column)]
    names = [(column, name) for column, name in aliased_columns if not isinstance(column.this, exp.Star)]
    return ReadColumns(None if has_star else tuple(columns), () if is_aggregate(tree) else tuple(names))


def _shows_rank(tree: Tree, name: str) -> bool:
    """Whether a query selects a rank."""
    return any(
        isinstance(e.unalias(), exp.Star)
        or any(c.name.lower() == name.lower() or isinstance(c.this, exp.Star) for c in e.find_all(exp.Column))
        for e in tree.expressions
    )


def _group_distinct(tree: Tree, scope: Scope) -> Tree:
    """SELECT DISTINCT of windows as GROUP BY of its columns."""
    if not isinstance(scope.relation, Windowed) or is_aggregate(tree):
        reason = "every value that was ever seen would be kept"
        way_out = (
            "take the distinct values of each window, keep the first row of each key (ROW_NUMBER() ... = 1), or GROUP BY with COUNT(*)"
        )
        raise SqlError.refused("SELECT DISTINCT without a window", reason, way_out)
    copied = tree.copy()
    copied.set("distinct", None)
    copied.set("group", exp.Group(expressions=[e.unalias().copy() for e in copied.expressions]))
    return copied
