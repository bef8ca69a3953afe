"""Rows within the allowed lateness correct final results and downstream tables as if they had arrived in time, with net changes only."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from operators import CoGroup, Deduplicate, Sliding, TopK, Tumbling, WindowedAggregate, WindowJoin
from operators.contract import Operator
from operators.windows import Aligned
from platform_defs.engine import Engine
from platform_defs.engine.inputs.stored_rows import read_log
from tests.conftest import MakeEngine, engine_maker
from tests.support.change_feed import check_change_feeds
from tests.support.clock import Clock
from tests.support.json_rows import json_rows_of, values_of
from tests.support.small_sources import MINUTE, Event, replay, source
from tests.support.windows_in_engine import rows_with_watermark, window_results_of
from tests.support.windows_model import TimedRow, aggregated, open_windows, two_largest

LATENESS = "3 minutes"
LATENESS_MS = 3 * MINUTE
TABLES = ["tumbling", "sliding", "top", "by_rank"]
SUMS = {"n": "count(*)", "total": "sum(v)", "least": "min(v)", "most": "max(v)"}
WINDOWS: dict[str, Aligned] = {
    "tumbling": Tumbling(size="3 minutes", offset="-1 minute"),
    "sliding": Sliding(size="5 minutes", slide="2 minutes"),
}
TOP = TopK(k=2, order_by=["total DESC", "k"])
BY_RANK = WindowedAggregate(by="rank", window=Tumbling(size="6 minutes"), aggregates={"keys": "count(k)", "most": "max(total)"})
"""An asset derived from a Top-K: the third in a chain of tables."""


def _batches(seed: int, sides: str, count: int, rows: int = 10) -> list[Mapping[str, list[Event]]]:
    """Rows up to nine minutes behind the newest. The watermark is one minute behind, so some correct a window and some are late."""
    rng, made, newest = random.Random(seed), [], 0
    for _ in range(count):
        newest += rng.randrange(0, 4 * MINUTE)
        batch = {side: [_event(rng, newest) for _ in range(rows)] for side in "lr"}
        made.append({side: batch[side] for side in sides})
    return made


def _event(rng: random.Random, newest: int) -> Event:
    behind = rng.choice([0, 1, 20, 60, 61, 130, 200, 540]) * 1_000
    return Event(rng.choice(["a", "b", "c", None]), rng.randrange(-3, 9), newest - behind)


def _run(engine: Engine, stepwise: list[str], at_once: list[str], batches: list[Mapping[str, list[Event]]]) -> Counter[str]:
    """Advance some assets after each batch, others once at the end; returns how many steps of each are corrections.

    After the last batch, the sources are drained.
    """
    corrected = Counter[str]()
    for number, batch in enumerate(batches, 1):
        replay(engine, [batch])
        if number == len(batches):
            engine.drain()
        for name in stepwise:
            corrected[name] += sum(step.after.corrected != step.before.corrected for step in engine.advance(name))
    for name in at_once:
        engine.advance(name)
    return corrected


@pytest.fixture(scope="module", params=[(575, 2, 20), pytest.param((533, 3, 10), marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
def chain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[Engine, Counter[str]]:
    """Two aggregates, a Top-K of one, and an aggregate of the Top-K; and how many steps of each are corrections.

    Each is advanced after every batch, and a copy once at the end. Each batch but the first corrects all of them.
    """
    seed, count, rows = request.param
    made: dict[str, tuple[Operator, str]] = {}
    for suffix in ("", "_again"):
        for name, window in WINDOWS.items():
            made[name + suffix] = WindowedAggregate(by="k", window=window, aggregates=SUMS, allowed_lateness=LATENESS), "l"
        made |= {f"top{suffix}": (TOP, f"sliding{suffix}"), f"by_rank{suffix}": (BY_RANK, f"top{suffix}")}
    assets = [DerivedAsset(name=name, inputs=(of,), operator=operator) for name, (operator, of) in made.items()]
    engine = engine_maker(spark, tmp_path_factory.mktemp("chain"), Clock())([source("l")], assets)
    return engine, _run(engine, TABLES, [f"{name}_again" for name in TABLES], _batches(seed, "l", count, rows))


@pytest.fixture(scope="module")
def rows(chain: tuple[Engine, Counter[str]]) -> list[TimedRow]:
    """The rows of the log with the watermark, which is the same for all tables because they read one source."""
    return rows_with_watermark(chain[0], "tumbling")


@pytest.fixture(scope="module")
def results(chain: tuple[Engine, Counter[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of both aggregates and of the Top-K."""
    return window_results_of(chain[0], {**{name: [*SUMS] for name in WINDOWS}, "top": ["rank", "total"]})


