"""Deduplicate: one row of each key, the first or the last, of the whole stream or of each window."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from pyspark.sql import Column, DataFrame

from operators._support.deduplication import Keep, RowChoice, RowOrder, StreamDeduplication, WindowDeduplication
from operators._support.lateness import Lateness
from operators._support.row_windows import AssignedWindows
from operators._support.time_to_live import AfterTtl, TimeToLive
from operators.columns import WINDOW_END, WINDOW_START, check_distinct, check_present, check_time, names
from operators.contract import ASIDE
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ, drop_engine_columns
from operators.errors import OperatorError, StreamingError
from operators.parameters import check_column, check_columns
from operators.steps import Append, ByKey, ByTimeRange, NewRows, Upsert
from operators.timing import Duration, TimeKind
from operators.triggers import Trigger, check_trigger, shown_columns
from operators.windows import AnyWindow, check_window


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """The first or the last row of each key, by event time or by arrival; with a window, of each key and window.

    Of rows with one event time, the one that arrived first is the first and the one that arrived last is the last. Rows without
    `seq` and `arrival` are ordered by their other columns that Spark can order, nulls first. A null key is an ordinary key. By event
    time, a row with a null time is dropped.

    Without a window the table is updated by key: a step replaces a key's row if a new row is the first, or last, instead. By event
    time, the first row is final when the watermark reaches it, so a row with `event_time <= watermark` is late and is ignored. Last rows,
    and rows by arrival, are never late.

    With `ttl`, a key expires if it gets no new row for longer than `ttl`: when it gets a row again, its older rows no longer count. A row
    that is dropped as a duplicate counts as new too, and so postpones the expiry. The row of an expired key stays until the key's next
    row, or with `after_ttl="retract"` the engine removes it with the first step after the expiry. Over a source, the engine keeps one row
    beside the table for each period in which a key does not expire, until no new row can be within `ttl` of the period. A step reads its
    new rows and the kept rows of their keys. A new row that is more than `ttl` behind the watermark makes the step read the log, unless
    the row is late. Over a table of final results, a step reads every row of the keys of its new rows.

    With a window a result is added at the window's end, `result_time = final_at = end - 1 ms`; a session's `final_at` is its `end`. Each
    row is late or not for each of its windows, as in `WindowedAggregate`. Sessions are those of a key. If the rows already have a window,
    it is kept as `source_window_start` and `source_window_end`.

    The semantics are those of Flink's SQL deduplication and window deduplication (`ROW_NUMBER() = 1`). Flink emits a first row by event
    time when the watermark reaches it; here it is emitted at once, and may still be replaced. In Flink the TTL of a first row counts from
    that row; here it counts from the newest duplicate.

    Args:
        by: the key columns.
        keep: which row of a key, the `first` or the `last`.
        order: what orders the rows: their `event_time` or their `arrival`.
        window: the windows; None for the whole stream.
        time: the event time, a timestamp column.
        allowed_lateness: with a window, how long after its end, in the watermark's time, a row may still replace its result.
        early: with a window, when it shows its rows so far while it is open, in `early/<asset>`; None for never. The results do not depend
            on it.
        ttl: without a window, how long the rows of a key count after its newest row; None for no limit.
        ttl_by: whether `ttl` is `event` time, by the watermark, or `processing` time, by the ledger's clock.
        after_ttl: whether to `keep` or to `retract` the row of an expired key.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> Deduplicate(by="order_id", keep="last").emits
    Upsert(key=('order_id',))
    """

    by: str | Sequence[str]
    keep: Keep = "first"
    order: RowOrder = "event_time"
    window: AnyWindow | None = None
    time: str = EVENT_TIME
    allowed_lateness: Duration = 0
    early: Trigger | None = field(default=None, metadata={ASIDE: True})
    ttl: Duration | None = None
    ttl_by: TimeKind = "event"
    after_ttl: AfterTtl = "keep"

    def __post_init__(self) -> None:
        check_window(self.window, is_optional=True)
        check_trigger("early", self.early)
        check_columns("by", self.by, why_needed="without a key only one row of all would be kept")
        check_column("time", self.time)
        if self.early and not self.window:
            raise OperatorError.bad_value("early", self.early, "None without a `window`: the table itself has the current row of each key")
        if self.lateness and not self.window:
            legal = "zero without a `window`: the allowed lateness counts from the end of a window"
            raise OperatorError.bad_value("allowed_lateness", self.allowed_lateness, legal)
        if self.window:
            check_distinct([*self.key, WINDOW_START, WINDOW_END])
        if self.keep not in get_args(Keep):
            raise OperatorError.bad_value("keep", self.keep, ", ".join(get_args(Keep)))
        if self.order not in get_args(RowOrder):
            raise OperatorError.bad_value("order", self.order, ", ".join(get_args(RowOrder)))
        if self._ttl and self.window:
            raise OperatorError.bad_value("ttl", self.ttl, "None with a `window`: the row of a key and window is final, and stays")

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @cached_property
    def lateness(self) -> Lateness:
        """The allowed lateness."""
        return Lateness.read(self.allowed_lateness)

    @cached_property
    def _ttl(self) -> TimeToLive | None:
        return TimeToLive.read(self.ttl, self.ttl_by, self.after_ttl, key=self.key)

    @cached_property
    def _scope(self) -> StreamDeduplication | WindowDeduplication:
        choice = RowChoice(self.keep, self.order, self.time)
        if self.window is None:
            return StreamDeduplication(self.key, choice, self._ttl)
        return WindowDeduplication(self.key, choice, AssignedWindows(self.window, self.time, self.allowed_lateness, self.key))

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        return (*self._scope.input_columns(inputs[0]), *self._scope.added)

    @property
    def window_key(self) -> tuple[str, ...]:
        """With a window, the columns of a result that identify its key and window (see `EarlyByWindow`)."""
        return (*self.key, WINDOW_START, WINDOW_END)

    @property
    def emits(self) -> Append | Upsert:
        """With a window, one row of each key and window; else one row of each key, which is updated."""
        return self._scope.emits

    @property
    def reads(self) -> ByTimeRange | NewRows | ByKey:
        """With a window, closed ranges; else the rows of new batches, which are merged with the current rows or with kept rows."""
        return self._scope.reads

    def late(self, event_time: Column, watermark: Column) -> Column:
        """With a window, whether all windows of a row had closed; else `event_time <= watermark`, for first rows by event time only."""
        return self._scope.late(event_time, watermark)

    def late_before(self, watermark: int) -> int | None:
        """The bound of `late` (see `BoundsLateness`); None for sessions, or if there are gaps between windows."""
        return self._scope.late_before(watermark)

    def lateness_decisions(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """With sessions, decide which rows of a batch are late, where they may join older rows (see `DecidesLateness`)."""
        return self._scope.lateness_decisions(watermark, *frames)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Deduplicate a frame.

        Args:
            frames: the rows, static; `seq` and `arrival` order rows of equal time.

        Returns:
            The columns of the frame; with a window also `window_start`, `window_end`, `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        self._check(rows)
        return self._scope.deduplicate(rows)

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """With a window, the result of a call, and `rows_seen` (bigint), the number of rows of the key in the window (see `Early`)."""
        [rows] = frames
        self._check(rows)
        return self._scope.so_far(rows)

    def still_needed(self, rows: DataFrame, oldest: int | None) -> DataFrame:
        """With `ttl`, the row of each period of each key (see `KeepsRows`)."""
        return self._scope.still_needed(rows, oldest)

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """With a window, when the last window of a row is final (see `ReportsFinality`); else never."""
        return self._scope.finalized_at(*frames)

    def finalized_by_time(self, which: int, event_time: Column) -> Column | None:
        """When the last window of a row with an event time is final (see `FinalizesByTime`); None for sessions."""
        return self._scope.finalized_by_time(which, event_time)

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The row of each key, from the current rows and the rows of new batches."""
        [rows] = frames
        return RowChoice(self.keep, self.order, self.time).select(current.unionByName(rows), self.key)

    def _check(self, rows: DataFrame) -> None:
        frame = drop_engine_columns(rows)
        check_present(frame, self.key, "by")
        check_time(frame, self.time, "time")
        if self.order == "arrival":
            check_present(frame, (SEQ, ARRIVAL), "order")
        if self._ttl:
            self._ttl.check(frame)
        if self._scope.added:
            check_distinct([*self._scope.input_columns(frame.columns), *self._scope.added, *shown_columns(self.early)])
        if rows.isStreaming:
            reason = "Spark keeps the first row that it meets, whatever its time, and drops late rows silently"
            raise StreamingError.refused("Deduplicate", reason, "let the engine run it, or use Spark's `dropDuplicatesWithinWatermark`")
