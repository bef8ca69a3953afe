"""Splits SQL into tokens, and finds function calls in it. This is no parser: Spark parses the expression when it runs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

_TOKEN = re.compile(
    r"""(?P<quoted>(?<!\w)[rR]'[^']*'|(?<!\w)[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`)
      | (?P<comment>--[^\r\n]*|/\*(?:.*?\*/)?)
      | (?P<word>\w+)
      | (?P<other>\S)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    """A word, a quoted text, a comment, or any other single character. The name of a called function is a word, also in backticks.

    Args:
        kind: `word`, `quoted`, `comment` or `other`.
        text: the token's text.
        start: its position in the expression.
    """

    kind: str
    text: str
    start: int

    @property
    def is_code(self) -> bool:
        """Whether the token is neither quoted text nor a comment."""
        return self.kind in ("word", "other")

    @property
    def name(self) -> str:
        """The text in lower case; that of a word is without backticks."""
        return (self.text.strip("`") if self.kind == "word" else self.text).lower()

    @property
    def end(self) -> int:
        """The position after the token."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Call:
    """A call of a function.

    Args:
        function: its name in lower case.
        arguments: the SQL of each argument.
        is_distinct: whether the arguments begin with DISTINCT.
        condition: the SQL of its FILTER clause; None if it has none.
        start: its position in the expression.
        end: the position after the call, or after its FILTER clause.
    """

    function: str
    arguments: tuple[str, ...]
    is_distinct: bool
    condition: str | None
    start: int
    end: int


def tokens_of(sql: str) -> list[Token]:
    """The tokens of an expression."""
    tokens = [Token(match.lastgroup or "", match[0], match.start()) for match in _TOKEN.finditer(sql)]
    followed_by_bracket = {token.start for token, after in pairwise(t for t in tokens if t.kind != "comment") if after.text == "("}
    return [replace(token, kind="word") if token.text[0] == "`" and token.start in followed_by_bracket else token for token in tokens]


def without_comments(sql: str) -> str:
    """An expression without its comments, so that SQL can be appended: SQL after an open comment would be part of the comment."""
    for token in reversed(tokens_of(sql)):
        sql = f"{sql[: token.start]} {sql[token.end :]}" if token.kind == "comment" else sql
    return sql


def calls_of(sql: str, functions: frozenset[str]) -> Iterator[Call]:
    """The calls of the given functions, from left to right. Calls inside the arguments of such a call are left out."""
    tokens = [token for token in tokens_of(sql) if token.kind != "comment"]
    n = 0
    while n < len(tokens):
        if _opens_call(tokens, n, functions) and (close := closing_bracket(tokens, n + 1)) is not None:
            call, n = _read_call(sql, tokens, n, close)
            yield call
        else:
            n += 1


def _opens_call(tokens: Sequence[Token], n: int, functions: frozenset[str]) -> bool:
    is_name = tokens[n].kind == "word" and tokens[n].name in functions
    return is_name and n + 1 < len(tokens) and tokens[n + 1].text == "(" and (n == 0 or tokens[n - 1].text != ".")


def _read_call(sql: str, tokens: Sequence[Token], first: int, close: int) -> tuple[Call, int]:
    """The call whose name is at token `first` and whose closing bracket is at token `close`, and the index of the token after it."""
    inner = tokens[first + 2 : close]
    quantifier = inner[0].name if inner and inner[0].is_code and inner[0].name in ("distinct", "all") else ""
    start = inner[0].end if quantifier else tokens[first + 1].end
    commas = [token.start for token in at_top_level(inner) if token.text == ","]
    ends = [*commas, tokens[close].start]
    starts = [start, *[comma + 1 for comma in commas]]
    arguments = tuple(sql[a:b].strip() for a, b in zip(starts, ends, strict=True)) if inner else ()
    condition, last = _read_filter(sql, tokens, close)
    return Call(tokens[first].name, arguments, quantifier == "distinct", condition, tokens[first].start, tokens[last].end), last + 1


def _read_filter(sql: str, tokens: Sequence[Token], close: int) -> tuple[str | None, int]:
    """The condition of a FILTER clause after a closing bracket, and the index of the last token of the call."""
    names = [token.name for token in tokens[close + 1 : close + 4]]
    end = closing_bracket(tokens, close + 2) if names == ["filter", "(", "where"] else None
    return (None, close) if end is None else (sql[tokens[close + 3].end : tokens[end].start].strip(), end)


def closing_bracket(tokens: Sequence[Token], opening: int) -> int | None:
    """The index of the bracket that closes the bracket at index `opening`; None if none does."""
    depth = 0
    for n in range(opening, len(tokens)):
        depth += (tokens[n].text == "(") - (tokens[n].text == ")")
        if depth == 0:
            return n
    return None


def at_top_level(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens outside of inner brackets."""
    depth = 0
    for token in tokens:
        depth -= token.text in (")", "]")
        if depth == 0:
            yield token
        depth += token.text in ("(", "[")
