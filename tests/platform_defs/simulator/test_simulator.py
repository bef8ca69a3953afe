"""The rows of the simulated shop match its expected counts, in any number of parts."""

import gc
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from platform_defs.simulator import HOUR, MINUTE, QUARANTINED, SOURCES, Kind, Shop, ShopDay, Source, drop, land, simulate

SINGULAR: dict[Source, str] = {
    "orders": "order",
    "payments": "payment",
    "order_items": "item",
    "clicks": "click",
    "order_updates": "update",
}
TIMES: dict[Source, str] = {source: f"{name}_time" for source, name in SINGULAR.items()}
KEYS: dict[Source, str] = {source: f"{source.removesuffix('s')}_id" for source in SOURCES}
MEASURES = ("amount", "price", "seconds")
OUT_OF_ORDERNESS = 10 * MINUTE
Event = dict[str, str]
_EPOCH, _MS = datetime.fromisoformat("1970-01-01T00:00:00Z"), timedelta(milliseconds=1)


def _ms(stamp: str) -> int:
    return (datetime.fromisoformat(stamp) - _EPOCH) // _MS


def _kind(line: str, time: str) -> Kind:
    """The kind of a line, as far as it does not depend on other lines."""
    return _parse(line, time)[0]


def _parse(line: str, time: str) -> tuple[Kind, Event]:
    """The kind of a line, and its row; an empty row if the line is malformed."""
    try:
        row = json.loads(line)
        amount = next(float(row[name]) for name in MEASURES if name in row)
    except ValueError:
        return "malformed", {}
    if row[time] is None:
        return "null_time", row
    if datetime.fromisoformat(row[time]).year == 2096:
        return "future", row
    return "rule_breaking" if amount < 0 else "clean", row


class _Ingest:
    """A naive ingest of parts: the kinds of lines by source, and the usable events with their lateness decisions."""

    def __init__(self, day: ShopDay, parts: int) -> None:
        self.kinds: dict[Source, Counter[Kind]] = {source: Counter() for source in SOURCES}
        self.events: dict[Source, dict[str, tuple[int, bool, Event]]] = {source: {} for source in SOURCES}
        self.newest: dict[Source, int] = dict.fromkeys(SOURCES, -(2**62))
        for part in range(parts):
            watermark = min(self.newest.values()) - OUT_OF_ORDERNESS - 1
            for source in SOURCES:
                self._read(source, day.lines(source, part, parts), watermark)

    def _read(self, source: Source, lines: list[str], watermark: int) -> None:
        for line in lines:
            kind, row = _parse(line, TIMES[source])
            if kind == "clean":
                kind = self._event(source, row, _ms(row[TIMES[source]]), watermark)
            self.kinds[source][kind] += 1

    def _event(self, source: Source, row: Event, time: int, watermark: int) -> Kind:
        known = self.events[source].get(row[KEYS[source]])
        if known:
            assert known[2] == row
            return "duplicate"
        self.events[source][row[KEYS[source]]] = (time, time < watermark, row)
        self.newest[source] = max(self.newest[source], time)
        return "late" if time < watermark else "clean"


@cache
def _ingested(shop: Shop, parts: int) -> _Ingest:
    """The naive ingest of a shop's day, which several tests share."""
    return _Ingest(_day(shop), parts)


_day = cache(simulate)


@pytest.fixture(autouse=True, scope="module")
def _collect_no_garbage() -> Iterator[None]:
    """Switch off the garbage collector, which would visit the cached days again and again. At the end, release these days."""
    gc.disable()
    yield
    _day.cache_clear()
    _ingested.cache_clear()
    gc.enable()


