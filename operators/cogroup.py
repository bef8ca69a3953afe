"""CoGroup: the rows of both sides, grouped by key and window."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.firings import Purging, check_purging
from operators._support.matched_rows import ROW_ID, with_ids, with_matched
from operators._support.ordered_rows import collect_in_order
from operators._support.panes import WINDOW
from operators._support.shared_windows import ORDERS, ROW_COUNT, ROWS, SIDES, SharedWindows, check_evicted_sides
from operators._support.window_assignment import UNMATCHABLE, key_group
from operators._support.windowed_operator import WindowedOperator
from operators.columns import (
    FINAL_AT,
    RESULT_TIME,
    check_distinct,
    check_present,
    check_same_types,
    check_time,
    names,
    temporary,
)
from operators.contract import ASIDE
from operators.engine_columns import EVENT_TIME, WHICH, drop_engine_columns
from operators.errors import StreamingError
from operators.evictors import Evictor, check_evictor
from operators.nondeterministic import check_deterministic
from operators.parameters import check_column, check_columns, check_sql
from operators.timing import Duration
from operators.triggers import ROWS_SEEN, Trigger
from operators.windows import AnyWindow

_ROW = temporary("row")


@dataclass(frozen=True, kw_only=True)
class CoGroup(WindowedOperator):
    """For each key and window with a row on either side: an array of its left rows and an array of its right rows.

    An array without rows is empty, not null. Rows are ordered by event time, then by arrival; without `seq` and `arrival`, then by their
    columns that Spark can order. A null key matches no other key: the rows of a side with a null key are a group of their own. A row with
    a null time is in no window.

    A result is added when the watermark reaches the last millisecond of its window: `result_time = final_at = end - 1 ms`. The `final_at`
    of a session is its `end`. In the engine a row counts in each of its windows that was open when the row's batch arrived:
    `end - 1 ms + allowed lateness > watermark`. A row is late if all of its windows were closed. A row that arrives after its group's
    result corrects it.

    The semantics are those of Flink's `DataStream.coGroup().where().equalTo().window()`. In place of Flink's `CoGroupFunction`, `rows` is
    an expression over the two arrays, and `DerivedAsset.shape` takes any function of the result's frame.

    Args:
        on: the key columns, with the same names on both sides.
        window: the windows.
        rows: a SQL expression that computes the result's rows of a group from `left` and `right`, arrays of structs with each side's
            columns. Its value is an array with a struct for each row of the result:
            `"transform(left, l -> named_struct('id', l.id, 'matches', size(right)))"`. None returns the two arrays.
        left_time: the left event time, a timestamp column.
        right_time: the right event time, a timestamp column.
        allowed_lateness: how far past a window's end the watermark may be for a row to still correct the window's results.
        evictor: chooses the rows of a key and window that are grouped, among the rows of both sides; None for all. It reads each row as
            the columns `left` and `right`: the column of the row's side has the row, and the other column is null.
        early: when a window that is still open shows its group so far, in `early/<asset>`; None for never. The results do not depend
            on it.
        purging: when a window emits the group of the rows of both sides since its last firing and then clears these rows, as for
            `WindowedAggregate`. The results then have `firing` (bigint, from 1). None for one group of all rows of a window.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> from operators import Tumbling
    >>> CoGroup(on="user", window=Tumbling(size="1 hour")).reads.lookback
    (3600000, 3600000)
    """

    on: str | Sequence[str]
    window: AnyWindow
    rows: str | None = None
    left_time: str = EVENT_TIME
    right_time: str = EVENT_TIME
    allowed_lateness: Duration = 0
    evictor: Evictor | None = None
    early: Trigger | None = field(default=None, metadata={ASIDE: True})
    purging: Purging | None = None

    def __post_init__(self) -> None:
        _ = self.lateness
        check_purging(self.purging, self.window, self.early)
        check_columns("on", self.on, why_needed="without a key every row would be in one group")
        check_column("left_time", self.left_time)
        check_column("right_time", self.right_time)
        check_evictor(self.evictor)
        check_sql("rows", self.rows)
        check_deterministic("rows", self.rows or "", (*self.key, *SIDES, *self.bounds))
        check_distinct([*self.key, *SIDES, *self.bounds, RESULT_TIME, FINAL_AT, *self.shown_columns])
        check_evicted_sides(self.evictor, self.key)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.on)

    @property
    def inputs(self) -> tuple[str, str]:
        """The names of the inputs."""
        return SIDES

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Group two frames.

        Args:
            frames: the left and the right frame, static.

        Returns:
            The key columns; `left` and `right` (arrays of structs with each side's columns), or with `rows` the columns of its structs;
            `window_start` and `window_end` (timestamp, the end excluded), with `purging` `firing`, and `result_time` and `final_at`
            (timestamp).
        """
        return self._results(frames, with_row_count=False)

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The result of a call, and `rows_seen` (bigint), the number of rows of both sides in the window (see `Early`)."""
        return self._results(frames, with_row_count=True)

    def _results(self, frames: Sequence[DataFrame], *, with_row_count: bool) -> DataFrame:
        """The groups, with the column `rows_seen` if `with_row_count`."""
        self._check(*map(drop_engine_columns, frames))
        times = self.left_time, self.right_time
        shared_windows = SharedWindows(self.key, self.window, times, self.lateness, self.evictor, self.purging)
        rows = shared_windows.rows(frames, with_row_count=with_row_count)
        row_count = [F.max(ROW_COUNT).alias(ROWS_SEEN)] if with_row_count else []
        arrays = [collect_in_order(ORDERS[index], ROWS[index]).alias(side) for index, side in enumerate(SIDES)]
        groups = rows.groupBy(*self.key, WINDOW, UNMATCHABLE).agg(*arrays, *row_count)
        added_columns = (*shared_windows.bounds(), *([ROWS_SEEN] if with_row_count else []), *shared_windows.result_times())
        if self.rows is None:
            return groups.select(*self.key, *SIDES, *added_columns)
        results = groups.withColumn(_ROW, F.explode(F.expr(self.rows))).select(*self.key, f"{_ROW}.*", *added_columns)
        check_distinct([*results.columns, *([] if with_row_count else self.shown_columns)])
        return results

    def group_and_time(self, frame: DataFrame, index: int) -> tuple[list[Column], str]:
        """The columns that group a side's rows (the key, and for a null key its side), and the side's event time."""
        return key_group(self.key, index), (self.left_time, self.right_time)[index]

    def matches(self, *frames: DataFrame) -> DataFrame:
        """Which rows are in a group with a row of the other side (see `ReportsMatches`)."""
        rows = with_ids(frames)
        left, right = SIDES
        groups = replace(self, rows=None)(*rows).where((F.size(left) > 0) & (F.size(right) > 0))
        ids = [groups.select(F.lit(index).alias(WHICH), F.explode(F.col(side)[ROW_ID]).alias(ROW_ID)) for index, side in enumerate(SIDES)]
        return with_matched(self._finality(rows, ROW_ID), ids[0].unionByName(ids[1]).distinct())

    def _check(self, left: DataFrame, right: DataFrame) -> None:
        check_time(left, self.left_time, "left_time")
        check_time(right, self.right_time, "right_time")
        check_present(left, self.key, "on")
        check_present(right, self.key, "on")
        check_same_types(left, right, self.key)
        if left.isStreaming or right.isStreaming:
            reason = "Spark's cogroup reads one micro-batch at a time, and would split a window whose rows are in several micro-batches"
            raise StreamingError.refused("CoGroup", reason, "let the engine run it")
