"""The time zones that Spark and Java know."""

import pytest

from operators.time_zones import is_time_zone

LEGAL = (
    "UTC GMT UT Z GMT0 EST PST Europe/Berlin +7 -7 +07 +0730 +073000 +07:30 +07:30:00 +7:30 +7:3 +07:3 +17:59:59 +18 +18:00 -18:00:00 "
    "+1800 +180000 UTC+7 GMT-07 UT+07:30 UTC+7:30 UTC+0730 GMT+7:3"
)
ILLEGAL = (
    "z ut XYZ Mars Factory ROC localtime + 7 07:30 +730 UTC+730 +073 +07305 +07:3000 +0730:00 +17:5959 +18:0000 +18:01 +18:30 +1801 +19 "
    "+25 +5:99 +07:60 UTC+ +07:30:0 +\u0667"
)


@pytest.mark.parametrize(("texts", "is_legal"), [(LEGAL, True), (ILLEGAL, False)])
def test_a_time_zone_is_legal_if_spark_accepts_it(texts: str, is_legal: bool) -> None:
    """Spark adds a zero to some numbers of one digit; Java's `ZoneId.of` reads the rest."""
    assert [text for text in ["", *texts.split()] if is_time_zone(text) is not is_legal] == [""] * is_legal
