"""A recreated table, or one with changed parameters: its readers refuse to continue, name the fix, and the fix works."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, SourceContract
from assets.days import day_of
from operators import Aggregate, Session, TopK, TopN, Tumbling, WindowedAggregate
from platform_defs.engine import Engine, ProgressError
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.progress import results_table, stored_progress
from platform_defs.engine.inputs.same_inputs import input_identities, require_same_inputs, steps_read
from platform_defs.engine.lake.commits import commit_options
from platform_defs.engine.lake.errors import LakeError
from tests.conftest import CopyEngine, MakeEngine
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import DAY, MINUTE, START, Event, join, law_violations, replay, rows_of, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"}, allowed_lateness="2 minutes")
SESSIONS = WindowedAggregate(by="k", window=Session(gap="30 seconds"), aggregates={"n": "count(*)"}, allowed_lateness="2 minutes")
SUMS = Aggregate(by="k", aggregates={"n": "count(*)"})


def chain(window: str = "1 minute", gap: str = "30 seconds", aggregate: str = "count(*)") -> list[DerivedAsset]:
    """A windowed count and its ranking; sessions; an upserted table and its leaderboard."""
    return [
        DerivedAsset(name="counts", inputs=("l",), operator=replace(COUNT, window=Tumbling(size=window))),
        DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by="n DESC")),
        DerivedAsset(name="visits", inputs=("l",), operator=replace(SESSIONS, window=Session(gap=gap))),
        DerivedAsset(name="sums", inputs=("l",), operator=replace(SUMS, aggregates={"n": aggregate})),
        DerivedAsset(name="best", inputs=("sums",), operator=TopN(order_by="n DESC", rank_end=1, change="how", unique_key="k")),
    ]


BATCHES = [
    {"l": [Event("a", 1, 0), Event("b", 3, 3 * MINUTE)]},
    {"l": [Event("b", 5, 1), Event("b", 7, 2), Event("a", 1, 5 * MINUTE)]},
    {"l": [Event("a", 1, DAY)]},
]


def advance_all(engine: Engine) -> Engine:
    for name in engine.assets:
        engine.advance(name)
    return engine


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    """Tables after two micro-batches, the second of which has corrected results of the first. Tables of tables have one step."""
    engine = make_module_engine([source("l")], chain())
    replay(engine, [BATCHES[0]])
    for name in ("counts", "visits", "sums"):
        engine.advance(name)
    replay(engine, [BATCHES[1]])
    return advance_all(engine)


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake."""
    return copy_engine(prepared_engine)


def tables(engine: Engine, suffix: str = "") -> dict[str, list[str]]:
    """The rows of the tables, whose names may have a suffix."""
    return json_rows_of({name.removesuffix(suffix): engine.views.table(name) for name in engine.assets})


def test_the_reader_of_a_recreated_table_refuses_it(engine: Engine) -> None:
    """The steps of a recreated table count from 1 again, so the reader has already read a step with the number of the next correction."""
    shutil.rmtree(engine.lake.path("counts"))
    engine.advance("counts")
    replay(engine, [{"l": [Event("b", 1, 3 * MINUTE + 1)]}])
    engine.advance("counts")
    why = r"top was computed from an earlier counts, which has been replaced since.*`tidemark rebuild top --downstream`, which rebuilds top"
    with pytest.raises(ProgressError, match=why):
        engine.advance("top")
    assert [(name, step.rows) for name, step in engine.rebuild_tables(["top"])] == [("top", 2)]
    assert {name for name in ("counts", "top") if law_violations(engine, name)} == set()


def test_a_step_is_refused_if_its_input_is_emptied_after_the_first_check(tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, [source("l")], chain()[3:])
    commit_batch(engine, {"l": {"watermark": START}})
    apply_step(engine, "sums")
    workspace, best = engine.pending.workspace, engine.assets["best"]
    read = {"sums": 1}
    apply_step(engine, "best", inputs=input_identities(workspace, best), read=read, steps_read=steps_read(workspace, read))
    require_same_inputs(workspace, best, stored_progress(engine.lake, best))
    apply_step(engine, "sums", seq=0, generation=1)
    with pytest.raises(ProgressError, match=r"^best was computed from an earlier sums, which has been replaced since"):
        Advance(workspace, best, 1).take_snapshot().commit_next_step(engine.ledger.head, None)


