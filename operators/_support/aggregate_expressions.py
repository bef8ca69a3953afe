"""Aggregate expressions: decides from its SQL text whether an aggregate is deterministic and mergeable.

The text is split into tokens (see `sql_tokens`), which is enough for these questions.

- Is it deterministic? Results are computed again and compared, so an aggregate must not depend on the order in which Spark reads rows,
  on random numbers, files, the session or the clock.
- Is it one call of an aggregate function whose partial results can be merged: `function ( [ALL] expression )`, without quotes, comments
  or DISTINCT?
- Does every row change it: `count(*)` or `count(1)`?
- Does no further row ever move it back in an order, as those of `count(*) DESC`?
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructType

from operators._support.collected_order import first_in_read_order
from operators._support.order_independent import rewrite_aggregates
from operators._support.sql_tokens import Token, calls_of, tokens_of
from operators.columns import TEMPORARY, quoted_name
from operators.errors import ColumnError, OperatorError
from operators.nondeterministic import CHANCE, FILES, SESSION, check_deterministic, nondeterministic_part, suggestion_for
from operators.parameters import is_name

_MERGE_FUNCTION = {"count": "sum", **{name: name for name in ("sum", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")}}
"""The aggregate that merges the partial results of an aggregate."""
_FIRST_ROW_READ = ("first", "first_value", "last", "last_value", "any_value")
_APPROXIMATE = {
    "percentile_approx": "percentile_disc(0.5) WITHIN GROUP (ORDER BY v)",
    "approx_percentile": "percentile_disc(0.5) WITHIN GROUP (ORDER BY v)",
    "histogram_numeric": "count_if(v BETWEEN 0 AND 10) for each range",
    **dict.fromkeys(("approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine"), "mode() WITHIN GROUP (ORDER BY v)"),
    "hll_sketch_agg": "approx_count_distinct(v)",
    "hll_union_agg": "approx_count_distinct(v)",
}
"""Functions that summarize rows in the order in which they are read, and what to write in place of each."""
_ROW_ORDER = "the order in which Spark reads rows"
_OTHER_THAN_ROWS = "more than the rows (random numbers, files or the session)"

_QUOTES = ("'", '"', "`")


@dataclass(frozen=True)
class _Word:
    """A word of an expression.

    Args:
        name: the word in lower case.
        is_call: whether a bracket opens after it.
    """

    name: str
    is_call: bool


@dataclass(frozen=True)
class AggregateExpression:
    """One aggregate.

    Args:
        sql: its text.

    Raises:
        OperatorError: its value depends on the order in which Spark reads rows, on random numbers, files, the session or the clock.

    >>> AggregateExpression("count(*)").merge_function, AggregateExpression("avg(price)").merge_function
    ('sum', None)
    >>> AggregateExpression("first(v)")
    Traceback (most recent call last):
    operators.errors.OperatorError: `aggregates` is 'first(v)'; legal: aggregates that do not depend on the order in which Spark reads \
