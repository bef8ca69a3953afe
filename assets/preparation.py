"""How a table prepares the rows of an input before its operator reads them: a condition and a list of columns, as in SQL."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from assets.contract_checks import ENGINE_COLUMNS, ContractError, check_sql
from assets.expressions import bare_function, check_columns_exist, check_expression, columns_read, function_names, reads_rows
from assets.names import first_duplicate, fold_case
from operators.columns import column_fault, quoted_name
from operators.nondeterministic import CHANCE, CLOCK, FILES, SESSION, is_time_of_the_clock

ALL = "*"
_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_NESTED_TYPES = (TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT)
_NONDETERMINISTIC = CHANCE | CLOCK | FILES | SESSION
_DETERMINISTIC = (
    "expressions without random numbers and the clock: results are computed again and compared; read a time from a column. "
    "Spark may read the texts 'now', 'today', 'yesterday' and 'tomorrow' as times; to find such a text, write column RLIKE '^today$'"
)


@dataclass(frozen=True)
class _Item:
    """One item of `select`.

    Args:
        sql: its text.
        tree: the parsed text.
    """

    sql: str
    tree: exp.Expr

    @property
    def excluded(self) -> list[str]:
        """For `* EXCEPT (...)`, the names in the brackets."""
        return [column.name for column in self.tree.args.get("except_") or self.tree.args.get("except") or ()]


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What is done to each row of an input before the operator reads it.

    The row's event time, `seq` and `arrival` stay as they are, and so do the source's watermark and the row's lateness. An expression that
    raises an error for a row, such as `CAST('x' AS INT)`, stops the table's steps until the SQL is changed and the table is rebuilt: use
    `try_cast`, or a row rule of the source.

    Args:
        where: a SQL condition over the input's columns. A row for which it is false or null is `filtered`: the operator does not read it,
            and the accounts count it.
        select: the columns that the operator reads, as in SQL's SELECT: `"*"` for all, `"*, price * amount AS total"` to add one,
            `"id AS order_id, amount"` to rename one and leave out the others. `* EXCEPT (a, b)` is all but two.

    Raises:
        ContractError: a part is no SQL, has no name, reads several rows (an aggregate, a window function, a generator or a subquery), or
            depends on random numbers or the clock: results are computed again and compared.
    """

    where: str | None = None
    select: str = ALL

    def __post_init__(self) -> None:
        check_sql("select", self.select)
        if self.where is not None:
            check_sql("where", self.where)
            _check_row_by_row("where", self.where, self._condition)
            if isinstance(self._condition, exp.Alias | exp.Star) or isinstance(self._condition.this, exp.Star):
                raise _invalid_sql("where", self.where)
        for item in self._items:
            _check_row_by_row("select", item.sql, item.tree)
            if not isinstance(item.tree, exp.Star):
                _check_column(item)

    def columns(self, input_columns: Sequence[str]) -> dict[str, str]:
        """The columns that the operator reads, each with its SQL.

        Args:
            input_columns: the input's columns.

        Raises:
            ContractError: two columns have the same name.
        """
        selected: list[tuple[str, str]] = []
        for item in self._items:
            if isinstance(item.tree, exp.Star):
                excluded = {fold_case(name) for name in item.excluded}
                selected += [(name, quoted_name(name)) for name in input_columns if fold_case(name) not in excluded]
            else:
                selected.append((item.tree.alias_or_name, item.sql))
        if (duplicate := first_duplicate([name for name, _ in selected])) is not None:
            legal = f"each column once: rename one of them; to replace a column of an input, `prepare` may write * EXCEPT ({duplicate})"
            raise ContractError.bad_value("select", duplicate, legal)
        return dict(selected)

    def keeps(self, columns: Sequence[str]) -> bool:
        """Whether the operator reads columns of the input unchanged, under their own names."""
        prepared = self.columns(columns)
        return all(prepared.get(column) in (column, quoted_name(column)) for column in columns)

    def lineage(self, input_columns: Sequence[str], engine_columns: Sequence[str] = ()) -> dict[str, list[str]]:
        """For each column that the operator reads, the input's columns that its SQL reads.

        Args:
            input_columns: the input's columns.
            engine_columns: columns that the engine adds to them.
        """
        names_by_column = {name: {*map(fold_case, columns_read(sql))} for name, sql in self.columns(input_columns).items()}
        return {
            name: [column for column in (*input_columns, *engine_columns) if fold_case(column) in names]
            for name, names in names_by_column.items()
        }

    def check(self, columns: Sequence[str], owner: str, engine_columns: Sequence[str]) -> None:
        """Raise `ContractError` if a column is read that the input does not have.

        Args:
            columns: the input's columns.
            owner: whose columns these are, for the error.
            engine_columns: columns that the engine adds to them.
        """
        if self.where is not None:
            check_expression("where", self.where, columns, owner, engine_columns)
            _check_bare_names("where", self.where, self._condition, columns)
        for item in self._items:
            if isinstance(item.tree, exp.Star):
                check_columns_exist("select", item.excluded, columns, owner)
            else:
                check_expression("select", item.sql, columns, owner, engine_columns)
                _check_bare_names("select", item.sql, item.tree, columns)

    @property
    def star_count(self) -> int:
        """How many items of `select` are `*`."""
        return sum(isinstance(item.tree, exp.Star) for item in self._items)

    @property
    def excluded(self) -> list[str]:
        """The columns that `* EXCEPT (...)` leaves out."""
        return [name for item in self._items for name in item.excluded]

    @cached_property
    def _condition(self) -> exp.Expr:
        return _expression("where", self.where or "")

    @cached_property
    def _items(self) -> list[_Item]:
        return [_read_item(sql) for sql in _split(self.select)]


