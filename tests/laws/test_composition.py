"""Operators over tables of other operators: after any steps, each table equals its operator over the rows of the tables that it reads.

Chains of four tables are also compared with a naive model in plain Python (`chains`), which knows neither operators nor steps: after each
batch but the first, and at the end. Two tables are damaged and rebuilt before their readers advance for the last time. Each key has the
number of a generated case, so that one run compares many cases: in these chains, only rows of the null key are computed from several cases.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.preparation import Preparation
from assets.shape import Shape
from operators import (
    Aggregate,
    AsOfJoin,
    CoGroup,
    CountEvictor,
    CountWindowAggregate,
    Deduplicate,
    IntervalJoin,
    ProcessWindow,
    Session,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators.columns import FINAL_AT
from operators.contract import Operator
from operators.timing import instant
from platform_defs.engine import Engine
from platform_defs.engine.inputs.prepared_rows import as_input
from tests.conftest import MakeEngine
from tests.laws import chains
from tests.support.composition_model import Stream
from tests.support.json_rows import json_rows_of, values_of
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, START, Event, final_before, replay, source

TWO, FIVE = Tumbling(size="2 minutes"), Tumbling(size="5 minutes")
PAIRED = {"pairs": Preparation(where="left_v IS NOT NULL AND right_v IS NOT NULL", select="k, left_v AS v")}
BY_CASE = Preparation(select="*, split_part(k, '-', 1) AS of_case")
"""Adds the case of a row."""
BY_START = Preparation(select="split_part(k, '-', 1) AS of_case, window_start AS start")
"""Selects the case of a row and the start of its window."""


def _asset(
    name: str, operator: Operator, *inputs: str, prepare: Mapping[str, Preparation] | None = None, shape: Shape | None = None
) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=inputs, operator=operator, prepare=prepare or {}, shape=shape)


WINDOWED = WindowedAggregate(by="k", window=TWO, aggregates={"n": "count(*)", "s": "sum(v)"}, allowed_lateness="10 minutes")
JOIN = IntervalJoin(on="k", lower="-2 minutes", upper="3 minutes", how="full")
OUTER = replace(JOIN, allowed_lateness="5 minutes")
BOTH, ALONE = "count_if(left_v IS NOT NULL AND right_v IS NOT NULL)", "count_if(left_v IS NULL OR right_v IS NULL)"
BEST, RANKED = {"keys": "count(*)", "best": "max(best)"}, {"keys": "count(*)", "both": "sum(both)"}
# Corrections make some results match these conditions, and others no longer match.
SOME, NOT_THREE = Shape(where="both + alone <> 4", select="*, both + alone AS results"), Shape(where="best <> 3")
OF_SOURCES = [
    _asset("windows", WINDOWED, "l"),
    _asset("pairs", OUTER, "l", "r"),
    _asset("counts", Aggregate(by=("k", "v"), aggregates={"n": "count(*)", "event_time": "max(event_time)"}), "l"),
    _asset("last", Deduplicate(by="k", keep="last"), "r"),
]
OF_TABLES = [
    _asset("top_windows", TopN(by="k", order_by="n DESC", rank_end=2), "windows"),
    _asset("paired", Aggregate(by="k", aggregates={"n": "count(*)", "event_time": "max(event_time)"}), "pairs", prepare=PAIRED),
    _asset("by_count", Aggregate(by=("k", "n"), aggregates={"windows": "count(*)"}), "windows"),
    _asset("latest_window", Deduplicate(by="k", keep="last"), "windows"),
    _asset("sums", WindowedAggregate(by="k", window=FIVE, aggregates={"m": "sum(n)"}), "counts"),
    _asset("near", JOIN, "last", "l"),
    _asset("as_of", AsOfJoin(on="k", how="left"), "counts", "windows"),
    _asset(
        "top_paired",
        TopN(by="of_case", order_by="n DESC", rank_end=2, unique_key="k", change="kind"),
        "paired",
        prepare={"paired": BY_CASE},
    ),
    _asset("best", Aggregate(by="k", aggregates={"best": "max(m)", "event_time": "min(event_time)"}), "sums", shape=NOT_THREE),
    _asset("of_best", WindowedAggregate(by="of_case", window=TWO, aggregates=BEST), "best", prepare={"best": BY_CASE}),
    _asset("pair_windows", WindowedAggregate(by="k", window=TWO, aggregates={"both": BOTH, "alone": ALONE}), "pairs", shape=SOME),
    _asset("best_windows", TopN(by="k", order_by=("both DESC", "alone", "window_start"), rank_end=2), "pair_windows"),
    _asset("ranks", Aggregate(by=("of_case", "rank"), aggregates=RANKED), "best_windows", prepare={"best_windows": BY_CASE}),
    _asset("met", WindowJoin(on="k", window=FIVE, how="full"), "counts", "last"),
    _asset("last_met", Deduplicate(by="k", keep="last"), "met"),
    _asset("starts", Aggregate(by=("of_case", "start"), aggregates={"keys": "count(*)"}), "last_met", prepare={"last_met": BY_START}),
]
CHAINS = [*OF_SOURCES, *OF_TABLES]
MORE = [
    _asset(
        "by_sum", TopN(by=("of_case", "s"), order_by="window_start", rank_end=3, unique_key="k"), "windows", prepare={"windows": BY_CASE}
    ),
    _asset("groups", CoGroup(on="k", window=TWO), "top_windows", "last"),
    _asset("sessions", WindowedAggregate(by="k", window=Session(gap="2 minutes"), aggregates={"n": "count(*)"}), "top_windows"),
    _asset("top_sums", TopK(k=1, order_by="m DESC"), "sums"),
    _asset("first_top", Deduplicate(by="k", keep="first"), "top_windows"),
    _asset("first_in_session", Deduplicate(by="k", window=Session(gap="2 minutes")), "top_windows"),
    _asset("best_in_session", TopK(k=1, by="k", order_by="n DESC", window=Session(gap="2 minutes")), "windows"),
    _asset("steps", ProcessWindow(by="k", window=FIVE, rows="transform(elements, (e, i) -> struct(e.n, i AS at))"), "windows"),
    _asset("last_joined", WindowJoin(on="k", window=FIVE, how="full", evictor=CountEvictor(3)), "counts", "top_windows"),
    _asset("counted", CountWindowAggregate(size=2, slide=1, aggregates={"total": "sum(v)"}), "last"),
]
MORE_IN_SOAK = [
    *MORE,
    _asset("first_in_window", Deduplicate(by="k", keep="first", window=FIVE), "top_windows"),
    _asset("top_sessions", TopN(order_by=("n DESC", "k"), rank_end=3), "sessions"),
    _asset("joined", WindowJoin(on="k", window=FIVE, how="full"), "counts", "pairs", prepare=PAIRED),
    _asset("of_near", Aggregate(by="k", aggregates={"n": "count(*)", "spread": "max(right_v) - min(right_v)"}), "near"),
    _asset("n_of_top", Aggregate(by="rank", aggregates={"n": "sum(n)"}), "top_windows"),
    _asset("top_n_of_top", TopN(order_by="n", rank_end=1, rank_start=1, unique_key="rank_of", change="kind"), "n_renamed"),
    _asset(
        "n_renamed",
        Aggregate(by="rank_of", aggregates={"n": "max(n)"}),
        "n_of_top",
        prepare={"n_of_top": Preparation(select="rank AS rank_of, n")},
    ),
]
"""With operators that other tables have too, over tables of the same kinds."""
CASES_WITH_NULLS = 20
"""How many of the first cases have null keys too; a null key belongs to no case."""
CORRECTED = ["sums", "pair_windows"]
ACCOUNTED = [
    *("windows", "pairs", "top_windows", "paired", "latest_window", "sums", "near", "as_of", "top_paired", "of_best", "pair_windows"),
    *("met", "groups", "sessions", "first_in_session", "best_in_session", "steps", "counted"),
]
"""The tables whose account is checked in `make test`, with each operator, a `Shape`, and `change`. In the long form, it is each table's."""


