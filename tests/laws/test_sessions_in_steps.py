"""Sessions finalized in several steps: the table equals the model, and a backfill of its log."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import CoGroup, Session, TopK, WindowedAggregate, WindowJoin
from operators.contract import Operator
from operators.timing import duration_ms
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.kills import run_and_die
from tests.support.sessions_model import SessionsModel
from tests.support.small_sources import MINUTE, START, Event, law_violations, replay, rows_of, source

SESSIONS = Session(gap="2 minutes", longest="7 minutes")
LATENESS = {"strict": 0, "lenient": "3 minutes"}
SOAK = pytest.mark.soak


def _count(lateness: int | str) -> WindowedAggregate:
    names = {"n": "count(*)", "rows": "sort_array(collect_list(struct(seq, arrival)))"}
    return WindowedAggregate(by="k", window=SESSIONS, aggregates=names, allowed_lateness=lateness)


def _batches(seed: int, batches: int) -> list[Mapping[str, list[Event]]]:
    """Rows up to ten minutes behind the newest; the watermark is one minute behind it."""
    rng, made, newest = random.Random(seed), [], 0
    for _ in range(batches):
        newest += rng.randrange(0, 3 * MINUTE)
        made.append({side: [_event(rng, newest) for _ in range(8)] for side in "lr"})
    return made


def _event(rng: random.Random, newest: int) -> Event:
    behind = rng.choice([0, 1, 20, 60, 61, 120, 200, 400, 600]) * 1_000
    return Event(rng.choice(["a", "b", "c", None]), rng.randrange(9), newest - behind)


def _run(engine: Engine, live: list[str], again: list[str], batches: list[Mapping[str, list[Event]]]) -> None:
    for batch in batches:
        replay(engine, [batch])
        for name in live:
            engine.advance(name)
    engine.drain()
    for name in [*live, *again]:
        engine.advance(name)


def _model(engine: Engine, asset: str, lateness: int) -> dict[str | None, SessionsModel]:
    """The sessions of the log's rows by key, fed in the batches of the ledger."""
    marks = engine.reading.operator_timeline(engine.assets[asset]).after
    entries: dict[int, dict[str | None, list[tuple[int, int]]]] = {}
    for k, t, seq, arrival in (
        engine.reading.log("l", engine.ledger.head).select("k", F.unix_millis("event_time"), "seq", "arrival").collect()
    ):
        entries.setdefault(seq, {}).setdefault(k, []).append((t, seq * 1_000_000_000 + arrival))
    keys: dict[str | None, SessionsModel] = {}
    for seq in sorted(entries):
        for k, rows in entries[seq].items():
            keys.setdefault(k, SessionsModel(SESSIONS.gap_ms, SESSIONS.longest_ms, lateness)).add_batch(rows, marks[seq - 1])
    return keys


@pytest.mark.parametrize("how", [pytest.param("strict", marks=SOAK), "lenient"])
def test_sessions_in_steps_equal_the_model_and_a_backfill(make_engine: MakeEngine, how: str) -> None:
    count, lateness = _count(LATENESS[how]), duration_ms(LATENESS[how], "")
    top = TopK(k=2, order_by=["n DESC", "k"])
    tables: dict[str, tuple[Operator, str]] = {}
    for name in ("live", "again"):
        tables |= {name: (count, "l"), f"{name}_top": (top, name)}
    engine = make_engine([source("l"), source("r")], [DerivedAsset(name=n, inputs=(of,), operator=o) for n, (o, of) in tables.items()])
    _run(engine, ["live", "live_top"], ["again", "again_top"], _batches(55, 4))
    keys = _model(engine, "live", lateness)
    wanted = [(k, *span, [i for _, i in sorted(part, key=lambda r: r[1])]) for k, model in keys.items() for span, part in model.results()]
    ids = F.transform("rows", lambda r: r["seq"] * 1_000_000_000 + r["arrival"]).alias("ids")
    for table in ("live", "again"):
        found = engine.views.table(table).select("k", *map(F.unix_millis, ("window_start", "window_end")), ids)
        assert rows_of(found) == sorted(wanted, key=repr)
    assert rows_of(engine.views.table("live_top")) == rows_of(engine.views.table("again_top"))
    late = sorted(i for model in keys.values() for _, i in model.late)
    seen = engine.views.late("live", "l").select((F.col("seq") * 1_000_000_000 + F.col("arrival")).alias("id")).collect()
    assert sorted(r.id for r in seen) == late
    assert late
    assert any(model.recorded for model in keys.values())
    assert any(end - start == SESSIONS.longest_ms for model in keys.values() for (start, end), _ in model.results())
    assert engine.advance("live") == engine.advance("live_top") == []