def _split(select: str) -> Iterator[str]:
    """The items of a list, which commas outside of brackets, types and quotes separate."""
    opened, before, start = list[TokenType](), None, 0
    for token in _tokens("select", select):
        kind = token.token_type
        if kind in _OPEN or (kind == TokenType.LT and before in _NESTED_TYPES):
            opened.append(kind)
        elif opened and (kind in _CLOSE or (kind == TokenType.GT and opened[-1] == TokenType.LT)):
            opened.pop()
        elif kind == TokenType.COMMA and not opened:
            yield select[start : token.start].strip()
            start = token.end + 1
        before = None if before == TokenType.DOT else kind  # a field may have the name of a type
    yield select[start:].strip()


def _tokens(parameter: str, sql: str) -> list[Token]:
    """The tokens of a text, without a semicolon, which Spark does not accept in an expression."""
    try:
        tokens = sqlglot.tokenize(sql, dialect="spark")
    except SqlglotError as error:
        raise _invalid_sql(parameter, sql) from error
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise _invalid_sql(parameter, sql)
    return tokens


def _read_item(sql: str) -> _Item:
    item = _Item(sql, _expression("select", sql))
    modifiers = [name for name, value in item.tree.args.items() if value and not name.startswith("except")]
    if isinstance(item.tree, exp.Star) and modifiers:
        legal = "* or * EXCEPT (...); to replace a column, write * EXCEPT (column), expression AS column; to rename one, likewise"
        raise ContractError.bad_value("select", sql, legal)
    return item


def _expression(parameter: str, sql: str) -> exp.Expr:
    """The one expression of a text."""
    _tokens(parameter, sql)
    try:
        tree = sqlglot.parse_one(f"SELECT {sql}", dialect="spark")
    except SqlglotError as error:
        raise _invalid_sql(parameter, sql) from error
    clauses = [clause for clause, value in tree.args.items() if value and clause != "expressions"]
    if clauses or len(tree.expressions) != 1:
        raise _invalid_sql(parameter, sql)
    return tree.expressions[0]


def _invalid_sql(parameter: str, sql: str) -> ContractError:
    legal = "SQL over the columns: a condition for `where`, and for `select` a list such as '*, price * amount AS total'"
    return ContractError.bad_value(parameter, sql, legal)


def _check_row_by_row(parameter: str, sql: str, tree: exp.Expr) -> None:
    """Raise unless an expression reads one row, and has the same value each time."""
    for node in tree.walk():
        if reads_rows(node) or isinstance(node, exp.Query | exp.DerivedTable):
            legal = "expressions over one row, that give one row: no aggregates, window functions, generators or subqueries"
            raise ContractError.bad_value(parameter, sql, legal)
        if _is_nondeterministic(node):
            raise ContractError.bad_value(parameter, sql, _DETERMINISTIC)


def _check_bare_names(parameter: str, sql: str, tree: exp.Expr, columns: Sequence[str]) -> None:
    """Raise if a name is no column, but a function that Spark calls without parentheses."""
    if bare_function((column.name for column in tree.find_all(exp.Column)), columns) is not None:
        raise ContractError.bad_value(parameter, sql, _DETERMINISTIC)


def _is_nondeterministic(node: exp.Expr) -> bool:
    """Whether a value depends on random numbers, on the clock, on the process, or on how Spark reads rows."""
    if node.is_string or isinstance(node, exp.RawString):
        return is_time_of_the_clock(node.name)
    if isinstance(node, exp.StrToUnix):  # unix_timestamp() of no argument
        return node.this is None
    if type(node).__name__.startswith("Current") or any(name.startswith("current_") for name in function_names(node)):
        return True
    return bool(function_names(node) & _NONDETERMINISTIC)


def _check_column(item: _Item) -> None:
    """Raise unless an item has a legal name for a column."""
    name = item.tree.alias_or_name
    if not name or not isinstance(item.tree, exp.Alias | exp.Column):
        raise ContractError.bad_value("select", item.sql, f"a name for each computed column: {item.sql} AS name")
    if fold_case(name) in ENGINE_COLUMNS:
        legal = f"names other than {', '.join(ENGINE_COLUMNS)}, which the engine keeps; rename it"
        raise ContractError.bad_value("select", item.sql, legal)
    if legal := column_fault(name):
        raise ContractError.bad_value("select", item.sql, f"{legal}; write another name after AS, or {ALL} alone for all columns")
