"""Kept rows: a step reads no more of an old log than of a new one, and after any disturbance the kept rows are those that the log gives."""

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, AsOfJoin, Deduplicate, TopN
from operators.contract import KeepsRows
from operators.engine_columns import PERIOD_END
from platform_defs.engine import Engine
from platform_defs.engine.advance import kept_versions
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.lake import reads
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.json_rows import json_rows_of, values_of
from tests.support.kills import run_and_die
from tests.support.rows_read import RowsRead
from tests.support.small_sources import MINUTE, Event, replay, source

TTL = 60 * MINUTE
OPERATORS: dict[str, KeepsRows] = {
    "replaced": TopN(by="k", order_by="ts DESC", unique_key=("k", "v"), rank_end=2),
    "moving": TopN(by="k", order_by="ts", unique_key="v", rank_end=3, rank_start=2, with_rank=False),
    "leaving": TopN(by="k", order_by="ts DESC", unique_key="v", rank_end="v"),
    "sums": Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(v)"}, ttl=TTL),
    "idle": Deduplicate(by="k", keep="last", ttl=20 * MINUTE, ttl_by="processing", after_ttl="retract"),
    "expiring": TopN(by="k", order_by="v DESC", rank_end=2, ttl=TTL, after_ttl="retract"),
}


AGED = [
    DerivedAsset(name="replaced", inputs=("l",), operator=OPERATORS["replaced"]),
    DerivedAsset(name="sums", inputs=("l",), operator=OPERATORS["sums"]),
    DerivedAsset(name="joined", inputs=("l", "r"), operator=AsOfJoin(on="k", how="left")),
    DerivedAsset(name="leaving", inputs=("l",), operator=OPERATORS["leaving"]),
]


def _assets(names: Sequence[str]) -> list[DerivedAsset]:
    return [DerivedAsset(name=name, inputs=("l",), operator=OPERATORS[name]) for name in names]


def _events(rng: random.Random, batch: int, rows: int = 6) -> list[Event]:
    return [Event(rng.choice(["a", "b", None]), rng.randrange(6), (10 * batch + n) * MINUTE) for n in range(rows)]


def _check(engine: Engine) -> None:
    """Check that all accounts hold, and that kept rows are those that the operator selects from the whole log."""
    assert [name for name in engine.assets if not all(account.holds for account in engine.accounts.days(name))] == []
    log = read_log(engine.workspace, "l", engine.ledger.head).drop("event_time_raw")
    kept = {n: engine.lake.read(engine.spark, f"kept_rows/{n}") for n in engine.assets if n in ("replaced", "moving", "leaving")}
    needed = {f"{name} of the log": OPERATORS[name].still_needed(log, None).select(*rows.columns) for name, rows in kept.items()}
    found = json_rows_of(kept | needed) if kept else {}
    for name in kept:
        assert found[name] == found[f"{name} of the log"], name


@pytest.mark.parametrize(
    ("names", "large"),
    [
        (["expiring", "leaving"], False),
        pytest.param([*OPERATORS], False, marks=pytest.mark.soak),
        pytest.param([*OPERATORS], True, marks=pytest.mark.soak),
    ],
)
def test_kept_rows_survive_kills_deletion_rebuilds_and_late_rows(
    make_engine: MakeEngine, clock: Clock, monkeypatch: pytest.MonkeyPatch, names: list[str], large: bool
) -> None:
    if large:
        monkeypatch.setattr(reads, "SMALL_BYTES", 0)
    engine, rng = make_engine([source("l")], _assets(names)), random.Random(3)

    def ingest(batch: int, *others: Event) -> None:
        clock.pass_ms(6 * MINUTE)
        replay(engine, [{"l": [*_events(rng, batch), *others]}])

    def advance() -> None:
        for name in engine.assets:
            engine.advance(name)

    for batch, point in enumerate(("kept.after_commit", "kept.before_commit")):  # so the second one leaves kept rows of the step before
        ingest(batch)
        for name in engine.assets:
            run_and_die(lambda name=name, point=point: engine.advance(name), point)
            assert engine.advance(name) == [], "the step is committed"
    ingest(2)
    advance()
    _check(engine)
    shutil.rmtree(Path(engine.lake.root, "kept_rows"))  # as in the lake of an earlier version
    ingest(9, Event("a", 5, MINUTE), Event("c", 1, 2 * MINUTE))
    advance()
    _check(engine)
    ingest(10, Event("a", 3, 2 * MINUTE))  # more than the TTL behind the watermark, so that it may need rows that were forgotten
    advance()
    _check(engine)
    for name in engine.assets:
        assert [*engine.rebuild_tables([name])]
    ingest(11)
    advance()
    _check(engine)


