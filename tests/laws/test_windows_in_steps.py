"""Windows finalized in several steps: the tables equal the model, and a backfill of the log."""

import random
from collections.abc import Collection, Mapping

import pytest

from assets.contracts import DerivedAsset
from operators import Consecutive, Cumulative, Sliding, TopK, Tumbling, WindowedAggregate
from operators.windows import Aligned
from tests.conftest import MakeEngine
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, Event, replay, source
from tests.support.windows_in_engine import rows_with_watermark, window_results_of
from tests.support.windows_model import TimedRow, aggregated, open_windows, two_largest

SUMS = {"n": "count(*)", "total": "sum(v)", "least": "min(v)", "most": "max(v)", "different": "count(DISTINCT v)"}
MERGEABLE = {name: sql for name, sql in SUMS.items() if name != "different"}
WINDOWS: dict[str, Aligned] = {
    "tumbling": Tumbling(size="3 minutes", offset="-1 minute"),
    "sliding": Sliding(size="5 minutes", slide="2 minutes"),
    "cumulative": Cumulative(size="6 minutes", step="2 minutes"),
}


def _assets(names: list[str], both_for: Collection[str]) -> list[DerivedAsset]:
    """For each window, an aggregate and its Top-K, each twice: to advance in several steps, and once at the end.

    For the windows `both_for`, also a table with both operators.
    """
    made = []
    for name in names:
        window = WINDOWS[name]
        count = WindowedAggregate(by="k", window=window, aggregates=MERGEABLE if name != "tumbling" else SUMS)
        made += [DerivedAsset(name=n, inputs=("l",), operator=count) for n in (name, f"{name}_again")]
        top = TopK(k=2, order_by=["total DESC", "k"])
        made += [DerivedAsset(name=f"{n}_top", inputs=(n,), operator=top) for n in (name, f"{name}_again")]
        if name in both_for:
            made.append(DerivedAsset(name=f"{name}_both", inputs=("l",), operator=Consecutive(of=count, then=top)))
    return made


def _batches(seed: int, count: int) -> list[Mapping[str, list[Event]]]:
    """36 rows up to nine minutes behind the newest. The watermark is one minute behind it, so many are late for some or all windows.

    Each batch closes windows.
    """
    rng, batches, newest = random.Random(seed), [], 0
    for _ in range(count):
        newest += rng.randrange(0, 4 * MINUTE)
        behind = [rng.choice([0, 1, 20, 60, 61, 200, 540]) * 1_000 for _ in range(36 // count)]
        batches.append({"l": [Event(rng.choice(["a", "b", "c", None]), rng.randrange(-3, 9), newest - b) for b in behind]})
    return batches


@pytest.mark.parametrize(("seed", "count"), [(247, 2), pytest.param(214, 3, marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
@pytest.mark.parametrize("names", [["tumbling", "sliding"], pytest.param(["cumulative"], marks=pytest.mark.soak)], ids="-".join)
def test_windows_in_steps_equal_the_model_and_a_backfill(make_engine: MakeEngine, names: list[str], seed: int, count: int) -> None:
    engine = make_engine([source("l")], _assets(names, names if count == 3 else {*names} - {"tumbling"}))
    live = [name for name in engine.assets if "_again" not in name]
    *earlier, last = _batches(seed, count)
    for batch in earlier:
        replay(engine, [batch])
        for name in live:
            engine.advance(name)
    replay(engine, [last])
    for name in [name for name in ("sliding", "sliding_top") if name in live]:  # so that their steps after the drain start from late steps
        engine.advance(name)
    engine.drain()
    for name in engine.assets:
        engine.advance(name)
    tops = [name for name in engine.assets if name.endswith(("_top", "_both"))]
    columns = {name: list(SUMS if name == "tumbling" else MERGEABLE) for name in names}
    found = window_results_of(
        engine, {f"{name}{again}": columns[name] for name in names for again in ("", "_again")} | {top: ["rank", "total"] for top in tops}
    )
    late_rows = values_of({name: engine.views.late(name, "l").select("seq") for name in names})
    rows = rows_with_watermark(engine, names[0])  # all tables read one source, so they have the same watermark
    for name in names:
        window = WINDOWS[name]
        sums = aggregated(window, rows)
        wanted = sorted([(k, *span, *aggregates[: len(columns[name])]) for (k, span), aggregates in sums.items()], key=repr)
        assert found[name] == found[f"{name}_again"] == wanted, name
        for top in [top for top in tops if top.startswith(name)]:
            assert found[top] == two_largest(wanted), top
        late = sum(not open_windows(window, r) for r in rows) - sum(not open_windows(window, TimedRow(r.k, r.t, r.v)) for r in rows)
        assert len(late_rows[name]) == late
    assert all(late_rows.values())
