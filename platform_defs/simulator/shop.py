"""The parameters of a simulated shop, and the rows that it generates."""

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal

from assets.days import read_day
from platform_defs.simulator.errors import ShopError

Kind = Literal["clean", "late", "duplicate", "malformed", "null_time", "future", "rule_breaking"]
Source = Literal["orders", "payments", "order_items", "clicks", "order_updates"]

MINUTE, HOUR = 60_000, 3_600_000
TAIL, BEYOND = 9 * HOUR, 6 * HOUR
"""In ms. `TAIL`: how long the stream lasts after a day or the join's bound, whichever is longer.

`BEYOND`: the shortest time from the end of the bound to a payment that misses it.
"""
SOURCES: tuple[Source, ...] = ("orders", "payments", "order_items", "clicks", "order_updates")
QUARANTINED: tuple[Kind, ...] = ("malformed", "null_time", "future", "rule_breaking")
NOT_CLEAN: tuple[Kind, ...] = ("late", "duplicate", *QUARANTINED)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FUTURE_YEAR = 2096
"""The year of rows with the kind `future`; a leap year, so that it has every day."""


@dataclass(frozen=True, kw_only=True)
class Shop:
    """The parameters of a simulated shop.

    A rate is a share of the rows that can be of a kind. If any row can be of the kind, a rate above 0 gives at least one such row.

    Args:
        seed: the random seed, which is also part of the ids; equal parameters give equal lines.
        day: the day on which the stream starts, at midnight UTC.
        orders: number of distinct orders.
        parts: the least number of parts in which the day must be landed for rows of kind `late` to be late. In one part no row is late.
        within_ms: the join's bound: a payment belongs to its order if `0 <= payment time - order time <= within_ms`.
        jitter_ms: the longest time that a row takes to arrive; keep it below the source's out-of-orderness.
        clicks_per_order: clicks on items, for each order.
        late: the rate of late rows in each source.
        duplicate: the rate of duplicates in each source.
        malformed: the rate of rows that cannot be parsed, in each source.
        null_time: the rate of rows without an event time, in each source.
        future: the rate of rows that are too far in the future, in each source.
        rule_breaking: the rate of rows that violate a rule, in each source.
        unpaid: the rate of orders without a payment.
        beyond: the rate of orders whose payment comes after the bound.
        several: the rate of orders with two or three payments.
        orphan: payments of orders that do not exist, as a share of the orders.
    """

    seed: int = 7
    day: str = "2026-03-01"
    orders: int = 2_000
    parts: int = 6
    within_ms: int = 24 * HOUR
    jitter_ms: int = 8 * MINUTE
    clicks_per_order: int = 4
    late: float = 0.01
    duplicate: float = 0.01
    malformed: float = 0.005
    null_time: float = 0.005
    future: float = 0.001
    rule_breaking: float = 0.005
    unpaid: float = 0.08
    beyond: float = 0.01
    several: float = 0.02
    orphan: float = 0.02

    def __post_init__(self) -> None:
        if not _is_day(self.day):
            raise ShopError.bad_value("day", self.day, f"a day such as '2026-03-01', before {FUTURE_YEAR}")
        for name, least in (("orders", 1), ("parts", 1), ("within_ms", 0), ("jitter_ms", 0), ("clicks_per_order", 0)):
            if getattr(self, name) < least:
                raise ShopError.bad_value(name, getattr(self, name), f"{least} or more")
        for name in (*NOT_CLEAN, "unpaid", "beyond", "several", "orphan"):
            if not 0 <= getattr(self, name) <= 1:
                raise ShopError.bad_value(name, getattr(self, name), "a rate between 0 and 1")

    @cached_property
    def id_prefix(self) -> str:
        """The seed and the day, which follow the letter of the source in each id."""
        return f"{self.seed}-{self.day.replace('-', '')}"

    @cached_property
    def start(self) -> int:
        """Midnight of `day`, in milliseconds since the epoch."""
        return (datetime.fromisoformat(self.day).replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)

    @cached_property
    def span(self) -> int:
        """The duration of the streams in ms: a day or the join's bound, whichever is longer, plus `TAIL`."""
        return max(24 * HOUR, self.within_ms) + TAIL

    @cached_property
    def lag(self) -> int:
        """The shortest delay with which a late row arrives, in ms: longer than a part, an hour, and the gaps between few orders."""
        return self.span // self.parts + max(70 * MINUTE, 20 * self.span // self.orders)


def _is_day(text: str) -> bool:
    """Whether a text is a day in the form that the ids contain, before the rows of kind `future`. Other forms of ISO 8601 are none."""
    day = read_day(text)
    return day is not None and day.year < FUTURE_YEAR


@dataclass(frozen=True, kw_only=True)
class ExpectedCounts:
    """The expected counts. A usable row is clean or late; duplicates are not counted.

    Args:
        orders: the number of lines of each kind; together all lines. The first line of a duplicated row is `clean`, the second `duplicate`.
        payments: the same.
        order_items: the same.
        clicks: the same.
        order_updates: the same.
        unpaid_orders: usable orders without a payment.
        orphan_payments: usable payments that name an order that does not exist.
        paid_within: usable payments of a usable order, inside the bound. They are the pairs of a join that includes late rows.
        paid_within_on_time: those of them in which neither row is late. They are the pairs of a stream.
        paid_beyond: usable payments of a usable order, beyond the bound.
    """

    orders: dict[Kind, int]
    payments: dict[Kind, int]
    order_items: dict[Kind, int]
    clicks: dict[Kind, int]
    order_updates: dict[Kind, int]
    unpaid_orders: int
    orphan_payments: int
    paid_within: int
    paid_within_on_time: int
    paid_beyond: int


@dataclass(frozen=True, kw_only=True)
class ShopDay:
    """The lines of each source in order of arrival, their arrival times, and the expected counts."""

    shop: Shop
    orders: list[str] = field(repr=False)
    payments: list[str] = field(repr=False)
    order_items: list[str] = field(repr=False)
    clicks: list[str] = field(repr=False)
    order_updates: list[str] = field(repr=False)
    arrivals: dict[Source, list[int]] = field(repr=False)
    truth: ExpectedCounts

    def lines(self, source: Source, part: int, parts: int) -> list[str]:
        """The lines of a source that arrive in part `part` of `parts` equal parts of the span."""
        if not 0 <= part < parts:
            raise ShopError.bad_value("part", part, f"0 to {parts - 1}, with {parts} parts")
        start, span = self.shop.start, self.shop.span

        def part_of(arrival: int) -> int:
            return min((arrival - start) * parts // span, parts - 1)

        first, end = (bisect_left(self.arrivals[source], number, key=part_of) for number in (part, part + 1))
        return getattr(self, source)[first:end]
