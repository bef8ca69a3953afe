"""The time zones that Java knows."""

import re
from zoneinfo import available_timezones

_OFFSET = re.compile(r"Z|(?:UTC|GMT|UT)?[+-](?:(?:0?\d|1[0-7])(?::?[0-5]\d){0,2}|18(?::?00){0,2})")
_ABBREVIATIONS = re.compile(
    "ACT|AET|AGT|ART|AST|BET|BST|CAT|CNT|CST|CTT|EAT|ECT|EST|HST|IET|IST|JST|MIT|MST|NET|NST|PLT|PNT|PRT|PST|SST|VST"
)
"""Java's `ZoneId.SHORT_IDS`."""


def is_time_zone(text: str) -> bool:
    """Whether a text is a region such as `Europe/Berlin`, an offset, or one of Java's abbreviations of regions.

    It is true for any text if this machine has no list of regions.
    """
    regions = available_timezones()
    return not regions or text in regions or any(zone.fullmatch(text) for zone in (_OFFSET, _ABBREVIATIONS))
