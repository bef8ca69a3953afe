"""The most difficult stream, and the script of one trial: the files that land, and the actions in a fixed order."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, RowRule, SourceContract
from assets.days import moment
from operators import EveryStep, IntervalJoin, Session, WindowedAggregate
from operators.steps import NewRows, Upsert
from platform_defs.simulator import HOUR, MINUTE, Shop, ShopDay, Source, land, simulate

SOURCES: tuple[Source, ...] = ("orders", "payments")
AFTER = 60 * HOUR  # the wall clock is after all simulated times


@dataclass(frozen=True)
class Takings:
    """An operator that upserts: the total paid by method, merged from new rows."""

    inputs: tuple[str, ...] = ("payments",)

    @property
    def reads(self) -> NewRows:
        return NewRows()

    @property
    def emits(self) -> Upsert:
        return Upsert(("method",))

    def late(self, event_time: Column, watermark: Column) -> Column:
        return F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        return frames[0].groupBy("method").agg(F.sum("amount").cast("decimal(20,2)").alias("amount"), F.count("*").alias("payments"))

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        both = current.unionByName(self(*frames)).groupBy("method")
        return both.agg(F.sum("amount").cast("decimal(20,2)").alias("amount"), F.sum("payments").alias("payments"))


def _source(name: str, key: str, *columns: str) -> SourceContract:
    schema = StructType()
    for column in columns:
        schema = schema.add(column, "string", nullable=column not in (key, "order_id"))
    time = f"{name.removesuffix('s')}_time"
    return SourceContract(
        name=name,
        schema=schema.add("amount", "decimal(12,2)").add(time, "timestamp"),
        event_time=time,
        watermark=BoundedOutOfOrderness("10 minutes"),
        unique_key=(key,),
        idle_timeout="1 hour",
        rules=(RowRule("amount_not_negative", "amount >= 0"),),
    )


CONTRACTS = {
    "orders": _source("orders", "order_id", "order_id", "customer_id", "status"),
    "payments": _source("payments", "payment_id", "payment_id", "order_id", "method"),
}
WIDE = DerivedAsset(
    name="wide",
    inputs=SOURCES,
    operator=IntervalJoin(on="order_id", lower=0, upper="24 hours", how="full", left_prefix="order_", right_prefix="payment_"),
)
TAKINGS = DerivedAsset(name="takings", inputs=("payments",), operator=Takings())
VISITS = DerivedAsset(
    name="visits",
    inputs=("payments",),
    operator=WindowedAggregate(
        by="method",
        window=Session(gap="20 minutes", longest="6 hours"),
        aggregates={"payments": "count(*)"},
        allowed_lateness="1 hour",
        early=EveryStep(),
    ),
)
"""Sessions with allowed lateness, corrections and early results."""
ASSETS = {a.name: a for a in (WIDE, TAKINGS, VISITS)}
PUBLISHED = "published"
"""The folder to which the changes of `takings` are published."""


def shop(seed: int, parts: int) -> ShopDay:
    """A small day in parts, with late, duplicate, malformed and rule-breaking rows, and rows without a time or in the future."""
    return simulate(Shop(seed=seed, orders=15 * parts, parts=parts, late=0.05, duplicate=0.05, malformed=0.05, null_time=0.02, beyond=0.05))


def extreme_lines(day: ShopDay, source: Source, part: int) -> list[str]:
    """Lines with times out of range, with text in many scripts, or that are not a row; and many payments of one order."""
    key, time = ("order_id", "order_time") if source == "orders" else ("payment_id", "payment_time")
    now = moment(day.shop.start + (part * day.shop.span) // day.shop.parts)
    times = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "-0044-03-15T00:00:00Z", "+290000-01-01T00:00:00Z", "yesterday"]
    hot = [(now + timedelta(minutes=n)).isoformat(timespec="milliseconds") for n in range(8)]
    rows = [
        {
            key: f"x{part}-{n}-\u0000\u202e\U0001d4b3🧨",
            "order_id": f"hot-{part}",
            "method": "\u2133\n\t\"'\\",
            "amount": f"{n}.10",
            time: at,
        }
        for n, at in enumerate([*times, *hot])
    ]
    if source == "orders":
        rows = [row | {"order_id": f"hot-{part}" if n == len(times) else row["order_id"]} for n, row in enumerate(rows)]
    return [*(json.dumps(row) for row in rows), "{}", "[]", "null", "\ufeff{", '{"a": {"b": [1, {"c": null}]}}']


def land_part(day: ShopDay, landing: Path, part: int) -> None:
    """Land a part: two files for each source, with the same modification times in every trial.

    The part after the last has the extreme lines only, and a corrupted file.
    """
    for n, source in enumerate(SOURCES):
        sent = day.lines(source, part, day.shop.parts) if part < day.shop.parts else []
        for half, lines in enumerate((sent, extreme_lines(day, source, part))):
            _file(landing / source / f"part-{part:03}-{half}.jsonl", lines, _modified(day, part) + 10 * n + half)
    if part == day.shop.parts:
        _file(landing / "payments" / "torn.jsonl.gz", ["no gzip"], _modified(day, part) + 9)


def set_released_times(day: ShopDay, landing: Path, part: int) -> None:
    """Give the files of released rows a modification time that is the same in every trial."""
    for path in landing.glob("*/released-*"):
        os.utime(path, (_modified(day, part) + 30,) * 2)


def _modified(day: ShopDay, part: int) -> int:
    return day.shop.start // 1000 + part * 60


def land_abandoned_files(day: ShopDay, landing: Path, part: int) -> None:
    """Land files that are deleted again before a ledger batch contains them."""
    for source in SOURCES:
        lines = [line.replace('_id": "', '_id": "abandoned') for line in day.lines(source, part, day.shop.parts)[:9]]
        _file(landing / source / f"abandoned-{part}.jsonl", [*lines, "{cut"], day.shop.start // 1000 + 9)


def _file(path: Path, lines: Sequence[str], modified: int) -> None:
    if path.exists():
        return
    hidden = path.with_name(f".{path.name}")
    land(hidden, "".join(f"{line}\n" for line in lines))
    os.utime(hidden, (modified, modified))
    hidden.replace(path)


@dataclass(frozen=True)
class Action:
    """One action of the script.

    Args:
        kind: `ingest`, `release`, `advance`, `publish`, `watermark`, `idle`, `maintain`, `rebuild_days`, `rebuild_tables`, `drain`,
            `verify`, or `abandoned`: an `ingest` that is always killed before its ledger batch; its files are then deleted.
        part: the newest part that has landed.
        clock: the wall clock, in epoch ms.
    """

    kind: str
    part: int
    clock: int


def script(day: ShopDay) -> list[Action]:
    """The actions of a trial, from the first file to the drain."""
    steps: list[tuple[str, int]] = []
    for part in range(day.shop.parts):
        steps += [("abandoned", part)] if part % 2 else []
        steps += [("ingest", part), ("advance", part)]
        steps += [("publish", part), ("watermark", part), ("maintain", part)] if part % 2 else []
        steps += [("rebuild_days", part), ("idle", part)] if part == 2 else []
    last = day.shop.parts - 1
    steps += [(kind, last + 1) for kind in ("ingest", "release", "ingest")]
    steps += [(kind, last) for kind in ("abandoned", "drain", "advance", "publish", "rebuild_days", "rebuild_tables", "maintain", "verify")]
    times = _clocks(day.shop.start + AFTER, [kind for kind, _ in steps])
    return [Action(kind, part, clock) for (kind, part), clock in zip(steps, times, strict=True)]


def _clocks(now: int, kinds: Sequence[str]) -> list[int]:
    """The clock of each action: a minute apart, and two hours before sources become idle."""
    times: list[int] = []
    for kind in kinds:
        now += 2 * HOUR if kind == "idle" else MINUTE
        times.append(now)
    return times
