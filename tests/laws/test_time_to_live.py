"""Leaderboards with a time to live: after each batch the leaderboard equals a naive model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import TopN, fold
from platform_defs.engine import Engine
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, START, Event, replay, source

TTL = 10 * MINUTE
FIELDS: dict[str, Any] = {"by": "k", "order_by": "v DESC", "rank_end": 2, "ttl": "10 minutes"}
TOPS = {
    "kept": TopN(**FIELDS),
    "left": TopN(**FIELDS, after_ttl="retract"),
    "idle": TopN(**FIELDS, after_ttl="retract", ttl_by="processing"),
}
BATCHES = [
    [Event("a", 1, 0), Event("a", 5, 1 * MINUTE), Event("b", 2, 2 * MINUTE), Event(None, 3, 8 * MINUTE)],
    [Event("b", 1, 12 * MINUTE), Event("c", 9, 14 * MINUTE)],
    [
        *(Event("a", v, minute * MINUTE) for v, minute in ((2, 25), (4, 33), (1, 4))),
        Event("b", 7, 13 * MINUTE),
        Event("c", 1, 36 * MINUTE),
    ],
]
"""At 14 minutes, `a` has had no row for 13 minutes; at 25 it has rows again. Late rows of `a` and `b` belong to earlier periods."""


Leaderboards = dict[str, list[tuple[Any, ...]]]
"""The rows of each leaderboard, by its name."""


@dataclass(frozen=True)
class Row:
    """A row of the log; times are in ms."""

    k: str | None
    v: int
    at: int
    ingested_at: int
    position: tuple[int, int]


def _read(engine: Engine, names: Sequence[str]) -> tuple[list[Row], Leaderboards]:
    """The rows of the log, and the leaderboards, read by one query."""
    ingested_at = {batch[0].seq: batch[0].ingested_at for batch in engine.ledger.batches()}
    log = read_log(engine.workspace, "l", engine.ledger.head).select("k", "v", F.unix_millis("event_time").alias("at"), "seq", "arrival")
    found = values_of({"log": log} | {name: engine.views.table(name).select("k", "v", "rank") for name in names})
    return [Row(k, v, at, ingested_at[seq], (seq, arrival)) for k, v, at, seq, arrival in found.pop("log")], found


def _leaderboard(rows: Sequence[Row], time: Callable[[Row], int], now: int | None) -> list[tuple[Any, ...]]:
    """The best rows of each key since its last gap of more than the TTL; none of an expired key."""
    found: list[tuple[Any, ...]] = []
    for key in {r.k for r in rows}:
        period: list[Row] = []
        for row in sorted((r for r in rows if r.k == key), key=time):
            period = [*period, row] if period and time(row) - time(period[-1]) <= TTL else [row]
        if now is None or time(period[-1]) >= now - TTL:
            best = sorted(period, key=lambda r: (-r.v, r.position))[:2]
            found += [(r.k, r.v, rank) for rank, r in enumerate(best, 1)]
    return sorted(found, key=repr)


@pytest.mark.parametrize("names", [["left"], pytest.param([*TOPS], marks=pytest.mark.soak)], ids=len)
def test_after_each_batch_the_leaderboard_equals_the_model(make_engine: MakeEngine, clock: Clock, names: list[str]) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name=n, inputs=("l",), operator=TOPS[n]) for n in names])
    leaderboards: dict[str, list[list[tuple[Any, ...]]]] = {name: [] for name in names}
    log = list[Row]()
    for batch in BATCHES:
        clock.pass_ms(6 * MINUTE)
        replay(engine, [{"l": batch}])
        for name in names:
            engine.advance(name)
        log, found = _read(engine, names)
        watermark = operator_timeline(engine.workspace, engine.assets[names[-1]]).after[-1]
        models = {
            "kept": _leaderboard(log, lambda r: r.at, None),
            "left": _leaderboard(log, lambda r: r.at, watermark),
            "idle": _leaderboard(log, lambda r: r.ingested_at, engine.ledger.batches()[-1][0].ingested_at),
        }
        for name in names:
            assert found[name] == models[name], (name, batch)
            leaderboards[name].append(models[name])
    then = START + 14 * MINUTE
    stored = {name: engine.views.table(name) for name in names}
    changelogs = {name: engine.views.table(f"changelog/{name}").drop("changed_at") for name in names}
    folded = {f"{name} of its changelog": fold(rows, key=TOPS[name].emits.key, order="step") for name, rows in changelogs.items()}
    found = values_of(stored | folded | {"then": engine.views.of_event_times_to("left", then).select("k", "v", "rank")})
    assert found["then"] == _leaderboard([r for r in log if r.at <= then], lambda r: r.at, then)
    for name in names:
        assert found[f"{name} of its changelog"] == found[name] != [], name
        assert [account.holds for account in engine.accounts.days(name)] == [True]
    assert len({repr(contents) for contents in leaderboards.values()}) == len(names)
    clock.pass_ms(30 * MINUTE)
    engine.ingestion.control_batches.watermark({"l": START + 80 * MINUTE})
    assert engine.pending.upserted_tables() == [name for name in names if name != "kept"]
    for name in engine.pending.upserted_tables():
        engine.advance(name)
        assert engine.views.table(name).isEmpty()
        assert all(account.holds for account in engine.accounts.days(name))
