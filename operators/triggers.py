"""Triggers: when a window that is still open shows an early result.

An early result stays as it is until the trigger fires again for its window, or the window is final. If the table has a condition on its
results and the result no longer matches when the trigger fires, the early result is removed, as Flink retracts one for `HAVING`. A
trigger is evaluated once in each advance, after its steps. If it would have fired several times during the advance, only the last result
is shown.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, get_args, runtime_checkable

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.errors import DurationError, OperatorError, check_count, is_instance
from operators.timing import Duration, TimeKind, positive_ms

IS_FINAL, ROWS_SEEN = "is_final", "rows_seen"
"""The columns that early results add: `is_final`, which is false, and `rows_seen`, the number of the window's rows so far."""
_EVERY_ROWS = re.compile(r"(\d{1,18}) rows?")
_BY_CLOCK = " of processing time"


@dataclass(frozen=True)
class TriggerContext:
    """The state of an open window at one time, by which a trigger decides.

    Args:
        rows: the number of rows of the window (bigint), whether or not an evictor keeps them; for a window of two inputs, the rows of
            both.
        watermark: the watermark up to which results are final, in epoch ms; None while there is none.
        clock: the ledger's clock, the time at which the newest batch was ingested, in epoch ms; None before the first batch.
    """

    rows: Column
    watermark: int | None
    clock: int | None


Moment = TriggerContext
"""The name of `TriggerContext` in earlier versions."""


@runtime_checkable
class Trigger(Protocol):
    """When open windows show early results. A trigger of your own is a frozen dataclass with this method.

    Results that are final do not depend on a trigger, so a table with another trigger is not computed again.
    """

    def fires(self, now: TriggerContext, before: TriggerContext) -> Column | bool:
        """Whether a window shows its current result.

        Args:
            now: the window at this advance.
            before: the number of rows when the window was last shown (0 if it never was), and watermark and clock at the last advance
                that evaluated the trigger.

        Returns:
            A condition, over the two numbers of rows and the columns of the result that identify a window: its key, `window_start` and
            `window_end`. Or true or false, for all open windows alike; then no early result is read to decide.
        """
        ...


@dataclass(frozen=True)
class EveryStep:
    """Shows every open window at each advance."""

    def fires(self, now: TriggerContext, before: TriggerContext) -> bool:
        """Always (see `Trigger`)."""
        return True


@dataclass(frozen=True)
class EveryRows:
    """Shows a window at the advance in which the number of its rows reaches the next multiple of `rows` since it was last shown.

    Flink's `CountTrigger` fires as rows arrive, once for each multiple. A window can have rows but no result, for example in an inner join,
    or no result that the condition of its table selects. It is then shown when it has a selected result and has reached `rows` rows. A
    window can also lose its results, for example in an anti join whose rows have found matches. Its early results are then removed at
    once. If the window still has a result that no longer matches the condition, its early results are removed when the trigger fires.

    Args:
        rows: the number, at least 1.
    """

    rows: int

    def __post_init__(self) -> None:
        check_count("rows", self.rows)

    def fires(self, now: TriggerContext, before: TriggerContext) -> Column:
        """Whether a multiple was reached since the window was last shown (see `Trigger`)."""
        return F.floor(now.rows / self.rows) > F.floor(before.rows / self.rows)


@dataclass(frozen=True)
class EveryInterval:
    """Shows every open window at the advance in which time passes the next multiple of an interval since 1970.

    By event time, time is the watermark: this is Flink's `ContinuousEventTimeTrigger`. By processing time, time is the ledger's clock, the
    time at which the newest batch was ingested: this is Flink's `ContinuousProcessingTimeTrigger`. While no batch is ingested, this clock
    does not advance, and the trigger does not fire.

    Args:
        interval: the interval, more than zero.
        by: whether the interval is in `event` or in `processing` time.
    """

    interval: Duration
    by: TimeKind = "event"

    def __post_init__(self) -> None:
        _ = self.interval_ms
        if self.by not in get_args(TimeKind):
            raise OperatorError.bad_value("by", self.by, ", ".join(get_args(TimeKind)))

    @cached_property
    def interval_ms(self) -> int:
        """The interval in ms."""
        return positive_ms(self.interval, "interval")

    def fires(self, now: TriggerContext, before: TriggerContext) -> bool:
        """Whether time has passed a multiple (see `Trigger`)."""
        time, previous_time = (now.clock, before.clock) if self.by == "processing" else (now.watermark, before.watermark)
        return time is not None and (previous_time is None or time // self.interval_ms > previous_time // self.interval_ms)


def check_trigger(parameter: str, trigger: object) -> None:
    """Raise `OperatorError` unless a parameter is a trigger, or None."""
    if trigger is not None and not is_instance(trigger, Trigger):
        legal = "EveryStep(), EveryRows(100), EveryInterval('10 minutes') or a trigger of your own, or None for no early results"
        raise OperatorError.bad_value(parameter, trigger, legal)


def shown_columns(trigger: Trigger | None) -> tuple[str, ...]:
    """The columns that early results have in addition; none without a trigger."""
    return (ROWS_SEEN, IS_FINAL) if trigger else ()


TRIGGERS = EveryStep, EveryRows, EveryInterval
"""The triggers that Tidemark has."""


def read_trigger(text: str) -> Trigger | None:
    """Read `'every step'`, `'every 100 rows'`, `'every 10 minutes'` or `'every 10 minutes of processing time'`; None for `''`.

    Raises:
        OperatorError: the text has another form.

    >>> read_trigger("every 100 rows")
    EveryRows(rows=100)
    >>> read_trigger("every 10 s of processing time")
    EveryInterval(interval='10 s', by='processing')
    """
    if not text.strip():
        return None
    every, _, period = " ".join(text.split()).partition(" ")
    words = period.lower()
    try:
        if every.lower() != "every" or not words:
            raise DurationError.unreadable("trigger", text)
        if words == "step":
            return EveryStep()
        if match := _EVERY_ROWS.fullmatch(words):
            return EveryRows(int(match[1]))
        is_by_clock = words.endswith(_BY_CLOCK)
        interval = period[: -len(_BY_CLOCK)] if is_by_clock else period
        return EveryInterval(interval, "processing" if is_by_clock else "event")
    except DurationError:
        forms = "'every step', 'every 100 rows', 'every 10 minutes', 'every 10 minutes of processing time', or '' for none"
        raise OperatorError.bad_value("trigger", text, forms) from None
