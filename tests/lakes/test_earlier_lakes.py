"""This version reads, accounts for, advances, corrects, rebuilds and reconciles the lakes that earlier versions wrote."""

import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from assets.days import day_of
from operators.contract import Early
from platform_defs.engine import Engine
from tests.lakes import make
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import DAY, START, law_violations

REBUILT = "bd14abf"
"""The archive whose tables are rebuilt too."""
REMADE = ["counts", "sums", "visits"]


def _engine(name: str, folder: Path, spark: SparkSession) -> Engine:
    return replace(make.engine(folder, make.ARCHIVES[name]), connect=lambda: spark)


def _open(name: str, folder: Path, spark: SparkSession) -> Engine:
    with tarfile.open(make.file_of(name)) as packed:
        packed.extractall(folder, filter="data")
    return _engine(name, folder, spark)


def _fresh(name: str, folder: Path, spark: SparkSession) -> Engine:
    """A lake with the batches of an archive, which this version has ingested."""
    fresh, archive = _engine(name, folder, spark), make.ARCHIVES[name]
    for part, _ in enumerate(archive.batches):
        make.ingest(fresh, archive, part)
    return fresh


def _tables(engine: Engine) -> dict[str, list[str]]:
    """The rows of every table, with its early results."""
    views = {
        name: engine.views.with_early(name) if isinstance(a.operator, Early) and a.operator.early else engine.views.table(name)
        for name, a in engine.assets.items()
    }
    return json_rows_of({name: rows.drop("updated_at") for name, rows in views.items()})


def _advance(engine: Engine) -> int:
    """Advance every table; returns the number of rows written."""
    return sum(step.rows for name in engine.assets for step in engine.advance(name))


def _violations(engine: Engine, names: Iterable[str]) -> list[str]:
    """The tables for which the law does not hold, and the differences between ledger and logs, of a table that reads both sources."""
    reads_both = next(name for name, asset in engine.assets.items() if {*asset.inputs} == engine.sources.keys())
    return [*[name for name in names if law_violations(engine, name)], *map(str, engine.accounts.count_differences(reads_both))]


@pytest.mark.parametrize("name", make.ARCHIVES)
def test_a_lake_of_an_earlier_version_continues_to_work(name: str, tmp_path: Path, spark: SparkSession) -> None:
    engine, archive = _open(name, tmp_path / "earlier", spark), make.ARCHIVES[name]
    if name == REBUILT:
        assert _violations(engine, engine.assets) == [], "before this version has written anything"
    assert _advance(engine) == 0
    fresh = _fresh(name, tmp_path / "fresh", spark)
    for each in (fresh, engine):
        make.ingest(each, archive, len(archive.batches))
        _advance(each)
    wanted = _tables(fresh)
    assert _tables(engine) == wanted, "what this version has added, and what the earlier one had written"
    if name == REBUILT:
        _rebuild(engine)
        assert _tables(engine) == wanted
        engine.maintain(small_files=2)
    assert _violations(engine, engine.assets) == []


def _rebuild(engine: Engine) -> None:
    """Rebuild the days of every table, which finds no difference. Then check the law of some tables, and rebuild these whole."""
    for name in engine.assets:
        done = engine.rebuild_days(name, day_of(START), day_of(START + 2 * DAY))
        assert (done.missing, done.extra) == (0, 0)
    remade = {*REMADE, "top", "best"}
    assert _violations(engine, remade) == []
    assert {name for name, _ in engine.rebuild_tables(REMADE, downstream=True)} == remade
