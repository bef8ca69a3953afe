"""`Input` has the same interface for a source and a table."""

from pathlib import Path

import pytest

from assets.contracts import DerivedAsset, SourceContract
from operators import Tumbling, WindowedAggregate
from platform_defs.engine.inputs.input import Input, input_named
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.rows import Kind
from platform_defs.engine.ledger.watermarks import NOTHING, Timeline
from tests.engine.source_batches import source_batch, watermark_batches
from tests.support.small_sources import join, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
PAIRS = join()
TWICE = join("twice", ("l", "pairs"))
SOURCES: dict[str, SourceContract] = {name: source(name) for name in "lrx"}
ASSETS: dict[str, DerivedAsset] = {"pairs": PAIRS, "twice": TWICE, "counts": DerivedAsset(name="counts", inputs=("x",), operator=COUNT)}


def _named(name: str) -> Input:
    return input_named(name, SOURCES, ASSETS)


def test_the_sources_of_a_table_are_those_of_all_its_inputs() -> None:
    assert {name: sorted(_named(name).sources) for name in ("l", "pairs", "twice", "counts")} == {
        "l": ["l"],
        "pairs": ["l", "r"],
        "twice": ["l", "r"],
        "counts": ["x"],
    }


def test_only_an_input_table_has_a_definition() -> None:
    assert (_named("l").is_source, _named("l").table) == (True, None)
    assert (_named("pairs").is_source, _named("pairs").table) == (False, PAIRS)


def test_a_source_is_always_readable_and_a_missing_table_is_not(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert [_named(name).is_readable(lake) for name in ("l", "pairs")] == [True, False]
    assert [_named(name).identity(lake) for name in ("l", "pairs")] == [None, None]
    assert [_named(name).last_step(lake) for name in ("l", "pairs")] == [None, 0]
    assert [_named(name).step_id(lake, 1) for name in ("l", "pairs")] == [None, None]


def test_readers_of_a_source_use_its_watermark() -> None:
    history = History.of(watermark_batches({"l": 5}, {"l": "idle"}))
    assert _named("l").timeline(history, NOTHING, _no_timeline) == Timeline((None, 5, 5), (False, False, True))


@pytest.mark.parametrize(("kind", "is_idle"), [("inactive", True), ("silent", False)])
def test_readers_of_a_table_use_its_watermark_less_its_delay(kind: Kind, is_idle: bool) -> None:
    idle = tuple(source_batch(name, 2, kind=kind, watermark=watermark, idle=True) for name, watermark in (("l", 5), ("r", 7)))
    history = History.of([*watermark_batches({"l": 5, "r": 7}), idle])
    own = Timeline((None, 5, 5), (False, False, True))
    assert _named("pairs").timeline(history, NOTHING, lambda _: own) == Timeline((None, 4, 4), (False, False, is_idle))


def _no_timeline(_: DerivedAsset) -> Timeline:
    raise AssertionError("a source needs no operator's timeline")
