"""The window join: joins two streams where their rows have a key and a window in common."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.firings import Purging, check_purging
from operators._support.join_columns import How, JoinColumns
from operators._support.matched_rows import ROW_ID, ids_in_pairs, with_ids, with_matched
from operators._support.panes import WINDOW
from operators._support.shared_windows import ROW_COUNT, ROWS, SharedWindows, check_evicted_sides
from operators._support.window_assignment import assign_windows, key_group
from operators._support.windowed_operator import WindowedOperator
from operators.columns import FINAL_AT, RESULT_TIME, check_distinct, check_time, quoted, quoted_name, temporary
from operators.contract import ASIDE
from operators.engine_columns import EVENT_TIME, drop_engine_columns
from operators.errors import OperatorError, StreamingError
from operators.evictors import Evictor, check_evictor
from operators.nondeterministic import check_deterministic
from operators.parameters import check_column, check_sql
from operators.timing import Duration
from operators.triggers import ROWS_SEEN, Trigger
from operators.windows import AnyWindow, Session

_RIGHT_WINDOW = temporary("right_window")
_RIGHT_ROW_COUNT = temporary("right_rows_seen")


@dataclass(frozen=True, kw_only=True)
class WindowJoin(WindowedOperator):
    """Pairs of rows with equal keys in the same window; for an outer join, unmatched rows too, once for each of their windows.

    A pair that has several windows in common is in the result once for each. `semi` keeps the left rows that match a right row in the
    window, `anti` those that match none. A null key matches nothing. A row with a null time is in no window and in no result, not even
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
            `result_time` or `final_at`, or with `purging` `firing`.
        right_prefix: the same for the right side.
        allowed_lateness: how far past a window's end the watermark may be for a row to still correct the window's results.
        evictor: which rows of a key and window are joined, of both sides together; None for all. It reads each row as the columns
            `left` and `right`: the column of the row's side has the row, and the other column is null. A row that the evictor removes is
            in no result, not even as an unmatched row.
        early: when a window that is still open shows its results so far, in `early/<asset>`; None for never. An unmatched row of an open
            window may still find a match. The results do not depend on it.
        purging: when a window joins the rows of both sides since its last firing and then clears these rows, as for `WindowedAggregate`.
            Rows of different firings are no pair; a row is unmatched if it has no match in its firing. The results then have `firing`
            (bigint, from 1). None to join all rows of a window.

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
    purging: Purging | None = None

    def __post_init__(self) -> None:
        check_purging(self.purging, self.window, self.early)
        check_column("left_time", self.left_time)
        check_column("right_time", self.right_time)
        check_evictor(self.evictor)
        check_evicted_sides(self.evictor, self.key)
        if self.how not in get_args(How):
            raise OperatorError.bad_value("how", self.how, ", ".join(get_args(How)))
        check_sql("residual", self.residual)
        check_deterministic("residual", self.residual or "")
        _ = self.names, self.lateness

    @property
    def _added_columns(self) -> tuple[str, ...]:
        """The columns that the result has in addition to those of its rows."""
        return (*self.bounds, RESULT_TIME, FINAL_AT)

    @cached_property
    def names(self) -> JoinColumns:
        """The names of the result."""
        return JoinColumns.read(self.on, self.left_prefix, self.right_prefix, self._added_columns)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        left, right = inputs
        joined_columns = self.names.result_columns(left, right)
        check_deterministic("residual", self.residual or "", joined_columns)
        columns = (*map(self.names.left_only_name, left), *self._added_columns) if self.how in ("semi", "anti") else joined_columns
        check_distinct([*columns, *self.shown_columns])
        return columns

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
            `window_end` (timestamp, the end excluded), with `purging` `firing`, and `result_time` and `final_at` (timestamp). `semi` and
            `anti` return the left columns only, with their own names.
        """
        return self._join(frames)

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The result of a call, and `rows_seen` (bigint), the number of rows of both sides in the window (see `Early`)."""
        return self._join(frames, with_row_count=True)

    def _join(self, frames: Sequence[DataFrame], *, with_row_count: bool = False) -> DataFrame:
        """The results; `with_row_count` adds `rows_seen`."""
        left, right = map(drop_engine_columns, frames)
        self._check(left, right)
        shared_windows = self._shared_windows
        needs_shared_windows = with_row_count or self.evictor or self.purging or isinstance(self.window, Session)
        rows = self._assign_shared_windows(frames, with_row_count) if needs_shared_windows else self._assign_windows(frames)
        left_rows, right_rows = (self._side(rows[i], (left, right)[i], (right, left)[i], i) for i in (0, 1))
        if self.how in ("semi", "anti"):
            chosen_rows = left_rows.join(right_rows, self._is_match(), f"left_{self.how}")
            columns = [F.col(quoted_name(self.names.joined_name(c, right, 0))).alias(self.names.left_only_name(c)) for c in left.columns]
            row_count = [F.col(ROW_COUNT).alias(ROWS_SEEN)] if with_row_count else []
            return chosen_rows.select(*columns, *shared_windows.bounds(), *row_count, *shared_windows.result_times())
        joined = left_rows.join(right_rows, self._is_match(), self.how).withColumn(WINDOW, F.coalesce(WINDOW, _RIGHT_WINDOW))
        columns = [*self.names.key_columns(), *quoted(self.names.payload(left, right))]
        row_count = [F.coalesce(ROW_COUNT, _RIGHT_ROW_COUNT).alias(ROWS_SEEN)] if with_row_count else []
        return joined.select(*columns, *shared_windows.bounds(), *row_count, *shared_windows.result_times())

    @property
    def _shared_windows(self) -> SharedWindows:
        times = self.left_time, self.right_time
        return SharedWindows(self.key, self.window, times, self.lateness, self.evictor, self.purging)

    def group_and_time(self, frame: DataFrame, index: int) -> tuple[list[Column], str]:
        """The columns that group a side's rows (the key, and for a null key its side), and the side's event time."""
        return key_group(self.names.key, index), (self.left_time, self.right_time)[index]

    def matches(self, *frames: DataFrame) -> DataFrame:
        """Which rows are in a pair, in at least one of their windows (see `ReportsMatches`)."""
        rows = with_ids(frames)
        pairs = replace(self, how="inner")(*rows)
        return with_matched(self._finality(rows, ROW_ID), ids_in_pairs(pairs, self.names.traced_names(ROW_ID)))

    def _assign_windows(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """Each side's rows, once for each of their windows that accepted them."""
        times = (self.left_time, self.right_time)
        return [
            assign_windows(frame, self.window, time=time, lateness=self.lateness, group=())
            for frame, time in zip(frames, times, strict=True)
        ]

    def _assign_shared_windows(self, frames: Sequence[DataFrame], with_row_count: bool) -> list[DataFrame]:
        """Each side's rows in windows that depend on the rows of both sides.

        These are sessions, windows that purge, windows with an evictor, and windows whose rows are counted.
        """
        rows = self._shared_windows.rows(frames, with_row_count=with_row_count)
        return [rows.where(F.col(row).isNotNull()).select(f"{row}.*", WINDOW, *([ROW_COUNT] if with_row_count else [])) for row in ROWS]

    def _side(self, rows: DataFrame, frame: DataFrame, opposite: DataFrame, index: int) -> DataFrame:
        """A side's rows in their windows, with their names during the join."""
        added = [F.col(WINDOW).alias((WINDOW, _RIGHT_WINDOW)[index])]
        added += [F.col(ROW_COUNT).alias((ROW_COUNT, _RIGHT_ROW_COUNT)[index])] if ROW_COUNT in rows.columns else []
        return rows.select(*self.names.side_columns(frame.columns, opposite, index), *added)

    def _is_match(self) -> Column:
        condition = F.col(WINDOW) == F.col(_RIGHT_WINDOW)
        for left, right in self.names.key_pairs():
            condition = (left == right) & condition
        return condition if self.residual is None else condition & F.expr(self.residual)

    def _check(self, left: DataFrame, right: DataFrame) -> None:
        self.names.check(left, right)
        check_time(left, self.left_time, "left_time")
        check_time(right, self.right_time, "right_time")
        if left.isStreaming or right.isStreaming:
            reason = "Spark joins streams by windows only in inner and outer joins of its own window columns, and does not record late rows"
            raise StreamingError.refused("WindowJoin", reason, "let the engine run it")