def test_a_rebuild_of_days_repairs_the_kept_rows(make_engine: MakeEngine) -> None:
    engine, rng = make_engine([source("l")], _assets(["replaced"])), random.Random(4)
    replay(engine, [{"l": _events(rng, 0)}])
    engine.advance("replaced")
    held = engine.lake.delta("kept_rows/replaced")
    assert held is not None
    held.delete("v < 4")
    engine.rebuild_days("replaced")
    replay(engine, [{"l": _events(rng, 1)}])
    engine.advance("replaced")
    _check(engine)


def test_kept_rows_are_correct_after_a_table_was_deleted_and_computed_again(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_versions, "MANY_VERSIONS", 4)
    engine, rng = make_engine([source("l"), source("r")], [AGED[0], AGED[2]]), random.Random(6)
    for batch in range(4):  # the first step writes the kept versions, a later one writes them again, and the last reads those
        if batch == 2:  # as docs/explanation/reliability.md says for a damaged table
            assert engine.lake.delta("kept_rows/joined") is not None
            for table in ("replaced", "changelog/replaced", "joined"):
                shutil.rmtree(engine.lake.path(table))
        replay(engine, [{side: _events(rng, batch) for side in "lr"}])
        for name in engine.assets:
            engine.advance(name)
    _check(engine)


def test_a_step_reads_as_many_rows_of_an_old_log_as_of_a_new_one(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_versions, "MANY_VERSIONS", 1)
    engine, rng = make_engine([source("l"), source("r")], AGED), random.Random(5)
    counted = RowsRead(engine, monkeypatch)
    read: dict[str, list[Counter[str]]] = {name: [] for name in engine.assets}
    batches = 0
    for age in (10, 200):
        for last in (age - 2, age - 1, age):  # the pending rows are in the file of the last batch, as in a stream
            replay(engine, [{side: _events(rng, batch) for side in "lr"} for batch in range(batches, last)])
            batches = last
            for name in ["joined"] if last == age - 2 else engine.assets:  # the join keeps the versions of earlier steps
                found = counted.during(lambda name=name: engine.advance(name))
                read[name] += [found] if last == age else []
    for name, found in read.items():
        assert max(sum(rows.values()) for rows in found) <= 2 * sum(found[0].values()), (name, found)
    _check(engine)
    mark = operator_timeline(engine.workspace, engine.assets["sums"]).after[-1]
    assert mark is not None
    kept = {name: engine.lake.read(engine.spark, f"kept_rows/{name}") for name in ("replaced", "sums")}
    kept_rows = values_of({"replaced": kept["replaced"], "sums": kept["sums"].selectExpr(f"`{PERIOD_END}` < {mark - 2 * TTL} AS is_old")})
    assert len(kept_rows["replaced"]) <= 18, "one row of each key"
    assert kept_rows["sums"]
    assert (True,) not in kept_rows["sums"]


def test_a_late_row_makes_a_step_read_the_log_only_if_it_is_used(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`keep="first"` drops a row behind the watermark. `keep="last"` uses it: it may be within the TTL of a row that is not kept."""
    assets = [DerivedAsset(name=keep, inputs=("l",), operator=Deduplicate(by="k", keep=keep, ttl=TTL)) for keep in ("first", "last")]
    engine, rng = make_engine([source("l")], assets), random.Random(7)
    counted = RowsRead(engine, monkeypatch)
    for batches in (range(19), [19]):  # the last batch is in a file of its own, as in a stream
        replay(engine, [{"l": _events(rng, batch)} for batch in batches])
        for name in engine.assets:
            engine.advance(name)
    replay(engine, [{"l": [*_events(rng, 20), Event("a", 1, 2 * MINUTE), Event("c", 1, 3 * MINUTE)]}])
    read = {name: counted.during(lambda name=name: engine.advance(name))["events/l"] for name in engine.assets}
    assert read["first"] < 20 < 20 * 6 < read["last"]
    _check(engine)
    keys = values_of({name: engine.views.table(name).select("k") for name in engine.assets} | {"late": engine.views.late("first", "l")})
    assert len(keys["late"]) == 2
    assert keys["first"] == sorted([("a",), ("b",), (None,)], key=repr)
    assert keys["last"] == sorted([("a",), ("b",), ("c",), (None,)], key=repr)
