"""This version reads, accounts for, advances, corrects, rebuilds and reconciles a lake of an earlier version."""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_defs.engine import Engine
from platform_defs.engine.days import day_of
from tests.lakes import make
from tests.support.small_sources import DAY, START, land, law_violations, rows_of

LAKES = sorted(Path(__file__).parent.glob("*.tar.gz"))


@pytest.fixture(params=LAKES, ids=lambda file: file.name.removesuffix(".tar.gz"))
def engine(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Engine:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path / "earlier", filter="data")
    return replace(make.engine(tmp_path / "earlier"), connect=lambda: spark)


def _tables(engine: Engine) -> dict[str, object]:
    return {name: rows_of(engine.views.table(name).drop("updated_at")) for name in engine.assets}


def test_a_lake_of_an_earlier_version_continues_to_work(engine: Engine, tmp_path: Path, spark: SparkSession) -> None:
    assert [name for name in engine.assets if law_violations(engine, name) or engine.accounts.count_differences(name)] == []
    assert {name: engine.pending.progress(name).step > 0 for name in engine.assets} == dict.fromkeys(engine.assets, True)
    before = _tables(engine)
    assert not [name for name in engine.assets for step in engine.advance(name) if step.rows]
    fresh = replace(make.engine(tmp_path / "fresh"), connect=lambda: spark)
    for part, batch in enumerate([*make.BATCHES, make.LATER]):
        for each in [fresh] if part < len(make.BATCHES) else [fresh, engine]:
            for name, events in batch.items():
                land(each, name, f"{part}.jsonl", [*[e.line for e in events], "not JSON"])
            each.ingest()
            for name in each.assets:
                each.advance(name)
        if part == len(make.BATCHES) - 1:
            assert _tables(fresh) == before
    assert _tables(engine) == _tables(fresh)
    assert [name for name in engine.assets if law_violations(engine, name) or engine.accounts.count_differences(name)] == []
    for name in engine.assets:
        done = engine.rebuild(name, day_of(START), day_of(START + 2 * DAY))
        assert (done.missing, done.extra) == (0, 0)
    list(engine.remake(["counts", "sums", "visits"], downstream=True))
    assert _tables(engine) == _tables(fresh)
    engine.maintain(small_files=2)
    assert [name for name in engine.assets if law_violations(engine, name) or engine.accounts.count_differences(name)] == []