def test_corrected_aggregates_equal_the_model(
    chain: tuple[Engine, Counter[str]], rows: list[TimedRow], results: dict[str, list[tuple[Any, ...]]]
) -> None:
    engine, corrected = chain
    assert [name for name in TABLES if not corrected[name]] == []
    late = values_of({name: engine.views.late(name, "l").select("seq") for name in WINDOWS})
    for name, window in WINDOWS.items():
        assert results[name] == _sums(rows, window, LATENESS_MS) != _sums(rows, window, 0), name
        assert len(late[name]) == sum(not open_windows(window, r, LATENESS_MS) for r in rows) > 0, name


def test_tables_derived_from_corrected_results_equal_a_backfill(
    chain: tuple[Engine, Counter[str]], rows: list[TimedRow], results: dict[str, list[tuple[Any, ...]]]
) -> None:
    engine, _ = chain
    assert results["top"] == two_largest(_sums(rows, WINDOWS["sliding"], LATENESS_MS))
    found = json_rows_of({name: engine.views.table(name) for name in engine.assets})
    for table in TABLES:
        assert found[table] == found[f"{table}_again"], table


def test_the_change_feed_yields_the_table_and_contains_net_changes_only(chain: tuple[Engine, Counter[str]]) -> None:
    engine, _ = chain
    counts = check_change_feeds(engine, [*TABLES, "sliding_again"], by_spark=["top"])
    assert counts.pop("sliding_again") == (0, 0)
    assert min(updates for updates, _ in counts.values()) > 0
    assert {deletes for _, deletes in counts.values()} == {0}


def _sums(rows: list[TimedRow], window: Aligned, lateness: int) -> list[tuple[Any, ...]]:
    return sorted([(k, *span, *sums[:4]) for (k, span), sums in aggregated(window, rows, lateness).items()], key=repr)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
@pytest.mark.parametrize(
    "names", [["full", "best", "lasts"], pytest.param(["anti", "groups", "firsts"], marks=pytest.mark.soak)], ids="-".join
)
def test_with_enough_lateness_a_run_equals_the_operator_over_all_rows(make_engine: MakeEngine, names: list[str], count: int) -> None:
    window: dict[str, Any] = {"window": WINDOWS["sliding"], "allowed_lateness": "1 hour"}
    operators: dict[str, Operator] = {
        "full": WindowJoin(on="k", how="full", **window),
        "anti": WindowJoin(on="k", how="anti", residual="left_v > right_v", **window),
        "groups": CoGroup(on="k", **window),
        "best": TopK(k=2, order_by="v DESC", **window),
        "firsts": Deduplicate(by="k", **window),
        "lasts": Deduplicate(by="k", keep="last", order="arrival", **window),
    }
    operators = {name: operators[name] for name in names}
    assets = [DerivedAsset(name=n, inputs=("l", "r")[: len(o.inputs)], operator=o) for n, o in operators.items()]
    engine = make_engine([source("l"), source("r")], assets)
    corrected = _run(engine, names, [], _batches(7, "lr", count))
    assert all(corrected[name] for name in names), corrected
    logs = [read_log(engine.workspace, name, engine.ledger.head).drop("event_time_raw") for name in "lr"]
    wanted = {name: operator(*logs[: len(operator.inputs)]) for name, operator in operators.items()}
    frames = {name: engine.views.table(name).select(*rows.columns) for name, rows in wanted.items()}
    frames |= {f"{name} of all rows": rows for name, rows in wanted.items()}
    found = json_rows_of(frames | {f"late {name}": engine.views.late(name, "l") for name in names})
    for name in names:
        assert found[name] == found[f"{name} of all rows"], name
        assert found[f"late {name}"] == []
    check_change_feeds(engine, names, by_spark=names if count == 3 else names[:1])  # all of them in soak
