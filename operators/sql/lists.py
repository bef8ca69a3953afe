"""Lists in brackets in statements: the columns of a table or a view, and the options of WITH."""

from collections.abc import Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token

from operators.sql.errors import SqlError, shorten_text
from operators.sql.syntax import word_of

_CLOSED_BY = {"(": ")", "[": "]", "<": ">"}
_NESTED_TYPES = ("ARRAY", "MAP", "MULTISET", "ROW", "STRUCT")


def read_list(tokens: Sequence[Token], at: int, text: str) -> tuple[list[list[Token]], int]:
    """The parts of a list in brackets, which commas outside of inner brackets separate, and the position after the list.

    Empty brackets have no parts.

    Args:
        tokens: the tokens of the statement.
        at: the position of the opening bracket.
        text: the statement.

    Raises:
        SqlError: the bracket is not closed, or a part is empty.
    """
    if ")" not in (words := outer_words(tokens[at:])):
        raise SqlError.not_closed(text, tokens[at].start, ")")
    end = at + words.index(")")
    if end == at + 1:
        return [], end + 1
    parts: list[list[Token]] = [[]]
    for token, word in zip(tokens[at + 1 : end + 1], [*outer_words(tokens[at + 1 : end]), ","], strict=True):
        if word != ",":
            parts[-1].append(token)
        elif parts[-1]:
            parts.append([])
        else:
            position = f"line {token.line}, column {token.col}"
            raise SqlError(f"{shorten_text(text)!r} cannot be parsed: a comma has nothing before or after it ({position})")
    return parts[:-1], end + 1


def outer_words(tokens: Sequence[Token]) -> list[str]:
    """The word of each token; empty for a token in brackets or quotes, which begins no clause."""
    words, opened = list[str](), list[str]()
    for before, word in pairwise(["", *map(word_of, tokens)]):
        if opened and word == _CLOSED_BY[opened[-1]]:
            opened.pop()
        words.append("" if opened else word)
        if word in ("(", "[") or (word == "<" and before in _NESTED_TYPES):
            opened.append(word)
    return words
