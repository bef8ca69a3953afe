"""Finds functions that collect rows in the order in which Spark reads them, if the value of an expression depends on that order.

`sort_array(collect_list(v))` has the same value for each order of the rows. `sort_array(slice(collect_list(v), 1, 2))` does not: `slice`
chooses two elements before they are sorted. A sort by a comparator does not either: a comparator can treat different elements as equal.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from operators._support.sql_tokens import Token, at_top_level, closing_bracket, tokens_of

_LISTS = ("collect_list", "collect_set", "array_agg")
_TEXTS = ("listagg", "string_agg")
_ORDER_INDEPENDENT = ("sort_array", "array_sort", "array_size", "size", "cardinality")
"""Functions whose result does not depend on the order of an array's elements."""
_SAME_ELEMENTS = frozenset(
    {
        *("transform", "filter", "flatten", "concat", "coalesce", "nvl", "ifnull"),
        *("array_distinct", "array_compact", "array_remove", "array_union", "array_except", "array_intersect"),
    }
)
"""Functions whose result has the same elements in each order of their arrays' elements."""


def first_in_read_order(sql: str) -> str | None:
    """The first function in an expression that collects rows in an order on which the value depends; None if there is none.

    >>> first_in_read_order("array_join(collect_list(v), ',')"), first_in_read_order("size(collect_set(v))")
    ('collect_list', None)
    """
    tokens = [token for token in tokens_of(sql) if token.kind != "comment"]
    brackets_by_token = [*_enclosing_brackets(tokens)]
    lambda_brackets = _brackets_with_lambda_of_two(tokens, brackets_by_token)
    for n, (token, following) in enumerate(pairwise(tokens)):
        is_call = token.kind == "word" and following.text == "("
        if is_call and token.name in _LISTS and not _is_order_independent(tokens, [*brackets_by_token[n], n + 1], lambda_brackets):
            return token.name
        if is_call and token.name in _TEXTS and not _is_ordered_by_its_value(tokens[n:]):
            return token.name
    return None


def _enclosing_brackets(tokens: Sequence[Token]) -> Iterator[tuple[int, ...]]:
    """For each token, the indexes of the brackets around it, the outermost first; a bracket is not inside of itself."""
    brackets: tuple[int, ...] = ()
    for n, token in enumerate(tokens):
        brackets = brackets[:-1] if token.text == ")" else brackets
        yield brackets
        brackets = (*brackets, n) if token.text == "(" else brackets


def _is_order_independent(tokens: Sequence[Token], brackets: Sequence[int], lambda_brackets: set[int]) -> bool:
    """Whether an array collected inside some brackets is sorted or counted, and before that only changed element by element."""
    for bracket in reversed(brackets):
        function = tokens[bracket - 1].name if bracket and tokens[bracket - 1].kind == "word" else ""
        if bracket in lambda_brackets or (function and function not in (*_LISTS, *_SAME_ELEMENTS, *_ORDER_INDEPENDENT)):
            return False
        if function in _ORDER_INDEPENDENT:
            return True
        close = closing_bracket(tokens, bracket)
        if close is None or [token.text for token in tokens[close + 1 : close + 2]] == ["["]:
            return False  # an element by its position
    return False


def _brackets_with_lambda_of_two(tokens: Sequence[Token], brackets_by_token: Sequence[tuple[int, ...]]) -> set[int]:
    """The indexes of the brackets that directly contain a lambda `(a, b) -> ...`: a comparator, or a function of element and index."""
    return {
        brackets[-1]
        for n, (token, brackets) in enumerate(zip(tokens, brackets_by_token, strict=True))
        if brackets and token.text == ")" and [following.text for following in tokens[n + 1 : n + 3]] == ["-", ">"]
    }


def _is_ordered_by_its_value(call: Sequence[Token]) -> bool:
    """Whether a call of `listagg` is followed by `WITHIN GROUP (ORDER BY ...)` with its own value in the order: ties are then equal.

    Args:
        call: the tokens from the function's name on.
    """
    close = closing_bracket(call, 1)
    if close is None or [token.name for token in call[close + 1 : close + 6]] != ["within", "group", "(", "order", "by"]:
        return False
    [value, *_] = _at_commas(call[2:close])
    value = value[1:] if value[:1] == ["distinct"] else value
    end = closing_bracket(call, close + 3)
    if end is None:
        return False
    return any(_without_brackets(_without_direction(part)) == _without_brackets(value) for part in _at_commas(call[close + 6 : end]))


def _without_direction(texts: list[str]) -> list[str]:
    """The expression of an ORDER BY item. A column can be named `first` or `desc`, so what is left is never empty or ends with a dot."""
    if len(texts) > 2 and texts[-2:] in (["nulls", "first"], ["nulls", "last"]):
        texts = texts[:-2]
    return texts[:-1] if len(texts) > 1 and texts[-1] in ("asc", "desc") and texts[-2] != "." else texts


def _without_brackets(texts: list[str]) -> list[str]:
    while len(texts) > 2 and texts[0] == "(" and texts[-1] == ")" and ")" not in texts[1:-1]:
        texts = texts[1:-1]
    return texts


def _at_commas(tokens: Sequence[Token]) -> list[list[str]]:
    """The parts of a list between its commas, as texts of tokens; words in lower case."""
    commas = {token.start for token in at_top_level(tokens) if token.text == ","}
    parts = [list[str]()]
    for token in tokens:
        if token.start in commas:
            parts.append([])
        else:
            parts[-1].append(token.name if token.kind == "word" else token.text)
    return parts
