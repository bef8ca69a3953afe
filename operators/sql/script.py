"""Splits a text into statements, and recognizes the kind of each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from operators.sql.clauses import check_clauses
from operators.sql.dialect import Tree, parse_query, tokenize
from operators.sql.errors import SqlError, shorten_text
from operators.sql.lists import read_list
from operators.sql.syntax import word_of
from operators.sql.tables import CreateTable, read_table


@dataclass(frozen=True)
class CreateView:
    """A named query.

    Args:
        name: its name.
        query: the tree of the query.
        columns: the names of its columns, if they are given.
    """

    name: str
    query: Tree
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Insert:
    """A query whose result is the content of a table.

    Args:
        target: the table's name.
        query: the tree of the query.
    """

    target: str
    query: Tree


@dataclass(frozen=True)
class Explain:
    """An EXPLAIN statement, which asks how a query is computed.

    Args:
        query: the tree of the query.
        target: the table into which it inserts, if it is an INSERT.
    """

    query: Tree
    target: str | None = None


@dataclass(frozen=True)
class Query:
    """A query.

    Args:
        query: its tree.
    """

    query: Tree


Statement = CreateTable | CreateView | Insert | Explain | Query
LEGAL = "CREATE TABLE, CREATE VIEW, INSERT INTO ... SELECT, EXPLAIN or SELECT"


_HINTS = {
    "STATE_TTL": ("an operator in SQL has no time to live", "declare the table that is inserted into, with 'tidemark.ttl' in WITH"),
    "OPTIONS": ("a table has the options of its declaration", "write them in WITH of CREATE TABLE"),
}
"""Flink's hints, by name: why each is refused, and what to write instead."""
_HINT = re.compile(r"""'(?:[^']|'')*'|`[^`]*`|--[^\n]*|/\*\+(?P<hint>.*?)\*/|/\*.*?\*/""", re.DOTALL)
"""A hint, or a text in quotes or a comment that could contain one."""
_OTHER_HINT = ("Spark chooses how a query runs", "leave it out")


def read_script(text: str) -> list[Statement]:
    """The statements of a text, which semicolons separate.

    Raises:
        SqlError: a statement cannot be parsed, or is of no known kind.
    """
    _check_hints(text)
    return [_statement(part, tokens) for part, tokens in split(text)]


def split(text: str) -> Iterator[tuple[str, Sequence[Token]]]:
    """The text and the tokens of each statement."""
    tokens, current = tokenize(text), list[Token]()
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            current.append(token)
        elif current:
            yield _part(text, current), current
            current = []
    if current:
        yield _part(text, current), current


