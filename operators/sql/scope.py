"""The names that a query's expressions can use, and the expressions in Spark SQL over a relation's columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from operators.errors import did_you_mean
from operators.interval_join import IntervalJoin
from operators.nondeterministic import CHANCE, CLOCK, FILES, SESSION
from operators.sql.dialect import Tree, parse_spark, spark_sql
from operators.sql.errors import SqlError
from operators.sql.functions import greatest_of
from operators.sql.names import combined, find_name
from operators.sql.relations import Apply, Item, Relation

Names = Mapping[str, Mapping[str, Item]]
_CHANCE = CHANCE | {"rand_integer"}
_OF_FLINK = {"proctime", "current_watermark", "current_row_timestamp"}
_NONDETERMINISTIC = _CHANCE | CLOCK | FILES | SESSION | _OF_FLINK


@dataclass(frozen=True)
class Scope:
    """The rows of a FROM clause.

    Args:
        relation: the rows.
        tables: for each name of a table, its visible columns, each with its value over the relation.
        conditions: the conditions of WHERE that the FROM clause has not used.
        coalesced: the keys of a join that the query reads as COALESCE of both sides: the value of the key, by the texts of the two columns.
    """

    relation: Relation
    tables: Names
    conditions: tuple[Tree, ...] = ()
    coalesced: Mapping[frozenset[str], Item] = field(default_factory=dict[frozenset[str], Item])

    @classmethod
    def of(cls, relation: Relation, alias: str) -> "Scope":
        """The rows of one table."""
        return cls(relation, {alias: {c: Item.of_column(c) for c in relation.columns}})

    def visible(self, table: str = "") -> list[Item]:
        """The columns of `*`, or of `table.*`."""
        if not table:
            return [Item(name, i.sql, i.column) for columns in self.tables.values() for name, i in columns.items()]
        alias = find_name(table, self.tables)
        if alias is None:
            raise SqlError.unknown("table", table, ", ".join(self.tables))
        return [Item(name, i.sql, i.column) for name, i in self.tables[alias].items()]

    def resolve(self, column: Tree) -> Item:
        """The value of a column.

        Raises:
            SqlError: there is no such table or column, or there are several columns of the name.
        """
        tables = self.tables
        if column.table:
            alias = find_name(column.table, tables)
            if alias is None:
                raise SqlError.unknown("table", column.table, ", ".join(tables))
            tables = {alias: tables[alias]}
        matches = {columns[name] for columns in tables.values() if (name := find_name(column.name, columns)) is not None}
        if len(matches) > 1:
            raise SqlError.refused(column.name, "it is a column of several tables", f"write the table too, as in t.{column.name}")
        if not matches:
            column_names = [*dict.fromkeys(name for columns in tables.values() for name in columns)]
            if isinstance(column.parent, exp.Paren) and isinstance(column.parent.parent, exp.Dot):
                raise SqlError.unknown("table or column", column.sql(), ", ".join([*tables, *column_names]))
            raise SqlError.unknown("column", column.sql(), f"{', '.join(column_names)}{did_you_mean(column.name, column_names)}")
        return matches.pop()

    def is_arrival(self, tree: Tree) -> bool:
        """Whether an expression is the time at which a row arrived."""
        if isinstance(tree, exp.Anonymous) and str(tree.this).upper() == "PROCTIME":
            return True
        return isinstance(tree, exp.Column) and find_name(tree.name, self.relation.arrivals) is not None and not self.has(tree)

    def has(self, column: Tree) -> bool:
        """Whether the tables have a column of this name."""
        alias = find_name(column.table, self.tables)
        tables = self.tables.values() if not column.table else [self.tables[alias]] if alias else []
        return any(find_name(column.name, columns) is not None for columns in tables)

    def item(self, tree: Tree, name: str) -> Item:
        """An expression as an item over the relation.

        Raises:
            SqlError: it reads more than one row, or an unknown column.
        """
        if isinstance(tree, exp.Paren) and isinstance(tree.this, exp.Column):
            tree = tree.this
        item = self._coalesced_item(tree) or (self.resolve(tree) if isinstance(tree, exp.Column) else None)
        if item is not None:
            return Item(name, item.sql, item.column)
        return Item(name, self.sql(tree), is_time=self._is_later_time(tree))

    def sql(self, tree: Tree) -> str:
        """An expression over one row in Spark SQL.

        Raises:
            SqlError: it reads more than one row, or an unknown column.
        """
        check_row_by_row(tree)
        return spark_sql(self.replace_names(tree))

    def condition(self, conditions: Sequence[Tree]) -> str | None:
        """Conditions combined by AND, in Spark SQL; None if there are none."""
        return combined([self.sql(condition) for condition in conditions])

    def replace_names(self, tree: Tree) -> Tree:
        """An expression with its names replaced by columns of the relation."""

        def replace_column(node: Any) -> Any:
            if self._is_later_time(node):  # neither time is null, so that GREATEST needs no test for nulls
                return self.replace_names(greatest_of(node))
            item = self._coalesced_item(node) or (self.resolve(node) if isinstance(node, exp.Column) else None)
            if item is None:
                return node
            parsed = parse_spark(item.sql)
            return parsed if isinstance(parsed, exp.Column) else exp.Paren(this=parsed)

        return replace_outermost(tree, replace_column)

    def _is_later_time(self, tree: Tree) -> bool:
        """Whether an expression is GREATEST of the two times of an inner interval join, which is the event time of its pairs."""
        join = self.relation.operator if isinstance(self.relation, Apply) else None
        greatest = greatest_of(tree)
        columns = [greatest.this, *greatest.expressions] if greatest else []
        if not isinstance(join, IntervalJoin) or join.how != "inner" or not all(isinstance(c, exp.Column) for c in columns):
            return False
        return sorted(str(self.resolve(c).column) for c in columns) == sorted([join.left_time, join.right_time])

    def _coalesced_item(self, tree: Tree) -> Item | None:
        return self.coalesced.get(texts_of_coalesce(tree) or frozenset())


def texts_of_coalesce(tree: Tree) -> frozenset[str] | None:
    """The texts of the two columns of a COALESCE; None for another expression."""
    columns = [tree.this, *tree.expressions] if isinstance(tree, exp.Coalesce) else []
    return frozenset(c.sql() for c in columns) if len(columns) == 2 and all(isinstance(c, exp.Column) for c in columns) else None


def replace_outermost(tree: Tree, replace_node: Callable[[Tree], Tree]) -> Tree:
    """A copy of a tree in which nodes are replaced, from the outside in; nodes below a replaced node are not visited."""
    replacement = replace_node(tree)
    if replacement is not tree:
        return replacement
    copied = tree.copy()
    _replace_below(tree, copied, replace_node)
    return copied


def _replace_below(tree: Tree, copied: Tree, replace_node: Callable[[Tree], Tree]) -> None:
    """Replace nodes below the root of a copied tree by the replacements of the original nodes."""
    for copied_child, child in zip([*copied.iter_expressions()], [*tree.iter_expressions()], strict=True):
        replacement = replace_node(child)
        if replacement is child:
            _replace_below(child, copied_child, replace_node)
        else:
            copied_child.replace(replacement)


def check_row_by_row(tree: Tree) -> None:
    """Raise `SqlError` if an expression reads more than one row, or depends on the clock, on random numbers or on the session."""
    for node in tree.walk():
        if isinstance(node, exp.Window):
            raise over_error(node)
        if isinstance(node, exp.Query):
            way_out = "join the tables, or make IN or EXISTS a condition of its own in WHERE: a semi join in windows or within an interval"
            raise SqlError.refused("a subquery in an expression", "an operator reads its inputs in FROM", way_out)
        if isinstance(node, exp.AggFunc):
            raise SqlError.refused(
                spark_sql(node), "it is an aggregate, and this expression reads one row", "aggregate in SELECT or HAVING, with GROUP BY"
            )
        if names := (_function_names(node) & _NONDETERMINISTIC) | _clock_of(node):
            way_out = "read a time from a column; for the order of arrival declare a column p AS PROCTIME(), and ORDER BY it in ROW_NUMBER"
            way_out = "use a hash of a column" if names <= _CHANCE else way_out
            reason = "results are computed again and must not depend on the clock, on random numbers or on the session"
            raise SqlError.refused(f"{min(names).upper()} in an expression", reason, way_out)


def _clock_of(node: Tree) -> set[str]:
    """The name of UNIX_TIMESTAMP without an argument, which is the time of the query; none for another expression."""
    return {"unix_timestamp"} & _function_names(node) if not node.expressions else set()


def _function_names(node: Tree) -> set[str]:
    """The names of a function in SQL, in lower case; none for another expression."""
    if isinstance(node, exp.Anonymous):
        return {str(node.this).lower()}
    return {name.lower() for name in node.sql_names()} if isinstance(node, exp.Func) else set()


def over_error(node: Tree) -> SqlError:
    """The error for an OVER clause that no operator computes."""
    if isinstance(node.this, exp.RowNumber | exp.Rank | exp.DenseRank):
        reason = "only the first rows of each partition have a bounded state"
        return SqlError.refused(
            f"{spark_sql(node.this)} without a limit", reason, "compare the rank with a number in WHERE of an outer query"
        )
    reason = "there is no operator for an aggregate over the rows before each row"
    return SqlError.refused(
        f"the OVER aggregation {spark_sql(node.this)}", reason, "aggregate windows: GROUP BY window_start, window_end over HOP or CUMULATE"
    )


def table_names(tables: Iterable[str]) -> str:
    """The names of tables for an error; `none` if there are none."""
    return ", ".join(tables) or "none"
