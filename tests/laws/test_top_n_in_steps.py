"""Top-N advanced batch by batch: the table equals the operator over the log so far, and its changelog yields the table."""

import json
import random
from collections.abc import Mapping

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from assets.contracts import DerivedAsset
from operators import CountWindowAggregate, TopN, Tumbling, WindowedAggregate, fold
from operators.contract import Operator
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake import reads
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of, values_of
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, ROW, START, Event, iso, land, replay, rows_of, source

TOPS = {
    "of_all": TopN(order_by="v", rank_end=3, function="rank"),
    "a_range": TopN(by="k", order_by="v DESC", rank_end=3, rank_start=2, with_rank=False),
    "newest": TopN(by=("k", "v"), order_by="ts DESC", unique_key=("k", "v"), rank_end=1, monotonic=True),
    "n_by_column": TopN(by="k", order_by="ts", rank_end="v", function="dense_rank"),
    "moving": TopN(by="k", order_by="ts DESC", unique_key="v", rank_end=2),
}
"""`moving`: a row leaves its partition when a row with the same `v` arrives in another partition."""


@pytest.fixture
def large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every table as a large one, so that data skipping applies."""
    monkeypatch.setattr(reads, "SMALL_BYTES", 0)


def _batches(seed: int, parts: int) -> list[Mapping[str, list[Event]]]:
    rng = random.Random(seed)
    return [
        {"l": [Event(rng.choice(["a", "b", None]), rng.randrange(6), (9 * batch + n) * MINUTE) for n in range(6)]} for batch in range(parts)
    ]


@pytest.mark.parametrize(
    "names", [["newest", "moving"], pytest.param(["of_all", "a_range", "n_by_column", "moving"], marks=pytest.mark.soak)]
)
def test_after_each_step_the_leaderboard_equals_top_n_over_the_log(make_engine: MakeEngine, names: list[str]) -> None:
    tops = {name: TOPS[name] for name in names}
    engine = make_engine([source("l")], [DerivedAsset(name=n, inputs=("l",), operator=o) for n, o in tops.items()])
    for batch in _batches(4, 2):
        replay(engine, [batch])
        for name in tops:
            engine.advance(name)
        log = read_log(engine.workspace, "l", engine.ledger.head).drop("event_time_raw")
        of_log = {f"{name} of the log": top(log) for name, top in tops.items()}
        found = json_rows_of({name: engine.views.table(name) for name in tops} | of_log)
        for name in tops:
            assert found[name] == found[f"{name} of the log"], name
    changelogs = {name: engine.views.table(f"changelog/{name}").drop("changed_at") for name in tops}
    folded = {f"{name} of its changelog": fold(changelogs[name], key=top.emits.key, order="step") for name, top in tops.items()}
    kinds = {"kinds of moving": changelogs["moving"].select("change")}
    found = json_rows_of({name: engine.views.table(name) for name in tops} | folded | kinds)
    for name in tops:
        assert engine.pending.progress(name).step == 2
        assert found[name] == found[f"{name} of its changelog"], name
        assert engine.advance(name) == []
    assert {json.loads(row)["change"] for row in found["kinds of moving"]} >= {"+I", "-U", "+U"}


@pytest.mark.usefixtures("large_tables")
def test_a_change_removes_a_row_from_a_partition_that_it_does_not_name(make_engine: MakeEngine) -> None:
    """Each step is killed, and repeated without duplicate changes."""
    top = TopN(by="k", order_by="v", unique_key="v", change="change", rank_end=5, with_rank=False)
    engine = make_engine(
        [source("l", schema=StructType([*ROW.fields, StructField("change", StringType())]))],
        [DerivedAsset(name="top", inputs=("l",), operator=top)],
    )
    parts = [("a", 1, "+I"), ("a", 2, "+I"), ("a", 3, "+I")], [("b", 1, "+U"), (None, 2, "-D")]
    for part, (point, rows) in enumerate(zip(("advance.after_changelog", "advance.before_apply"), parts, strict=True)):
        changes = [{"k": k, "v": v, "ts": iso(START + part), "change": change} for k, v, change in rows]
        land(engine, "l", f"{part}.jsonl", map(json.dumps, changes))
        engine.ingest()
        run_and_die(lambda: engine.advance("top"), point)
        engine.advance("top")
    assert rows_of(engine.views.table("top"), "k", "v") == [("a", 3), ("b", 1)]
    changelog = rows_of(engine.views.table("changelog/top"), "step", "change", "k", "v")
    assert changelog == [*((1, "+I", "a", v) for v in (1, 2, 3)), (2, "+U", "b", 1), (2, "-D", "a", 2), (2, "-U", "a", 1)]


def test_a_row_of_a_table_leaves_the_partition_of_the_row_that_it_replaces(make_engine: MakeEngine) -> None:
    """In both tables, a row stays when a later row of its key is added; in the Top-N, the later row replaces it.

    One table has final results, of which the last batch corrects one. The other is an upserted table with another key.
    """
    aggregates, top = {"s": "sum(v)"}, TopN(by="s", order_by="k", rank_end=3, unique_key="k")
    sums: dict[str, Operator] = {
        "final": WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates=aggregates, allowed_lateness="10 minutes"),
        "upserted": CountWindowAggregate(by="k", size=1, aggregates=aggregates),
    }
    tables = [DerivedAsset(name=name, inputs=("l",), operator=operator) for name, operator in sums.items()]
    tables += [DerivedAsset(name=f"top_of_{name}", inputs=(name,), operator=top) for name in sums]
    engine, found = make_engine([source("l")], tables), dict[str, list[list[tuple[object, ...]]]]()
    for batch in (
        [Event("a", 1, 0), Event("b", 1, 0), Event("z", 9, 5 * MINUTE)],
        [Event("a", 2, 6 * MINUTE), Event("z", 9, 15 * MINUTE)],
        [Event("a", 5, 6 * MINUTE + 1)],
    ):
        replay(engine, [{"l": batch}])
        for name in engine.assets:
            engine.advance(name)
        tops = values_of({name: engine.views.table(f"top_of_{name}").select("k", "s", "rank") for name in sums})
        for name, rows in tops.items():
            found.setdefault(name, []).append(rows)
    assert found == {
        "final": [[("a", 1, 1), ("b", 1, 2)], *([("a", s, 1), ("b", 1, 1), ("z", 9, 1)] for s in (2, 7))],
        "upserted": [[("a", 1, 1), ("b", 1, 2), ("z", 9, 1)], *([("a", s, 1), ("b", 1, 1), ("z", 9, 1)] for s in (2, 5))],
    }
    assert [name for name in sums if not all(account.holds for account in engine.accounts.days(f"top_of_{name}"))] == []
