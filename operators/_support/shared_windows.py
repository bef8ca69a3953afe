"""The rows of two inputs in the windows that they share, in one frame: each row is a struct in the column of its side."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.firings import FIRED_AT, FIRING, Purging, assign_firings, firing_times
from operators._support.lateness import Lateness
from operators._support.panes import WINDOW
from operators._support.session_windows import TIME
from operators._support.window_assignment import (
    UNMATCHABLE,
    assign_shared_windows,
    key_group,
    lateness_columns,
    union_inputs,
    window_bounds,
    window_times,
)
from operators.columns import quoted, temporary
from operators.engine_columns import ARRIVAL, SEQ, drop_engine_columns, tie_breakers
from operators.errors import OperatorError
from operators.evictors import DeltaEvictor, Evictor
from operators.windows import AnyWindow

SIDES = "left", "right"
ROWS = temporary("left_row"), temporary("right_row")
"""The row of each side; null in the rows of the other."""
ORDERS = temporary("left_order"), temporary("right_order")
"""The structs by which the rows of each side are ordered: their time, then their tie breakers."""
ROW_COUNT = temporary("rows_seen")
"""The number of rows of both sides with a row's key in its window, before an evictor removes any."""
_SIDE = temporary("side")


def check_evicted_sides(evictor: Evictor | None, key: Sequence[str]) -> None:
    """Raise `OperatorError` if, with an evictor, a key column has the name of a side, or a delta reads a field other than side and key."""
    if evictor is not None and {*SIDES} & {name.lower() for name in key}:
        raise OperatorError.bad_value(
            "on", tuple(key), "names other than left and right, by which an `evictor` reads the rows of the sides"
        )
    if isinstance(evictor, DeltaEvictor):
        known_fields = {name.lower() for name in (*SIDES, *key)}
        if unknown := [name for name, *_ in evictor.fields_read if name.lower() not in known_fields]:
            way_out = f"coalesce(row.left.{unknown[0]}, row.right.{unknown[0]})"
            legal = f"fields of the rows left and right, of which one is null, such as {way_out}; rows of two inputs have no {unknown[0]!r}"
            raise OperatorError.bad_value("delta", evictor.delta, legal)


@dataclass(frozen=True)
class SharedWindows:
    """Assigns the rows of two inputs to windows.

    Args:
        key: the key columns; a null key groups the rows of one side only.
        window: the windows.
        times: each side's event time.
        lateness: the allowed lateness.
        evictor: which rows of a window remain, of both sides together; None for all.
        purging: the trigger at which a window emits the rows of both sides since its last firing; None if a window has one result.
    """

    key: tuple[str, ...]
    window: AnyWindow
    times: tuple[str, str]
    lateness: Lateness
    evictor: Evictor | None
    purging: Purging | None = None

    def bounds(self) -> list[Column]:
        """The columns of a result with the bounds of its `WINDOW`, and with `purging` the number of its firing."""
        return [*window_bounds(), *([] if self.purging is None else [F.col(WINDOW)[FIRING].alias(FIRING)])]

    def result_times(self) -> tuple[Column, Column]:
        """`result_time` and `final_at` of a result, from its `WINDOW`."""
        return window_times(self.window) if self.purging is None else firing_times(F.col(WINDOW)[FIRED_AT])

    def rows(self, frames: Sequence[DataFrame], *, with_row_count: bool = False) -> DataFrame:
        """The rows of both inputs, once for each of their windows that accepted them.

        Args:
            frames: the left and the right frame.
            with_row_count: whether to add `ROW_COUNT`.

        Returns:
            The key, `UNMATCHABLE`, `TIME`, `WINDOW`, and for each side its row (`ROWS`) and its order (`ORDERS`). With `purging`, each
            firing is a window of its own: `WINDOW` has the fields `FIRING` and `FIRED_AT` too.
        """
        has_positions = all({SEQ, ARRIVAL} <= {*frame.columns} for frame in frames)
        sides = [self._side(frame, index, has_positions) for index, frame in enumerate(frames)]
        rows = self._assign_windows(sides)
        if with_row_count:
            rows = rows.withColumn(ROW_COUNT, F.count("*").over(Window.partitionBy(*self.key, WINDOW)))
        return rows if self.evictor is None else self._evict(rows, self.evictor)

    def _assign_windows(self, sides: Sequence[DataFrame]) -> DataFrame:
        group = (*self.key, UNMATCHABLE)
        if self.purging is None:
            return assign_shared_windows(sides, self.window, self.lateness, group)
        rows = assign_firings(union_inputs(sides), self.window, self.purging, time=TIME, lateness=self.lateness, group=group)
        return rows.withColumn(WINDOW, F.struct(f"{WINDOW}.*", FIRING, FIRED_AT)).drop(FIRING, FIRED_AT)

    def _side(self, frame: DataFrame, index: int, has_positions: bool) -> DataFrame:
        """A side's rows as structs, with the values that order them."""
        plain_frame, time = drop_engine_columns(frame), self.times[index]
        ties = tie_breakers(plain_frame)
        row = [F.struct(time, *ties).alias(ORDERS[index]), F.struct(*quoted(plain_frame.columns)).alias(ROWS[index])]
        shared_order = self._shared_order(ties, index, has_positions) if self.evictor or self.purging else []
        return frame.select(*key_group(self.key, index), F.col(time).alias(TIME), *lateness_columns(frame), *row, *shared_order)

    def _shared_order(self, ties: Sequence[Column], index: int, has_positions: bool) -> list[Column]:
        """The columns by which an evictor or a trigger orders rows of equal time, of both sides together."""
        if has_positions:
            return [F.col(SEQ), F.struct(F.col(ARRIVAL), F.lit(index)).alias(ARRIVAL)]
        return [F.lit(index).alias(_SIDE), *[tie.alias(temporary(f"{SIDES[index]}_{tie_index}")) for tie_index, tie in enumerate(ties)]]

    def _evict(self, rows: DataFrame, evictor: Evictor) -> DataFrame:
        """The rows that an evictor keeps; it sees the rows of the sides as the columns `left` and `right`."""
        side_by_row_column: dict[str, str] = dict(zip(ROWS, SIDES, strict=True))
        kept_rows = evictor.keep(rows.withColumnsRenamed(side_by_row_column), (*self.key, UNMATCHABLE, WINDOW), TIME)
        return kept_rows.withColumnsRenamed({name: row for row, name in side_by_row_column.items()})
