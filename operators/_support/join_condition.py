"""The condition of an interval join, for static and for streaming frames."""

from collections.abc import Sequence
from itertools import chain

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators._support import spark_streaming


def static_condition(keys: Sequence[tuple[Column, Column]], is_within: Column, residual: str | None) -> Column:
    """Equal keys, times within the bounds, and the residual condition.

    Args:
        keys: each key column of the left side with that of the right side.
        is_within: whether two times are within the bounds.
        residual: a further condition in SQL; None for none.
    """
    condition = _with_keys(keys, is_within)
    return condition if residual is None else condition & F.expr(residual)


def streaming_condition(
    keys: Sequence[tuple[Column, Column]], is_within: Column, residual: str | None, times: tuple[Column, Column], bounds: Column
) -> Column:
    """The condition for streaming frames.

    Spark derives from comparisons of the two time columns how long it keeps a row. It must not derive anything from other conditions.

    Args:
        keys: each key column of the left side with that of the right side.
        is_within: whether two times are within the bounds.
        residual: a further condition in SQL; None for none.
        times: the left and the right time column, with a watermark.
        bounds: the bounds of the time columns, from which Spark derives how long it keeps a row.
    """
    has_no_nulls = spark_streaming.are_not_null(*times, *chain.from_iterable(keys))
    condition = _with_keys(keys, has_no_nulls & bounds & spark_streaming.hide_bounds(is_within))
    return condition if residual is None else condition & spark_streaming.hide_bounds(F.expr(residual))


def _with_keys(keys: Sequence[tuple[Column, Column]], condition: Column) -> Column:
    for left, right in keys:
        condition = (left == right) & condition
    return condition
