"""Parts of the descriptions of check results, which read well for none, one and many."""

from collections.abc import Sequence
from datetime import date

from assets.ports import AccountPort

_MOST = 10


def count(number: int, noun: str) -> str:
    """A number with its noun, such as `1 row`, `2,000 rows` or `0 batches`."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def duration(length_s: float, most_units: int = 2) -> str:
    """A length of time in its largest units that are not zero, rounded down, such as `1 d 5 min`; `0 s` for less than a second.

    Args:
        length_s: the length.
        most_units: the maximum number of units.
    """
    remaining_s, units = int(length_s), list[str]()
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if remaining_s >= length or (unit == "s" and not units):
            units.append(f"{remaining_s // length} {unit}")
        remaining_s %= length
    return " ".join(units[:most_units])


def list_text(items: Sequence[str]) -> str:
    """The first ten items, and how many more there are."""
    remainder = [f"and {len(items) - _MOST:,} more"] if len(items) > _MOST else []
    return ", ".join([*items[:_MOST], *remainder])


def sides_and_days(accounts: Sequence[AccountPort]) -> str:
    """The sides and days of accounts, such as `orders on 2026-03-01, payments on 2026-03-02`."""
    return list_text([f"{account.side} on {account.day}" for account in accounts])


def from_to(first: object, last: object) -> str:
    """A range, such as `2026-03-01 to 2026-03-03`; its only member if it has one."""
    return str(first) if first == last else f"{first} to {last}"


def day_range(days: Sequence[date]) -> str:
    """The range from the first to the last of some days."""
    return from_to(min(days), max(days)) if days else "no days"
