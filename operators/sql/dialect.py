"""The dialect of Flink SQL for sqlglot, and the expressions and types of its trees in Spark SQL."""

from collections.abc import Set
from functools import lru_cache, partial
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from operators.sql.errors import SqlError
from operators.sql.functions import CALLS, log10, map_of
from operators.sql.syntax import FUNCTION_PARSERS, NO_PAREN_FUNCTION_PARSERS, RANGE_PARSERS
from operators.sql.templates import plain_call

Tree = Any
"""A node of sqlglot's tree, whose children are not typed."""
MIRRORED: dict[Any, Any] = {exp.LTE: exp.GTE, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.GT: exp.LT, exp.EQ: exp.EQ}
"""For each comparison, the one that is equivalent when its sides are swapped."""
WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
TABLE, DESCRIPTOR = "TABLE", "DESCRIPTOR"
_COMPILED = "cannot inherit from compiled"
"""The part of the message of mypyc's TypeError when a class in Python that extends a compiled class is instantiated."""


def _parser_table(table: str) -> dict[str, Any]:
    return getattr(Parser, table)


def _window_function(name: str, parser: "FlinkParser") -> exp.Anonymous:
    return parser.window_function(name)


def _cast(is_safe: bool, parser: "FlinkParser") -> Any:
    return parser.cast(is_safe)


