"""Sessions finalized in several steps: the table equals the model, and a backfill of its log."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import CoGroup, Deduplicate, Session, TopK, WindowedAggregate, WindowJoin
from operators.contract import Operator
from operators.timing import duration_ms
from platform_defs.engine import Engine
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of, values_of
from tests.support.kills import run_and_die
from tests.support.sessions_model import SessionsModel
from tests.support.small_sources import MINUTE, START, Event, law_violations, replay, source

SESSIONS = Session(gap="2 minutes", longest="7 minutes")
LATENESS = {"strict": 0, "lenient": "3 minutes"}
KILLS = [[], ["decisions.after_commit", "advance.after_commit"], ["decisions.before_commit", "advance.before_commit"]]
"""Where the steps of each batch are killed: after the commits of the lateness decisions and of the results, and before them.

The kills after the commits come first, so that another step follows them.
"""
SOAK = pytest.mark.soak
IDS_OF_BATCH = 1_000_000_000
"""How many ids a batch has."""


def _count(lateness: int | str) -> WindowedAggregate:
    names = {"n": "count(*)", "rows": "sort_array(collect_list(struct(seq, arrival)))"}
    return WindowedAggregate(by="k", window=SESSIONS, aggregates=names, allowed_lateness=lateness)


def _batches(seed: int, sides: str = "lr", count: int = 3) -> list[Mapping[str, list[Event]]]:
    """Batches with rows up to ten minutes behind the newest; the watermark is one minute behind it."""
    rng, made, newest = random.Random(seed), [], 0
    for _ in range(count):
        newest += rng.randrange(0, 3 * MINUTE)
        batch = {side: [_event(rng, newest) for _ in range(8)] for side in "lr"}
        made.append({side: batch[side] for side in sides})
    return made


def _event(rng: random.Random, newest: int) -> Event:
    behind = rng.choice([0, 1, 20, 60, 61, 120, 200, 400, 600]) * 1_000
    return Event(rng.choice(["a", "b", "c", None]), rng.randrange(9), newest - behind)


def _run(
    engine: Engine, live: list[str], again: list[str], batches: Sequence[Mapping[str, list[Event]]], kills: Sequence[list[str]] = ()
) -> None:
    """Advance some tables after each batch, others once at the end. Steps of the first table are killed at the given points, by batch.

    After the last batch, the sources are drained.
    """
    for number, (batch, points) in enumerate(zip(batches, kills or [[]] * len(batches), strict=True), 1):
        replay(engine, [batch])
        if number == len(batches):
            engine.drain()
        for point in points:
            run_and_die(lambda: engine.advance(live[0]), point)
        for name in live:
            engine.advance(name)
    for name in again:
        engine.advance(name)


def _id() -> Column:
    """The position of a row in the log, as a number."""
    return (F.col("seq") * IDS_OF_BATCH + F.col("arrival")).alias("id")


def _log(engine: Engine) -> DataFrame:
    """The key, time, id and value of each row of the log."""
    return read_log(engine.workspace, "l", engine.ledger.head).select("k", F.unix_millis("event_time").alias("t"), _id(), "v")


def _model(engine: Engine, asset: str, lateness: int, log: Sequence[tuple[Any, ...]]) -> dict[str | None, SessionsModel]:
    """The sessions of the log's rows by key, fed in the batches of the ledger."""
    marks = operator_timeline(engine.workspace, engine.assets[asset]).after
    batches: dict[int, dict[str | None, list[tuple[int, int]]]] = {}
    for k, t, row_id, _ in log:
        batches.setdefault(row_id // IDS_OF_BATCH, {}).setdefault(k, []).append((t, row_id))
    keys: dict[str | None, SessionsModel] = {}
    for seq in sorted(batches):
        for k, rows in batches[seq].items():
            keys.setdefault(k, SessionsModel(SESSIONS.gap_ms, SESSIONS.longest_ms, lateness)).add_batch(rows, marks[seq - 1])
    return keys


@pytest.mark.parametrize("how", [pytest.param("strict", marks=SOAK), "lenient"])
def test_sessions_in_steps_equal_the_model_and_a_backfill(make_engine: MakeEngine, how: str) -> None:
    """Kills before and after the commits of lateness decisions and results change neither."""
    count, lateness = _count(LATENESS[how]), duration_ms(LATENESS[how], "")
    top = TopK(k=2, order_by=["n DESC", "k"])
    tables: dict[str, tuple[Operator, str]] = {}
    for name in ("live", "again"):
        tables |= {name: (count, "l"), f"{name}_top": (top, name)}
    engine = make_engine([source("l")], [DerivedAsset(name=n, inputs=(of,), operator=o) for n, (o, of) in tables.items()])
    _run(engine, ["live", "live_top"], ["again", "again_top"], _batches(2976, "l"), KILLS)
    ids = F.transform("rows", lambda r: r["seq"] * IDS_OF_BATCH + r["arrival"]).alias("ids")
    bounds = [F.unix_millis(c).alias(c) for c in ("window_start", "window_end")]
    frames = {table: engine.views.table(table).select("k", *bounds, ids) for table in ("live", "again")}
    frames |= {table: engine.views.table(table) for table in ("live_top", "again_top", "verdicts/live", "verdicts/again")}
    found = values_of(frames | {"late": engine.views.late("live", "l").select(_id()), "log": _log(engine)})
    keys = _model(engine, "live", lateness, found["log"])
    wanted = [(k, *span, [i for _, i in sorted(part, key=lambda r: r[1])]) for k, model in keys.items() for span, part in model.results()]
    assert found["live"] == found["again"] == sorted(wanted, key=repr)
    assert found["live_top"] == found["again_top"]
    assert found["verdicts/live"] == found["verdicts/again"]
    late = sorted(i for model in keys.values() for _, i in model.late)
    assert sorted(i for (i,) in found["late"]) == late
    assert late
    assert any(model.recorded for model in keys.values())
    assert any(end - start == SESSIONS.longest_ms for model in keys.values() for (start, end), _ in model.results())
    assert engine.advance("live") == engine.advance("live_top") == []


@pytest.mark.parametrize(("how", "newest"), [("strict", 8.2), pytest.param("lenient", 11.2, marks=SOAK)])
def test_a_late_row_does_not_enter_a_session_that_was_cut_at_its_maximum_length(make_engine: MakeEngine, how: str, newest: float) -> None:
    assets = [DerivedAsset(name=name, inputs=("l",), operator=_count(LATENESS[how])) for name in ("live", "again")]
    engine = make_engine([source("l")], assets)
    batches = [[0, 1.5, 3, 4.5, 6, 7.5, newest], [6.9, 7.1]]
    _run(engine, ["live"], ["again"], [{"l": [Event("a", 1, int(minute * MINUTE)) for minute in minutes]} for minutes in batches])
    live, again = (engine.views.table(name) for name in ("live", "again"))
    late = engine.views.late("live", "l").select(F.unix_millis("event_time").alias("at"))
    found = values_of({"live": live, "again": again, "counts of live": live.select("n"), "late": late})
    assert found["live"] == found["again"]
    assert sum(n for (n,) in found["counts of live"]) == 8
    assert found["late"] == [(START + int(6.9 * MINUTE),)]
    assert law_violations(engine, "live") == set()


@pytest.mark.parametrize(
    ("names", "count"), [(["groups"], 2), pytest.param(["groups", "pairs"], 3, marks=SOAK)], ids=["groups", "groups and pairs"]
)
def test_sessions_of_two_sides_equal_a_backfill(make_engine: MakeEngine, names: list[str], count: int) -> None:
    window: dict[str, Any] = {"window": SESSIONS, "allowed_lateness": LATENESS["lenient"]}
    both: dict[str, Operator] = {"pairs": WindowJoin(on="k", how="full", **window), "groups": CoGroup(on="k", **window)}
    assets = [DerivedAsset(name=f"{n}{again}", inputs=("l", "r"), operator=both[n]) for n in names for again in ("", "_again")]
    engine = make_engine([source("l"), source("r")], assets)
    batches = _batches(5, count=count)
    _run(engine, names, [f"{n}_again" for n in names], batches)
    late = {side: engine.views.late("groups", side).select("seq") for side in "lr"}
    found = json_rows_of({name: engine.views.table(name) for name in engine.assets} | late)
    for name in names:
        assert found[name] == found[f"{name}_again"] != [], name
    accepted = sum(len(batch[side]) for batch in batches for side in "lr") - sum(len(found[side]) for side in "lr")
    assert found["l"] or found["r"], "some rows are late"
    assert sum(len(row["left"]) + len(row["right"]) for row in map(json.loads, found["groups"])) == accepted


@pytest.mark.parametrize(
    ("how", "count"),
    [("strict", 2), *(pytest.param(how, 3, marks=SOAK) for how in LATENESS)],
    ids=["strict", *(f"{how} in 3 batches" for how in LATENESS)],
)
def test_the_rankings_of_sessions_in_steps_equal_the_model_and_a_backfill(make_engine: MakeEngine, how: str, count: int) -> None:
    """Rows join, merge and are late; each table holds the kept rows of the model's sessions, and its account holds."""
    window: dict[str, Any] = {"by": "k", "window": SESSIONS, "allowed_lateness": LATENESS[how]}
    best = TopK(k=2, order_by="v DESC", **window)
    operators: dict[str, Operator] = {"last": Deduplicate(keep="last", **window), "best": best}
    assets = [DerivedAsset(name=f"{n}{again}", inputs=("l",), operator=o) for n, o in operators.items() for again in ("", "_again")]
    engine = make_engine([source("l")], assets)
    _run(engine, ["last", "best"], ["last_again", "best_again"], _batches(2976, "l", count))
    bounds = [F.unix_millis(c).alias(c) for c in ("window_start", "window_end")]
    ranks = {f"{name}{again}": rank for name, rank in (("last", []), ("best", ["rank"])) for again in ("", "_again")}
    frames = {table: engine.views.table(table).select("k", *bounds, *rank, _id()) for table, rank in ranks.items()}
    late = {f"late {name}": engine.views.late(name, "l").select(_id()) for name in operators}
    found = values_of(frames | late | {"log": _log(engine)})
    values = {row_id: v for _, _, row_id, v in found["log"]}
    wanted: dict[str, list[tuple[Any, ...]]] = {"last": [], "best": []}
    keys = _model(engine, "last", duration_ms(LATENESS[how], ""), found["log"])
    for k, model in keys.items():
        for span, part in model.results():
            wanted["last"].append((k, *span, max(part)[1]))
            ranked = sorted((-values[id_], id_) for _, id_ in part)
            wanted["best"] += [(k, *span, n, id_) for n, (_, id_) in enumerate(ranked[:2], 1)]
    for name in operators:
        assert found[name] == found[f"{name}_again"] == sorted(wanted[name], key=repr), name
        assert law_violations(engine, name) == set(), name
        assert len(found[f"late {name}"]) == sum(len(model.late) for model in keys.values()) > 0, name