@pytest.mark.parametrize(("how", "newest"), [("strict", 8.2), pytest.param("lenient", 11.2, marks=SOAK)])
def test_a_late_row_does_not_enter_a_session_that_was_cut_at_its_maximum_length(make_engine: MakeEngine, how: str, newest: float) -> None:
    assets = [DerivedAsset(name=name, inputs=("l",), operator=_count(LATENESS[how])) for name in ("live", "again")]
    engine = make_engine([source("l")], assets)
    entries = [[0, 1.5, 3, 4.5, 6, 7.5, newest], [6.9, 7.1]]
    _run(engine, ["live"], ["again"], [{"l": [Event("a", 1, int(minute * MINUTE)) for minute in minutes]} for minutes in entries])
    assert rows_of(engine.views.table("live")) == rows_of(engine.views.table("again"))
    assert [sum(row["n"] for row in engine.views.table(name).collect()) for name in ("live", "again")] == [8, 8]
    assert rows_of(engine.views.late("live", "l").select(F.unix_millis("event_time"))) == [(START + int(6.9 * MINUTE),)]
    assert law_violations(engine, "live") == set()


@pytest.mark.parametrize("names", [["groups"], pytest.param(["groups", "pairs"], marks=SOAK)], ids=len)
def test_sessions_of_two_sides_equal_a_backfill(make_engine: MakeEngine, names: list[str]) -> None:
    window: dict[str, Any] = {"window": SESSIONS, "allowed_lateness": LATENESS["lenient"]}
    both: dict[str, Operator] = {"pairs": WindowJoin(on="k", how="full", **window), "groups": CoGroup(on="k", **window)}
    assets = [DerivedAsset(name=f"{n}{again}", inputs=("l", "r"), operator=both[n]) for n in names for again in ("", "_again")]
    engine = make_engine([source("l"), source("r")], assets)
    _run(engine, names, [f"{n}_again" for n in names], _batches(5, 3))
    for name in names:
        assert rows_of(engine.views.table(name)) == rows_of(engine.views.table(f"{name}_again"))
        assert not engine.views.table(name).isEmpty()
    ids = "sum(size(left)) + sum(size(right))"
    accepted = sum(engine.reading.log(side, engine.ledger.head).count() - engine.views.late("groups", side).count() for side in "lr")
    assert engine.views.table("groups").selectExpr(ids).collect()[0][0] == accepted


def test_a_kill_between_lateness_decisions_and_results_changes_nothing(make_engine: MakeEngine) -> None:
    asset = DerivedAsset(name="live", inputs=("l",), operator=_count("3 minutes"))
    engine = make_engine([source("l"), source("r")], [asset, DerivedAsset(name="undisturbed", inputs=("l",), operator=_count("3 minutes"))])
    points = ["advance.before_commit", "verdicts.before_commit", "verdicts.after_commit", "advance.after_commit"]
    for at, batch in zip(points, _batches(3, 4), strict=True):
        replay(engine, [batch])
        run_and_die(lambda: engine.advance("live"), at)
        engine.advance("live")
        engine.advance("undisturbed")
    assert rows_of(engine.views.table("live")) == rows_of(engine.views.table("undisturbed"))
    assert rows_of(engine.views.table("verdicts/live")) == rows_of(engine.views.table("verdicts/undisturbed"))
