"""The types of columns of Flink SQL as types of Spark."""

from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from operators.sql.dialect import Flink, Tree, spark_sql, tokenize
from operators.sql.errors import SqlError
from operators.sql.syntax import word_of

_ATOMIC = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", "VARIANT")
_PARTS = {"ARRAY": 1, "MAP": 2}
_MAX_PRECISION = 38


def parse_type(text: str) -> str:
    """The Spark type of a type of Flink SQL. Timestamps are instants in UTC. NOT NULL and comments inside of the type are left out.

    Raises:
        SqlError: Tidemark has no such type.

    >>> parse_type("ROW<a INT NOT NULL 'the first', b TIMESTAMP_LTZ(3)>"), parse_type("VARCHAR(20)")
    ('STRUCT<a: INT, b: TIMESTAMP>', 'STRING')
    """
    pairs = [*pairwise([*tokenize(text), None])]
    kept = [text[token.start : token.end + 1] for token, following in pairs if token and not _is_note(token, following)]
    try:
        if any(token and word_of(token) == "ARRAY" and (following is None or following.text != "<") for token, following in pairs):
            raise ParseError("sqlglot reads `INT ARRAY` as INT")
        tree: Tree = sqlglot.parse_one(" ".join(kept), into=exp.DataType, dialect=Flink)
        if not all(_is_type_of_spark(node) for node in tree.find_all(exp.DataType)):
            raise ParseError("sqlglot reads types of other databases")
        return spark_sql(tree)
    except SqlglotError as error:
        legal = "use STRING, BIGINT, DECIMAL(p, s), TIMESTAMP(3), ARRAY<t>, MAP<k, v> or ROW<name t, ...>"
        raise SqlError.refused(f"the type {text}", "Tidemark has no such type", legal) from error


def _is_type_of_spark(node: Tree) -> bool:
    """Whether Spark has the type of a node, apart from the types of its parts."""
    kind, parts = str(getattr(node.this, "name", "")), node.expressions
    if kind == "DECIMAL":
        if len(parts) > 2 or not all(size.name.isdecimal() for size in parts):
            return False
        precision, scale = [*(int(size.name) for size in parts), *((10, 0)[len(parts) :])]
        return max(1, scale) <= precision <= _MAX_PRECISION
    if kind == "STRUCT":
        return bool(parts) and all(isinstance(part, exp.ColumnDef) for part in parts)
    return len(parts) == _PARTS[kind] if kind in _PARTS else spark_sql(node) in _ATOMIC


def _is_note(token: Token, following: Token | None) -> bool:
    """Whether a token of a type is part of NOT NULL or of a comment."""
    is_comment = word_of(token) == "COMMENT" and following is not None and following.token_type == TokenType.STRING
    return is_comment or token.token_type == TokenType.STRING or word_of(token) in ("NOT", "NULL")
