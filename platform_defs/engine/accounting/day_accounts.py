"""The account of a side and day: its terms, the rows that it covers, and the expressions that all ways of counting share."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.days import day_end, day_start
from assets.ports import TERMS
from operators.timing import ClosedRange
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.progress import progress, stored_progress
from platform_defs.engine.inputs.span import ALL_TIMES, Span


def share_matched(matched: int, unmatched: int, late: int) -> float:
    """The share of matched rows; 1 if there are no rows. Late rows lower it, as unmatched ones do, since they can no longer match."""
    rows = matched + unmatched + late
    return matched / rows if rows else 1.0


@dataclass(frozen=True)
class DayAccount:
    """The rows of one side with event times on one day.

    Args:
        side: the input.
        day: the day, UTC.
        accepted: rows in the log; of an input table, its rows.
        matched: rows in at least one emitted pair; for windows, rows whose windows are all closed; for upserted tables, handled rows.
        unmatched: finalized rows in no pair; for windows, rows in no window.
        pending: rows that may still be matched, or are in an open window; for upserted tables, rows that no step has handled yet.
        late: rows that arrived after the watermark had passed them.
        filtered: rows that the asset's preparation of the input leaves out.
        missing: results of this side and day that the table lacks.
        extra: results that the table should not have.
    """

    side: str
    day: date
    accepted: int = 0
    matched: int = 0
    unmatched: int = 0
    pending: int = 0
    late: int = 0
    filtered: int = 0
    missing: int = 0
    extra: int = 0

    @property
    def holds(self) -> bool:
        """Whether every row is accounted for exactly once, and the results are right."""
        counted = self.matched + self.unmatched + self.pending + self.late + self.filtered
        return self.accepted == counted and not self.missing and not self.extra

    @property
    def completeness(self) -> float:
        """The share of matched rows among the matched, unmatched and late ones; 1 if there are none."""
        return share_matched(self.matched, self.unmatched, self.late)


@dataclass(frozen=True)
class Scope:
    """The rows that an account covers.

    Args:
        span: the rows' event times.
        results: the `final_at` of the results that may contain these rows.
        recount: the range of results to recompute; None if no result is closed.
        closed_to: the watermark up to which results are closed, in epoch ms; None if no result is closed.
    """

    span: Span
    results: Span
    recount: ClosedRange | None
    closed_to: int | None = None


def scope_of(advance: Advance, days: tuple[date, date] | None, start: int | None = None) -> Scope:
    """The scope of a range of days, or of all days. A result is final at most `longest_wait` after the time of each of its rows.

    Args:
        advance: the asset.
        days: the first and the last day; None for all.
        start: leave out the rows and results before this time, in epoch ms, which cannot be computed again.
    """
    closed_to = progress(advance.workspace.lake, advance.asset).closed_to
    if days is None and start is None:
        return Scope(ALL_TIMES, ALL_TIMES, None if closed_to is None else ClosedRange(None, closed_to), closed_to)
    first = max(start_ms for start_ms in (start, None if days is None else day_start(days[0])) if start_ms is not None)
    last = None if days is None else max(day_end(days[1]), first - 1)
    final = None if last is None else last + longest_wait(advance.asset)
    recount = None
    if closed_to is not None:
        upto = closed_to if final is None else min(final, closed_to)
        recount = ClosedRange(min(first - 1, upto), upto)
    return Scope(Span(first, last), Span(first, final), recount, closed_to)


def inputs_can_be_read(advance: Advance) -> bool:
    """Whether the rows of every input can be read. For an asset with steps they can: an input table that does not exist is then empty."""
    lake = advance.workspace.lake
    return stored_progress(lake, advance.asset).step > 0 or all(
        upstream.is_readable(lake) for upstream in advance.workspace.inputs_of(advance.asset)
    )


def longest_wait(asset: DerivedAsset, index: int | None = None) -> int:
    """The longest time for which a row of input `index` (None: of any input) may be pending, in ms of the watermark."""
    reads = asset.operator.reads
    return reads.watermark_delay + reads.longest_lookback if index is None else reads.wait_of(index)


def accounts_of(inputs: Sequence[str], rows: Iterable[Row | Mapping[str, Any]]) -> list[DayAccount]:
    """Sum rows of terms to one account for each side and day.

    Args:
        inputs: the names of the inputs.
        rows: terms, with `side` (the index of an input) and `day`; a term that a row lacks is zero.
    """
    sums: dict[tuple[int, date], Counter[str]] = {}
    for row in rows:
        sums.setdefault((row["side"], row["day"]), Counter()).update({term: row[term] for term in TERMS if term in row})
    accounts = [DayAccount(inputs[side], day, **terms) for (side, day), terms in sums.items() if any(terms.values())]
    return sorted(accounts, key=lambda account: (account.day, account.side))


def missing_and_extra() -> dict[str, Column]:
    """The terms of a `bag_difference`, from its column `copies`, which is positive for missing results and negative for extra ones."""
    copies = F.col("copies")
    return {"missing": F.greatest(copies, F.lit(0)), "extra": F.greatest(-copies, F.lit(0))}
