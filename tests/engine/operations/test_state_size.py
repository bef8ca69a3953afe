"""The state of a table: no step reads an older file that is not in it, and it grows with the log only where steps read all of the log."""

import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import DerivedAsset
from operators import Aggregate, AsOfJoin, Deduplicate, IntervalJoin, Session, TopN, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.advance import kept_versions
from platform_defs.engine.advance.advance import strategy_of
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.lake import data_skipping, reads
from platform_defs.engine.operations.state_size import state_size
from tests.conftest import MakeEngine
from tests.support.kills import run_and_die
from tests.support.small_sources import HOUR, MINUTE, Event, replay, source

File = tuple[str, str]
COUNTS = Aggregate(by=("k", "v"), aggregates={"n": "count(*)"})
TABLES = [
    DerivedAsset(name="pairs", inputs=("l", "r"), operator=IntervalJoin(on="k", lower="-5 minutes", upper="10 minutes", how="full")),
    DerivedAsset(
        name="hourly",
        inputs=("l",),
        operator=WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}, allowed_lateness="30 minutes"),
    ),
    DerivedAsset(
        name="visits",
        inputs=("l",),
        operator=WindowedAggregate(by="k", window=Session(gap="5 minutes", longest="20 minutes"), aggregates={"n": "count(*)"}),
    ),
    DerivedAsset(name="counts", inputs=("l",), operator=COUNTS),
    DerivedAsset(name="means", inputs=("l",), operator=Aggregate(by="k", aggregates={"mean": "avg(v)"})),
    DerivedAsset(name="newest", inputs=("l",), operator=TopN(by="k", order_by="ts DESC", unique_key=("k", "v"), rank_end=2)),
    DerivedAsset(name="alive", inputs=("l",), operator=Deduplicate(by="k", keep="last", ttl="1 hour")),
    DerivedAsset(name="valid", inputs=("l", "r"), operator=AsOfJoin(on="k", how="left")),
    DerivedAsset(name="rare", inputs=("counts",), operator=TopN(by="k", order_by="n", unique_key=("k", "v"), rank_end=1)),
    DerivedAsset(
        name="daily",
        inputs=("hourly",),
        operator=WindowedAggregate(by="k", window=Tumbling(size="1 day"), aggregates={"n": "sum(n)"}),
    ),
]
KINDS = {"counts": ("table",), "newest": ("table", "kept_rows"), "alive": ("table", "kept_rows")}
BOUNDED = ("pairs", "hourly", "visits", "counts", "newest", "alive", "valid")


