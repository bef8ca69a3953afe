"""ProcessCountWindow: a function of all rows of a window by count, or up to a row that ends the window, in the order of arrival."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators._support.count_windows import LAST_POSITION, CountWindowOperator
from operators._support.ordered_rows import collect_in_order
from operators.columns import check_distinct, quoted, temporary
from operators.engine_columns import ARRIVAL, SEQ, drop_engine_columns
from operators.errors import OperatorError
from operators.evictors import Evictor
from operators.nondeterministic import check_deterministic
from operators.parameters import check_sql
from operators.process_window import ELEMENTS
from operators.steps import Upsert

RESULT_NUMBER = "result_number"
"""In the results of `rows`: the position of a result among those of its window, from 1."""
_ORDER, _ROW, _INDEX = temporary("order"), temporary("row"), temporary("index")


@dataclass(frozen=True, kw_only=True)
class ProcessCountWindow(CountWindowOperator):
    """For each key and each window of `size` rows: the rows that a function of all of these rows returns.

    The windows are those of `CountWindowAggregate`: window `n` of a key (`window_number`, from 1) ends with row `n * slide` of the key, or
    with the `n`-th row for which `ends_with` is true. The results of a window are added when its last row has arrived; over a source they
    never change. No row is late. A null key is an ordinary key.

    The function is SQL over `elements`, an array with the window's rows as structs, in the order in which they arrived (`seq`, `arrival`).
    Use this operator if a result needs the order of the rows, or if a window has several results. If one row of aggregates is enough, use
    `CountWindowAggregate`: it does not hold the rows in memory.

    The semantics are those of Flink's `countWindow(size).process()` and `countWindow(size, slide).process()`, and with `ends_with` those of
    a `process()` of a global window with a purging trigger of your own. In place of Flink's `ProcessWindowFunction`, `rows` is an
    expression. A step reads every row of the keys of its new rows.

    Args:
        by: the key columns; empty to count all rows together.
        size: the number of rows in a window, at least 1; None with `ends_with`.
        slide: after how many rows of a key the next window ends, at least 1; None for `size`, so that each row is in one window.
        rows: a SQL expression that computes the result's rows of a window from `elements`, the key columns and `window_number`. Its value
            is an array with a struct for each row of the result: `"transform(elements, e -> named_struct('id', e.id))"`. A window whose
            array is empty or null has no result. None returns the array of elements.
        ends_with: a SQL condition on a row, in place of `size`, such as `"event = 'checkout'"`. A window ends with each row for which the
            condition is true; null counts as false.
        evictor: which rows of a window are elements, by arrival, as for `CountWindowAggregate`; None for all.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> ProcessCountWindow(by="machine", size=2, rows="array(struct(elements[1].at - elements[0].at AS gap))").emits.key
    ('machine', 'window_number', 'result_number')
    """

    by: str | Sequence[str] = ()
    size: int | None = None
    slide: int | None = None
    rows: str | None = None
    ends_with: str | None = None
    evictor: Evictor | None = None

    def __post_init__(self) -> None:
        self.check_windows()
        check_sql("rows", self.rows)
        check_deterministic("rows", self.rows or "", (*self.window_columns, ELEMENTS))
        check_distinct([*self.window_columns, ELEMENTS, RESULT_NUMBER, SEQ, ARRIVAL])

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...] | None:
        """The names of the result's columns (see `NamesColumns`); None with `rows`.

        Raises:
            OperatorError: the rows have no order of arrival, or the evictor reads an event time that they do not have.
        """
        [columns] = inputs
        self.check_columns(columns)
        return None if self.rows else (*self.window_columns, ELEMENTS, SEQ, ARRIVAL)

    @property
    def emits(self) -> Upsert:
        """One row of each key and window; with `rows`, of each result of a window."""
        return Upsert((*self.window_columns, *((RESULT_NUMBER,) if self.rows else ())))

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Process a frame.

        Args:
            frames: the rows, static, with `seq` and `arrival`, and for a `TimeEvictor` with `event_time`.

        Returns:
            The key columns, `window_number` (bigint), and `elements` (array of structs with the columns of the frame), `seq` and `arrival`
            (bigint) of the window's last row. With `rows`, the key columns, `window_number`, `result_number` (bigint, from 1: the row's
            position in the array), and the columns of its structs. With `rows`, results have no `seq` and `arrival`, because several
            results of a window would have the same values.
        """
        [rows] = frames
        self.check_rows(rows)
        order, row = F.struct(SEQ, ARRIVAL).alias(_ORDER), F.struct(*quoted(drop_engine_columns(rows).columns)).alias(_ROW)
        elements = collect_in_order(_ORDER, _ROW).alias(ELEMENTS)
        groups = self.aggregate_windows(self.assign_windows(rows.select("*", order, row)), elements)
        if not self.rows:
            return groups.select(*self.window_columns, ELEMENTS, f"{LAST_POSITION}.*")
        numbered_results = groups.select("*", F.posexplode(F.expr(self.rows)).alias(_INDEX, _ROW))
        result_number = (F.col(_INDEX) + 1).cast("bigint").alias(RESULT_NUMBER)
        results = numbered_results.select(*self.window_columns, result_number, f"{_ROW}.*")
        self._check_results(results)
        return results

    def _check_results(self, results: DataFrame) -> None:
        check_distinct(results.columns)
        if {SEQ, ARRIVAL} & {column.lower() for column in results.columns}:
            reason = "a reader would take them for the order of arrival, but several results of a window can have the same values"
            raise OperatorError.bad_value("rows", self.rows, f"structs without the fields {SEQ} and {ARRIVAL}: {reason}; rename them")
