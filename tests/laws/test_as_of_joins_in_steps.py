"""As-of joins in the engine: a table does not depend on its steps, equals a naive model of the log, and accounts for every row."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, Preparation
from operators import AsOfJoin, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.advance import kept_versions
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.advance.held_back import HoldingSource, find_holding_source
from tests.conftest import CopyEngine, MakeEngine
from tests.laws.test_closed_ranges import stream
from tests.support.as_of_model import AsOfModel, AsOfRow
from tests.support.json_rows import json_rows_of, values_of
from tests.support.kills import run_and_die
from tests.support.small_sources import HOUR, MINUTE, START, Event, law_violations, replay, rows_of, source, totals_of

MODELS = {
    "kept": AsOfModel("left"),
    "aged": AsOfModel("inner", max_age=20 * MINUTE),
    "changed": AsOfModel("left", change=True),
    "arrived": AsOfModel("left", as_of="arrival", change=True),
    "corrected": AsOfModel("left"),
}
LATENESS = {"corrected": 60 * MINUTE}
KIND = Preparation(select="*, CASE WHEN v % 7 = 0 THEN '-D' WHEN v % 5 = 0 THEN '-U' ELSE '+U' END AS op")


def table(name: str, model: AsOfModel, suffix: str = "") -> DerivedAsset:
    join = AsOfJoin(
        on="k",
        how=model.how,  # pyright: ignore[reportArgumentType]
        as_of=model.as_of,  # pyright: ignore[reportArgumentType]
        change="op" if model.change else None,
        max_age=model.max_age,
        allowed_lateness=LATENESS.get(name, 0),
    )
    return DerivedAsset(name=name + suffix, inputs=("l", "r"), operator=join, prepare={"r": KIND} if model.change else {})


ASSETS = [table(name, model) for name, model in MODELS.items()]
AT_ONCE = [table(name, MODELS[name], "_at_once") for name in MODELS]
SOURCES = [source("l"), source("r")]
ACCOUNTED = ["aged", "changed", "arrived", "corrected"]
"""The tables that are advanced in steps and whose accounts are compared with the rows. Of the other tables, the copy is checked."""
KILLED = ["kept", "arrived"]
"""The tables that are advanced after the second batch too, with a kill. The last step of the others reads two batches."""
ACCOUNTED_BY_STEP = ["aged", "arrived"]
"""Tables whose accounts by step must add up; a correction changes an earlier step's account."""