class FlinkParser(Parser):
    """Parses Flink's functions, and table arguments of windowing functions: `TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)`."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {**_parser_table("FUNCTIONS"), **CALLS}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **_parser_table("FUNCTION_PARSERS"),
        **FUNCTION_PARSERS,
        "CAST": partial(_cast, False),
        "TRY_CAST": partial(_cast, True),
        **{name: partial(_window_function, name) for name in WINDOW_FUNCTIONS},
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {**_parser_table("NO_PAREN_FUNCTION_PARSERS"), **NO_PAREN_FUNCTION_PARSERS}
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = {**_parser_table("RANGE_PARSERS"), **RANGE_PARSERS}

    def window_function(self, name: str) -> exp.Anonymous:
        """The call of a windowing function, whose arguments are read up to the closing bracket."""
        return exp.Anonymous(this=name, expressions=self._parse_csv(self._argument))

    def cast(self, is_safe: bool) -> Any:
        """CAST and TRY_CAST. Spark ignores the length of CHAR(n) and VARCHAR(n), to which Flink cuts or pads the text."""
        tree: Any = self._parse_cast(self.STRICT_CAST and not is_safe, safe=is_safe)
        kind, length = tree.to.this.name, tree.to.expressions
        if kind not in ("CHAR", "VARCHAR") or not length:
            return tree
        if kind == "VARCHAR":
            return exp.Left(this=tree, expression=length[0].this)
        return exp.Pad(this=tree, expression=length[0].this, fill_pattern=exp.Literal.string(" "), is_left=False)

    def _argument(self) -> Any:
        if self._match(TokenType.TABLE):
            table: Any = self._parse_table_parts()
            return exp.Anonymous(this=TABLE, expressions=[table, *self._partition()])
        following: Any = self._next
        if following is not None and following.token_type == TokenType.FARROW:
            name = str(self._curr.text).upper()
            self._advance(2)
            return exp.PropertyEQ(this=exp.to_identifier(name), expression=self._argument() or self.raise_error("Expected a value"))
        return self._parse_assignment()

    def _partition(self) -> list[Any]:
        """The columns of PARTITION BY, in brackets or up to the comma before DESCRIPTOR or a named argument."""
        if not self._match(TokenType.PARTITION_BY):
            return []
        if self._curr and self._curr.token_type == TokenType.L_PAREN:
            return self._parse_wrapped_csv(self._column)
        columns: list[Any] = [self._column()]
        while self._curr and self._curr.token_type == TokenType.COMMA and str(self._next.text).upper() not in (DESCRIPTOR, "TIMECOL"):
            self._advance()
            columns.append(self._column())
        return columns

    def _column(self) -> Any:
        return self._parse_column() or self.raise_error("Expected a column")


class Flink(Dialect):
    """Flink SQL, as far as Tidemark reads it."""

    CONCAT_WS_COALESCE = True

    class Tokenizer(tokens.Tokenizer):
        """Strings in single quotes, identifiers in backticks, bytes as `X'41'`."""

        QUOTES: ClassVar[Any] = ["'"]
        IDENTIFIERS: ClassVar[Any] = ["`"]
        NESTED_COMMENTS = False
        HEX_STRINGS: ClassVar[Any] = [("X'", "'"), ("x'", "'")]
        STRING_ESCAPES: ClassVar[Any] = ["'"]
        COMMANDS: ClassVar[Any] = set[TokenType]()
        KEYWORDS: ClassVar[Any] = {k: v for k, v in tokens.Tokenizer.KEYWORDS.items() if k not in ("SESSION", "EXPLAIN", "/*+")} | {
            "ROW": TokenType.STRUCT,
            "BYTES": TokenType.VARBINARY,
        }

    Parser = FlinkParser

    def parser(self, **opts: Any) -> Any:
        """A new parser.

        Raises:
            SqlError: `sqlglotc` is installed. Classes in Python cannot extend its compiled ones.
        """
        try:
            return super().parser(**opts)
        except TypeError as error:
            if _COMPILED not in str(error):
                raise
            raise SqlError.compiled_parser() from error


def tokenize(text: str) -> list[Token]:
    """The tokens of a text.

    Raises:
        SqlError: a quote or a comment does not end.
    """
    try:
        return sqlglot.tokenize(text, dialect=Flink)
    except SqlglotError as error:
        raise SqlError.unreadable(text, error) from error


def parse_query(text: str) -> Tree:
    """The tree of one query.

    Raises:
        SqlError: the text is no query.
    """
    try:
        tree: Tree = sqlglot.parse_one(text, dialect=Flink)
    except SqlglotError as error:
        raise SqlError.unreadable(text, error) from error
    for bracket in reversed([*tree.find_all(exp.Bracket)]):  # the inner ones first
        if _is_map(bracket):
            bracket.replace(map_of(bracket.expressions))
    _check_names(tree)
    tables = {str(node.name).lower() for node in tree.find_all(exp.Table, exp.TableAlias)}
    for column in [*tree.find_all(exp.Column)]:
        if column.table and column.table.lower() not in tables and not isinstance(column.this, exp.Star):
            _replace_by_field(column, tables)
    return tree


def _check_names(tree: Tree) -> None:
    """Raise `SqlError` if a column or a field is named by a text or a number, as in `a.'k'`."""
    for node in tree.find_all(exp.Column, exp.Dot):
        names = node.parts if isinstance(node, exp.Column) else [node.expression]
        if literal := next((name for name in names if isinstance(name, exp.Literal)), None):
            way_out = f"write a name, with backticks if needed, such as `{literal.name}`"
            raise SqlError.refused(node.sql(dialect=Flink), f"{literal.sql(dialect=Flink)} is no name of a column or a field", way_out)


def _is_map(bracket: Tree) -> bool:
    """Whether a tree is `MAP[key, value, ...]`, which sqlglot reads as an element of a column."""
    name = bracket.this.this if isinstance(bracket.this, exp.Column) and not bracket.this.table else None
    return isinstance(name, exp.Identifier) and not name.quoted and name.name.upper() == "MAP" and len(bracket.expressions) % 2 == 0


def _replace_by_field(column: Tree, tables: Set[str]) -> None:
    """Replace `r.a`, in which `r` is no table, by the field `a` of the column `r`; and `t.r.a` likewise, for a table `t`."""
    names = [*column.parts]
    table = [names.pop(0)] if str(names[0].name).lower() in tables else []
    field: Tree = exp.Paren(this=exp.Column(this=names[0], table=table[0] if table else None))
    for name in names[1:]:
        field = exp.Dot(this=field, expression=name)
    is_item = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
    column.replace(exp.alias_(field, names[-1]) if is_item else field)


_INSTANTS = ("TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPLTZ", "TIMESTAMPTZ", "DATETIME", "DATETIME2")
_TEXTS = ("TEXT", "VARCHAR", "CHAR", "NVARCHAR", "NCHAR")
_BYTES = ("BINARY", "VARBINARY")


def spark_sql(tree: Tree) -> str:
    """An expression or a type as Spark SQL.

    Raises:
        SqlError: Spark would compute something else.

    >>> spark_sql(parse_query("SELECT TO_TIMESTAMP_LTZ(ms, 3)").expressions[0])
    'TIMESTAMP_MILLIS(ms)'
    """
    try:
        return tree.transform(_to_spark).sql(dialect="spark", copy=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise _ignored_argument(tree, str(error)) from error


def _ignored_argument(tree: Tree, message: str) -> SqlError:
    """The error for a call with an argument that sqlglot would leave out. The message of sqlglot has the call's class in quotes."""
    calls: list[Tree] = [node for node in tree.find_all(exp.Func) if f"'{type(node).__name__}'" in message]
    call = next((node for node in calls if any(value and f"'{name}'" in message for name, value in node.args.items())), None)
    if call is None:
        text = tree.sql(unsupported_level=ErrorLevel.IGNORE)
        return SqlError.refused(text, f"it has no counterpart in Spark: {message.rstrip('.')}", "write it with other functions")
    is_truncation = isinstance(call, exp.Trunc)
    arguments = [node.sql(dialect=Flink, unsupported_level=ErrorLevel.IGNORE) for node in call.iter_expressions()]
    text = f"{'TRUNCATE' if is_truncation else call.sql_name()}({', '.join(arguments)})"
    example = ", such as FLOOR(v, 2) for TRUNCATE(v, 2) of a positive number" if is_truncation else ""
    return SqlError.refused(text, "Spark's translation would ignore an argument", f"write it with other functions{example}")


