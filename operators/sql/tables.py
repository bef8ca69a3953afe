"""CREATE TABLE as a value: columns, the event time and its watermark, the key, and the options of WITH."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from operators.sql.column_types import parse_type
from operators.sql.dialect import Tree, parse_query, spark_sql
from operators.sql.durations import interval_ms
from operators.sql.errors import SqlError, shorten_text
from operators.sql.lists import outer_words, read_list
from operators.sql.names import require_name
from operators.sql.relations import Input, Item, Relation
from operators.sql.selections import select
from operators.sql.syntax import word_of

_AFTER_TYPE = ("NOT", "NULL", "COMMENT", "METADATA", "PRIMARY KEY", "PRIMARY", "CONSTRAINT")
_COLUMN_CLAUSES = re.compile(
    r"(?!.*\b(NULL|PRIMARY KEY|COMMENT|METADATA) .*\b\1 )"
    "(?:NOT NULL |NULL |(?:CONSTRAINT [^ ]+ )?PRIMARY KEY (?:NOT ENFORCED )?|COMMENT 'text' |METADATA (?:FROM 'text' )?(?:VIRTUAL )?)*"
)
"""What can follow the type of a column, each at most once."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: its name.
        type: its Spark type; empty for a computed column.
        is_required: whether it is NOT NULL.
        comment: its comment.
        expression: the value of a computed column, in Spark SQL; empty for another column.
        metadata: for METADATA, the name of the part of a record that the column contains; else empty.
    """

    name: str
    type: str = ""
    is_required: bool = False
    comment: str = ""
    expression: str = ""
    metadata: str = ""


@dataclass(frozen=True)
class CreateTable:
    """A table that CREATE TABLE declares.

    Args:
        name: its name.
        columns: its columns.
        time: the column of WATERMARK FOR; None without this clause.
        delay: how far the watermark is behind the newest row, in ms.
        key: the columns of the primary key.
        options: the options of WITH.
        arrivals: the names declared as `PROCTIME()`; `columns` does not have them.
        comment: the table's comment.
    """

    name: str
    columns: tuple[Column, ...]
    time: str | None = None
    delay: int = 0
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    arrivals: tuple[str, ...] = ()
    comment: str = ""

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that rows have, without computed ones."""
        return tuple(column for column in self.columns if not column.expression)

    def relation(self) -> Relation:
        """The rows that queries read."""
        stored_columns = tuple(c.name for c in self.stored)
        time = self.time and next((c for c in self.columns if c.name == self.time), None)
        if not time or not time.expression:
            rows = Input(self.name, stored_columns, (self.time,) if self.time else (), self.arrivals)
            return select(rows, [self._item(c) for c in self.columns], None, self.arrivals)
        rows = Input(self.name, (*stored_columns, time.name), (time.name,), self.arrivals)
        return select(rows, [self._item(c) if c != time else Item.of_column(c.name) for c in self.columns], None, self.arrivals)

    def relation_over(self, rows: Relation) -> Relation:
        """The rows of a frame, with the event time and the order of arrival that the statement declares.

        Raises:
            SqlError: the frame lacks a column.
        """
        names = {c.name: require_name(c.name, rows.columns) for c in self.stored}
        time = self.time and names.get(self.time)
        table_rows = Input(self.name, rows.columns, (time,) if time else rows.times, self.arrivals, is_declared=self.time is not None)
        items = [self._item(c) if c.expression else Item.of_column(names[c.name], c.name) for c in self.columns]
        return select(table_rows, [replace(i, is_time=i.name == self.time and not time) for i in items], None, self.arrivals)

    @staticmethod
    def _item(column: Column) -> Item:
        return Item(column.name, column.expression) if column.expression else Item.of_column(column.name)


def read_table(name: str, text: str, tokens: Sequence[Token], at: int) -> CreateTable:
    """The table of a CREATE TABLE statement.

    Args:
        name: the table's name.
        text: the statement.
        tokens: its tokens.
        at: the position of the token after the name.

    Raises:
        SqlError: a part cannot be read, or has no counterpart.
    """
    if at >= len(tokens) or word_of(tokens[at]) != "(":
        way_out = "write CREATE TABLE name (columns) WITH (options); for the result of a query write INSERT INTO name SELECT ..."
        raise SqlError.refused(shorten_text(text), "the table has no list of columns", way_out)
    parts, at = read_list(tokens, at, text)
    if not parts:
        raise SqlError.refused(shorten_text(text), "the table has no columns", "write a name and a type, such as price DECIMAL(10, 2)")
    reader = _Reader(text, tokens[0].start, name)
    try:
        for part in parts:
            reader.read(part)
        comment, options = reader.read_clauses(tokens[at:])
    except IndexError as error:  # a part ends before its last word
        raise SqlError(f"{shorten_text(text)!r} cannot be parsed: a column, a watermark or a clause is incomplete") from error
    return reader.table(options, comment)


