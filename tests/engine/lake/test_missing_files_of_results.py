"""Deleted data files of derived tables: the error names table and file, other assets continue, and a rebuild repairs the table."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Session, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.lake.errors import LakeError
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import HOUR, MINUTE, Event, join, law_violations, replay, rows_of, source

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


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    """Tables after three micro-batches, with late rows."""
    engine = make_module_engine(SOURCES, ASSETS)
    for hour in range(3):
        _advance(engine, hour)
    return engine


@pytest.mark.parametrize(
    ("table", "read"),
    [
        ("pairs", lambda engine: engine.accounts.days("pairs")),
        ("sums", lambda engine: engine.accounts.days("sums")),
        ("verdicts/visits", lambda engine: engine.accounts.days("visits")),
    ],
)
def test_a_deleted_file_is_named_and_a_rebuild_repairs_the_table(
    prepared_engine: Engine, copy_engine: CopyEngine, table: str, read: Callable[[Engine], object]
) -> None:
    engine = copy_engine(prepared_engine)
    name = table.rsplit("/", maxsplit=1)[-1]
    before = {asset: rows_of(engine.views.table(asset)) for asset in engine.assets}
    delta = engine.lake.delta(table)
    assert delta is not None
    files = [Path(uri.removeprefix("file://")) for uri in delta.file_uris()]
    assert files
    for file in files:
        file.unlink()
    with pytest.raises(LakeError, match=rf"^{table} lacks a data file: .*/({'|'.join(re.escape(f.name) for f in files)})"):
        read(engine)
    for other in set(engine.assets) - {name}:
        assert law_violations(engine, other) == set(), other
    list(engine.remake([name], downstream=True))
    assert {asset: rows_of(engine.views.table(asset)) for asset in engine.assets} == before
    _advance(engine, 3)
    assert {asset for asset in engine.assets if law_violations(engine, asset)} == set()