def apply_step(engine: Engine, table: str, **changes: Any) -> None:
    """Commit a step of an upserted table, and apply its changes."""
    commit_step(engine, table, **changes)
    now = stored_progress(engine.lake, engine.assets[table])
    metadata = {APPLIED: {"step": now.step, "seq": now.seq, "generation": now.generation}}
    no_rows = pa.table({"k": pa.array([], pa.string())})
    write_deltalake(engine.lake.path(table), no_rows, mode="append", **commit_options(metadata))


def test_changed_parameters_are_refused_until_every_downstream_table_is_recomputed(engine: Engine, make_engine: MakeEngine) -> None:
    before = tables(engine)
    changed = make_engine([source("l")], chain(window="5 minutes", gap="4 minutes", aggregate="sum(v)"))
    for name, parameter in (("counts", "window.size was 60000"), ("visits", "window.gap was 30000"), ("sums", "aggregates.n was")):
        with pytest.raises(ProgressError, match=rf"{name} was made with other settings than it has now: {parameter}"):
            changed.advance(name)
    with pytest.raises(ProgressError, match=r"top, best read counts, visits, sums, .*Add `--downstream`"):
        list(changed.rebuild_tables(["counts", "visits", "sums"]))
    assert tables(changed) == before
    identity = engine.lake.identity("counts")
    assert engine.pending.progress("top").inputs == {"counts": identity}
    done = list(changed.rebuild_tables(["counts", "visits", "sums"], downstream=True))
    assert {name for name, _ in done} == set(changed.assets)
    assert changed.lake.identity("counts") == identity, "a rebuilt table keeps its Delta identity, and gets a new generation"
    assert changed.pending.progress("top").inputs == {"counts": f"{identity}#1"}
    assert changed.pending.progress("top").generation == 1
    assert {name for name in changed.assets if law_violations(changed, name)} == set()
    fresh = make_engine([source("l")], [replace(a, name=f"{a.name}_2", inputs=_renamed(a.inputs)) for a in changed.assets.values()])
    advance_all(fresh)
    assert tables(fresh, "_2") == tables(changed)


def _renamed(inputs: Sequence[str]) -> tuple[str, ...]:
    return tuple(i if i == "l" else f"{i}_2" for i in inputs)


def test_tables_whose_logs_have_lost_their_progress_can_be_rebuilt(engine: Engine) -> None:
    """The number of the newest step is unknown; Delta would skip a commit with the same number."""
    damaged = ["counts", "sums"]
    for name in damaged:
        _forget_progress(engine, results_table(engine.assets[name]))
    for name in damaged:
        with pytest.raises(
            LakeError, match=rf"of {results_table(engine.assets[name])} records.* can be rebuilt with `tidemark rebuild NAME --downstream`"
        ):
            engine.advance(name)
    list(engine.rebuild_tables(damaged, downstream=True))
    replay(engine, [BATCHES[2]])
    rebuilt = ["counts", "top", "sums", "best"]
    for name in rebuilt:
        engine.advance(name)
    assert {name for name in rebuilt if law_violations(engine, name)} == set()


def test_an_emptied_table_is_accounted_for_before_its_first_step(engine: Engine) -> None:
    """A rebuild has emptied two tables, and ended after the first step of the one that the other reads."""
    steps = engine.rebuild_tables(["sums"], downstream=True)
    assert next(steps)[0] == "sums"
    steps.close()
    assert engine.views.table("best").isEmpty()
    assert law_violations(engine, "best") == set()
    assert engine.rebuild_days("best").missing == 0
    for name in ("sums", "best"):
        engine.advance(name)
    assert {name for name in ("sums", "best") if law_violations(engine, name)} == set()
    assert not engine.views.table("best").isEmpty()


def _forget_progress(engine: Engine, table: str) -> None:
    """Remove the metadata from a table's commits, as a log clean-up does after many commits of another program."""
    log = Path(engine.lake.path(table)) / "_delta_log"
    for commit in log.glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            action.get("commitInfo", {}).pop("userMetadata", None)
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        (log / f".{commit.name}.crc").unlink(missing_ok=True)


