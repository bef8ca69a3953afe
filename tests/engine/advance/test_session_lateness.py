"""Lateness decisions of sessions: a step on an old lake reads no more rows and decisions than on a new one.

Decisions that an earlier version wrote without statistics are read by each step.
"""

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from assets.contracts import DerivedAsset
from operators import Session, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.lake import compaction
from platform_defs.engine.lake.written_tables import WrittenTables
from tests.conftest import MakeEngine
from tests.support.rows_read import RowsRead
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, replay, source

VISITS = WindowedAggregate(by="k", window=Session(gap="5 minutes", longest="20 minutes"), aggregates={"n": "count(*)"})
ASSET = DerivedAsset(name="visits", inputs=("l",), operator=VISITS)
VERDICTS = "verdicts/visits"


def _batch(rng: random.Random, batch: int, late_rows: int = 1) -> dict[str, list[Event]]:
    """A batch with rows of 1971, which are late."""
    events = [Event(rng.choice("ab"), rng.randrange(6), batch * HOUR + n * 10 * MINUTE) for n in range(6)]
    return {"l": [*events, *(Event("a", n, -20_000 * DAY + batch) for n in range(late_rows))]}


def _engine(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    for limit in ("MANY_FILES", "MANY_TINY_FILES"):  # the few rows of these tests would all be in one file
        monkeypatch.setattr(compaction, limit, 1_000)
    return make_engine([source("l")], [ASSET])


@pytest.mark.parametrize(("new", "batches"), [(3, 5), pytest.param(4, 9, marks=pytest.mark.soak)])
def test_a_step_reads_as_many_rows_and_decisions_of_an_old_lake_as_of_a_new_one(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, new: int, batches: int
) -> None:
    """The last step reads no more than the step after batch `new`, counted from 0."""
    engine, rng = _engine(make_engine, monkeypatch), random.Random(5)
    counted, read = RowsRead(engine, monkeypatch), list[Counter[str]]()
    for batch in range(batches):
        replay(engine, [_batch(rng, batch)])
        read.append(counted.during(lambda: engine.advance("visits")))
    assert engine.views.late("visits", "l").count() == engine.lake.read(engine.spark, VERDICTS).count() == batches - 1
    assert all(account.holds for account in engine.accounts.days("visits"))
    assert read[-1]["events/l"] <= read[new]["events/l"], [rows["events/l"] for rows in read]
    assert 0 < read[-1][VERDICTS] <= read[new][VERDICTS], [rows[VERDICTS] for rows in read]


def test_decisions_without_statistics_of_an_earlier_version_are_read(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, rng = _engine(make_engine, monkeypatch), random.Random(6)
    append = WrittenTables.append

    def without_statistics(lake: WrittenTables, *of: Any, **how: Any) -> int:
        return append(lake, *of, **{name: value for name, value in how.items() if of[1] != VERDICTS or name != "pruned_by"})

    with monkeypatch.context() as earlier:
        earlier.setattr(WrittenTables, "append", without_statistics)
        replay(engine, [_batch(rng, batch, late_rows=2) for batch in range(3)])
        engine.advance("visits")
    assert {*_files(engine)["min.seq"].to_pylist()} == {None}
    counted = RowsRead(engine, monkeypatch)
    for batch in range(3, 6):
        replay(engine, [_batch(rng, batch, late_rows=2)])
        read = counted.during(lambda: engine.advance("visits"))[VERDICTS]
    assert _files(engine)["null_count.seq"].to_pylist().count(0) == 3
    assert 4 < read <= 20, "in each read those without statistics, and the newest"
    assert engine.views.late("visits", "l").count() == 10
    assert all(account.holds for account in engine.accounts.days("visits"))


def _files(engine: Engine) -> pa.Table:
    delta = engine.lake.delta(VERDICTS)
    assert delta is not None
    return pa.table(delta.get_add_actions(flatten=True))
