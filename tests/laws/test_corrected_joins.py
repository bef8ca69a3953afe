"""Interval joins with corrections, and semi and anti joins: the steps do not change the table, and every row is accounted for."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import IntervalJoin, Tumbling, WindowedAggregate
from platform_defs.engine import Engine, LawError
from platform_defs.engine.advance.closed_ranges import ClosedRanges
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from tests.conftest import CopyEngine, MakeEngine, engine_maker
from tests.support.change_feed import check_change_feeds
from tests.support.clock import Clock
from tests.support.json_rows import json_rows_of
from tests.support.late_rows_model import Arrival, JoinModel
from tests.support.small_sources import DAY, HOUR, MINUTE, START, Event, correct_totals, join, law_violations, replay, rows_of, source

Batches = list[Mapping[str, list[Event]]]
Logs = list[list[tuple[Any, ...]]]
LATENESS = {"allowed_lateness": "10 minutes"}
JOINED = {"late_rows": "join"}
VARIANTS: dict[str, dict[str, Any]] = {
    "lateness_full": {"how": "full", **LATENESS},
    "lateness_semi": {"how": "semi", **LATENESS},
    "lateness_anti": {"how": "anti", "residual": "left_v <= right_v", **LATENESS},
    "joined_full": {"how": "full", **JOINED},
    "joined_inner": {"how": "inner", "residual": "left_v <= right_v", **JOINED, **LATENESS},
    "joined_semi": {"how": "semi", **JOINED},
    "joined_anti": {"how": "anti", **JOINED, **LATENESS},
    "semi": {"how": "semi"},
    "anti": {"how": "anti"},
}
COUNTS = WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates={"n": "count(*)", "pairs": "count(left_v + right_v)"})
"""An asset derived from a corrected join."""


def _asset(name: str, of: str) -> DerivedAsset:
    return join(name, lower="-4 minutes", upper="6 minutes", **VARIANTS[of])


def _batches(seed: int, batches: int) -> Batches:
    """54 rows of each side, up to half an hour behind the newest, across midnight. The watermark is one minute behind."""
    rng, made, newest = random.Random(seed), Batches(), 24 * HOUR - 4 * MINUTE
    for _ in range(batches):
        newest += rng.randrange(0, 7 * MINUTE)
        made.append({side: [_event(rng, newest) for _ in range(54 // batches)] for side in "lr"})
    return made


def _event(rng: random.Random, newest: int) -> Event:
    behind = rng.choice([0, 1, 20, 60, 61, 130, 200, 300, 400, 700, 1_800]) * 1_000
    return Event(rng.choice(["a", "b", "c", None]), rng.randrange(9), newest - behind)


@pytest.fixture(scope="module", params=[(14, 2), pytest.param((11, 3), marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[Engine, dict[str, int]]:
    """An engine with two tables of every variant, and the number of corrections of each table.

    The first table is advanced after each batch, the last time after the drain; its copy (`_again`) once at the end.
    The accounts of two tables are checked before each advance but the first, with pending rows. A test compares the accounts after
    the last advance with the model.
    """
    assets = [_asset(name + again, name) for name in VARIANTS for again in ("", "_again")]
    counts = [DerivedAsset(name=f"counts{again}", inputs=(f"lateness_full{again}",), operator=COUNTS) for again in ("", "_again")]
    engine = engine_maker(spark, tmp_path_factory.mktemp("run"), Clock())([source("l"), source("r")], [*assets, *counts])
    batches, corrected = _batches(*request.param), Counter[str]()
    for n, batch in enumerate(batches):
        replay(engine, [batch])
        if n == len(batches) - 1:
            for name in ("lateness_full", "counts"):  # so that the step after the drain starts from a correction
                corrected[name] += sum(step.after.corrected != step.before.corrected for step in engine.advance(name))
            engine.drain()
        assert n == 0 or not [name for name in ("lateness_full", "joined_anti") if law_violations(engine, name)], n
        for name in [*VARIANTS, "counts"]:
            steps = engine.advance(name)
            corrected[name] += sum(step.after.corrected != step.before.corrected for step in steps)
            if not name.endswith(("semi", "anti", "counts")):
                assert all(a.holds for step in steps for a in engine.accounts.step(name, step)), (name, n)
    for name in [*VARIANTS, "counts"]:
        engine.advance(f"{name}_again")
    return engine, dict(corrected)


@pytest.fixture(scope="module")
def logs(run: tuple[Engine, dict[str, int]]) -> Logs:
    """The rows of both logs."""
    engine, _ = run
    columns = "k", F.unix_millis("event_time"), "v", "seq", "arrival"
    return [rows_of(read_log(engine.workspace, side, engine.ledger.head), *columns) for side in "lr"]


@pytest.fixture(scope="module")
def tables(run: tuple[Engine, dict[str, int]]) -> dict[str, list[str]]:
    """The rows of all tables."""
    engine, _ = run
    return json_rows_of({name: engine.views.table(name) for name in engine.assets})


@pytest.fixture(scope="module")
def late(run: tuple[Engine, dict[str, int]]) -> Counter[str]:
    """The number of late rows by table and side, such as `semi l`."""
    engine, _ = run
    views = [engine.views.late(name, side).select(F.lit(f"{name} {side}")) for name in VARIANTS for side in "lr"]
    return Counter(name for (name,) in reduce(DataFrame.union, views).collect())


@pytest.mark.parametrize("name", [*VARIANTS, "counts"])
def test_a_table_does_not_depend_on_its_steps(run: tuple[Engine, dict[str, int]], tables: dict[str, list[str]], name: str) -> None:
    _, corrected = run
    assert (corrected[name] > 0) == (name not in ("semi", "anti"))
    assert len(tables[name]) > 5
    assert tables[name] == tables[f"{name}_again"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_table_and_its_account_equal_the_model(
    run: tuple[Engine, dict[str, int]], logs: Logs, tables: dict[str, list[str]], late: Counter[str], name: str
) -> None:
    engine, _ = run
    model, arrivals = _model(engine, name), _arrivals(engine, logs, name)
    assert _results(tables[name]) == model(arrivals)
    found = correct_totals(engine, name)
    pairs = model.pairs(arrivals)
    for which, side in enumerate("lr"):
        own = [row for row in arrivals if row.side == which]
        dropped, matched = sum(map(model.is_dropped, own)), len({pair[which].id for pair in pairs})
        assert (dropped > 0) == (model.late_rows == "drop")
        counts = {"accepted": len(own), "matched": matched, "unmatched": len(own) - matched - dropped, "pending": 0, "late": dropped}
        assert {term: found[side, term] for term in counts} == counts
        assert late[f"{name} {side}"] == dropped


def _model(engine: Engine, name: str) -> JoinModel:
    operator = engine.assets[name].operator
    assert isinstance(operator, IntervalJoin)
    return JoinModel(operator.interval, operator.how, operator.lateness.ms, operator.late_rows, operator.residual is not None)


def _arrivals(engine: Engine, logs: Logs, name: str) -> list[Arrival]:
    """The rows of both logs by batch, each with the watermark before its batch."""
    marks, found = operator_timeline(engine.workspace, engine.assets[name]).after, list[tuple[int, Arrival]]()
    for which, log in enumerate(logs):
        for k, t, v, seq, arrival in log:
            found.append((seq, Arrival(which, (seq, arrival), k, t, marks[seq - 1], v)))
    return [row for _, row in sorted(found, key=lambda each: each[0])]


def _results(table: list[str]) -> Counter[Any]:
    """The rows that each result names, by `seq` and `arrival`, and its result time in ms."""
    found = Counter[Any]()
    for row in map(json.loads, table):
        prefixes = ("left_", "right_") if "left_seq" in row else ("", "right_")
        sides = [(row.get(f"{prefix}seq"), row.get(f"{prefix}arrival")) for prefix in prefixes]
        found[*(None if side[0] is None else side for side in sides), _ms(row["result_time"])] += 1
    return found


def _ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1_000)


def test_the_change_feeds_contain_net_changes_only(run: tuple[Engine, dict[str, int]]) -> None:
    """Late rows that are joined remove no result, unless a semi join gets an earlier pair, or the join also has an allowed lateness."""
    engine, _ = run
    corrected = [name for name in VARIANTS if name not in ("semi", "anti")]
    changes = check_change_feeds(engine, [*corrected, "lateness_full_again"], by_spark=["lateness_full"])
    assert changes["lateness_full"][1] > 0, "Spark reads a feed with deletes"
    taken_back = {name for name, counts in changes.items() if sum(counts) > 0}
    assert {"lateness_full", "lateness_semi", "lateness_anti"} <= taken_back <= {*VARIANTS} - {"joined_full", "joined_inner"}
    assert changes["lateness_full_again"] == (0, 0)


def test_small_steps_give_the_same_tables(
    run: tuple[Engine, dict[str, int]], tables: dict[str, list[str]], copy_engine: CopyEngine
) -> None:
    engine, _ = run
    names = ["joined_full", "lateness_semi"]
    small = replace(copy_engine(engine), max_step=60)
    for name in names:
        repaired = small.rebuild_days(name)
        assert (repaired.missing, repaired.extra) == (0, 0)
        [*_] = small.rebuild_tables([name])
        assert small.pending.progress(name).step > 3
    assert json_rows_of({name: small.views.table(name) for name in names}) == {name: tables[name] for name in names}


def test_a_stream_stops_at_a_correction_that_loses_a_row(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine([source("l"), source("r")], [join(how="full", late_rows="join")])
    replay(engine, [{side: [Event("z", 0, DAY)] for side in "lr"}])
    assert list(engine.steps("pairs", checked=True))
    replay(engine, [{"l": [Event("a", 1, 0), Event("b", 2, HOUR)]}])
    closed = ClosedRanges._results_in
    lost = "left_v IS NULL OR left_v <> 2"
    monkeypatch.setattr(ClosedRanges, "_results_in", lambda self, *of: closed(self, *of).where(lost))
    with pytest.raises(LawError, match=r"pairs breaks the conservation law: l 2026-03-01: 2 accepted, 0 matched \+ 1 unmatched"):
        list(engine.steps("pairs", checked=True))


def test_a_late_row_is_joined_or_is_a_result_at_once(make_engine: MakeEngine) -> None:
    """The watermark is at minute 19 before the last batch: the left rows wait until minute 10 and 20."""
    engine = make_engine([source("l"), source("r")], [join(how="full", lower=0, upper="10 minutes", late_rows="join")])
    replay(
        engine,
        [{"l": [Event("a", 1, 0), Event("b", 2, 10 * MINUTE)], "r": [Event("z", 0, 20 * MINUTE)]}, {"l": [Event("z", 0, 20 * MINUTE)]}],
    )
    engine.advance("pairs")
    assert _minutes(engine) == [(1, None, 10)]
    replay(engine, [{"r": [Event("a", 3, MINUTE), Event("b", 4, 12 * MINUTE)], "l": [Event("c", 5, 2 * MINUTE)]}])
    engine.advance("pairs")
    assert _minutes(engine) == [(1, None, 10), (2, 4, 12), (5, None, 12), (None, 3, 1)]
    assert correct_totals(engine)["l", "late"] == 0


def _minutes(engine: Engine) -> list[tuple[Any, ...]]:
    minute = ((F.unix_millis("result_time") - START) / MINUTE).cast("int").alias("minute")
    return rows_of(engine.views.table("pairs").select("left_v", "right_v", minute))
