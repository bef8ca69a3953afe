"""The description of a finding, for none, one and many rows."""

import pytest

from expectations.finding import Finding


@pytest.mark.parametrize(
    ("unexpected", "evaluated", "description"),
    [
        (0, 0, "no rows to check"),
        (0, 1, "0 of 1 row fails"),
        (1, 1, "1 of 1 row fails"),
        (0, 4, "0 of 4 rows fail"),
        (1, 4, "1 of 4 rows fails"),
        (2, 4, "2 of 4 rows fail"),
        (1_000, 2_000_000, "1,000 of 2,000,000 rows fail"),
    ],
)
def test_the_numbers_agree_with_noun_and_verb(unexpected: int, evaluated: int, description: str) -> None:
    assert Finding(passed=not unexpected, unexpected=unexpected, evaluated=evaluated).description == description


def test_a_finding_without_rows_describes_a_number_and_quotes_no_other_value_and_no_error() -> None:
    assert Finding(passed=True, observed=3).description == "the metadata has the observed value"
    assert Finding(passed=False, observed=["ana"]).description == "the metadata has the observed value"
    assert Finding(passed=False, error="ana is no number").description == "could not be evaluated; the metadata has the error"
