"""Finds functions that collect rows in the order in which Spark reads them, if the value of an expression depends on that order.

`sort_array(collect_list(v))` has the same value for each order of the rows. `sort_array(slice(collect_list(v), 1, 2))` does not: `slice`
chooses two elements before they are sorted. A sort by a comparator does not either: a comparator can treat different elements as equal.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from operators._support.sql_tokens import Token, tokens_of

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
    brackets = list[int]()  # the indexes of the open brackets
    lambda_brackets = _brackets_with_lambda_of_two(tokens)
    for n, (token, following) in enumerate(pairwise([*tokens, Token("other", "", len(sql))])):
        is_call = token.kind == "word" and following.text == "("
        if is_call and token.name in _LISTS and not _is_order_independent(tokens, [*brackets, n + 1], lambda_brackets):
            return token.name
        if is_call and token.name in _TEXTS and not _is_ordered_by_its_value(tokens[n:]):
            return token.name
        if token.kind == "other" and token.text == "(":
            brackets.append(n)
        elif token.kind == "other" and token.text == ")":
            brackets = brackets[:-1]
    return None


def _is_order_independent(tokens: Sequence[Token], brackets: Sequence[int], lambda_brackets: set[int]) -> bool:
    """Whether an array collected inside some brackets is sorted or counted, and before that only changed element by element."""
    for bracket in reversed(brackets):
        function = tokens[bracket - 1].name if bracket and tokens[bracket - 1].kind == "word" else ""
        if bracket in lambda_brackets or (function and function not in (*_LISTS, *_SAME_ELEMENTS, *_ORDER_INDEPENDENT)):
            return False
        if function in _ORDER_INDEPENDENT:
            return True
        close = _closing_bracket(tokens[bracket:])
        if close is None or [token.text for token in tokens[bracket + close + 1 : bracket + close + 2]] == ["["]:
            return False  # an element by its position
    return False


def _brackets_with_lambda_of_two(tokens: Sequence[Token]) -> set[int]:
    """The indexes of the brackets that directly contain a lambda `(a, b) -> ...`: a comparator, or a function of element and index."""
    brackets, found = list[int](), set[int]()
    for n, token in enumerate(tokens):
        if token.kind == "other" and token.text == "(":
            brackets.append(n)
        elif token.kind == "other" and token.text == ")":
            brackets = brackets[:-1]
            if brackets and [following.text for following in tokens[n + 1 : n + 3]] == ["-", ">"]:
                found.add(brackets[-1])
    return found


def _is_ordered_by_its_value(call: Sequence[Token]) -> bool:
    """Whether a call of `listagg` is followed by `WITHIN GROUP (ORDER BY ...)` with its own value in the order: ties are then equal.

    Args:
        call: the tokens from the function's name on.
    """
    close = _closing_bracket(call)
    if close is None or [token.name for token in call[close + 1 : close + 6]] != ["within", "group", "(", "order", "by"]:
        return False
    [value, *_] = [*_at_commas(call[2:close])] or [[]]
    value = value[1:] if value[:1] == ["distinct"] else value
    end = _closing_bracket(call[close + 3 :])
    return end is not None and any(_sorted_value(part) == _sorted_value(value) for part in _at_commas(call[close + 6 : close + 3 + end]))


def _sorted_value(texts: list[str]) -> list[str]:
    """The expression of an ORDER BY item, without its direction and brackets around it."""
    while texts and texts[-1] in ("asc", "desc", "nulls", "first", "last"):
        texts = texts[:-1]
    while len(texts) > 2 and texts[0] == "(" and texts[-1] == ")" and ")" not in texts[1:-1]:
        texts = texts[1:-1]
    return texts


def _closing_bracket(tokens: Sequence[Token]) -> int | None:
    """The index of the bracket that closes the first one; None if none does."""
    depth = 0
    for n, token in enumerate(tokens):
        if token.kind == "other":
            depth += (token.text == "(") - (token.text == ")")
            if token.text == ")" and depth == 0:
                return n
    return None


def _at_commas(tokens: Sequence[Token]) -> Iterator[list[str]]:
    """The parts of a list between its commas, as texts of tokens; words in lower case."""
    depth, part = 0, list[str]()
    for token in tokens:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]")) if token.kind == "other" else 0
        if depth == 0 and token.kind == "other" and token.text == ",":
            yield part
            part = []
        else:
            part.append(token.name if token.kind == "word" else token.text)
    yield part
