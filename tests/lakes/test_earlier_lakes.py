"""This version reads, accounts for, advances, corrects, rebuilds and reconciles the lakes that earlier versions wrote."""

import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from assets.days import day_of
from platform_defs.engine import Engine
from tests.lakes import make
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


def _recorded_lines(name: str) -> list[str]:
    return make.rows_file_of(name).read_text("utf-8").splitlines()


def _advance(engine: Engine) -> int:
    """Advance every table; returns the number of rows written."""
    return sum(step.rows for name in engine.assets for step in engine.advance(name))


def _violations(engine: Engine, names: Iterable[str]) -> list[str]:
    """The tables for which the law does not hold, and the differences between ledger and logs, of a table that reads both sources."""
    reads_both = next(name for name, asset in engine.assets.items() if {*asset.inputs} == engine.sources.keys())
    return [*[name for name in names if law_violations(engine, name)], *map(str, engine.accounts.count_differences(reads_both))]


@pytest.mark.parametrize("name", make.ARCHIVES)
def test_a_lake_of_an_earlier_version_continues_to_work(name: str, tmp_path: Path, spark: SparkSession) -> None:
    """After a further batch, the lake has the rows that a new lake of the same batches has. These are recorded."""
    engine, archive = _open(name, tmp_path / "earlier", spark), make.ARCHIVES[name]
    if name == REBUILT:
        assert _violations(engine, engine.assets) == [], "before this version has written anything"
    assert _advance(engine) == 0
    make.ingest(engine, archive, len(archive.batches))
    assert _advance(engine) > 0
    wanted = _recorded_lines(name)
    assert make.lines(engine) == wanted, "what this version has added, and what the earlier one had written"
    if name == REBUILT:
        _rebuild(engine)
        assert make.lines(engine) == wanted
        engine.maintain(small_files=2)
    assert _violations(engine, engine.assets) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", make.ARCHIVES)
def test_a_new_lake_has_the_recorded_rows(name: str, tmp_path: Path, spark: SparkSession) -> None:
    """The rows with which the lakes of earlier versions are compared are those of a lake that has no earlier version."""
    fresh = _engine(name, tmp_path, spark)
    make.ingest_all(fresh, make.ARCHIVES[name])
    assert make.lines(fresh) == _recorded_lines(name)


def _rebuild(engine: Engine) -> None:
    """Rebuild the days of every table, which finds no difference between its rows and recomputed ones. Then rebuild some tables whole."""
    for name in engine.assets:
        done = engine.rebuild_days(name, day_of(START), day_of(START + 2 * DAY))
        assert (done.missing, done.extra) == (0, 0)
    assert {name for name, _ in engine.rebuild_tables(REMADE, downstream=True)} == {*REMADE, "top", "best"}
