"""What a simulated shop does, and what came of it."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from platform_defs.simulator.errors import ShopError

Kind = Literal["clean", "late", "duplicate", "malformed", "null_time", "future", "rule_breaking"]
Source = Literal["orders", "payments", "order_items", "clicks", "order_updates"]

MINUTE, HOUR = 60_000, 3_600_000
TAIL, BEYOND = 9 * HOUR, 6 * HOUR
SOURCES: tuple[Source, ...] = ("orders", "payments", "order_items", "clicks", "order_updates")
QUARANTINED: tuple[Kind, ...] = ("malformed", "null_time", "future", "rule_breaking")
SPOILED: tuple[Kind, ...] = ("late", "duplicate", *QUARANTINED)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Shop:
    """What a simulated shop does.

    The rates are shares of the rows that can be of that kind; a rate above 0 gives at least one row where one can be found.

    Args:
        seed: two shops with equal settings and seed give equal lines; the ids hold it.
        day: the day on which the stream starts, at midnight UTC.
        orders: number of distinct orders.
        parts: late rows are late when the day is dropped in this many parts or more; so 1 gives no late rows.
        within_ms: the join's bound: a payment at most this long after its order belongs to it (closed at both ends).
        jitter_ms: how long a row takes to arrive, at most; keep it below the source's out-of-orderness.
        clicks_per_order: clicks on items, for each order.
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
        date.fromisoformat(self.day)
        for name, least in (("orders", 1), ("parts", 1), ("within_ms", 0), ("jitter_ms", 0), ("clicks_per_order", 0)):
            if getattr(self, name) < least:
                raise ShopError.bad_value(name, getattr(self, name), f"{least} or more")
        for name in (*SPOILED, "unpaid", "beyond", "several", "orphan"):
            if not 0 <= getattr(self, name) <= 1:
                raise ShopError.bad_value(name, getattr(self, name), "a rate between 0 and 1")

    @property
    def start(self) -> int:
        """Midnight of `day`, in milliseconds since the epoch."""
        return (datetime.fromisoformat(self.day).replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)

    @property
    def span(self) -> int:
        """How long the streams run: the day or the bound, whichever is longer, and a tail that closes it."""
        return max(24 * HOUR, self.within_ms) + TAIL

    @property
    def lag(self) -> int:
        """A late row arrives at least this long after its time: a whole part, the hour, and the gaps of a sparse stream."""
        return self.span // self.parts + max(70 * MINUTE, 20 * self.span // self.orders)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What was planned. A row is usable when it is well-formed (clean or late); copies are not counted.

    Args:
        orders: lines by kind; they add up to all lines. A doubled row counts as `clean`, its copy as `duplicate`.
        payments: the same.
        order_items: the same.
        clicks: the same.
        order_updates: the same.
        unpaid_orders: usable orders for which no payment was planned.
        orphan_payments: usable payments that name an order that does not exist.
        paid_within: usable payments of a usable order inside the bound: the pairs of a join that admits the late rows.
        paid_within_on_time: those of which neither side is late: the pairs of the stream.
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
    """The lines of each source in order of arrival, when each arrived, and what was planned."""

    shop: Shop
    orders: list[str] = field(repr=False)
    payments: list[str] = field(repr=False)
    order_items: list[str] = field(repr=False)
    clicks: list[str] = field(repr=False)
    order_updates: list[str] = field(repr=False)
    arrivals: dict[Source, list[int]] = field(repr=False)
    truth: Truth

    def lines(self, source: Source, part: int, parts: int) -> list[str]:
        """The lines of a source that arrive in the part-th of `parts` equal stretches of time."""
        if not 0 <= part < parts:
            raise ShopError.bad_value("part", part, f"0 to {parts - 1}, with {parts} parts")
        start, span = self.shop.start, self.shop.span
        sent = zip(self.arrivals[source], getattr(self, source), strict=True)
        return [line for at, line in sent if min((at - start) * parts // span, parts - 1) == part]