class _Reader:
    """Collects the parts of a CREATE TABLE statement. Its methods raise `IndexError` if a part is incomplete."""

    def __init__(self, text: str, base: int, name: str) -> None:
        self._text, self._base, self._name = text, base, name
        self._columns, self._arrivals = list[Column](), list[str]()
        self._key, self._delay = tuple[str, ...](), 0
        self._time: str | None = None

    def read(self, tokens: Sequence[Token]) -> None:
        """Read a column, a watermark or a key."""
        head = [word_of(token) for token in tokens[:2]]
        if head[:2] == ["WATERMARK", "FOR"]:
            self._watermark(tokens)
        elif head[0] in ("PRIMARY KEY", "PRIMARY", "CONSTRAINT"):
            self._primary_key(tokens)
        elif len(tokens) > 1:
            self._column(tokens)
        else:
            raise SqlError.refused(self._sql(tokens), "it is no column", "write a name and a type, such as price DECIMAL(10, 2)")

    def table(self, options: Mapping[str, str], comment: str) -> CreateTable:
        """The table of all parts that were read."""
        names = [c.name for c in self._columns]
        time = None if self._time is None else require_name(self._time, names)
        key = tuple(require_name(c, names) for c in self._key)
        return CreateTable(self._name, tuple(self._columns), time, self._delay, key, options, tuple(self._arrivals), comment)

    def read_clauses(self, tokens: Sequence[Token]) -> tuple[str, dict[str, str]]:
        """The comment and the options that follow the columns."""
        words = outer_words(tokens)
        for clause, way_out in _CLAUSES.items():
            if clause in " ".join(words):
                raise SqlError.refused(f"{clause} of table {self._name!r}", "tables have no such clause", way_out)
        comment, at, options = "", 0, dict[str, str]()
        if words[:1] == ["COMMENT"]:
            comment, at = self._read_comment(tokens), 2
        if words[at : at + 1] == ["WITH"]:
            options, at = self._read_options(tokens, at)
        if at < len(tokens):
            reason = "only COMMENT 'text' and then WITH (options) can follow the columns of a table"
            way_out = f"write INSERT INTO {self._name} SELECT ..." if words[at] == "AS" else "leave it out"
            raise SqlError.refused(self._sql(tokens[at:]), reason, way_out)
        return comment, options

    def _read_comment(self, tokens: Sequence[Token]) -> str:
        if tokens[1].token_type != TokenType.STRING:
            raise SqlError.refused(self._sql(tokens), "COMMENT has no text", "write COMMENT 'text'")
        return tokens[1].text

    def _read_options(self, tokens: Sequence[Token], at: int) -> tuple[dict[str, str], int]:
        """The options of WITH, which is at a position, and the position after them."""
        if word_of(tokens[at + 1]) != "(":
            raise SqlError.refused(self._sql(tokens[at:]), "WITH has no list of options", "write WITH ('name' = 'value')")
        parts, end = read_list(tokens, at + 1, self._text)
        for part in parts:
            if len(part) != 3 or part[1].text != "=":
                raise SqlError.refused(self._sql(part), "it is no option", "write 'name' = 'value'")
        return {part[0].text: part[2].text for part in parts}, end

    def _sql(self, tokens: Sequence[Token]) -> str:
        return self._text[tokens[0].start - self._base : tokens[-1].end + 1 - self._base] if tokens else ""

    def _primary_key(self, tokens: Sequence[Token]) -> None:
        """`[CONSTRAINT name] PRIMARY KEY (columns) [NOT ENFORCED]`."""
        start = next((n for n, token in enumerate(tokens) if word_of(token) == "("), len(tokens))
        columns, end = read_list(tokens, start, self._text) if start < len(tokens) else ([], start)
        kind = " ".join(word_of(token) for token in tokens[2 if word_of(tokens[0]) == "CONSTRAINT" else 0 : start])
        if kind != "PRIMARY KEY":
            raise self._no_key(tokens, "a table has no constraint but its primary key")
        if not columns:
            raise self._no_key(tokens, "it has no columns in brackets")
        if " ".join(word_of(token) for token in tokens[end:]) not in ("", "NOT ENFORCED"):
            raise self._no_key(tokens, "only NOT ENFORCED can follow the columns of a key")
        self._set_key(tuple(" ".join(token.text for token in column) for column in columns), tokens)

    def _set_key(self, key: tuple[str, ...], tokens: Sequence[Token]) -> None:
        if self._key:
            raise self._no_key(tokens, f"the table has the key ({', '.join(self._key)})")
        self._key = key

    def _no_key(self, tokens: Sequence[Token], reason: str) -> SqlError:
        return SqlError.refused(self._sql(tokens), reason, "write one PRIMARY KEY (name, ...) NOT ENFORCED")

    def _watermark(self, tokens: Sequence[Token]) -> None:
        """`WATERMARK FOR t AS t`, or `t - INTERVAL ...`."""
        if self._time is not None:
            raise SqlError.refused(self._sql(tokens), f"the table has a watermark for {self._time}", "write one WATERMARK FOR")
        if word_of(tokens[3]) != "AS":
            raise SqlError.refused(self._sql(tokens), "it is no watermark", "write WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
        self._time, tree = tokens[2].text, self._expression(tokens[4:])
        column, delay = (tree.this, interval_ms(tree.expression)) if isinstance(tree, exp.Sub) else (tree, 0)
        if not isinstance(column, exp.Column) or column.name.lower() != self._time.lower():
            reason = "the watermark is the event time itself, or the event time minus an interval"
            raise SqlError.refused(
                spark_sql(tree), reason, f"write {self._time} - INTERVAL '5' SECOND; other watermarks: 'tidemark.watermark' in WITH"
            )
        if delay < 0:
            way_out = "write an interval of zero or more"
            raise SqlError.refused(self._sql(tokens), "the watermark would be ahead of the event time", way_out)
        self._delay = delay

    def _expression(self, tokens: Sequence[Token]) -> Tree:
        """The tree of one expression, without clauses after it."""
        query = parse_query(f"SELECT {self._sql([tokens[0], tokens[-1]])}")
        has_clauses = {name for name, value in query.args.items() if value} != {"expressions"}
        if len(query.expressions) != 1 or _is_named(query.expressions[0]) or has_clauses:
            way_out = "write an expression over the columns of the table"
            raise SqlError.refused(self._sql(tokens), "it is not one expression", way_out)
        return query.expressions[0]

    def _column(self, tokens: Sequence[Token]) -> None:
        name, words = tokens[0].text, outer_words(tokens)
        if words[1] == "AS":
            self._read_computed_column(name, tokens)
            return
        end = next((n for n, word in enumerate(words) if n > 1 and word in _AFTER_TYPE), len(words))
        comment = tokens[words.index("COMMENT", end) + 1].text if "COMMENT" in words[end:] else ""
        if "PRIMARY KEY" in " ".join(words[end:]):
            self._set_key((name,), tokens)
        metadata = ""
        if "METADATA" in words[end:]:
            at = words.index("METADATA", end)
            metadata = tokens[at + 2].text if words[at + 1 : at + 2] == ["FROM"] else name
        kinds = ["'text'" if token.token_type == TokenType.STRING else word_of(token) or "name" for token in tokens[end:]]
        if not _COLUMN_CLAUSES.fullmatch("".join(f"{kind} " for kind in kinds)):
            reason = "only NOT NULL, PRIMARY KEY NOT ENFORCED, COMMENT 'text' and METADATA [FROM 'key'] [VIRTUAL] can follow a type"
            raise SqlError.refused(self._sql(tokens[end:]), reason, "write it in one of these forms, or leave it out")
        is_required = "NOT NULL" in " ".join(words[end:]) or self._key == (name,)
        self._columns.append(Column(name, parse_type(self._sql(tokens[1:end])), is_required, comment, metadata=metadata))

    def _read_computed_column(self, name: str, tokens: Sequence[Token]) -> None:
        end = len(tokens) - 2 if word_of(tokens[-2]) == "COMMENT" and tokens[-1].token_type == TokenType.STRING else len(tokens)
        comment = "".join(token.text for token in tokens[end + 1 :])
        tree: Tree = self._expression(tokens[2:end]).unalias()
        if isinstance(tree, exp.Anonymous) and str(tree.this).upper() == "PROCTIME":
            self._arrivals.append(name)
            return
        self._columns.append(Column(name, comment=comment, expression=spark_sql(tree)))


_CLAUSES = {
    "PARTITIONED BY": "leave it out: Tidemark divides its tables by itself",
    "DISTRIBUTED": "leave it out: Tidemark divides its tables by itself",
    "LIKE": "write the columns and the options of both tables",
}


def _is_named(tree: Tree) -> bool:
    """Whether an item of a SELECT list has a name of its own, or is `*`. `parse_query` names a field, as in `r.a`, by the field."""
    is_field = isinstance(tree.this, exp.Dot) and tree.this.name == tree.alias
    return isinstance(tree, exp.Star) or (isinstance(tree, exp.Alias) and not is_field)
