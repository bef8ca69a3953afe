"""CountWindowAggregate: aggregates of every so many rows of a key, or up to a row that ends the window, in the order of arrival."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from operators._support.aggregate_expressions import Aggregates
from operators._support.count_windows import LAST_POSITION, CountWindowOperator
from operators.columns import check_distinct
from operators.engine_columns import ARRIVAL, SEQ
from operators.evictors import Evictor
from operators.steps import Upsert


@dataclass(frozen=True, kw_only=True)
class CountWindowAggregate(CountWindowOperator):
    """For each key and each window of `size` rows, counted in the order of arrival: Spark aggregates over the rows of the window.

    Window `n` of a key (`window_number`, from 1) ends with row `n * slide` of the key, and contains the `size` rows up to that one. If
    `size` is larger than `slide`, the first windows have fewer rows; if `size` is smaller, some rows are in no window. With `ends_with`
    in place of `size`, window `n` ends with the `n`-th row of the key for which the condition is true, and begins after the last row of
    window `n - 1`.

    A window is added when its last row has arrived; over a source it never changes. The rows after a key's last complete window are in no
    result yet. Event time is not used, so no row is late. A null key is an ordinary key.

    The order is that of the event log: by batch (`seq`), and by position in the batch (`arrival`). It is recorded, so a rebuild gives the
    same windows, wherever steps are cut. Rows that arrive in another order give other windows, as in Flink. Over an upserted table, the
    current rows of the table are counted, by their `seq` and `arrival`; if one of them changes, the windows of its key are computed again.

    The semantics are those of Flink's `countWindow(size)` and `countWindow(size, slide)`: a global window with a purging `CountTrigger`, or
    with a `CountEvictor` and a `CountTrigger`. With `ends_with` they are those of a global window with a purging trigger of your own that
    fires for a row that satisfies a condition. A step reads every row of the keys of its new rows. For a function of all rows of a window,
    use `ProcessCountWindow`.

    Args:
        by: the key columns; empty to count all rows together.
        size: the number of rows in a window, at least 1; None with `ends_with`.
        slide: after how many rows of a key the next window ends, at least 1; None for `size`, so that each row is in one window.
        aggregates: the result's columns, as SQL: `{"trips": "count(*)", "farthest": "max(distance)"}`.
        ends_with: a SQL condition on a row, in place of `size`, such as `"event = 'checkout'"`. A window ends with each row for which the
            condition is true; null counts as false.
        evictor: which rows of a window count, by arrival: a `CountEvictor` keeps the rows that arrived last, and a `DeltaEvictor` compares
            with the row that arrived last. A `TimeEvictor` compares event times. None for all rows. A window without a remaining row has
            no result.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> CountWindowAggregate(by="machine", size=100, aggregates={"failures": "sum(failed)"}).emits.key
    ('machine', 'window_number')
    """

    by: str | Sequence[str] = ()
    size: int | None = None
    slide: int | None = None
    aggregates: Mapping[str, str]
    ends_with: str | None = None
    evictor: Evictor | None = None

    def __post_init__(self) -> None:
        self.check_windows()
        _ = self._aggregates
        check_distinct([*self.window_columns, *self.aggregates, SEQ, ARRIVAL])

    @cached_property
    def _aggregates(self) -> Aggregates:
        return Aggregates.read(self.aggregates)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`).

        Raises:
            OperatorError: the rows have no order of arrival, or the evictor reads an event time that they do not have.
        """
        [columns] = inputs
        self.check_columns(columns)
        return (*self.window_columns, *self.aggregates, SEQ, ARRIVAL)

    @property
    def emits(self) -> Upsert:
        """One row of each key and window."""
        return Upsert(self.window_columns)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Aggregate a frame.

        Args:
            frames: the rows, static, with `seq` and `arrival`, and for a `TimeEvictor` with `event_time`.

        Returns:
            The key columns, `window_number` (bigint), the aggregates with their own types, and `seq` and `arrival` (bigint) of the window's
            last row.
        """
        [rows] = frames
        self.check_rows(rows)
        self._aggregates.check_bare_names(rows.columns)
        rows_in_windows = self.assign_windows(rows)
        results = self.aggregate_windows(rows_in_windows, *self._aggregates.columns(rows_in_windows))
        return results.select(*self.window_columns, *self.aggregates, f"{LAST_POSITION}.*")
