"""Triggers: when a window that is still open shows an early result.

An early result stays as it is until the trigger fires again for its window, or the window is final. A window is identified by the key
of its result.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.columns import of_keys, same_rows
from operators.errors import OperatorError, check_count
from operators.timing import Duration, positive_ms

IS_FINAL, ROWS_SEEN = "is_final", "rows_seen"
"""In the early results: false; and the number of the window's rows so far."""
_EVERY_ROWS = re.compile(r"(\d{1,18}) rows?")


@dataclass(frozen=True)
class EveryStep:
    """Shows every open window at each advance."""

    def early_results(
        self, fresh: DataFrame, shown: DataFrame, *, key: Sequence[str], watermark: int | None, before: int | None
    ) -> DataFrame:
        """The early results to show now (see `Trigger`)."""
        return fresh


@dataclass(frozen=True)
class EveryRows:
    """Shows a window at the advance in which the number of its rows reaches the next multiple of `rows`.

    Flink's `CountTrigger` fires within a micro-batch, once for each multiple.

    Args:
        rows: the number, at least 1.
    """

    rows: int

    def __post_init__(self) -> None:
        check_count("rows", self.rows)

    def early_results(
        self, fresh: DataFrame, shown: DataFrame, *, key: Sequence[str], watermark: int | None, before: int | None
    ) -> DataFrame:
        """The early results to show now (see `Trigger`)."""
        windows = fresh.alias("n").join(shown.alias("s"), same_rows("n", "s", key), "left")
        now, then = (F.floor(F.coalesce(F.col(f"{alias}.{ROWS_SEEN}"), F.lit(0)) / self.rows) for alias in ("n", "s"))
        new, old = (F.struct(*[F.col(f"{alias}.`{c}`") for c in fresh.columns]) for alias in ("n", "s"))
        return windows.where(now > 0).select(F.when(now > then, new).otherwise(old).alias("r")).select("r.*")


@dataclass(frozen=True)
class EveryInterval:
    """Shows every open window at the advance in which the watermark passes the next multiple of an interval since 1970.

    This is Flink's `ContinuousEventTimeTrigger`. If the event time is the ingest time, the watermark follows the clock, and this is
    Flink's `ContinuousProcessingTimeTrigger`.

    Args:
        interval: the interval, more than zero.
    """

    interval: Duration

    def __post_init__(self) -> None:
        _ = self.interval_ms

    @cached_property
    def interval_ms(self) -> int:
        """The interval in ms."""
        return positive_ms(self.interval, "interval")

    def early_results(
        self, fresh: DataFrame, shown: DataFrame, *, key: Sequence[str], watermark: int | None, before: int | None
    ) -> DataFrame:
        """The early results to show now (see `Trigger`)."""
        if watermark is not None and (before is None or watermark // self.interval_ms > before // self.interval_ms):
            return fresh
        return of_keys(shown, fresh, key)


Trigger = EveryStep | EveryRows | EveryInterval
"""When open windows show early results.

A trigger's `early_results` gets the open windows' current results (`fresh`) and those that were last shown (`shown`), both with
`ROWS_SEEN`; the `key` columns that identify a result; the current `watermark`, and the watermark `before`, at which results were last
shown (epoch ms). It returns the results to show now.
"""


def read_trigger(text: str) -> Trigger | None:
    """Read `'every step'`, `'every 100 rows'` or `'every 10 minutes'`; None for `''`.

    Raises:
        OperatorError: the text has another form.

    >>> read_trigger("every 100 rows")
    EveryRows(rows=100)
    """
    if not text.strip():
        return None
    every, _, period = text.strip().partition(" ")
    if every.lower() != "every" or not period:
        raise OperatorError.bad_value("trigger", text, "'every step', 'every 100 rows', 'every 10 minutes', or '' for none")
    if period == "step":
        return EveryStep()
    counted = _EVERY_ROWS.fullmatch(period)
    return EveryRows(int(counted[1])) if counted else EveryInterval(period)
