"""The time zones that Java knows."""

import re
from zoneinfo import available_timezones

_OTHER_ZONE = re.compile(r"Z|[A-Z]{3}|(?:UTC|GMT|UT)?[+-](?:0?\d|1[0-8])(?::?\d{2}){0,2}")
"""An offset, or one of Java's abbreviations."""


def is_time_zone(text: str) -> bool:
    """Whether a text is a region, such as `Europe/Berlin`, or an offset; true for any text if this machine has no list of regions."""
    regions = available_timezones()
    return not regions or text in regions or _OTHER_ZONE.fullmatch(text) is not None
