"""Simulated rows, the faults they can have, and the lines that are sent for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from json import JSONEncoder
from random import Random

from platform_defs.simulator.shop import EPOCH, FUTURE_YEAR, HOUR, MINUTE, NOT_CLEAN, Kind, Shop

_encode = JSONEncoder(ensure_ascii=False).encode


@dataclass(slots=True, eq=False)
class Row:
    """A row before it is sent.

    Args:
        time: its event time, in epoch ms.
        fields: its values, by name.
        kind: whether it is clean, late, a duplicate or invalid.
        order: the order that a payment, an item or an update belongs to; None if there is none.
        measure: the name of the field that must not be negative.
    """

    time: int
    fields: dict[str, str]
    kind: Kind = "clean"
    order: "Row | None" = None
    measure: str = "amount"


def iso(time: int) -> str:
    """An instant as text, in UTC."""
    return f"{(EPOCH + timedelta(milliseconds=time)).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def money(cents: int) -> str:
    """Cents as the text of an amount."""
    return f"{cents // 100}.{cents % 100:02d}"


def count(rate: float, total: int) -> int:
    """The number of rows for a rate: `rate * total`, at least one if the rate is above zero."""
    return max(1, round(rate * total)) if rate else 0


def pick(rng: Random, rows: Sequence[Row], rate: float, total: int) -> list[Row]:
    """A random sample of at most `count(rate, total)` of the rows."""
    return rng.sample(rows, min(count(rate, total), len(rows)))


def assign_kinds(shop: Shop, rng: Random, rows: list[Row]) -> None:
    """Give some of the clean rows another kind, by the shop's rates: late, duplicate, or one of `QUARANTINED`."""
    newest = shop.start + shop.span - shop.lag - HOUR // 2 - shop.jitter_ms
    for kind in NOT_CLEAN:
        candidates = [row for row in rows if row.kind == "clean" and (kind != "late" or row.time <= newest)]
        for row in pick(rng, candidates, getattr(shop, kind), len(rows)):
            row.kind = kind


def simulate_arrivals(shop: Shop, rng: Random, rows: list[Row], time_field: str) -> tuple[list[int], list[str]]:
    """Simulate the arrival of rows; returns the arrival times and the lines, in order of arrival."""
    lines: list[tuple[int, str]] = []
    for number, row in enumerate(rows):
        arrival = row.time + rng.randrange(shop.jitter_ms + 1) + (shop.lag + rng.randrange(HOUR // 2) if row.kind == "late" else 0)
        lines.append((arrival, _line(row, time_field, number)))
        if row.kind == "duplicate":
            lines.append((arrival + rng.randrange(MINUTE, 3 * HOUR), lines[-1][1]))
    lines.sort(key=lambda pair: pair[0])
    return [arrival for arrival, _ in lines], [line for _, line in lines]


def _line(row: Row, time_field: str, number: int) -> str:
    stamp, sign = iso(row.time), "-" if row.kind == "rule_breaking" else ""
    event_time = None if row.kind == "null_time" else f"{FUTURE_YEAR}{stamp[4:]}" if row.kind == "future" else stamp
    line = _encode({**row.fields, row.measure: sign + row.fields[row.measure], time_field: event_time})
    if row.kind != "malformed":
        return line
    return (line[: len(line) * 2 // 3], line.replace(f'"{row.measure}": "', f'"{row.measure}": "about '), f"%% {line[15:40]} ???")[
        number % 3
    ]
