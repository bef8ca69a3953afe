"""Deleted data files of derived tables: the error names table and file, other assets continue, and a rebuild repairs the table."""

import re
from pathlib import Path

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Session, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.lake.errors import LakeError
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import HOUR, MINUTE, Event, join, law_violations, replay, source

SOURCES = [source("l"), source("r")]
COUNTED = {"by": "k", "aggregates": {"n": "count(*)"}}
ASSETS = [
    join(),
    DerivedAsset(
        name="visits", inputs=("l",), operator=WindowedAggregate(**COUNTED, window=Session(gap="1 minute"), allowed_lateness="1 minute")
    ),
    DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(**COUNTED)),
]


def _batch(hour: int) -> dict[str, list[Event]]:
    late = [Event("b", 9, (hour - 1) * HOUR - 5 * MINUTE)] if hour else []
    return {name: [Event("a", hour, hour * HOUR), *late] for name in ("l", "r")}


def _advance(engine: Engine, hour: int) -> None:
    replay(engine, [_batch(hour)])
    for name in engine.assets:
        engine.advance(name)


TABLES = {"pairs": "pairs", "sums": "sums", "visits": "verdicts/visits"}
"""For each asset the table whose files are deleted."""


def _files(engine: Engine, table: str) -> list[Path]:
    delta = engine.lake.delta(table)
    assert delta is not None
    return [Path(uri.removeprefix("file://")) for uri in delta.file_uris()]


def test_deleted_files_are_named_and_a_rebuild_repairs_the_tables(make_engine: MakeEngine) -> None:
    """Late rows make lateness decisions of sessions, so that there is a file to delete."""
    engine = make_engine(SOURCES, ASSETS)
    for hour in range(2):
        _advance(engine, hour)
    before = json_rows_of({asset: engine.views.table(asset) for asset in engine.assets})
    files = {asset: _files(engine, table) for asset, table in TABLES.items()}
    kept = {file: file.read_bytes() for some in files.values() for file in some}
    for intact in TABLES:
        for file, content in kept.items():
            file.write_bytes(content)
        for asset in set(TABLES) - {intact}:
            assert files[asset]
            for file in files[asset]:
                file.unlink()
        assert law_violations(engine, intact) == set(), f"{intact} reads no file of another result"
    for file in files[intact]:
        file.unlink()
    for asset, table in TABLES.items():
        with pytest.raises(LakeError, match=rf"^{table} lacks a data file: .*/({'|'.join(re.escape(f.name) for f in files[asset])})"):
            engine.accounts.days(asset)
    list(engine.rebuild_tables([*TABLES], downstream=True))
    assert json_rows_of({asset: engine.views.table(asset) for asset in engine.assets}) == before
    _advance(engine, 2)
    assert {asset for asset in engine.assets if law_violations(engine, asset)} == set()