def test_a_rebuild_of_a_table_updates_its_downstream_tables(make_engine: MakeEngine) -> None:
    sources = [source("l"), source("r")]
    made = [join(how="left"), DerivedAsset(name="hours", inputs=("pairs",), operator=replace(COUNT, by="k", allowed_lateness=0))]
    engine = make_engine(sources, made)
    replay(engine, [{"l": [Event("a", 1, 0)], "r": [Event("a", 1, 1)]}, {"l": [Event("b", 1, DAY)], "r": [Event("b", 1, DAY)]}])
    for name in engine.assets:
        engine.advance(name)
    DeltaTable(engine.lake.path("pairs")).delete("k = 'a'")
    list(engine.rebuild_tables(["hours"]))
    assert rows_of(engine.views.table("hours"), "n") == []
    assert law_violations(engine, "hours") == set()
    day = day_of(START)
    assert engine.rebuild_days("pairs", day, day).missing == 1
    assert law_violations(engine, "hours") == set(), "an unread correction is not a wrong row"
    assert engine.pending.days("hours") is not None
    engine.advance("hours")
    assert rows_of(engine.views.table("hours"), "n") == [(1,)]
    assert law_violations(engine, "hours") == set()


def test_a_correction_not_yet_read_downstream_does_not_violate_the_law(engine: Engine) -> None:
    replay(engine, [{"l": [Event("b", 1, 3 * MINUTE + 1)]}])
    assert [step.rows for step in engine.advance("counts")]
    assert law_violations(engine, "top") == set()
    engine.advance("top")
    assert law_violations(engine, "top") == set()


def test_swapped_inputs_are_refused_and_an_added_column_until_a_rebuild(make_engine: MakeEngine) -> None:
    sources = [source("l"), source("r")]
    engine = make_engine(sources, [join()])
    replay(engine, [{"l": [Event("a", 1, 0)], "r": [Event("a", 1, 1)]}, {"l": [Event("b", 1, DAY)], "r": [Event("b", 1, DAY)]}])
    engine.advance("pairs")
    with pytest.raises(ProgressError, match=r'pairs was made with other settings .*: inputs was \["l", "r"\], and is \["r", "l"\]'):
        make_engine(sources, [join(inputs=("r", "l"))]).advance("pairs")
    wider: list[SourceContract] = [replace(s, schema=s.struct.add("note", "string")) if s.name == "l" else s for s in map(_copied, sources)]
    changed = make_engine(wider, [join()])
    folder = Path(changed.folders["l"])
    folder.mkdir(parents=True)
    (folder / "1.jsonl").write_text('{"k": "c", "v": 1, "note": "new", "ts": "2026-03-05T00:00:00Z"}\n')
    changed.ingest()
    changed.drain()
    with pytest.raises(
        ProgressError, match=r"pairs would have other columns than its table has: note string is new.*tidemark rebuild pairs"
    ):
        changed.advance("pairs")
    list(changed.rebuild_tables(["pairs"]))
    assert rows_of(changed.views.table("pairs").where(F.col("note").isNotNull()), "k", "note") == [("c", "new")]
    assert law_violations(changed) == set()


def test_a_table_is_not_emptied_because_a_source_was_renamed(engine: Engine, make_engine: MakeEngine) -> None:
    before = tables(engine)
    named = {"l": "left", "counts": "counts", "sums": "sums"}
    renamed = [replace(asset, inputs=tuple(named[name] for name in asset.inputs)) for asset in chain()]
    other = make_engine([source("left")], renamed)
    with pytest.raises(ProgressError, match=r'counts was made with other settings .*inputs was \["l"\], and is \["left"\]'):
        other.advance("counts")
    way_out = "was computed from l, and would be empty now: no row of left was ingested. Nothing was changed.*former name"
    for name in ("counts", "visits", "sums"):
        with pytest.raises(ProgressError, match=f"{name} {way_out}"):
            list(other.rebuild_tables([name], downstream=True))
    assert tables(engine) == before
    replay(other, [{"left": [Event("c", 1, 0), Event("c", 1, DAY)]}])
    list(other.rebuild_tables(["counts"], downstream=True))
    assert rows_of(other.views.table("counts"), "k", "n") == [("c", 1)]


def _copied(contract: SourceContract) -> SourceContract:
    return replace(contract, schema=type(contract.struct).fromJson(contract.struct.jsonValue()))
