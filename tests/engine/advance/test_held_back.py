"""The source that holds back the watermark of a table. No test starts Spark."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assets.contracts import DerivedAsset
from operators import Tumbling, WindowedAggregate
from platform_defs.engine.advance.held_back import HoldingSource, find_holding_source
from tests.support.bare_lake import bare_engine, commit_batch
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, MINUTE, START, join, source

SOURCES = [source("l"), source("r"), source("other")]
COUNTS = WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates={"rows": "count(*)"})
TABLES = [
    join(),
    join("of_pairs", ("pairs", "other"), left_prefix="pair_", right_prefix="other_"),
    DerivedAsset(name="counts", inputs=("l",), operator=COUNTS),
]


@dataclass(frozen=True)
class Case:
    id: str
    marks: dict[str, dict[str, Any]]
    table: str
    expected: HoldingSource | None


IDLE = {"kind": "inactive", "idle": True}
SILENT = {"kind": "silent", "idle": True}
CASES = [
    Case("before the first batch", {}, "pairs", None),
    Case("the slower of two", {"l": {"watermark": START + HOUR}, "r": {"watermark": START}}, "pairs", HoldingSource("r", HOUR)),
    Case("a source without a watermark", {"l": {"watermark": START}}, "pairs", HoldingSource("r", None)),
    Case("equal watermarks", {"l": {"watermark": START}, "r": {"watermark": START}}, "pairs", HoldingSource("l", 0)),
    Case("the slower one is idle", {"l": {"watermark": START + HOUR}, "r": {"watermark": START, **IDLE}}, "pairs", None),
    Case("only one source", {"l": {"watermark": START}}, "counts", None),
    Case(
        "through a table, whose delay counts",
        {"l": {"watermark": START + HOUR}, "r": {"watermark": START}, "other": {"watermark": START + HOUR}},
        "of_pairs",
        HoldingSource("r", HOUR),
    ),
    Case(
        "a table whose sources are all idle holds back nothing",
        {"l": {"watermark": START, **IDLE}, "r": {"watermark": START + MINUTE, **IDLE}, "other": {"watermark": START + 2 * HOUR}},
        "of_pairs",
        None,
    ),
    Case(
        "a table whose sources an earlier version recorded as idle holds back its reader",
        {"l": {"watermark": START, **SILENT}, "r": {"watermark": START + MINUTE, **SILENT}, "other": {"watermark": START + 2 * HOUR}},
        "of_pairs",
        HoldingSource("l", MINUTE),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_source_that_holds_back_a_table(tmp_path: Path, clock: Clock, case: Case) -> None:
    engine = bare_engine(tmp_path, clock, SOURCES, TABLES)
    if case.marks:
        commit_batch(engine, case.marks)
    assert find_holding_source(engine.freshness.workspace, case.table) == case.expected
