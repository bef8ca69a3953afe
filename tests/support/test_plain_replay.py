"""The rows and batches that a plain replay writes are those of the engine's own replay."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from assets.contracts import Punctuated, RowRule
from platform_defs.engine import Engine
from platform_defs.engine.ingest.uncommitted import ATTEMPT
from tests.conftest import engine_maker
from tests.support.clock import Clock
from tests.support.plain_replay import Row, is_plain, plain_replay
from tests.support.small_sources import DAY, MINUTE, START, replay_as_text, rows_of, source

ROWS: dict[str, list[Row]] = {
    "l": [("a", 1, START, 0, 0), (None, -2, START + DAY + 7, 0, 1), ("b", 3, START - 1, 2, 0)],
    "r": [("x" * 50, 4, START + MINUTE, 2, 0)],
    "s": [],
}
MARKS: list[dict[str, int]] = [{}, {"l": START + DAY, "s": START}, {}, {"l": START, "r": START}]


def _content(engine: Engine) -> dict[str, Any]:
    """The rows of the logs, the statistics and the metadata of their newest commits, and the ledger."""
    found: dict[str, Any] = {"ledger": [*engine.ledger.batches()]}
    for log in ("events/l", "events/r"):
        delta, newest = engine.lake.delta(log), engine.lake.newest_commit(log, ATTEMPT)
        assert delta is not None
        assert newest is not None
        files = pa.table(delta.get_add_actions(flatten=True))
        statistics = files.drop_columns(["path", "size_bytes", "modification_time"]).to_pylist()
        found[log] = (rows_of(engine.views.table(log)), statistics, newest.value, newest.rows)
    return found


def test_a_plain_replay_writes_what_the_engines_own_writes(spark: SparkSession, tmp_path: Path):
    sources = [source("l", unique_key=("k", "v")), source("r"), source("s")]
    plain, real = (engine_maker(spark, tmp_path / name, Clock())(sources, []) for name in ("plain", "real"))
    for _ in range(2):
        plain_replay(plain, ROWS, MARKS)
        replay_as_text(real, ROWS, MARKS)
    assert _content(plain) == _content(real)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "k string, v int, ts timestamp, w int"},
        {"schema": "k string NOT NULL, v int, ts timestamp"},
        {"rules": (RowRule("v", "v > 1"),)},
        {"future_skew": "1 hour"},
        {"event_time": "ingested_at"},
        {"watermark": Punctuated("ts")},
    ],
    ids=str,
)
def test_rows_of_a_contract_that_may_reject_or_change_them_are_replayed_by_the_engine(changes: dict[str, Any]):
    assert is_plain(source("l"))
    assert not is_plain(source("l", **changes))