rows; in place of first use min_by(v, struct(event_time, seq, arrival)), or max_by
    """

    sql: str

    def __post_init__(self) -> None:
        for reason in (*map(self._dependence, self._words), self._dependence_on_more(), self._order_dependence()):
            if reason:
                raise OperatorError.bad_value("aggregates", self.sql, f"aggregates that do not depend on {reason}")

    @cached_property
    def merge_function(self) -> str | None:
        """The aggregate function that merges partial results; None if there is none."""
        function, *following_tokens = [token.text.lower() for token in self._tokens] or [""]
        is_call = self._is_plain and _is_one_pair_of_brackets(following_tokens) and following_tokens[1:2] != ["distinct"]
        return _MERGE_FUNCTION.get(function) if is_call else None

    @cached_property
    def changes_with_every_row(self) -> bool:
        """Whether every row changes the value."""
        return [token.text.lower() for token in self._tokens] in (["count", "(", "*", ")"], ["count", "(", "1", ")"])

    @property
    def is_distinct(self) -> bool:
        """Whether it aggregates distinct values."""
        return any(token.is_code and token.name == "distinct" for token in self._tokens)

    @property
    def is_sum(self) -> bool:
        """Whether it is one call of `sum` whose partial results can be merged."""
        return self.merge_function == "sum" and self._tokens[0].name == "sum"

    def why_never_moves_back(self, never_negative: Collection[str], *, is_descending: bool, nulls_first: bool) -> str:
        """Why further rows never move the value back in an order; empty if they might.

        Args:
            never_negative: columns, in lower case, whose values are not negative.
            is_descending: whether large values come first.
            nulls_first: whether null comes before all values.
        """
        function = self._tokens[0].name if self.merge_function else ""
        if function == "count" and is_descending:
            return f"{self.sql} never falls"
        if nulls_first:  # the value is null until a row has one
            return ""
        if function == ("max" if is_descending else "min"):
            return f"{self.sql} never {'falls' if is_descending else 'rises'}"
        is_sum = function == "sum" and is_descending and self._only_adds(never_negative)
        return f"{self.sql} never falls, because no row lowers it" if is_sum else ""

    def _only_adds(self, columns: Collection[str]) -> bool:
        """Whether it adds products and sums of the given columns and of whole numbers."""
        tokens = [token for call in calls_of(self.sql, frozenset({"sum"})) for text in call.arguments for token in tokens_of(text)]
        return all(token.name in columns or token.text.isdigit() or token.text in "+*" for token in tokens)

    def adds_one_of(self, columns: Collection[str]) -> bool:
        """Whether it is a sum of numbers that are computed from one of the columns by `+`, `-`, `*` and `/` alone."""
        tokens = [token for call in calls_of(self.sql, frozenset({"sum"})) for text in call.arguments for token in tokens_of(text)]
        is_arithmetic = all(token.kind == "word" or token.text in "+-*/" for token in tokens)
        return is_arithmetic and any(token.name in columns for token in tokens)

    @cached_property
    def _tokens(self) -> list[Token]:
        return tokens_of(self.sql)

    @property
    def _is_plain(self) -> bool:
        """Whether it has no quotes and no comment, which could hide a bracket."""
        return all(token.is_code and token.text[0] not in _QUOTES for token in self._tokens)

    @cached_property
    def _words(self) -> list[_Word]:
        return [*_read_words([token for token in self._tokens if token.is_code])]

    def _order_dependence(self) -> str | None:
        """What to write in place of a function that collects rows in the order in which Spark reads them; None if there is none."""
        function = first_in_read_order(self.sql)
        if function in ("listagg", "string_agg"):
            return f"{_ROW_ORDER}; sort the result of {function}: {function}(v, ',') WITHIN GROUP (ORDER BY v), by the value itself"
        if function is not None:
            return f"{_ROW_ORDER}; sort the result of {function} before anything else: sort_array({function}(v)), without a comparator"
        return None

    def _dependence(self, word: _Word) -> str | None:
        """What a word makes the value depend on, and what to write instead; None if the word is harmless."""
        if word.name in _FIRST_ROW_READ and word.is_call:
            return f"{_ROW_ORDER}; in place of {word.name} use min_by(v, struct(event_time, seq, arrival)), or max_by"
        if word.is_call and (word.name in _APPROXIMATE or word.name.startswith(("kll_", "theta_"))):
            return f"{_ROW_ORDER}; in place of {word.name} use {_APPROXIMATE.get(word.name, 'an exact function')}"
        return None

    def _dependence_on_more(self) -> str | None:
        """What the value depends on besides the rows, and what to write instead; None if there is nothing."""
        part = nondeterministic_part(self.sql)
        if part is None:
            return None
        if part in CHANCE | FILES | SESSION:
            return f"{_OTHER_THAN_ROWS}, as {part} does{suggestion_for(part)}"
        return f"the clock, as {part} does{suggestion_for(part) or '; take a time from a column of the rows'}"


@dataclass(frozen=True)
class Aggregates:
    """The aggregates of an operator, by the names of the result's columns."""

    expressions: Mapping[str, AggregateExpression]

    @classmethod
    def read(cls, aggregates: Mapping[str, str]) -> Self:
        """Read the parameter `aggregates`.

        Raises:
            OperatorError: it is empty or no mapping of names to SQL, a name cannot be that of a column, or an aggregate is not
                deterministic.
        """
        is_mapping = isinstance(aggregates, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_mapping or not all(isinstance(text, str) for text in chain(aggregates, aggregates.values())):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperatorError.bad_value("aggregates", aggregates, "a mapping of names to SQL, such as {'rows': 'count(*)'}")
        if not aggregates:
            raise OperatorError.bad_value("aggregates", aggregates, "at least one, such as {'rows': 'count(*)'}")
        if not all(text.strip() for text in aggregates.values()):
            raise OperatorError.bad_value("aggregates", aggregates, "SQL that is not empty, such as {'rows': 'count(*)'}")
        for name, sql in aggregates.items():
            if not is_name(name):
                raise OperatorError.bad_value("aggregates", {name: sql}, "names that are not empty and have no dot and no backtick")
            if name.lower().startswith(TEMPORARY):
                raise ColumnError.reserved(name, TEMPORARY)
        return cls({name: AggregateExpression(sql) for name, sql in aggregates.items()})

    @property
    def are_mergeable(self) -> bool:
        """Whether partial results of all aggregates can be merged."""
        return all(expression.merge_function for expression in self.expressions.values())

    def always_changes_one_of(self, columns: Sequence[str]) -> bool:
        """Whether each row that changes a result changes at least one of the given columns."""
        with_every_row = (self.expressions[name].changes_with_every_row for name in columns if name in self.expressions)
        return any(with_every_row) or (self.are_mergeable and {*self.expressions} <= {*columns})

    @property
    def change_with_every_row(self) -> bool:
        """Whether every row changes at least one of the values."""
        return any(expression.changes_with_every_row for expression in self.expressions.values())

    def check_bare_names(self, columns: Sequence[str]) -> None:
        """Raise `OperatorError` if a name is no column, but a function that Spark calls without parentheses."""
        for expression in self.expressions.values():
            check_deterministic("aggregates", expression.sql, columns)

    def plain_columns(self) -> list[Column]:
        """The aggregates as they were given."""
        return [F.expr(expression.sql).alias(name) for name, expression in self.expressions.items()]

    def columns(self, rows: DataFrame) -> list[Column]:
        """The aggregates of rows; none depends on the order of the rows (see `order_independent`)."""
        sql_by_name = {name: expression.sql for name, expression in self.expressions.items()}
        return [F.expr(sql).alias(name) for name, sql in rewrite_aggregates(sql_by_name, rows).items()]

    def merge_columns(self, partial: DataFrame) -> list[Column]:
        """The columns that merge partial results, which have the aggregates' names; none depends on the order of the rows."""
        sql_by_name = {name: f"{expression.merge_function}({quoted_name(name)})" for name, expression in self.expressions.items()}
        return [F.expr(sql) for sql in rewrite_aggregates(sql_by_name, partial).values()]

    def check_merged_sums(self, schema: StructType) -> None:
        """Raise `OperatorError` if a sum that is merged certainly adds doubles; other sums are found when rows are aggregated."""
        inexact = {field.name.lower() for field in schema.fields if isinstance(field.dataType, DoubleType | FloatType)}
        for expression in self.expressions.values():
            if expression.merge_function == "sum" and expression.adds_one_of(inexact):
                raise unmergeable_sum(expression.sql)

    def restore_types(self, values: Sequence[Column], partial: StructType) -> list[Column]:
        """Give merged values the names and types of the partial results, because Spark's sum of a decimal has a wider type."""
        return [value.cast(partial[name].dataType).alias(name) for name, value in zip(self.expressions, values, strict=True)]


def unmergeable_sum(sql: str) -> OperatorError:
    """The error for a sum of doubles that would have to be merged with earlier sums."""
    legal = (
        "sums of exact numbers: a sum of floats depends on the order of the rows; cast to a decimal, as in sum(CAST(v AS DECIMAL(18, 4))), "
        "or write a longer expression, such as round(sum(v), 4), for which a step reads all rows of its keys"
    )
    return OperatorError.bad_value("aggregates", sql, legal)


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


def _read_words(tokens: Sequence[Token]) -> Iterator[_Word]:
    """The words in the order of the expression, without the names of fields: `at` in `o.at`."""
    texts = ["", *(token.text for token in tokens), ""]
    for token, before, after in zip(tokens, texts, texts[2:], strict=False):
        if token.kind == "word" and (before != "." or after == "("):
            yield _Word(token.name, after == "(")
