"""Evictors: they select the rows of a window that count, before its result is computed.

An evictor decides by the rows of a window alone, never by the steps in which they were processed, so that a stream and a backfill keep
the same rows. Flink's evictors use the order of arrival. The evictors here use the recorded order of arrival, for rows with equal event
time and for windows by count.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import quoted, temporary
from operators.engine_columns import EVENT_TIME, SEQ, drop_engine_columns, tie_breakers
from operators.errors import OperatorError, check_count, is_instance, is_whole
from operators.nondeterministic import check_deterministic
from operators.parameters import check_sql
from operators.timing import Duration, millis, positive_ms

_RANK, _NEWEST, _ORDER = temporary("rank"), temporary("newest"), temporary("order")
ROW, LAST = "row", "last"
"""The names of a row, and of the last row of its window, in the expression of a `DeltaEvictor`."""

_PATH = re.compile(
    r"""(?<!\w)[rR]'[^']*' | (?<!\w)[rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | --[^\r\n]* | /\*.*?\*/
      | (?<![\w.`]) (?P<path> (?:\w+|`[^`]*`) (?:\s*\.\s*(?:\w+|`[^`]*`))* )""",
    re.DOTALL | re.VERBOSE,
)
"""A text, a comment, or names with dots between them."""
_NAME = re.compile(r"`([^`]*)`|(\w+)")


@runtime_checkable
class Evictor(Protocol):
    """Which rows of a window count. An evictor of your own is a frozen dataclass with this method.

    It must keep the same rows for the same frame, in whatever order Spark reads the frame. An operator with an evictor computes each row
    once for each of the row's windows. The evictor and its parameters are part of a table's identity, but its code is not: if the code of
    your own evictor changes, change the table's `version`.
    """

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        """The rows that are kept.

        Args:
            rows: the rows of all windows, each once for each of its windows, with columns that the engine adds; a join or a coGroup has the
                rows of its sides as the structs `left` and `right`, of which one is null.
            group: the columns with equal values in the rows of one window.
            time: the column with a row's event time. Over windows by count it is `event_time`, which rows of an upserted table may not
                have; `seq` and `arrival` are the order of arrival.

        Returns:
            The rows that are kept, with the same columns.
        """
        ...


@dataclass(frozen=True)
class CountEvictor:
    """Keeps a window's last rows by event time, and among equal times by arrival. In a window by count, keeps the rows that arrived last.

    Flink's evictor uses only the order of arrival, so the rows that it keeps depend on that order.

    Args:
        rows: the number of rows to keep, at least 1.
    """

    rows: int

    def __post_init__(self) -> None:
        check_count("rows", self.rows)

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        """The rows that are kept (see `Evictor`)."""
        order = [F.col(time).desc(), *[column.desc_nulls_last() for column in _ties(rows, group)]]
        ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*group).orderBy(*order)))
        return ranked.where(F.col(_RANK) <= self.rows).drop(_RANK)


@dataclass(frozen=True)
class TimeEvictor:
    """Keeps the rows of a window that are less than `within` older than its newest row: `time > newest - within`, as in Flink.

    Args:
        within: a duration of more than zero.
    """

    within: Duration

    def __post_init__(self) -> None:
        _ = self.within_ms

    @cached_property
    def within_ms(self) -> int:
        """The duration in ms."""
        return positive_ms(self.within, "within")

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        """The rows that are kept (see `Evictor`)."""
        rows_with_newest = rows.withColumn(_NEWEST, F.max(millis(F.col(time))).over(Window.partitionBy(*group)))
        return rows_with_newest.where(millis(F.col(time)) > F.col(_NEWEST) - self.within_ms).drop(_NEWEST)


@dataclass(frozen=True)
class DeltaEvictor:
    """Keeps the rows of a window whose delta to its last row is below a threshold: Flink's `DeltaEvictor`, `delta(row, last) < threshold`.

    The last row is the one with the greatest event time; among equal times, the one that arrived last. In a window by count, it is the one
    that arrived last. A row whose delta is null is kept.

    Args:
        delta: SQL for the delta, a number, over the structs `row` and `last` with a row's columns: `"abs(row.price - last.price)"`. In a
            join or a coGroup the structs have the fields `left` and `right`, of which one is null:
            `"abs(coalesce(row.left.price, row.right.price) - coalesce(last.left.price, last.right.price))"`.
        threshold: rows with a delta of at least this are not kept.

    Raises:
        OperatorError: `delta` is empty, or depends on random numbers, files, the session or the clock; or `threshold` is not a number.
    """

    delta: str
    threshold: float

    def __post_init__(self) -> None:
        check_sql("delta", self.delta, is_optional=False)
        check_deterministic("delta", self.delta, (ROW, LAST))
        if not _is_number(self.threshold):
            raise OperatorError.bad_value(
                "threshold", self.threshold, "a float that is not NaN, or a whole number from -2**63 to 2**63 - 1"
            )

    @cached_property
    def fields_read(self) -> tuple[tuple[str, ...], ...]:
        """The fields of `row` and `last` that the delta names with a dot, each by its path; not those in square brackets, and not `row.*`.

        >>> DeltaEvictor("row.`a.b` - coalesce(last.left.price, 0)", 5).fields_read
        (('a.b',), ('left', 'price'))
        """
        paths = [[in_quotes or word for in_quotes, word in _NAME.findall(match["path"] or "")] for match in _PATH.finditer(self.delta)]
        return tuple(tuple(names) for [struct, *names] in filter(None, paths) if struct.lower() in (ROW, LAST) and names)

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        """The rows that are kept (see `Evictor`)."""
        row, order = F.struct(*quoted(rows.columns)), F.struct(F.col(time), *_ties(rows, group))
        pairs = rows.select(row.alias(ROW), F.max_by(row, order).over(Window.partitionBy(*group)).alias(LAST))
        is_evicted = F.coalesce(F.expr(self.delta) >= F.lit(self.threshold), F.lit(False))
        return pairs.where(~is_evicted).select(f"{ROW}.*")


def check_evictor(evictor: object) -> None:
    """Raise `OperatorError` unless a parameter `evictor` is an evictor, or None."""
    if evictor is not None and not is_instance(evictor, Evictor):
        legal = "CountEvictor(100), TimeEvictor('10 minutes'), a DeltaEvictor or an evictor of your own, or None for all rows"
        raise OperatorError.bad_value("evictor", evictor, legal)


EVICTORS = CountEvictor, TimeEvictor, DeltaEvictor
"""The evictors that Tidemark has."""


def keep_by_arrival(evictor: Evictor, rows: DataFrame, group: Sequence[str]) -> DataFrame:
    """The rows that an evictor keeps of windows whose last row is the one that arrived last; rows have `seq` and `arrival`."""
    reads_order_only = isinstance(evictor, CountEvictor | DeltaEvictor)
    return evictor.keep(rows, group, SEQ if reads_order_only else EVENT_TIME)


def _is_number(value: object) -> bool:
    """Whether a value is a number that Spark has as a double or a bigint."""
    return -(2**63) <= value < 2**63 if is_whole(value) else isinstance(value, float) and not isnan(value)


def _ties(rows: DataFrame, group: Sequence[str]) -> list[Column]:
    """The columns that order rows of a window with equal time."""
    return tie_breakers(drop_engine_columns(rows), without=group)