def _part(text: str, tokens: Sequence[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end + 1]


def words_of(tokens: Sequence[Token]) -> list[str]:
    """The words of tokens, in upper case. A name or a string in quotes has one empty word; a token such as PRIMARY KEY has two words."""
    return [word for token in tokens for word in (word_of(token).split() or [""])]


def _statement(text: str, tokens: Sequence[Token]) -> Statement:
    words = words_of(tokens)
    match words:
        case ["SELECT" | "WITH" | "(", *_]:
            return Query(_query(text, tokens))
        case ["EXPLAIN", *_]:
            return _explain(text, tokens)
        case ["INSERT", "INTO", *_]:
            return _insert(text, tokens)
        case ["CREATE", *following]:
            return _create(text, tokens, [w for w in following if w not in ("TEMPORARY", "OR", "REPLACE")])
        case _:
            raise _no_statement(text, words)


def _check_hints(text: str) -> None:
    """Raise `SqlError` if a text has a hint, which is a comment `/*+ ... */`."""
    hint = next((match["hint"].strip() for match in _HINT.finditer(text) if match["hint"] is not None), None)
    if hint is not None:
        raise SqlError.refused(f"the hint {shorten_text(hint)}", *_HINTS.get(hint.partition("(")[0].strip().upper(), _OTHER_HINT))


def _no_statement(text: str, words: Sequence[str]) -> SqlError:
    ways = {
        "SET": "write options in WITH of CREATE TABLE, such as 'tidemark.ttl' for a time to live; settings are environment variables",
        "BEGIN": "write the INSERT statements one after the other: all tables of a file are computed together",
        "EXECUTE": "write the INSERT statements one after the other: all tables of a file are computed together",
        "END": "write the INSERT statements one after the other: all tables of a file are computed together",
    }
    way_out = ways.get(words[0] if words else "", f"write {LEGAL}")
    return SqlError.refused(shorten_text(text), "Tidemark has no such statement", way_out)


def _query(text: str, tokens: Sequence[Token]) -> Tree:
    if "MATCH_RECOGNIZE" in words_of(tokens):
        reason = "there is no operator for patterns of rows"
        raise SqlError.refused("MATCH_RECOGNIZE", reason, "join each pair of rows by an interval join, or write an operator of your own")
    first = tokens[0]
    tree = parse_query("\n" * (first.line - 1) + " " * (first.col - len(first.text)) + text)  # errors have the position in the whole text
    check_clauses(tree)
    return tree


_EXPLAINED = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
"""The details that Flink's EXPLAIN can have, which have no effect."""


def _explain(text: str, tokens: Sequence[Token]) -> Explain:
    at = next((n for n, token in enumerate(tokens) if word_of(token) in ("SELECT", "WITH", "INSERT", "(")), None)
    if at is None:
        raise SqlError.refused(shorten_text(text), "EXPLAIN has no query", "write EXPLAIN SELECT ... or EXPLAIN INSERT INTO ...")
    words = words_of(tokens[1:at])
    if words != ["PLAN", "FOR"] and not {*words} <= {*_EXPLAINED, ","}:
        reason = f"only PLAN FOR, or some of {', '.join(_EXPLAINED)}, can be between EXPLAIN and the query"
        raise SqlError.refused(shorten_text(text), reason, "write EXPLAIN SELECT ... or EXPLAIN INSERT INTO ...")
    query_tokens = tokens[at:]
    query_text = text[query_tokens[0].start - tokens[0].start :]
    if word_of(query_tokens[0]) == "INSERT":
        inner = _insert(query_text, query_tokens)
        return Explain(inner.query, inner.target)
    return Explain(_query(query_text, query_tokens))


def _insert(text: str, tokens: Sequence[Token]) -> Insert:
    base = tokens[0].start
    name, position = read_name(tokens, 2 if [token.text.upper() for token in tokens[1:2]] == ["INTO"] else 1, text)
    query_tokens = tokens[position:]
    if [word_of(token) for token in query_tokens[:1]] == ["PARTITION"]:
        way_out = f"write INSERT INTO {name} SELECT ..., with the value as a column"
        raise SqlError.refused(shorten_text(text), "Tidemark divides its tables by itself", way_out)
    if not query_tokens or query_tokens[0].text.upper() not in ("SELECT", "WITH"):
        has_brackets = bool(query_tokens) and query_tokens[0].text == "("
        reason = "it has a list of columns, or its query is in brackets" if has_brackets else "it has no query"
        raise SqlError.refused(shorten_text(text), reason, f"write INSERT INTO {name} SELECT ...")
    return Insert(name, _query(text[query_tokens[0].start - base :], query_tokens))


def _create(text: str, tokens: Sequence[Token], words: Sequence[str]) -> Statement:
    kind = words[0] if words else ""
    at = next((n for n, t in enumerate(tokens) if t.text.upper() == kind), 0) + 1
    if [t.text.upper() for t in tokens[at : at + 3]] == ["IF", "NOT", "EXISTS"]:
        at += 3
    if kind == "TABLE":
        name, at = read_name(tokens, at, text)
        return read_table(name, text, tokens, at)
    if kind != "VIEW":
        way_out = "write its expression with built-in functions" if kind == "FUNCTION" else "write CREATE TABLE or CREATE VIEW"
        raise SqlError.refused(shorten_text(text), f"there is no CREATE {kind}" if kind else "it does not say what to create", way_out)
    name, at = read_name(tokens, at, text)
    columns, at = _read_columns(name, tokens, at, text)
    if words_of(tokens[at : at + 1]) == ["COMMENT"] and [token.token_type for token in tokens[at + 1 : at + 2]] == [TokenType.STRING]:
        at += 2
    query_tokens = tokens[at + 1 :]
    if words_of(tokens[at : at + 1]) != ["AS"] or words_of(query_tokens[:1]) not in (["SELECT"], ["WITH"], ["("]):
        raise SqlError.refused(shorten_text(text), "the view has no query", f"write CREATE VIEW {name} AS SELECT ...")
    return CreateView(name, _query(text[query_tokens[0].start - tokens[0].start :], query_tokens), tuple(columns))


def _read_columns(view: str, tokens: Sequence[Token], at: int, text: str) -> tuple[list[str], int]:
    """The names in a view's list of columns, and the position after it; no names if there is no list. Comments have no effect."""
    if at >= len(tokens) or tokens[at].token_type != TokenType.L_PAREN:
        return [], at
    parts, end = read_list(tokens, at, text)
    if not parts:
        raise SqlError.refused(shorten_text(text), "the view has an empty list of columns", "leave the brackets out")
    for part in parts:
        is_commented = len(part) == 3 and word_of(part[1]) == "COMMENT" and part[2].token_type == TokenType.STRING
        if part[0].token_type in (TokenType.STRING, TokenType.NUMBER) or not (len(part) == 1 or is_commented):
            column = text[part[0].start - tokens[0].start : part[-1].end + 1 - tokens[0].start]
            way_out = "write names, each with a COMMENT 'text' if needed; a column has the type that the query gives it"
            raise SqlError.refused(f"{column} in the columns of view {view!r}", "it is no name of a column", way_out)
    return [part[0].text for part in parts], end


def read_name(tokens: Sequence[Token], at: int, text: str) -> tuple[str, int]:
    """The name at a position, and the position after it; of `catalog.database.name`, the last part.

    Raises:
        SqlError: there is no name.
    """
    if at >= len(tokens):
        raise SqlError.refused(shorten_text(text), "it has no name", f"legal: {LEGAL}")
    name: Any = tokens[at].text
    while at + 2 < len(tokens) and tokens[at + 1].text == ".":
        at += 2
        name = tokens[at].text
    return name, at + 1
