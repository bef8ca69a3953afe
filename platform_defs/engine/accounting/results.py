"""The results of closed ranges, as they are in the table and as they are recomputed from the log, to compare them by day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from operators.columns import FINAL_AT, day_column, row_hash
from operators.timing import ClosedRange
from platform_defs.engine.accounting.day_accounts import Scope
from platform_defs.engine.accounting.row_counts import RECOMPUTED, STORED, result_columns
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.span import ALL_TIMES, Span
from platform_defs.engine.inputs.stored_rows import read_table
from platform_defs.engine.lake.table_columns import differing_columns


@dataclass(frozen=True)
class ComparedResults:
    """The results in a table and the recomputed ones, with the same columns, possibly in another order.

    Args:
        stored: the results in the table.
        recomputed: the results computed again.
        columns: their columns.
        time: the column with a time, by whose day the results are compared; None to compare all rows at once.
    """

    stored: DataFrame
    recomputed: DataFrame
    columns: StructType
    time: str | None = None

    def hash_frames(self) -> list[DataFrame]:
        """Both frames, as `count_rows` reads them: with a day, and a hash of each result."""
        hash_column = row_hash(self.columns)
        return [frame.select(*result_columns(side, self.time, hash_column)) for side, frame in self._by_side.items()]

    def of_days(self, days: Sequence[date]) -> list[DataFrame]:
        """Both frames, with only the results whose `final_at` is on given days."""
        return [frame.where(day_column(F.col(FINAL_AT)).isin(list(days))) for frame in self._by_side.values()]

    @property
    def _by_side(self) -> dict[int, DataFrame]:
        return {STORED: self.stored, RECOMPUTED: self.recomputed}


def stored_results(advance: Advance, span: Span = ALL_TIMES) -> DataFrame:
    """The rows of an asset's table with `final_at` in a span; none if there is no table yet."""
    workspace, asset = advance.workspace, advance.asset
    return read_table(workspace, asset.name, FINAL_AT, span) if workspace.lake.exists(asset.name) else _no_results(advance)


def _no_results(advance: Advance) -> DataFrame:
    return advance.final_results(ClosedRange(None, 0), 0).limit(0)


def compared_results(advance: Advance, scope: Scope) -> ComparedResults | None:
    """The results in the table and those recomputed from the log; None if no result is closed.

    Results that the next correction will recompute are left out of both.

    Raises:
        ProgressError: the table has other columns than the recomputed results.
    """
    closing = scope.recount
    if closing is None:
        return None
    workspace, asset = advance.workspace, advance.asset
    now = progress(workspace.lake, asset)
    recomputed, stored = advance.final_results(closing, now.seq), _results_within(advance, closing)
    columns = recomputed.schema
    if differing := differing_columns(stored.schema, columns):
        raise ProgressError.other_columns(asset.name, differing)
    for later in unread_corrections(position_of(workspace, asset, now)):  # the next step recomputes these: they are not wrong yet
        stored, recomputed = (frame.where(~later.holds(FINAL_AT)) for frame in (stored, recomputed))
    return ComparedResults(stored, recomputed, columns, FINAL_AT)


def _results_within(advance: Advance, closing: ClosedRange) -> DataFrame:
    """The rows of an asset's table in a closed range."""
    lake, name = advance.workspace.lake, advance.asset.name
    if not lake.exists(name):
        return _no_results(advance)
    rows = lake.read(advance.workspace.spark, name, within={FINAL_AT: (closing.after, closing.upto)})
    return rows.where(closing.holds(FINAL_AT))
