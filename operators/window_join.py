"""The window join: joins two streams where their rows have a key and a window in common."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.join_columns import JoinColumns
from operators._support.matched_rows import ROW_ID, ids_in_pairs, with_ids, with_matched
from operators._support.panes import WINDOW
from operators._support.shared_windows import ROWS, SEEN, SharedWindows, check_evicted_sides
from operators._support.window_assignment import assign_windows, key_group, window_bounds, window_times
from operators._support.windowed_operator import WindowedOperator
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, check_distinct, check_time, temporary
from operators.contract import ASIDE
from operators.engine_columns import EVENT_TIME, plain
from operators.errors import OperatorError, StreamingError
from operators.evictors import Evictor
from operators.timing import Duration
from operators.triggers import ROWS_SEEN, Trigger
from operators.windows import AnyWindow, Session

How = Literal["inner", "left", "right", "full", "semi", "anti"]
_RIGHT_WINDOW = temporary("right_window")
_RIGHT_SEEN = temporary("right_rows_seen")
_ADDED = (WINDOW_START, WINDOW_END, RESULT_TIME, FINAL_AT)


@dataclass(frozen=True, kw_only=True)
class WindowJoin(WindowedOperator):
    """Pairs of rows with equal keys in the same window; for an outer join, unmatched rows too, once for each of their windows.

    A pair that has several windows in common is in the result once for each. `semi` keeps the left rows that match a right row in the
    window, `anti` those that match none. A null key matches nothing. A row with a null time is in no window and in no result, also not
    as an unmatched row.

    A window's results are added when the watermark reaches its last millisecond, `result_time = final_at = end - 1 ms`; a session's
    `final_at` is its `end`. In the engine a row counts in each of its windows that was open when the row's batch arrived:
    `end - 1 ms + allowed lateness > watermark`. A row is late if all of its windows were closed. A row that arrives after its window's
    results corrects them: it adds pairs, and removes rows that were unmatched without it.

    The semantics are those of Flink's `DataStream.join().where().equalTo().window()`, with the other kinds of its SQL window join.

    Args:
        on: the key columns, with the same names on both sides.
        window: the windows.
        how: the rows that are kept: pairs only (`inner`), also unmatched rows of a side (`left`, `right`, `full`), or only left rows,
            those with a match (`semi`) or without one (`anti`).
        residual: an extra join condition, in SQL over the names that the sides' columns have in the *result* of an inner join, e.g.
            `left_v < right_v`; `window_start`, `window_end`, `result_time` and `final_at` cannot be used.
        left_time: the left event time, a timestamp column.
        right_time: the right event time, a timestamp column.
        left_prefix: added to the name of a left column that the right side has too, or that is `window_start`, `window_end`,
            `result_time` or `final_at`.
        right_prefix: the same for the right side.
        allowed_lateness: how long after a window's end, in the watermark's time, a row still corrects the window's results.
        evictor: which rows of a key and window are joined, of both sides together; None for all. For each row it reads the columns
            `left` and `right`: one has the row of its side, and the other is null. A row that it removes is in no result, also not as an
            unmatched row.
        early: when a window that is still open shows its results so far, in `early/<asset>`; None for never. An unmatched row of an open
            window may still find a match. The results do not depend on it.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> from operators import Tumbling
    >>> WindowJoin(on="user", window=Tumbling(size="1 hour"), how="left").reads.lookback
    (3600000, 3600000)
    """

    on: str | Sequence[str]
    window: AnyWindow
    how: How = "inner"
    residual: str | None = None
    left_time: str = EVENT_TIME
    right_time: str = EVENT_TIME
    left_prefix: str = "left_"
    right_prefix: str = "right_"
    allowed_lateness: Duration = 0
    evictor: Evictor | None = None
    early: Trigger | None = field(default=None, metadata={ASIDE: True})

    def __post_init__(self) -> None:
        check_evicted_sides(self.evictor, self.key)
        if self.how not in get_args(How):
            raise OperatorError.bad_value("how", self.how, ", ".join(get_args(How)))
        _ = self.names, self.lateness

    @cached_property
    def names(self) -> JoinColumns:
        """The names of the result."""
        return JoinColumns.checked(self.on, self.left_prefix, self.right_prefix, _ADDED)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        left, right = inputs
        both = self.names.result_columns(left, right)
        found = (*map(self._own_name, left), *_ADDED) if self.how in ("semi", "anti") else both
        check_distinct([*found, *self.shown_columns])
        return found

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.names.key

    @property
    def inputs(self) -> tuple[str, str]:
        """The names of the inputs."""
        return ("left", "right")

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Join two frames.

        Args:
            frames: the left and the right frame, static.

        Returns:
            The key columns, the left columns, the right columns (a name that both sides have gets its side's prefix), `window_start` and
            `window_end` (timestamp, the end excluded), `result_time` and `final_at` (timestamp). `semi` and `anti` return the left
            columns only, with their own names.
        """
        return self._joined(frames)

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The result of a call, and `rows_seen` (bigint), the number of rows of both sides in the window (see `Early`)."""
        return self._joined(frames, counted=True)

    def _joined(self, frames: Sequence[DataFrame], *, counted: bool = False) -> DataFrame:
        """The results; `counted` adds `rows_seen`."""
        one, other = map(plain, frames)
        self._check(one, other)
        together = counted or self.evictor is not None or isinstance(self.window, Session)
        each = self._in_shared_windows(frames, counted) if together else self._in_windows(frames)
        left, right = (self._side(each[i], (one, other)[i], (other, one)[i], i) for i in (0, 1))
        if self.how in ("semi", "anti"):
            kept = left.join(right, self._matches(), f"left_{self.how}")
            own = [F.col(self.names.joined_name(c, other, 0)).alias(self._own_name(c)) for c in one.columns]
            seen = [F.col(SEEN).alias(ROWS_SEEN)] if counted else []
            return kept.select(*own, *window_bounds(), *seen, *window_times(self.window))
        joined = left.join(right, self._matches(), self.how).withColumn(WINDOW, F.coalesce(WINDOW, _RIGHT_WINDOW))
        own = [*self.names.key_columns(), *self.names.payload(one, other)]
        seen = [F.coalesce(SEEN, _RIGHT_SEEN).alias(ROWS_SEEN)] if counted else []
        return joined.select(*own, *window_bounds(), *seen, *window_times(self.window))

    def _own_name(self, column: str) -> str:
        """The name that a left column has where the result has left columns alone."""
        return self.left_prefix + column if column in _ADDED else column

    def groups(self, frame: DataFrame, which: int) -> tuple[list[Column], str]:
        """The columns that group a side's rows (the key, and for a null key its side), and the side's event time."""
        return key_group(self.names.key, which), (self.left_time, self.right_time)[which]

    def matches(self, *frames: DataFrame) -> DataFrame:
        """Which rows are in a pair, in at least one of their windows (see `ReportsMatches`)."""
        rows = with_ids(frames)
        pairs = replace(self, how="inner")(*rows)
        return with_matched(self._finality(rows, ROW_ID), ids_in_pairs(pairs, self.names.traced(ROW_ID)))

    def _in_windows(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """Each side's rows, once for each of their windows that accepted them."""
        times = (self.left_time, self.right_time)
        return [assign_windows(f, self.window, time=time, lateness=self.lateness, group=()) for f, time in zip(frames, times, strict=True)]

    def _in_shared_windows(self, frames: Sequence[DataFrame], counted: bool) -> list[DataFrame]:
        """Each side's rows in windows that depend on the rows of both: sessions, and windows with an evictor or a count of their rows."""
        shared = SharedWindows(self.key, self.window, (self.left_time, self.right_time), self.lateness, self.evictor)
        each = shared.rows(frames, counted=counted)
        return [each.where(F.col(row).isNotNull()).select(f"{row}.*", WINDOW, *([SEEN] if counted else [])) for row in ROWS]

    def _side(self, each: DataFrame, own: DataFrame, other: DataFrame, which: int) -> DataFrame:
        """A side's rows with their names during the join."""
        added = [F.col(WINDOW).alias((WINDOW, _RIGHT_WINDOW)[which])]
        added += [F.col(SEEN).alias((SEEN, _RIGHT_SEEN)[which])] if SEEN in each.columns else []
        return each.select(*self.names.renamed(own.columns, other, which), *added)

    def _matches(self) -> Column:
        condition = F.col(WINDOW) == F.col(_RIGHT_WINDOW)
        for one, other in self.names.key_pairs():
            condition = (one == other) & condition
        return condition if self.residual is None else condition & F.expr(self.residual)

    def _check(self, left: DataFrame, right: DataFrame) -> None:
        self.names.check(left, right)
        check_time(left, self.left_time, "left_time")
        check_time(right, self.right_time, "right_time")
        if left.isStreaming or right.isStreaming:
            why = "Spark joins streams by windows only in inner and outer joins of its own window columns, and does not record late rows"
            raise StreamingError.refused("WindowJoin", why, "let the engine run it")
