"""This version reads, accounts for, advances, corrects, rebuilds and reconciles a lake of an earlier version."""

import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from assets.days import day_of
from platform_defs.engine import Engine
from tests.lakes import make
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import DAY, START, Event, land, law_violations

LAKES = sorted(Path(__file__).parent.glob("*.tar.gz"))
REMADE = ["counts", "sums", "visits"]


@pytest.fixture(params=LAKES, ids=lambda file: file.name.removesuffix(".tar.gz"))
def engine(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Engine:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path / "earlier", filter="data")
    return replace(make.engine(tmp_path / "earlier"), connect=lambda: spark)


def _tables(engine: Engine) -> dict[str, list[str]]:
    return json_rows_of({name: engine.views.table(name).drop("updated_at") for name in engine.assets})


def _ingest(engine: Engine, part: int, batch: Mapping[str, list[Event]]) -> None:
    for name, events in batch.items():
        land(engine, name, f"{part}.jsonl", [*[e.line for e in events], "not JSON"])
    engine.ingest()


def _advance(engine: Engine) -> int:
    """Advance every table; returns the number of rows written."""
    return sum(step.rows for name in engine.assets for step in engine.advance(name))


def _violations(engine: Engine, names: Iterable[str]) -> list[str]:
    """The tables for which the law does not hold, and the differences between ledger and logs; `pairs` reads both sources."""
    return [*[name for name in names if law_violations(engine, name)], *map(str, engine.accounts.count_differences("pairs"))]


def test_a_lake_of_an_earlier_version_continues_to_work(engine: Engine, tmp_path: Path, spark: SparkSession) -> None:
    assert _violations(engine, engine.assets) == []
    assert {name: engine.pending.progress(name).step > 0 for name in engine.assets} == dict.fromkeys(engine.assets, True)
    assert _advance(engine) == 0
    fresh = replace(make.engine(tmp_path / "fresh"), connect=lambda: spark)
    for part, batch in enumerate(make.BATCHES):
        _ingest(fresh, part, batch)
    for each in (fresh, engine):
        _ingest(each, len(make.BATCHES), make.LATER)
        _advance(each)
    wanted = _tables(fresh)
    assert _tables(engine) == wanted, "what this version has added, and what the earlier one had written"
    for name in engine.assets:
        done = engine.rebuild_days(name, day_of(START), day_of(START + 2 * DAY))
        assert (done.missing, done.extra) == (0, 0)
    assert _violations(engine, [*REMADE, "top", "best"]) == [], "tables that are made anew next, and so are not checked at the end"
    assert {name for name, _ in engine.rebuild_tables(REMADE, downstream=True)} == {*REMADE, "top", "best"}
    assert _tables(engine) == wanted
    engine.maintain(small_files=2)
    assert _violations(engine, engine.assets) == []