class _FilesRead:
    """Records the files that are read."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files, self._root, self._read = set[File](), root, data_skipping.rows_of_matching_files
        monkeypatch.setattr(reads, "rows_of_matching_files", self._recorded)

    def _recorded(self, spark: SparkSession, delta: Any, path: str, within: Any, **how: Any) -> DataFrame | None:
        self.files |= {(path.removeprefix(f"{self._root}/"), file) for file in data_skipping.matching_files(delta, within) or {}}
        return self._read(spark, delta, path, within, **how)


HOURS = [range(2), range(2, 4), range(4, 5), range(5, 6)]
"""The hours of each batch. The first two have two each, so that the files of the first hours leave the state after fewer steps."""
MEASURED = 3, 5
"""The hours after which the state is measured."""


def _events(rng: random.Random, hours: Iterable[int]) -> list[Event]:
    times = [hour * HOUR + n * 10 * MINUTE - rng.randrange(MINUTE) for hour in hours for n in range(1, 5)]
    return [Event(rng.choice("abc"), rng.randrange(3), at) for at in times]


def _files(engine: Engine, table: str) -> set[File]:
    return {(table, path) for path in engine.lake.file_sizes(table, {})}


def _state(engine: Engine, asset: DerivedAsset) -> set[File]:
    now = stored_progress(engine.lake, asset)
    return {file for part in strategy_of(engine.workspace, asset).state(now) for file in part.files(engine.lake)}


def _rows(engine: Engine, name: str) -> dict[str, int]:
    return {kind: size.rows for kind, size in state_size(engine.workspace, engine.assets[name]).items()}


def test_a_step_reads_no_older_file_that_is_not_in_the_state(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_versions, "MANY_VERSIONS", 1)
    engine, rng = make_engine([source("l"), source("r")], TABLES), random.Random(9)
    read = _FilesRead(engine.lake.root, monkeypatch)
    existing, state, sizes = set[File](), dict[str, set[File]](), dict[int, dict[str, dict[str, int]]]()
    used, unused = Counter[str](), Counter[str]()
    for hours in HOURS:
        late = [Event("a", 1, (hours[-1] - 1) * HOUR)]
        replay(engine, [{"l": [*_events(rng, hours), *late], "r": _events(rng, hours)}])
        for name in engine.assets:
            read.files.clear()
            engine.advance(name)
            older = {file for file in read.files & existing if file[0] != name and not file[0].startswith("changelog/")}
            assert older <= state.get(name, set()), name
            used[name] += len(older)
            own_logs = {engine.sources[i].log for i in engine.assets[name].inputs if i in engine.sources}
            unused[name] += len({file for file in existing if file[0] in own_logs} - state.get(name, set()))
        logs = [source.log for source in engine.sources.values()]
        existing = set[File]().union(*(_files(engine, table) for table in (*logs, *engine.assets, *(a.kept for a in TABLES))))
        state = {asset.name: _state(engine, asset) for asset in TABLES}
        if hours[-1] in MEASURED:
            sizes[hours[-1]] = {name: _rows(engine, name) for name in engine.assets}
    before, last = (sizes[hour] for hour in MEASURED)
    assert all(used[name] for name in engine.assets if name not in ("counts", "rare", "daily")), used
    for name in BOUNDED:
        assert sum(last[name].values()) <= sum(before[name].values()) + 3, f"{name} has no more state than two hours before"
        assert unused[name] or "event_log" not in last[name], f"no file of its log had left the state of {name} before the last step"
    assert {name: tuple(last[name]) for name in KINDS} == KINDS
    handled = 6 * 4 + len(HOURS)
    assert last["means"] == {"table": 3, "event_log": handled}
    assert last["rare"] == {"table": 3, "input_table": engine.views.table("counts").count()}
    assert last["newest"]["kept_rows"] == engine.lake.read(engine.spark, "kept_rows/newest").count()


def test_the_log_is_state_while_the_kept_rows_lack_some_of_it(make_engine: MakeEngine) -> None:
    newest = next(table for table in TABLES if table.name == "newest")
    engine = make_engine([source("l")], [newest])
    assert _rows(engine, "newest") == {"table": 0}
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 2, 1), Event("a", 1, 2)]}])
    assert _rows(engine, "newest") == {"table": 0}, "rows that are not handled yet are no state"
    engine.advance("newest")
    assert _rows(engine, "newest") == {"table": 2, "kept_rows": 2}
    replay(engine, [{"l": [Event("b", 1, 3)]}])
    run_and_die(lambda: engine.advance("newest"), "kept.before_commit")
    assert _rows(engine, "newest") == {"table": 3, "kept_rows": 2, "event_log": 1}
    shutil.rmtree(Path(engine.lake.root, "kept_rows"))
    assert _rows(engine, "newest") == {"table": 3, "event_log": 4}


def test_bytes_are_those_of_the_data_files(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name="counts", inputs=("l",), operator=COUNTS)])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    engine.advance("counts")
    on_disk = sum(file.stat().st_size for file in Path(engine.lake.path("counts")).rglob("*.parquet") if "_change_data" not in file.parts)
    assert state_size(engine.workspace, engine.assets["counts"])["table"].bytes == on_disk
    found = engine.views.metrics("counts")
    assert [found[f"state_{name}"] for name in ("rows", "bytes", "files")] == [1, on_disk, 1]
    assert found["skipped_files"] == 0