def _batches(seed: int, count: int, cases: int) -> list[Mapping[str, list[Event]]]:
    """Batches of two sources, each with up to four rows of each case. Rows are up to nine minutes behind the newest, so some are late."""
    rng = random.Random(seed)

    def events(batch: int) -> list[Event]:
        return [_event(rng, case, batch) for case in range(cases) for _ in range(rng.randint(0, 4))]

    return [{"l": events(batch), "r": events(batch)} for batch in range(count)]


def _event(rng: random.Random, case: int, batch: int) -> Event:
    key = rng.choice(["a", "b", None]) if case < CASES_WITH_NULLS else rng.choice("ab")
    return Event(key and f"{case}-{key}", rng.randrange(3), max(0, 4 * batch + rng.randrange(-6, 4)) * MINUTE)


@pytest.mark.parametrize(
    ("seed", "batches", "cases", "more"),
    [(282, 3, 250, MORE), pytest.param(7, 6, 1_000, MORE_IN_SOAK, marks=pytest.mark.soak)],
    ids=["250 cases in 3 batches", "1,000 cases in 6 batches"],
)
def test_each_table_equals_its_operator_over_the_tables_that_it_reads(
    make_engine: MakeEngine, seed: int, batches: int, cases: int, more: Sequence[DerivedAsset]
) -> None:
    """One step is killed; corrections of late rows and of a rebuild flow through all tables.

    Tables over tables skip the first batch; in the long form, they lag at random. All chains are compared after the last batch but one,
    with open windows, and after the last one and the drain.
    """
    engine, rng, model = make_engine([source("l"), source("r")], [*CHAINS, *more]), random.Random(1), Stream(bound=MINUTE)
    accounted = ACCOUNTED if more is MORE else [*engine.assets]
    assert {type(engine.assets[name].operator) for name in accounted} == {type(asset.operator) for asset in engine.assets.values()}
    for number, batch in enumerate(_batches(seed, batches, cases)):
        replay(engine, [batch])
        model.add({name: [(e.k, e.v, e.at) for e in events] for name, events in batch.items()})
        is_last, is_last_but_one = number == batches - 1, number == batches - 2
        if is_last:
            engine.drain()
            model.drain()
            _rebuild_damaged_tables(engine)
        # the tables of `more` skip batches: this costs less, and they read the corrections of several batches in one step
        tables = [*CHAINS, *(more if is_last or number % 2 else [])] if number else OF_SOURCES
        for name in [name for name, asset in engine.assets.items() if asset in tables]:
            if is_last and name == "top_windows":
                run_and_die(lambda: engine.advance("top_windows"), "advance.after_changelog")
            always = number < 2 or is_last or name in chains.ALWAYS_ADVANCED or (is_last_but_one and engine.assets[name] in CHAINS)
            if always or rng.random() < 0.5:
                engine.advance(name)
        if number:
            _compare_with_model(engine, model, [*chains.COLUMNS] if is_last or is_last_but_one else chains.ALWAYS_ADVANCED)
        if is_last_but_one:
            without_model = [asset for asset in CHAINS if asset.name not in chains.COLUMNS]
            _check(engine, without_model, _rows(engine, [asset.name for asset in without_model]))
    assert [name for name in CORRECTED if not engine.pending.progress(name).corrected] == [], "the rows must make corrections"
    _check(engine, [*CHAINS, *more], _rows(engine, [*engine.assets]))
    assert [name for name in engine.assets if engine.advance(name)] == []
    assert [name for name in accounted if not all(a.holds for a in engine.accounts.days(name))] == []
    assert engine.pending.upserted_tables() == []


