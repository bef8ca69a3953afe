"""The counts of an account: how they become terms, and on which days stored and recomputed results differ."""

from datetime import date

import pytest

from operators import IntervalJoin
from operators.interval_join import How
from platform_defs.engine.accounting.counted_rows import counted_terms
from platform_defs.engine.accounting.row_counts import RECOMPUTED, STORED, RowCount, RowFlag, differing_days, terms_by_day
from platform_defs.engine.accounting.traced_rows import traced_terms

FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)
NO_FACT = RowFlag(0)


def test_days_differ_if_the_number_or_a_sum_of_hashes_differs() -> None:
    equal = [RowCount(STORED, FIRST, NO_FACT, 2, 7, 9), RowCount(RECOMPUTED, FIRST, NO_FACT, 2, 7, 9)]
    assert differing_days([*equal, RowCount(0, FIRST, RowFlag.ACCEPTED, 5, 0, 0)]) == []
    for other in ((3, 7, 9), (2, 8, 9), (2, 7, 8)):
        assert differing_days([*equal, RowCount(STORED, SECOND, NO_FACT, 2, 7, 9), RowCount(RECOMPUTED, SECOND, NO_FACT, *other)]) == [
            SECOND
        ]
    assert differing_days([*equal, RowCount(STORED, SECOND, NO_FACT, 1, 0, 0)]) == [SECOND]


def test_counts_of_one_date_are_added() -> None:
    """Days before the first or after the last date of Python become that date, so that a date may have several counts."""
    stored = [RowCount(STORED, date.max, NO_FACT, 1, 2, 3), RowCount(STORED, date.max, NO_FACT, 1, 5, 5)]
    assert differing_days([*stored, RowCount(RECOMPUTED, date.max, NO_FACT, 2, 7, 8)]) == []


def test_results_have_no_terms() -> None:
    counts = [RowCount(STORED, FIRST, NO_FACT, 2, 7, 9), RowCount(1, SECOND, RowFlag.ACCEPTED | RowFlag.MATCHED, 3, 0, 0)]
    assert terms_by_day(counts, counted_terms) == [{"side": 1, "day": SECOND, "accepted": 3, "matched": 3}]


@pytest.mark.parametrize(
    ("how", "facts", "terms"),
    [
        ("inner", RowFlag.ACCEPTED, {"accepted", "pending"}),
        ("inner", RowFlag.ACCEPTED | RowFlag.FINALIZED, {"accepted", "unmatched"}),
        ("inner", RowFlag.ACCEPTED | RowFlag.FINALIZED | RowFlag.MATCHED, {"accepted", "matched"}),
        ("inner", RowFlag.ACCEPTED | RowFlag.FINALIZED | RowFlag.LATE, {"accepted", "late"}),
        ("inner", RowFlag.ACCEPTED | RowFlag.FILTERED, {"accepted", "filtered"}),
        ("inner", RowFlag.MATCHED, {"matched"}),
        ("full", RowFlag.ACCEPTED | RowFlag.FINALIZED, {"accepted"}),
        ("full", RowFlag.ACCEPTED | RowFlag.FINALIZED | RowFlag.UNMATCHED, {"accepted", "unmatched"}),
        ("full", RowFlag.ACCEPTED | RowFlag.MATCHED | RowFlag.UNMATCHED, {"accepted", "matched", "unmatched"}),
        ("full", RowFlag.ACCEPTED | RowFlag.LATE | RowFlag.MATCHED, {"accepted", "late", "matched"}),
    ],
)
def test_the_facts_of_a_row_determine_its_terms(how: How, facts: RowFlag, terms: set[str]) -> None:
    """A row that a full join neither matched nor kept is missing from its results; a row that is in no log must not be in the results."""
    assert {*traced_terms(IntervalJoin(on="k", lower=0, upper=1, how=how))(0, facts)} == terms