@pytest.fixture(scope="module", autouse=True)
def few_versions() -> Iterator[None]:
    """A step keeps versions as soon as ten are new."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_versions, "MANY_VERSIONS", 10)
        yield


@pytest.fixture(scope="module")
def engine_and_steps(make_module_engine: MakeEngine) -> tuple[Engine, dict[str, list[Step]]]:
    """Tables that were advanced in several steps, two of them with a kill before a commit, and copies that were advanced once."""
    engine = make_module_engine(SOURCES, [*ASSETS, *AT_ONCE])
    steps: dict[str, list[Step]] = {name: [] for name in MODELS}
    for number, batch in enumerate(stream(1, batches=3, rows=80)):  # versions are kept, replaced, and replaced again after a kill
        replay(engine, [batch])
        for name in KILLED if number == 1 else MODELS:
            if number == 1:
                run_and_die(lambda name=name: engine.advance(name), "advance.before_commit")
            steps[name] += engine.steps(name, checked=name in LATENESS)  # at once, because later corrections change the account of a step
    for name in MODELS:  # the copies of tables in `ACCOUNTED` have the same rows, so they are not accounted for
        assert [*engine.steps(f"{name}_at_once", checked=name not in ACCOUNTED)]
    return engine, steps


@dataclass(frozen=True)
class Rows:
    """The rows of both sides; the ids of those that are late, by table and side, such as `kept l`; and the tables."""

    sides: Mapping[str, list[AsOfRow]]
    late: Mapping[str, set[str]]
    tables: Mapping[str, list[str]]

    def on_time(self, name: str, side: str) -> list[AsOfRow]:
        """The rows of a side that are not late, as the model reads them."""
        return [row for row in self.sides[side] if row.id not in self.late[f"{name} {side}"]]


@pytest.fixture(scope="module")
def rows(engine_and_steps: tuple[Engine, dict[str, list[Step]]]) -> Rows:
    """What the tests read of the lake, by one query for each kind."""
    engine, _ = engine_and_steps
    kind = "CASE WHEN v % 7 = 0 THEN '-D' WHEN v % 5 = 0 THEN '-U' ELSE '+U' END"
    columns = "k", "unix_millis(event_time) AS t", "seq", "arrival", "concat(seq, '-', arrival) AS id", f"{kind} AS kind"
    logs = values_of({side: engine.lake.read(engine.spark, f"events/{side}").selectExpr(*columns) for side in "lr"})
    late = values_of({f"{name} {side}": engine.views.late(name, side).selectExpr(columns[4]) for name in MODELS for side in "lr"})
    return Rows(
        {side: [AsOfRow(*row) for row in of_side] for side, of_side in logs.items()},
        {view: {row_id for (row_id,) in ids} for view, ids in late.items()},
        json_rows_of({name: engine.views.table(name).withColumn("t", F.unix_millis("result_time")) for name in engine.assets}),
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_table_equals_a_naive_model_of_the_log(engine_and_steps: tuple[Engine, dict[str, list[Step]]], rows: Rows, name: str) -> None:
    engine, _ = engine_and_steps
    sides = [rows.on_time(name, side) for side in "lr"]
    closed_to = engine.pending.progress(name).closed_to or 0
    expected = Counter((one, other, t) for one, other, t in MODELS[name](*sides) if t is not None and t + 1 <= closed_to)
    found = Counter[Any]()
    for row in map(json.loads, rows.tables[name]):
        version = None if row["right_seq"] is None else f"{row['right_seq']}-{row['right_arrival']}"
        found[f"{row['left_seq']}-{row['left_arrival']}", version, row["t"]] += 1
    assert found == expected
    assert sum(n for (_, version, _), n in found.items() if version) > 50
    assert rows.late[f"{name} l"]
    late = engine.late_rows(name, "r", 5)
    assert late is None if MODELS[name].change and name != "arrived" else late is not None
    assert (not rows.late[f"{name} r"]) == (name == "arrived"), "no version is late if it is found by arrival"


@pytest.mark.parametrize("name", MODELS)
def test_a_table_does_not_depend_on_its_steps(engine_and_steps: tuple[Engine, dict[str, list[Step]]], rows: Rows, name: str) -> None:
    engine, steps = engine_and_steps
    assert len(steps[name]) >= (3 if name in KILLED else 2)
    assert (engine.lake.delta(f"kept_rows/{name}") is not None) == (MODELS[name].max_age is None), (
        "versions are kept if they have no maximum age"
    )
    assert rows.tables[name] == rows.tables[f"{name}_at_once"]


@pytest.mark.parametrize("name", ACCOUNTED)
def test_every_row_of_both_sides_is_accounted_for(engine_and_steps: tuple[Engine, dict[str, list[Step]]], rows: Rows, name: str) -> None:
    """A left row is matched if it has a version; a version is matched once the watermark has passed it, whether it is used or not."""
    engine, steps = engine_and_steps
    days = engine.accounts.days(name)
    assert all(a.holds for a in days)
    found, closed_to = totals_of(days), engine.pending.progress(name).closed_to or 0
    closed = [row for row in rows.on_time(name, "r") if row.t is not None and row.t + 1 <= closed_to]
    assert found["r", "matched"] == len(closed)
    assert found["r", "unmatched"] == 0
    assert found["r", "pending"] == found["r", "accepted"] - found["r", "late"] - len(closed) > 0
    assert found["l", "matched"] == sum(row["right_seq"] is not None for row in map(json.loads, rows.tables[name])) > 50
    assert found["l", "unmatched"] > 0
    assert found["l", "pending"] > 0
    if name not in ACCOUNTED_BY_STEP:
        return
    by_step = [a for step in steps[name] for a in engine.accounts.step(name, step)]
    assert all(a.holds for a in by_step)
    for side in ("l", "r"):
        for term in ("matched", "unmatched"):
            assert sum(getattr(a, term) for a in by_step if a.side == side) == found[side, term]
    checked = engine.accounts.check(name, steps[name][-1])
    assert checked
    assert {(a.side, a.day): a for a in checked}.items() <= {(a.side, a.day): a for a in days}.items()


def test_late_rows_within_the_lateness_correct_closed_results(engine_and_steps: tuple[Engine, dict[str, list[Step]]], rows: Rows) -> None:
    engine, _ = engine_and_steps
    assert engine.pending.progress("corrected").corrected
    assert 0 < len(rows.late["corrected r"]) < len(rows.late["kept r"])
    assert 0 < len(rows.late["corrected l"]) < len(rows.late["kept l"])


def test_a_drained_stream_leaves_nothing_pending(engine_and_steps: tuple[Engine, dict[str, list[Step]]], copy_engine: CopyEngine) -> None:
    engine = copy_engine(engine_and_steps[0])
    newest = max(s.max_event_time or 0 for s in engine.ledger.newest_rows().values())
    engine.drain()
    for name in ("kept", "arrived"):
        engine.advance(name)
        assert {(a.pending, a.holds) for a in engine.accounts.days(name)} == {(0, True)}
        assert engine.pending.progress(name).closed_to == newest + len(engine.assets) + 1, "a drain waits for no version"


def test_a_wrong_version_breaks_the_law_and_a_rebuild_repairs_it(
    engine_and_steps: tuple[Engine, dict[str, list[Step]]], copy_engine: CopyEngine
) -> None:
    engine = copy_engine(engine_and_steps[0])
    correct = rows_of(engine.views.table("kept"))
    [row] = engine.views.table("kept").where("right_v IS NOT NULL").limit(1).collect()
    DeltaTable(engine.lake.path("kept")).update(
        updates={"right_v": "right_v + 1"}, predicate=f"left_seq = {row.left_seq} AND left_arrival = {row.left_arrival}"
    )
    assert ("l", str(row.left_event_time.date())) in law_violations(engine, "kept")
    engine.rebuild_days("kept")
    assert law_violations(engine, "kept") == set()
    assert rows_of(engine.views.table("kept")) == correct


def test_the_batches_do_not_matter_if_no_row_is_late(make_engine: MakeEngine) -> None:
    batches = stream(3, rows=40, late=0)
    merged = [{f"{n}3": [e for b in batches[i : i + 2] for e in b[n]] for n in ("l", "r")} for i in range(0, 4, 2)]
    names = [("l", "r"), ("l3", "r3")]
    assets = [
        DerivedAsset(name=n, inputs=of, operator=AsOfJoin(on="k", how="left")) for n, of in zip(("fine", "coarse"), names, strict=True)
    ]
    engine = make_engine([source(n) for pair in names for n in pair], assets)
    replay(engine, [batches[0], batches[1] | merged[0], batches[2], batches[3] | merged[1]])
    for name in engine.assets:
        engine.advance(name)
    content = ["k", "left_v", "right_v", "left_ts", "right_ts", "result_time", "final_at"]
    found = json_rows_of({name: engine.views.table(name).select(*content) for name in engine.assets})
    assert len(found["fine"]) > 100
    assert found["fine"] == found["coarse"]


def test_a_corrected_table_of_versions_corrects_every_later_result(make_engine: MakeEngine) -> None:
    """The versions are the results of windows; a late row corrects an old one, which is still valid hours later."""
    counts = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"}, allowed_lateness="1 day")
    versions = DerivedAsset(name="counts", inputs=("r",), operator=counts)
    joined = DerivedAsset(name="joined", inputs=("l", "counts"), operator=AsOfJoin(on="k", how="left"))
    engine = make_engine(SOURCES, [versions, joined])
    end = Event("z", 0, 3 * HOUR)
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 2, HOUR), Event("a", 3, 2 * HOUR), end], "r": [Event("a", 1, MINUTE), end]}])
    before = _advanced(engine)
    assert before == [(1, None), (2, 1), (3, 1)]
    replay(engine, [{"r": [Event("a", 2, MINUTE)]}])
    assert _advanced(engine) == [(1, None), (2, 2), (3, 2)]
    replay(engine, [{"r": [Event("a", 3, HOUR + MINUTE)]}])
    assert _advanced(engine) == [(1, None), (2, 2), (3, 1)]
    assert law_violations(engine, "joined") == set()


def _advanced(engine: Engine) -> list[tuple[Any, ...]]:
    engine.advance("counts")
    engine.advance("joined")
    return rows_of(engine.views.table("joined").where("k = 'a'"), "v", "n")


def test_a_join_by_arrival_waits_for_the_left_side_only(make_engine: MakeEngine) -> None:
    assets = [table("arrived", AsOfModel("left", as_of="arrival")), table("by_time", AsOfModel("left"))]
    engine = make_engine(SOURCES, assets)
    replay(engine, [{"r": [Event("a", 1, 0)]}, {"l": [Event("a", 2, HOUR), Event("a", 3, 2 * HOUR)]}])
    for asset in assets:
        engine.advance(asset.name)
    found = values_of({asset.name: engine.views.table(asset.name).select("left_v", "right_v") for asset in assets})
    assert found == {"arrived": [(2, 1)], "by_time": []}
    assert [find_holding_source(engine.freshness.workspace, name) for name in ("arrived", "by_time")] == [
        None,
        HoldingSource("r", 2 * HOUR),
    ]
    replay(engine, [{"r": [Event("a", 4, -HOUR)]}, {"l": [Event("a", 5, 4 * HOUR)]}])
    engine.advance("arrived")
    assert rows_of(engine.views.table("arrived"), "left_v", "right_v") == [(2, 1), (3, 1)]
    engine.drain()
    engine.advance("arrived")
    assert rows_of(engine.views.table("arrived"), "left_v", "right_v") == [(2, 1), (3, 1), (5, 4)]
    assert law_violations(engine, "arrived") == set()
    assert [engine.late_rows(name, "r", 5)[0] for name in ("arrived", "by_time")] == [0, 1]  # pyright: ignore[reportOptionalSubscript]


def test_many_old_versions_do_not_make_steps_small(make_engine: MakeEngine) -> None:
    """The size of a step counts the rows of its range, not the older versions that the step reads too."""
    engine = make_engine(SOURCES, [table("kept", AsOfModel("left"))], max_step=200)
    old = [Event("a", n, n * 1000) for n in range(400)]
    new = {side: [Event("a", n, 2 * HOUR + n * 1000) for n in range(100)] for side in "lr"}
    replay(engine, [{"r": old, "l": [Event("b", 0, 0)]}, new, {side: [Event("z", 0, 5 * HOUR)] for side in "lr"}])
    steps = engine.advance("kept")
    assert (steps[-1].after.closed_to or 0) > START + 2 * HOUR
    assert 2 < len(steps) <= 6
    assert law_violations(engine, "kept") == set()
