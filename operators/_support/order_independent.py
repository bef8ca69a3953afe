"""Rewrites aggregates whose value depends on the order of the rows into ones that do not, where that is possible.

Results are computed again and compared, and Spark reads rows in any order. So a sum that is rounded after each row, or a row that is
chosen among equals by the order of reading, would differ from one computation to the next. Whether an aggregate is one of these depends on
the types of its arguments: a sum of decimals is exact, and a sum of doubles is not.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from operators._support import moments
from operators._support.exact_sums import exact_sum
from operators._support.sql_tokens import Call, calls_of, tokens_of, without_comments
from operators.column_types import can_be_compared

_SUMS, _AVERAGES = frozenset({"sum", "try_sum"}), frozenset({"avg", "mean", "try_avg"})
_CHOICES = frozenset({"min_by", "max_by"})
_REWRITTEN = _SUMS | _AVERAGES | _CHOICES | moments.OF_ONE_COLUMN | moments.OF_TWO_COLUMNS | {"mode"}
_INEXACT = (DoubleType, FloatType, StringType)
"""Types that Spark adds as doubles; it casts text."""
_SMALL = (ByteType, ShortType, IntegerType)
_EXACT_WORD, _EXACT_CHARACTERS = re.compile(r"[0-9]+"), frozenset("+-*(),")


def rewrite_aggregates(aggregates: Mapping[str, str], rows: DataFrame) -> dict[str, str]:
    """The SQL of aggregates, changed so that their values do not depend on the order of the rows.

    Args:
        aggregates: SQL, by the name of the result's column.
        rows: the rows that are aggregated, for the types of their columns.
    """
    aggregates = {name: without_comments(sql) for name, sql in aggregates.items()}
    calls_by_name = {name: [*calls_of(sql, _REWRITTEN)] for name, sql in aggregates.items()}
    types = _Types.of_arguments([call for calls in calls_by_name.values() for call in calls], rows)
    return {
        name: _replace_calls(aggregates[name], [(call, _replacement(call, types)) for call in calls])
        for name, calls in calls_by_name.items()
    }


def _replace_calls(sql: str, calls: Sequence[tuple[Call, str | None]]) -> str:
    """SQL with some calls replaced; None leaves a call as it is."""
    for call, replacement in reversed(calls):
        sql = sql if replacement is None else f"{sql[: call.start]}{replacement}{sql[call.end :]}"
    return sql


class _Types:
    """The types of the arguments of calls; an argument of exact columns and whole numbers only is known without an analysis by Spark."""

    def __init__(self, kinds: Mapping[str, DataType]) -> None:
        self._kinds = kinds

    @classmethod
    def of_arguments(cls, calls: Sequence[Call], rows: DataFrame) -> "_Types":
        """The types of the arguments that need them."""
        texts = [text for call in calls for text in call.arguments if call.function not in _SUMS or not _is_exact(text, rows.schema)]
        texts = [*dict.fromkeys(text for text in texts if text)]
        argument_schema = rows.select(*[F.expr(text).alias(f"a{n}") for n, text in enumerate(texts)]).schema if texts else StructType()
        return cls({text: argument_schema[n].dataType for n, text in enumerate(texts)})

    def __getitem__(self, text: str) -> DataType | None:
        """The type of an argument; None if it is exact."""
        return self._kinds.get(text)


def _is_exact(text: str, schema: StructType) -> bool:
    """Whether an expression adds, subtracts and multiplies whole numbers and decimals only."""
    kinds: Mapping[str, Any] = {field.name.lower(): field.dataType for field in schema.fields}
    return all(
        isinstance(kinds.get(token.name), IntegralType | DecimalType) or _EXACT_WORD.fullmatch(token.text)
        if token.kind == "word"
        else token.text in _EXACT_CHARACTERS
        for token in tokens_of(text)
    )


def _replacement(call: Call, types: _Types) -> str | None:
    """The SQL that replaces a call; None to leave it."""
    if call.function in moments.OF_TWO_COLUMNS:
        return _statistic_sql(call)
    if call.function in _CHOICES:
        return _choice_sql(call, types)
    if len(call.arguments) != 1:
        return None
    [value] = call.arguments
    if call.function == "mode":
        return f"mode({value}, true){_filter_clause(call)}"
    if call.function in moments.OF_ONE_COLUMN:
        return moments.moment(call.function, _as_double(value), call.condition, is_distinct=call.is_distinct)
    return _sum_sql(call, value, types[value]) if call.function in _SUMS else _average_sql(call, value, types[value])


def _sum_sql(call: Call, value: str, kind: DataType | None) -> str | None:
    if not isinstance(kind, _INEXACT):
        return None
    if call.is_distinct:
        return moments.sorted_sum(_as_double(value), call.condition, is_distinct=True)
    return exact_sum(_as_double(value), call.condition)


def _average_sql(call: Call, value: str, kind: DataType | None) -> str | None:
    if isinstance(kind, _INEXACT):
        if call.is_distinct:
            return moments.sorted_average(_as_double(value), call.condition, is_distinct=True)
        total = exact_sum(_as_double(value), call.condition)
    elif isinstance(kind, (*_SMALL, LongType)):
        wide = value if isinstance(kind, _SMALL) else f"cast({value} AS DECIMAL(20, 0))"
        total = f"cast(sum({_quantifier(call)}{wide}){_filter_clause(call)} AS DOUBLE)"
    else:
        return None
    return f"try_divide({total}, count({_quantifier(call)}{value}){_filter_clause(call)})"


def _statistic_sql(call: Call) -> str | None:
    if len(call.arguments) != 2 or call.is_distinct:
        return None
    y, x = map(_as_double, call.arguments)
    return moments.moment_of_two(call.function, y, x, call.condition)


def _choice_sql(call: Call, types: _Types) -> str | None:
    """`min_by` and `max_by`: of the rows with the least or the greatest order, the one with the least or the greatest value.

    Maps and variants, which have no order, are compared by their JSON, in which times have milliseconds.
    """
    if len(call.arguments) != 2:
        return None
    value, order = call.arguments
    value_kind = types[value]
    has_no_order = value_kind is not None and not can_be_compared(value_kind)
    comparable_value = f"to_json(named_struct('v', {value}))" if has_no_order else value
    order_then_value = f"if(({order}) IS NULL, null, named_struct('o', {order}, 'v', {comparable_value}))"
    return f"{call.function}({value}, {order_then_value}){_filter_clause(call)}"


def _as_double(value: str) -> str:
    return f"cast({value} AS DOUBLE)"


def _quantifier(call: Call) -> str:
    return "DISTINCT " if call.is_distinct else ""


def _filter_clause(call: Call) -> str:
    return f" FILTER (WHERE {call.condition})" if call.condition else ""
