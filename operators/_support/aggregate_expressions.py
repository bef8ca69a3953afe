"""Aggregate expressions: decides from its SQL text whether an aggregate is deterministic and mergeable.

The text is split into tokens: words, brackets, quoted text, comments and single other characters. That is enough to answer three
questions, and Spark parses the expression itself when it runs.

- Is it deterministic? Results are computed again and compared, so an aggregate must not depend on the order in which Spark reads rows,
  on random numbers or on the clock.
- Is it one call of an aggregate function whose partial results can be merged: `function ( [ALL] expression )`, without quotes, comments
  or DISTINCT?
- Does every row change it: `count(*)` or `count(1)`?
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from operators.errors import OperatorError
from operators.nondeterministic import CHANCE, CLOCK, FILES, SESSION

_MERGE_FUNCTION = {"count": "sum", **{name: name for name in ("sum", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")}}
"""The aggregate that merges the partial results of an aggregate."""
_FIRST_ROW_READ = ("first", "first_value", "last", "last_value", "any_value")
_IN_ORDER_READ = ("collect_list", "collect_set", "array_agg", "listagg", "string_agg")
_ORDER_INDEPENDENT = ("sort_array", "array_sort", "array_size", "size", "cardinality")
"""Functions whose result does not depend on the order of an array's elements."""
_ROW_ORDER = "the order in which Spark reads rows"
_OTHER_THAN_ROWS = "more than the rows (random numbers, files or the session)"

_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`)
      | (?P<comment>--[^\n]*|/\*(?:.*?\*/)?)
      | (?P<word>\w+)
      | (?P<other>\S)""",
    re.DOTALL | re.VERBOSE,
)
_QUOTES = ("'", '"', "`")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    @property
    def is_code(self) -> bool:
        return self.kind in ("word", "other")


@dataclass(frozen=True)
class _Word:
    """A word of an expression.

    Args:
        name: the word in lower case.
        is_call: whether a bracket opens after it.
        inside: the functions whose brackets are around it, the outermost first.
    """

    name: str
    is_call: bool
    inside: tuple[str, ...]


@dataclass(frozen=True)
class AggregateExpression:
    """One aggregate.

    Args:
        sql: its text.

    Raises:
        OperatorError: its value depends on the order in which Spark reads rows, on random numbers or on the clock.

    >>> AggregateExpression("count(*)").merge_function, AggregateExpression("avg(price)").merge_function
    ('sum', None)
    >>> AggregateExpression("first(v)")
    Traceback (most recent call last):
    operators.errors.OperatorError: `aggregates` is 'first(v)'; legal: aggregates that do not depend on the order in which Spark reads \
rows; in place of first use min_by(v, struct(event_time, seq, arrival)), or max_by
    """

    sql: str

    def __post_init__(self) -> None:
        for word in self._words:
            if reason := self._dependence(word):
                raise OperatorError.bad_value("aggregates", self.sql, f"aggregates that do not depend on {reason}")

    @cached_property
    def merge_function(self) -> str | None:
        """The aggregate function that merges partial results; None if there is none."""
        function, *rest = [token.text.lower() for token in self._tokens] or [""]
        is_call = self._is_plain and _is_one_pair_of_brackets(rest) and rest[1:2] != ["distinct"]
        return _MERGE_FUNCTION.get(function) if is_call else None

    @cached_property
    def changes_with_every_row(self) -> bool:
        """Whether every row changes the value."""
        return [token.text.lower() for token in self._tokens] in (["count", "(", "*", ")"], ["count", "(", "1", ")"])

    def column(self, name: str) -> Column:
        """The aggregate as an expression of Spark."""
        return F.expr(self.sql).alias(name)

    @cached_property
    def _tokens(self) -> list[_Token]:
        return [_Token(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(self.sql)]

    @property
    def _is_plain(self) -> bool:
        """Whether it has no quotes and no comment, which could hide a bracket."""
        return all(token.is_code and token.text not in _QUOTES for token in self._tokens)

    @cached_property
    def _words(self) -> list[_Word]:
        return [*_read_words([token for token in self._tokens if token.is_code])]

    def _dependence(self, word: _Word) -> str | None:
        """What the value depends on through a word, and what to write instead; None if the word is harmless."""
        if word.name in _FIRST_ROW_READ and word.is_call:
            return f"{_ROW_ORDER}; in place of {word.name} use min_by(v, struct(event_time, seq, arrival)), or max_by"
        if word.name in _IN_ORDER_READ and word.is_call and not {*_ORDER_INDEPENDENT} & {*word.inside} and not self._has_within_group:
            return f"{_ROW_ORDER}; sort the result of {word.name}: sort_array(collect_list(v))"
        if word.name in CHANCE | FILES | SESSION and word.is_call:
            return f"{_OTHER_THAN_ROWS}, as {word.name} does"
        if word.name in CLOCK and (word.is_call or word.name.startswith("current_")):
            return f"the clock, as {word.name} does; take a time from a column of the rows"
        return None

    @property
    def _has_within_group(self) -> bool:
        names = [word.name for word in self._words]
        return ("within", "group") in pairwise(names)


@dataclass(frozen=True)
class Aggregates:
    """The aggregates of an operator, by the names of the result's columns."""

    expressions: Mapping[str, AggregateExpression]

    @classmethod
    def read(cls, aggregates: Mapping[str, str]) -> Self:
        """Read the parameter `aggregates`.

        Raises:
            OperatorError: it is empty, or an aggregate is not deterministic.
        """
        if not aggregates:
            raise OperatorError.bad_value("aggregates", aggregates, "at least one, such as {'rows': 'count(*)'}")
        return cls({name: AggregateExpression(sql) for name, sql in aggregates.items()})

    @property
    def are_mergeable(self) -> bool:
        """Whether partial results of all aggregates can be merged."""
        return all(expression.merge_function for expression in self.expressions.values())

    @property
    def change_with_every_row(self) -> bool:
        """Whether every row changes at least one of the values."""
        return any(expression.changes_with_every_row for expression in self.expressions.values())

    def columns(self) -> list[Column]:
        """The aggregates of rows."""
        return [expression.column(name) for name, expression in self.expressions.items()]

    def merged(self) -> list[Column]:
        """The aggregates of partial results, which have the names of the aggregates."""
        return [F.expr(f"{expression.merge_function}(`{name}`)") for name, expression in self.expressions.items()]

    def typed(self, values: Sequence[Column], partial: StructType) -> list[Column]:
        """Merged values with the names and types of the partial results: Spark's sum of a decimal has a wider type."""
        return [value.cast(partial[name].dataType).alias(name) for name, value in zip(self.expressions, values, strict=True)]


def _is_one_pair_of_brackets(texts: Sequence[str]) -> bool:
    """Whether a bracket opens at the start and closes at the end; in `(a) + (b)` it closes before."""
    if texts[:1] != ["("]:
        return False
    depth = 0
    for n, text in enumerate(texts, 1):
        depth += (text == "(") - (text == ")")
        if depth == 0:
            return n == len(texts)
    return False


def _read_words(tokens: Sequence[_Token]) -> Iterator[_Word]:
    """The words in the order of the expression, with the functions whose brackets are around each."""
    inside: list[str] = []
    previous = ""
    for token, following in zip(tokens, [*tokens, None][1:], strict=True):
        if token.text == "(":
            inside.append(previous)
        elif token.text == ")":
            inside = inside[:-1]
        previous = token.text.lower() if token.kind == "word" else ""
        if previous:
            yield _Word(previous, following is not None and following.text == "(", tuple(inside))