def _rows(engine: Engine, names: Sequence[str]) -> dict[str, list[str]]:
    return json_rows_of({name: engine.views.table(name) for name in names})


def _compare_with_model(engine: Engine, model: Stream, names: Sequence[str]) -> None:
    """Compare tables that have handled every batch with the naive model, which computes each from the rows of all batches."""
    frames = {name: engine.views.table(name).selectExpr(*chains.COLUMNS[name]) for name in names if engine.lake.delta(name) is not None}
    found, wanted = values_of(frames), chains.expected(model)
    for name in names:
        assert found.get(name, []) == wanted[name], name


def _check(engine: Engine, assets: Sequence[DerivedAsset], found: Mapping[str, Sequence[str]]) -> None:
    """Check that each table has the closed results of its operator over its input tables."""
    derived = [asset for asset in assets if not {*asset.inputs} & engine.sources.keys()]
    tables = {name: engine.views.table(name) for asset in derived for name in (asset.name, *asset.inputs) if name in engine.assets}
    expected = {asset.name: _expected(engine, asset, tables).select(*tables[asset.name].columns) for asset in derived}
    assert {name: found[name] for name in expected} == json_rows_of(expected)
    assert [name for name in expected if not found[name]] == []


def _expected(engine: Engine, asset: DerivedAsset, tables: Mapping[str, DataFrame]) -> DataFrame:
    frames = []
    for name in asset.inputs:
        rows = tables[name]
        rows = rows if engine.assets[name].operator.emits.upserts else as_input(rows)
        if name in asset.prepare:
            preparation = asset.prepare[name]
            selected = preparation.columns(rows.columns)
            kept = {"event_time"} & {*rows.columns} - {*selected}
            rows = rows.where(preparation.where or "true").select(*[F.expr(sql).alias(c) for c, sql in selected.items()], *kept)
        kind = asset.operator.reads.change
        frames.append(rows if kind is None else rows.withColumn(kind, F.lit("+I")))
    closed_to = engine.pending.progress(asset.name).closed_to
    rows = asset.rows(*frames)
    if not asset.operator.reads.closes_ranges:
        return rows
    return rows.limit(0) if closed_to is None else rows.where(F.col(FINAL_AT) <= instant(closed_to, F.col(FINAL_AT)))


def _rebuild_damaged_tables(engine: Engine) -> None:
    """Advance two tables with late rows, damage and rebuild them. Their readers have not advanced since."""
    from deltalake import DeltaTable

    for name in ("windows", "pairs"):
        corrections = [step for step in engine.advance(name) if step.after.corrected != step.before.corrected]
        assert corrections, "the rows must make corrections"
        # the last batch changes only later results, so late rows and the rebuild correct different ranges
        DeltaTable(engine.lake.path(name)).delete(f"k LIKE '%a' AND {final_before(START + 2 * MINUTE)}")
        assert engine.rebuild_days(name).missing > 0
