"""The time zones that Spark and Java know."""

import re
from zoneinfo import available_timezones

_OFFSET = re.compile(
    r"Z|UT|(?:UTC|GMT|UT)?[+-](?:\d|(?:0\d|1[0-7])(?:(?:[0-5]\d){0,2}|(?::[0-5]\d){1,2})|18(?:(?:00){0,2}|(?::00){1,2}))", re.ASCII
)
_ONE_DIGIT = (re.compile(r"([+-])(\d):", re.ASCII), r"\g<1>0\2:"), (re.compile(r"([+-]\d\d):(\d)$", re.ASCII), r"\1:0\2")
"""Hours and minutes of one digit, to which Spark adds a zero."""
_ABBREVIATIONS = re.compile(
    "ACT|AET|AGT|ART|AST|BET|BST|CAT|CNT|CST|CTT|EAT|ECT|EST|HST|IET|IST|JST|MIT|MST|NET|NST|PLT|PNT|PRT|PST|SST|VST"
)
"""Java's `ZoneId.SHORT_IDS`."""
_NOT_IN_JAVA = {"Factory", "ROC", "localtime"}
"""Regions of Python's list that Java does not have."""


def is_time_zone(text: str) -> bool:
    """Whether a text is a region such as `Europe/Berlin`, an offset, or one of Java's abbreviations of regions.

    It is true for any text if this machine has no list of regions.
    """
    regions = available_timezones()
    offset = text
    for pattern, two_digits in _ONE_DIGIT:
        offset = pattern.sub(two_digits, offset, count=1)
    is_region = text in regions - _NOT_IN_JAVA or _ABBREVIATIONS.fullmatch(text) is not None
    return not regions or is_region or _OFFSET.fullmatch(offset) is not None
