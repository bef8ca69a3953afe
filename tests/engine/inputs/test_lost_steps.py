"""A table that lost its newest commits recomputes their steps. If the rows differ, its readers refuse the table, and name the fix."""

import json
from pathlib import Path

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, TopK, TopN, Tumbling, WindowedAggregate
from platform_defs.engine import Engine, ProgressError
from platform_defs.engine.inputs.progress import PROGRESS, Progress
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import DAY, MINUTE, Event, law_violations, replay, rows_of, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"}, allowed_lateness="10 minutes")
ASSETS = [
    DerivedAsset(name="counts", inputs=("l",), operator=COUNT),
    DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by="n DESC")),
    DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"})),
    DerivedAsset(name="best", inputs=("sums",), operator=TopN(order_by="n DESC", rank_end=1, change="how", unique_key="k")),
]
BATCHES = [
    [Event("a", 1, 0), Event("a", 1, 3 * MINUTE)],
    [Event("a", 1, 1), Event("a", 1, 5 * MINUTE)],
    [Event("b", 1, n) for n in range(2, 8)],
]


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    """Tables after two micro-batches. Those that read the source have a step for each; the tables that read them have one step."""
    engine = make_module_engine([source("l")], ASSETS)
    replay(engine, [{"l": BATCHES[0]}])
    _advance(engine, "counts", "sums")
    replay(engine, [{"l": BATCHES[1]}])
    _advance(engine)
    return engine


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake, which a test damages."""
    return copy_engine(prepared_engine)


def _advance(engine: Engine, *names: str) -> None:
    for name in names or engine.assets:
        engine.advance(name)


def _lose_newest(engine: Engine, table: str) -> None:
    """Delete the newest commit of a Delta log, as a lost disk write or a restored backup does."""
    newest = max(Path(engine.lake.path(table), "_delta_log").glob("*.json"))
    newest.unlink()
    for checksum in (newest.with_name(f".{newest.name}.crc"), newest.with_suffix(".crc")):
        checksum.unlink(missing_ok=True)


def test_readers_refuse_a_lost_step_recomputed_from_other_rows_at_the_next_and_at_later_steps(engine: Engine) -> None:
    lost = engine.pending.progress("counts").step
    _lose_newest(engine, "counts")
    replay(engine, [{"l": BATCHES[2]}])
    engine.advance("counts")
    assert engine.pending.progress("counts").step >= lost, "the number of the lost step is used again"
    why = r"top was computed from an earlier counts, .*`tidemark rebuild top --downstream`"
    for read in (lambda: engine.advance("top"), lambda: engine.accounts.days("top")):
        with pytest.raises(ProgressError, match=why):
            read()
    replay(engine, [{"l": [Event("c", 1, DAY)]}])
    engine.advance("counts")
    with pytest.raises(ProgressError, match=why):
        engine.advance("top")  # several steps behind the step that it read
    list(engine.rebuild_tables(["top"], downstream=True))
    assert {name for name in ("counts", "top") if law_violations(engine, name)} == set()


def test_readers_accept_a_lost_step_recomputed_from_the_same_rows(engine: Engine) -> None:
    before = rows_of(engine.views.table("counts"))
    _lose_newest(engine, "counts")
    engine.advance("counts")
    assert rows_of(engine.views.table("counts")) == before
    replay(engine, [{"l": BATCHES[2]}])
    _advance(engine, "counts", "top")
    assert {name for name in ("counts", "top") if law_violations(engine, name)} == set()


def test_a_published_lost_step_is_not_replaced(engine: Engine, tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    engine.views.publish("sums", folder)
    _lose_newest(engine, "changelog/sums")
    _lose_newest(engine, "sums")
    replay(engine, [{"l": BATCHES[2]}])
    engine.advance("sums")
    with pytest.raises(ProgressError, match="but the changelog has lost that step since, and has another one with the same number"):
        engine.views.publish("sums", folder)


def test_a_changelog_shorter_than_its_table_is_refused_until_it_is_recomputed(engine: Engine) -> None:
    _lose_newest(engine, "changelog/sums")
    why = r"sums has the changes of its changelog up to step 2, but changelog/sums has lost .* `tidemark rebuild sums --downstream`"
    with pytest.raises(ProgressError, match=why):
        engine.advance("sums")
    replay(engine, [{"l": BATCHES[2]}])
    list(engine.rebuild_tables(["sums"], downstream=True))
    _advance(engine, "sums", "best")
    assert {name for name in ("sums", "best") if law_violations(engine, name)} == set()
    assert rows_of(engine.views.table("best"), "k") == [("b",)]


INVALID = [
    "no progress",
    7,
    None,
    {"step": "two"},
    {"step": 1, "unknown": 2},
    {"step": 1, "corrected": [[1]]},
    {"step": 1, "operator": 5},
    {"step": 1, "id": 5},
    {"step": 1, "closed_to": "x"},
    {"step": 1, "complete_from": "x"},
    {"step": 1, "read": None},
    {"step": 1, "read": {"a": "x"}},
    {"step": 1, "inputs": 3},
    {"step": 1, "inputs": {"a": 3}},
    {"step": 1, "steps_read": ["a"]},
]


@pytest.mark.parametrize("recorded", INVALID, ids=json.dumps)
def test_the_error_of_an_invalid_progress_names_the_table(recorded: object) -> None:
    with pytest.raises(ProgressError, match="the newest commit of counts has no progress in the engine's format"):
        Progress.from_metadata("counts", recorded)


def test_a_progress_is_read_as_it_was_recorded() -> None:
    made = Progress(step=3, seq=5, closed_to=9, read={"a": 2}, corrected=((1, 2, 3),), steps_read={"a": "x"})
    recorded = Progress.from_metadata("t", json.loads(json.dumps(made.metadata(Progress())))[PROGRESS])
    assert recorded.id is not None
    assert recorded == Progress(**{**made.__dict__, "id": recorded.id})
    assert made.metadata(recorded) != made.metadata(Progress()), "a step follows from the one before it"
