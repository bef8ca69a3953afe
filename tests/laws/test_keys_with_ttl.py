"""Aggregates and deduplicated rows with a time to live: after each batch the table equals a naive model, and its account holds."""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import Aggregate, Deduplicate, fold
from operators.contract import Operator
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.laws.test_time_to_live import BATCHES, TTL
from tests.support.clock import Clock
from tests.support.small_sources import MINUTE, replay, rows_of, source

Row = tuple[str | None, int, int, tuple[int, int]]
"""A row of the log: its key, its value, its time in ms, and its position."""
SUMS = {"n": "count(*)", "total": "sum(v)"}
TABLES: dict[str, Operator] = {
    "kept": Aggregate(by="k", aggregates=SUMS, ttl=TTL),
    "removed": Aggregate(by="k", aggregates=SUMS, ttl=TTL, after_ttl="retract"),
    "idle": Aggregate(by="k", aggregates=SUMS, ttl=TTL, after_ttl="retract", ttl_by="processing"),
    "last": Deduplicate(by="k", keep="last", ttl=TTL, after_ttl="retract"),
}


def _log(engine: Engine) -> list[Row]:
    rows = engine.reading.log("l", engine.ledger.head).select("k", "v", F.unix_millis("event_time"), "seq", "arrival").collect()
    return [(k, v, at, (seq, arrival)) for k, v, at, seq, arrival in rows]


def _rows_within_ttl(rows: Sequence[Row], time: Callable[[Row], int], now: int | None) -> dict[str | None, list[Row]]:
    """By key, its rows since its last gap of more than the TTL; a key that expired before `now` is left out."""
    found: dict[str | None, list[Row]] = {}
    for key in {row[0] for row in rows}:
        period: list[Row] = []
        for row in sorted((r for r in rows if r[0] == key), key=time):
            period = [*period, row] if period and time(row) - time(period[-1]) <= TTL else [row]
        if now is None or time(period[-1]) >= now - TTL:
            found[key] = period
    return found


def _summed(within_ttl: dict[str | None, list[Row]]) -> list[tuple[Any, ...]]:
    return sorted(((k, len(rows), sum(row[1] for row in rows)) for k, rows in within_ttl.items()), key=repr)


def test_after_each_batch_each_table_equals_the_model(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name=n, inputs=("l",), operator=o) for n, o in TABLES.items()])
    expired = 0
    for batch in BATCHES:
        clock.pass_ms(6 * MINUTE)
        replay(engine, [{"l": batch}])
        log, mark = _log(engine), engine.reading.operator_timeline(engine.assets["kept"]).after[-1]
        times = {entry[0].seq: entry[0].ingested_at for entry in engine.ledger.entries()}
        in_event_time = _rows_within_ttl(log, lambda r: r[2], mark)
        last = sorted(((k, max(rows, key=lambda r: r[2:])[1]) for k, rows in in_event_time.items()), key=repr)
        wanted = {
            "kept": _summed(_rows_within_ttl(log, lambda r: r[2], None)),
            "removed": _summed(in_event_time),
            "idle": _summed(_rows_within_ttl(log, lambda r, times=times: times[r[3][0]], engine.ledger.entries()[-1][0].ingested_at)),
            "last": last,
        }
        for name, rows in wanted.items():
            engine.advance(name)
            assert rows_of(engine.views.table(name), "k", *(["v"] if name == "last" else SUMS)) == rows, (name, batch)
        expired += len(wanted["kept"]) - len(wanted["removed"])
    assert expired > 0
    for name, operator in TABLES.items():
        changelog = engine.views.table(f"changelog/{name}")
        assert rows_of(fold(changelog.drop("changed_at"), key=operator.emits.key, order="step")) == rows_of(engine.views.table(name))
        assert all(account.holds for account in engine.accounts.days(name))


def test_without_rows_the_watermark_removes_expired_keys(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name=n, inputs=("l",), operator=TABLES[n]) for n in ("kept", "removed", "last")])
    replay(engine, [{"l": BATCHES[0]}])
    for name in engine.assets:
        engine.advance(name)
    clock.pass_ms(30 * MINUTE)
    engine.ingestion.signals.watermark({"l": 1_772_323_200_000 + 80 * MINUTE})
    assert engine.pending.upserted_tables() == ["removed", "last"]
    for name in ("removed", "last"):
        engine.advance(name)
        assert engine.views.table(name).isEmpty()
        assert all(account.holds for account in engine.accounts.days(name))
    assert engine.views.table("kept").count() == len({event.k for event in BATCHES[0]})
