"""A seeded shop: orders and payments of one day and a bit, with every trouble a real source brings.

The same `Shop` always gives the same lines. Times are whole milliseconds since the epoch; `arrival` is the moment a line
reaches the platform, and only decides which file it lands in.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from json import JSONEncoder
from pathlib import Path
from random import Random
from typing import Literal

Kind = Literal["clean", "late", "duplicate", "malformed", "null_time", "future", "rule_breaking"]
Source = Literal["orders", "payments"]

MINUTE, HOUR = 60_000, 3_600_000
TAIL, BEYOND = 9 * HOUR, 6 * HOUR
STATUSES = ("created", "approved", "shipped", "delivered", "canceled")
METHODS = ("card", "boleto", "voucher", "transfer")
NAMES = ("ana", "ben", "carla", "dmitri", "eva", "farid", "João", "Zoë", "Łukasz", "李雷", "さくら", "민준")
SOURCES: tuple[Source, ...] = ("orders", "payments")
QUARANTINED: tuple[Kind, ...] = ("malformed", "null_time", "future", "rule_breaking")
SPOILED: tuple[Kind, ...] = ("late", "duplicate", *QUARANTINED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = JSONEncoder(ensure_ascii=False).encode


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
    """

    seed: int = 7
    day: str = "2026-03-01"
    orders: int = 2_000
    parts: int = 6
    within_ms: int = 24 * HOUR
    jitter_ms: int = 8 * MINUTE
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
        for name, least in (("orders", 1), ("parts", 1), ("within_ms", 0), ("jitter_ms", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` is {getattr(self, name)}; it must be {least} or more")
        for name in (*SPOILED, "unpaid", "beyond", "several", "orphan"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}; a rate lies between 0 and 1")

    @property
    def start(self) -> int:
        """Midnight of `day`, in milliseconds since the epoch."""
        return (datetime.fromisoformat(self.day).replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)

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
        unpaid_orders: usable orders for which no payment was planned.
        orphan_payments: usable payments that name an order that does not exist.
        paid_within: usable payments of a usable order inside the bound: the pairs of a join that admits the late rows.
        paid_within_on_time: those of which neither side is late: the pairs of the stream.
        paid_beyond: usable payments of a usable order, beyond the bound.
    """

    orders: dict[Kind, int]
    payments: dict[Kind, int]
    unpaid_orders: int
    orphan_payments: int
    paid_within: int
    paid_within_on_time: int
    paid_beyond: int


@dataclass(frozen=True, kw_only=True)
class ShopDay:
    """The lines of both sources in order of arrival, when each arrived, and what was planned."""

    shop: Shop
    orders: list[str] = field(repr=False)
    payments: list[str] = field(repr=False)
    arrivals: dict[Source, list[int]] = field(repr=False)
    truth: Truth

    def lines(self, source: Source, part: int, parts: int) -> list[str]:
        """The lines of a source that arrive in the part-th of `parts` equal stretches of time."""
        if not 0 <= part < parts:
            raise ValueError(f"`part` is {part}; with {parts} parts it lies between 0 and {parts - 1}")
        start, span = self.shop.start, self.shop.span
        sent = zip(self.arrivals[source], getattr(self, source), strict=True)
        return [line for at, line in sent if min((at - start) * parts // span, parts - 1) == part]


@dataclass(slots=True, eq=False)
class _Row:
    time: int
    fields: dict[str, str]
    kind: Kind = "clean"
    order: "_Row | None" = None


def simulate(shop: Shop) -> ShopDay:
    """Simulate a shop's day.

    >>> len(simulate(Shop(orders=100, duplicate=0)).orders)
    100
    """
    rng = Random(f"{shop.seed}/{shop.day}")
    orders = _orders(shop, rng)
    _spoil(shop, rng, orders)
    payments = _payments(shop, rng, [row for row in orders if row.kind not in QUARANTINED])
    _spoil(shop, rng, [row for row in payments if row.order and row.order.kind == "clean" and _within(shop, row)])
    order_arrivals, order_lines = _sent(shop, rng, orders, "order_time")
    payment_arrivals, payment_lines = _sent(shop, rng, payments, "payment_time")
    arrivals: dict[Source, list[int]] = {"orders": order_arrivals, "payments": payment_arrivals}
    return ShopDay(shop=shop, orders=order_lines, payments=payment_lines, arrivals=arrivals, truth=_truth(shop, orders, payments))


def drop(day: ShopDay, landing: Path, part: int, parts: int, *, first: int = 0) -> dict[Source, int]:
    """Land the part-th of `parts` stretches of a day: one file a source, which a watcher sees whole or not at all.

    `first` numbers the first file, for a second day in the same folder. Returns the lines landed for each source; raises as `land`.
    """
    slices: dict[Source, list[str]] = {source: day.lines(source, part, parts) for source in SOURCES}
    for source, lines in slices.items():
        land(landing / source / f"part-{first + part:05d}.jsonl", "".join(f"{line}\n" for line in lines))
    return {source: len(lines) for source, lines in slices.items()}


def land(path: Path, text: str) -> None:
    """Write a file under a hidden name, then rename it. A file with the same text is left as it is.

    Raises:
        FileExistsError: the file exists with another text; input that was landed is never overwritten.
    """
    content = text.encode()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_bytes(content)
        hidden.replace(path)
    elif path.read_bytes() != content:
        raise FileExistsError(f"{path} already holds other input; land into an empty folder, or under another number")


def _iso(time: int) -> str:
    return f"{(_EPOCH + timedelta(milliseconds=time)).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _orders(shop: Shop, rng: Random) -> list[_Row]:
    rows: list[_Row] = []
    for i in range(shop.orders):
        fields = {
            "order_id": f"o{shop.seed}-{shop.day.replace('-', '')}-{i:06d}",
            "customer_id": f"{rng.choice(NAMES)}-{rng.randrange(shop.orders):05d}",
            "status": rng.choice(STATUSES),
            "amount": _money(500 + int(rng.expovariate(1 / 12_000))),
        }
        rows.append(_Row(shop.start + (i * shop.span + rng.randrange(shop.span)) // shop.orders, fields))
    return rows


def _payments(shop: Shop, rng: Random, orders: list[_Row]) -> list[_Row]:
    """The payments of no order, then those of each order."""
    clean = [order for order in orders if order.kind == "clean"]
    reach = shop.start + shop.span - shop.within_ms - BEYOND - HOUR // 2
    unpaid = set(_pick(rng, clean, shop.unpaid, len(orders)))
    beyond = set(_pick(rng, [row for row in clean if row.time <= reach and row not in unpaid], shop.beyond, len(orders)))
    several = set(_pick(rng, [row for row in clean if row not in unpaid and row not in beyond], shop.several, len(orders)))
    rows = [_orphan(shop, rng, i) for i in range(_count(shop.orphan, shop.orders))]
    for order in orders:
        if order in beyond:
            rows.append(_payment(rng, order, shop.within_ms + BEYOND + rng.randrange(HOUR // 2), 1))
        elif order not in unpaid:
            shares = rng.choice((2, 2, 3)) if order in several else 1
            rows += [_payment(rng, order, _delay(shop, rng, order.time), shares) for _ in range(shares)]
    for i, row in enumerate(rows):
        row.fields = {"payment_id": f"p{shop.seed}-{shop.day.replace('-', '')}-{i:06d}", **row.fields}
    return rows


def _payment(rng: Random, order: _Row, delay: int, shares: int) -> _Row:
    amount = _money(int(order.fields["amount"].replace(".", "")) // shares)
    return _Row(order.time + delay, {"order_id": order.fields["order_id"], "method": rng.choice(METHODS), "amount": amount}, order=order)


def _orphan(shop: Shop, rng: Random, i: int) -> _Row:
    fields = {"order_id": f"nowhere{shop.seed}-{i:05d}", "method": rng.choice(METHODS), "amount": _money(rng.randrange(500, 30_000))}
    return _Row(shop.start + rng.randrange(shop.span), fields)


def _delay(shop: Shop, rng: Random, time: int) -> int:
    """From order to payment: mostly within the hour, some at any time within the bound, a few on its very ends."""
    shape, delay = rng.random(), min(int(rng.expovariate(1 / (40 * MINUTE))), shop.within_ms)
    if shape < 0.1:
        delay = rng.choice((0, shop.within_ms)) if shape < 0.01 else rng.randrange(shop.within_ms + 1)
    left = shop.start + shop.span - time
    return delay if delay <= left else rng.randrange(min(left, shop.within_ms) + 1)


def _within(shop: Shop, payment: _Row) -> bool:
    return payment.order is not None and payment.time - payment.order.time <= shop.within_ms


def _count(rate: float, of: int) -> int:
    return max(1, round(rate * of)) if rate else 0


def _pick(rng: Random, rows: Sequence[_Row], rate: float, of: int) -> list[_Row]:
    return rng.sample(rows, min(_count(rate, of), len(rows)))


def _spoil(shop: Shop, rng: Random, rows: list[_Row]) -> None:
    """Give some of the rows another kind than clean, each row at most one."""
    newest = shop.start + shop.span - shop.lag - HOUR // 2 - shop.jitter_ms
    for kind in SPOILED:
        free = [row for row in rows if row.kind == "clean" and (kind != "late" or row.time <= newest)]
        for row in _pick(rng, free, getattr(shop, kind), len(rows)):
            row.kind = kind


def _sent(shop: Shop, rng: Random, rows: list[_Row], time: str) -> tuple[list[int], list[str]]:
    """What is sent for the rows, in order of arrival: when each line arrives, and the lines."""
    sent: list[tuple[int, str]] = []
    for i, row in enumerate(rows):
        at = row.time + rng.randrange(shop.jitter_ms + 1) + (shop.lag + rng.randrange(HOUR // 2) if row.kind == "late" else 0)
        sent.append((at, _line(row, time, i)))
        if row.kind == "duplicate":
            sent.append((at + rng.randrange(MINUTE, 3 * HOUR), sent[-1][1]))
    sent.sort(key=lambda pair: pair[0])
    return [at for at, _ in sent], [line for _, line in sent]


def _line(row: _Row, time: str, i: int) -> str:
    stamp, sign = _iso(row.time), "-" if row.kind == "rule_breaking" else ""
    written = {"null_time": None, "future": f"2099{stamp[4:]}"}.get(row.kind, stamp)
    line = _encode({**row.fields, "amount": sign + row.fields["amount"], time: written})
    broken = (line[: len(line) * 2 // 3], line.replace('"amount": "', '"amount": "about '), f"%% {line[15:40]} ???")
    return broken[i % 3] if row.kind == "malformed" else line


def _truth(shop: Shop, orders: list[_Row], payments: list[_Row]) -> Truth:
    usable, paid = [row for row in payments if row.kind not in QUARANTINED], {row.order for row in payments}
    within = [row for row in usable if _within(shop, row)]
    return Truth(
        orders=_by_kind(orders),
        payments=_by_kind(payments),
        unpaid_orders=sum(row.kind not in QUARANTINED and row not in paid for row in orders),
        orphan_payments=sum(row.order is None for row in usable),
        paid_within=len(within),
        paid_within_on_time=sum(row.kind != "late" and row.order is not None and row.order.kind != "late" for row in within),
        paid_beyond=sum(row.order is not None and not _within(shop, row) for row in usable),
    )


def _by_kind(rows: list[_Row]) -> dict[Kind, int]:
    """Lines by kind: a duplicate is two lines, of which the first is clean."""
    found = Counter(row.kind for row in rows)
    return {"clean": found["clean"] + found["duplicate"], **{kind: found[kind] for kind in SPOILED}}
