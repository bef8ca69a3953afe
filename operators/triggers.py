"""Triggers: when a window that is still open shows what it holds so far.

What was shown stays as it was until its window is due again, or final. A window is told by its result's key.
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
"""In the rows of open windows: false; and how many rows of the window were there."""
_ROWS = re.compile(r"(\d{1,18}) rows?")


@dataclass(frozen=True)
class EveryStep:
    """Every open window, with each advance."""

    def due(self, fresh: DataFrame, shown: DataFrame, *, key: Sequence[str], watermark: int | None, before: int | None) -> DataFrame:
        """What is to be shown now (see `Trigger`)."""
        return fresh


@dataclass(frozen=True)
class EveryRows:
    """A window, with the advance in which its rows reach the next multiple of a number. Flink's fires within it, once for each.

    Args:
        rows: the number, at least 1.
    """

    rows: int

    def __post_init__(self) -> None:
        check_count("rows", self.rows)

    def due(self, fresh: DataFrame, shown: DataFrame, *, key: Sequence[str], watermark: int | None, before: int | None) -> DataFrame:
        """What is to be shown now (see `Trigger`)."""
        told = fresh.alias("n").join(shown.alias("s"), same_rows("n", "s", key), "left")
        now, then = (F.floor(F.coalesce(F.col(f"{side}.{ROWS_SEEN}"), F.lit(0)) / self.rows) for side in ("n", "s"))
        new, old = (F.struct(*[F.col(f"{side}.`{c}`") for c in fresh.columns]) for side in ("n", "s"))
        return told.where(now > 0).select(F.when(now > then, new).otherwise(old).alias("r")).select("r.*")


@dataclass(frozen=True)
class EveryInterval:
    """Every open window, with the advance in which the watermark passes the next multiple of an interval since 1970.

    Flink's `ContinuousEventTimeTrigger`. With the ingest time as the event time the watermark is the clock, and it is
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

    def due(self, fresh: DataFrame, shown: DataFrame, *, key: Sequence[str], watermark: int | None, before: int | None) -> DataFrame:
        """What is to be shown now (see `Trigger`)."""
        if watermark is not None and (before is None or watermark // self.interval_ms > before // self.interval_ms):
            return fresh
        return of_keys(shown, fresh, key)


Trigger = EveryStep | EveryRows | EveryInterval
"""When open windows show what they hold so far.

A trigger's `due` gets the open windows' results as they are now (`fresh`) and as they were last shown (`shown`), both with
`ROWS_SEEN`, the columns that name a result, and the watermark now and when they were last shown (epoch ms); it returns what is shown now.
"""


def read_trigger(text: str) -> Trigger | None:
    """Read `'every step'`, `'every 100 rows'` or `'every 10 minutes'`; None for `''`.

    Raises:
        OperatorError: the text is none of these.

    >>> read_trigger("every 100 rows")
    EveryRows(rows=100)
    """
    what = text.strip()
    if not what:
        return None
    every, _, told = what.partition(" ")
    if every.lower() != "every" or not told:
        raise OperatorError.bad_value("trigger", text, "'every step', 'every 100 rows', 'every 10 minutes', or '' for none")
    if told == "step":
        return EveryStep()
    counted = _ROWS.fullmatch(told)
    return EveryRows(int(counted[1])) if counted else EveryInterval(told)