def parse_spark(text: str) -> Tree:
    """A new tree of an expression in Spark SQL.

    Raises:
        SqlError: Spark has no such call, as for a function without its arguments.
    """
    return _parse_spark(text).copy()


@lru_cache(4096)
def _parse_spark(text: str) -> Tree:
    """The tree of an expression, from a cache: each expression that reads a column parses the SQL of that column."""
    try:
        tree: Tree = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        raise SqlError.unreadable(text, error) from error
    for node in reversed([*tree.find_all(exp.ParseJSON, exp.Log)]):  # the inner ones first
        kept = _kept_call(node)
        tree = kept if node is tree else tree
        node.replace(kept)
    return tree


def _kept_call(node: Tree) -> Tree:
    """LOG10 and PARSE_JSON as calls: sqlglot would write LOG10 as LOG with two arguments, and omit the call of PARSE_JSON."""
    if isinstance(node, exp.ParseJSON):
        return plain_call("PARSE_JSON", [node.this])
    is_log10 = node.this.is_number and node.this.name == "10" and node.expression
    return log10([node.expression]) if is_log10 else node


def _spark_type(node: exp.DataType) -> exp.DataType:
    kind = node.this.name if hasattr(node.this, "name") else str(node.this)
    if kind == "TIME":
        way_out = "use STRING, or INT with the milliseconds of the day"
        raise SqlError.refused("the type TIME", "Spark would read it as an instant, with a date", way_out)
    types = {**dict.fromkeys(_INSTANTS, "TIMESTAMP"), **dict.fromkeys(_TEXTS, "STRING"), **dict.fromkeys(_BYTES, "BINARY")}
    return exp.DataType.build(types[kind], dialect="spark") if kind in types else node


def _to_spark(node: Tree) -> Tree:
    if isinstance(node, exp.DataType):
        return _spark_type(node)
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1 and not node.expressions[0].is_string:
        node.set("offset", 1)  # Flink counts elements from 1; one after the last is null in both; a text is the key of a map
        node.set("safe", True)
    if isinstance(node, exp.Day | exp.Hour | exp.Minute | exp.Second) and isinstance(node.parent, exp.Interval | exp.IntervalSpan):
        return exp.var(type(node).__name__.upper())  # an interval of Spark has no precision, as in DAY(3)
    return node
