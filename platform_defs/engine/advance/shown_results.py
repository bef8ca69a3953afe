"""Selects the early results to show: if the trigger fires for a window, its present result; otherwise the result that was shown last."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import FINAL_AT, WINDOW_END, WINDOW_START, are_rows_equal, quoted, temporary
from operators.timing import instant
from operators.triggers import ROWS_SEEN, Trigger, TriggerContext

Times = tuple[int | None, int | None]
"""A watermark and the ledger's clock, in epoch ms."""
_NOW, _BEFORE, _FIRES = temporary("rows_now"), temporary("rows_before"), temporary("fires")


@dataclass(frozen=True)
class ShownWindows:
    """The windows of early results.

    Args:
        key: the columns that identify a window: the operator's key, `window_start` and `window_end`.
        are_sessions: whether windows grow and merge: a session continues the sessions that were shown before and lie within it.
    """

    key: tuple[str, ...]
    are_sessions: bool = False

    def results(
        self, trigger: Trigger, present: DataFrame, table_rows: DataFrame, shown: DataFrame, now: Times, before: Times
    ) -> DataFrame:
        """The results to show.

        Args:
            trigger: the trigger. It decides for each window with a present result, even if the table's shape leaves the result out.
            present: the present results of the open windows, with `ROWS_SEEN`.
            table_rows: the present results that the table's shape selects, with the columns of the table.
            shown: the results that were last shown.
            now: the watermark and the clock.
            before: the same at the last advance that evaluated the trigger.
        """
        fires = trigger.fires(TriggerContext(F.col(_NOW), *now), TriggerContext(F.col(_BEFORE), *before))
        if isinstance(fires, bool):
            return table_rows if fires else self._still_open(present, shown, now[0])
        windows = self._count_rows(present, shown).withColumn(_FIRES, F.coalesce(fires, F.lit(False)))
        fired = table_rows.alias("r").join(windows.where(_FIRES).alias("w"), are_rows_equal("r", "w", self.key), "left_semi")
        still_shown = shown.alias("s").join(windows.where(~F.col(_FIRES)).alias("w"), self._continues("w", "s"), "left_semi")
        return fired.unionByName(still_shown)

    def _still_open(self, present: DataFrame, shown: DataFrame, watermark: int | None) -> DataFrame:
        """The shown results of windows that are not final. A session that has grown since it was shown is final later than it was then."""
        if watermark is None:
            return shown
        is_open = F.col(FINAL_AT) > instant(watermark, FINAL_AT)
        still_open = shown.where(is_open)
        if not self.are_sessions:
            return still_open
        grown = shown.where(~is_open).alias("s").join(present.alias("w"), self._continues("w", "s"), "left_semi")
        return still_open.unionByName(grown)

    def _count_rows(self, present: DataFrame, shown: DataFrame) -> DataFrame:
        """The present windows, each with its number of rows now (`_NOW`), and its number of rows when it was last shown (`_BEFORE`)."""
        windows = present.groupBy(*self.key).agg(F.max(ROWS_SEEN).alias(_NOW))
        shown_windows = shown.groupBy(*self.key).agg(F.max(ROWS_SEEN).alias(_BEFORE))
        compared = windows.alias("w").join(shown_windows.alias("s"), self._continues("w", "s"), "left")
        rows = F.coalesce(F.sum(F.col(f"s.{_BEFORE}")), F.lit(0)).alias(_BEFORE)
        return compared.groupBy(*[f"w.{column}" for column in quoted((*self.key, _NOW))]).agg(rows)

    def _continues(self, window: str, shown: str) -> Column:
        """Whether a window was shown before; for a session, whether a session that was shown before lies within it."""
        if not self.are_sessions:
            return are_rows_equal(window, shown, self.key)
        group = [column for column in self.key if column not in (WINDOW_START, WINDOW_END)]
        is_within = (F.col(f"{shown}.{WINDOW_START}") >= F.col(f"{window}.{WINDOW_START}")) & (
            F.col(f"{shown}.{WINDOW_END}") <= F.col(f"{window}.{WINDOW_END}")
        )
        return are_rows_equal(window, shown, group) & is_within