@pytest.mark.parametrize(
    ("shop", "parts"),
    [
        pytest.param(Shop(), 6, id="the defaults"),
        pytest.param(Shop(seed=1), 13, id="finer than planned"),
        pytest.param(Shop(seed=2, orders=4_000), 6, id="large"),
        pytest.param(Shop(seed=3, orders=60, parts=12), 12, id="sparse"),
        pytest.param(Shop(seed=4, orders=500, parts=2), 50, id="row by row"),
        pytest.param(Shop(seed=5, orders=500, parts=1), 1, id="one part has no late rows"),
        pytest.param(Shop(seed=6, within_ms=72 * HOUR, orders=1_500), 6, id="three days"),
        pytest.param(
            Shop(seed=7, late=0.2, duplicate=0.2, malformed=0.1, null_time=0.1, future=0.1, rule_breaking=0.1), 6, id="many invalid rows"
        ),
    ],
)
def test_the_simulated_rows_match_the_expected_counts(shop: Shop, parts: int) -> None:
    day = _day(shop)
    ingested = _ingested(shop, parts)
    for source in SOURCES:
        planned: dict[Kind, int] = getattr(day.truth, source)
        assert {kind: ingested.kinds[source][kind] for kind in planned} == planned
        assert sum(planned.values()) == len(getattr(day, source))


@pytest.mark.parametrize(("shop", "parts"), [(Shop(), 6), (Shop(seed=1), 13)], ids=["the defaults", "finer than planned"])
def test_pairs_and_unmatched_rows_match_the_expected_counts(shop: Shop, parts: int) -> None:
    truth = _day(shop).truth
    ingested = _ingested(shop, parts)
    orders, payments = ingested.events["orders"], list(ingested.events["payments"].values())
    paid = [(orders[row["order_id"]], (time, late)) for time, late, row in payments if row["order_id"] in orders]
    within = [(order, payment) for order, payment in paid if 0 <= payment[0] - order[0] <= shop.within_ms]
    assert len(within) == truth.paid_within
    assert sum(not order[1] and not payment[1] for order, payment in within) == truth.paid_within_on_time
    assert len(paid) - len(within) == truth.paid_beyond > 0
    assert len(payments) - len(paid) == truth.orphan_payments > 0
    assert 0 < truth.unpaid_orders <= len(orders) - len({order[2]["order_id"] for order, _ in paid})


def test_some_pairs_are_at_each_end_of_the_interval() -> None:
    ingested = _ingested(Shop(), 6)
    orders = ingested.events["orders"]
    delays = {time - orders[row["order_id"]][0] for time, _, row in ingested.events["payments"].values() if row["order_id"] in orders}
    assert {0, 24 * HOUR} <= delays
    assert max(delays) >= 30 * HOUR
    assert min(delays) == 0


def test_rows_arrive_out_of_order_but_within_the_bound() -> None:
    day = simulate(Shop(orders=400, late=0, duplicate=0))
    for source in SOURCES:
        rows = [json.loads(line) for line in getattr(day, source) if _kind(line, TIMES[source]) == "clean"]
        times = [_ms(row[TIMES[source]]) for row in rows]
        behind = [newest - time for newest, time in zip(accumulate(times, max), times, strict=True)]
        assert 0 < max(behind) < OUT_OF_ORDERNESS


def test_late_rows_are_more_than_an_hour_behind() -> None:
    day = _day(Shop())
    start, newest, behind = day.shop.start, 0, []
    for line in day.orders:
        if _kind(line, "order_time") == "clean":
            newest = max(newest, _ms(json.loads(line)["order_time"]) - start)
            behind.append(newest - (_ms(json.loads(line)["order_time"]) - start))
    assert sum(gap > HOUR for gap in behind) >= day.truth.orders["late"] > 0


def test_every_source_ends_with_rows_after_the_day() -> None:
    shop = Shop()
    assert min(_ingested(shop, 6).newest.values()) > shop.start + 24 * HOUR + OUT_OF_ORDERNESS


def test_some_orders_have_several_payments_and_unicode_names() -> None:
    day, ingested = _day(Shop()), _ingested(Shop(), 6)
    several = Counter(row["order_id"] for _, _, row in ingested.events["payments"].values())
    assert sum(count > 1 for count in several.values()) >= 30
    assert any("李雷" in line for line in day.orders)
    assert any("João" in line for line in day.orders)


def test_every_kind_of_malformed_line_occurs() -> None:
    day = simulate(Shop(orders=500, malformed=0.1))
    malformed = [line for line in day.orders if _kind(line, "order_time") == "malformed"]
    assert {line[0] + line[-1] for line in malformed if line.endswith("}")} == {"{}"}
    assert any(line.startswith("%%") for line in malformed)
    assert any(line.startswith("{") and not line.endswith("}") for line in malformed)
    assert not any("\n" in line for line in malformed)


def test_a_seed_determines_the_day() -> None:
    assert simulate(Shop(seed=3, orders=200)) == simulate(Shop(seed=3, orders=200))
    assert simulate(Shop(seed=3, orders=200)).orders != simulate(Shop(seed=4, orders=200)).orders


def test_different_days_and_seeds_have_different_ids() -> None:
    shops = (Shop(orders=200), Shop(orders=200, day="2026-03-02"), Shop(orders=200, seed=8))
    ids = [set(_ingested(shop, 6).events[source]) for shop in shops for source in SOURCES]
    assert len(set().union(*ids)) == sum(len(part) for part in ids)


def test_rates_of_zero_give_a_clean_day() -> None:
    rates = ("late", "duplicate", *QUARANTINED, "unpaid", "beyond", "several", "orphan")
    truth = simulate(Shop(orders=300, **dict.fromkeys(rates, 0.0))).truth
    assert (truth.orders["clean"], truth.payments["clean"], truth.paid_within_on_time) == (300, 300, 300)
    assert sum(truth.orders.values()) + sum(truth.payments.values()) == 600


def test_the_future_rows_of_a_leap_day_have_a_time() -> None:
    day = simulate(Shop(orders=300, day="2028-02-29"))
    kinds = Counter(_kind(line, TIMES["orders"]) for line in day.orders)
    assert kinds["future"] == day.truth.orders["future"] > 0


@pytest.mark.parametrize("orders", [1, 2, 7])
def test_a_tiny_shop_has_the_expected_number_of_order_rows(orders: int) -> None:
    day = simulate(Shop(orders=orders))
    assert len(day.orders) == sum(day.truth.orders.values())


def test_landed_parts_contain_all_lines_in_order_of_arrival(tmp_path: Path) -> None:
    day = simulate(Shop(orders=300))
    landed = [drop(day, tmp_path, part, 6) for part in range(6)]
    for source in SOURCES:
        files = sorted((tmp_path / source).iterdir())
        assert [file.name for file in files] == [f"part-{part:05d}.jsonl" for part in range(6)]
        texts = [file.read_text(encoding="utf-8") for file in files]
        assert "".join(texts) == "".join(f"{line}\n" for line in getattr(day, source))
        assert [text.count("\n") for text in texts] == [counts[source] for counts in landed]


def test_a_second_day_never_overwrites_the_first(tmp_path: Path) -> None:
    drop(simulate(Shop(orders=50)), tmp_path, 0, 2)
    second = simulate(Shop(orders=50, day="2026-03-02"))
    with pytest.raises(FileExistsError, match=r"part-00000\.jsonl already contains other input; land into an empty folder"):
        drop(second, tmp_path, 0, 2)
    drop(second, tmp_path, 0, 2, first=2)
    assert sorted(file.name for file in (tmp_path / "orders").iterdir()) == ["part-00000.jsonl", "part-00002.jsonl"]


def test_landing_the_same_text_again_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "orders" / "part-00000.jsonl"
    land(path, "same\n")
    before = path.stat()
    land(path, "same\n")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_becomes_visible_only_when_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: list[tuple[str, str, str]] = []
    rename = Path.replace

    def watched(self: Path, target: Path) -> Path:
        renamed.append((self.name, self.read_text(), ",".join(file.name for file in tmp_path.iterdir())))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    land(tmp_path / "part-00000.jsonl", "whole\n")
    assert renamed == [(".part-00000.jsonl.tmp", "whole\n", ".part-00000.jsonl.tmp")]
    assert [file.name for file in tmp_path.iterdir()] == ["part-00000.jsonl"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"orders": 0}, "`orders` is 0; legal: 1 or more"),
        ({"parts": 0}, "`parts` is 0; legal: 1 or more"),
        ({"late": 1.5}, "`late` is 1.5; legal: a rate between 0 and 1"),
        ({"day": "March"}, "March"),
        ({"day": "20260301"}, "`day` is '20260301'; legal: a day such as '2026-03-01', before 2096"),
        ({"day": "2096-01-01"}, "before 2096"),
    ],
)
def test_invalid_shop_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shop(**parameters)


def test_a_part_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`part` is 6; legal: 0 to 5, with 6 parts"):
        drop(simulate(Shop(orders=10)), tmp_path, 6, 6)
