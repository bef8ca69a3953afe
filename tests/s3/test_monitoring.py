"""Metrics and recorded failures of a lake in S3. No test starts Spark."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from platform_defs.engine import Engine
from platform_defs.engine.lake.reads import ReadTables
from platform_defs.engine.lake.tables import Lake
from platform_defs.monitoring.lake_metrics import LakeMetrics
from tests.support.bare_lake import bare_engine_on, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, START, join, source

pytestmark = pytest.mark.s3


@pytest.fixture
def engine(lake: Lake) -> Engine:
    made = bare_engine_on(lake, Clock(), [source("l"), source("r")], [join()])
    commit_batch(made, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(made, "pairs", closed_to=START)
    return made


def test_a_failure_is_kept_in_the_store(engine: Engine) -> None:
    with pytest.raises(AssertionError, match="a session is started"):
        engine.advance("pairs")
    failure = engine.failures.of("pairs")
    assert failure is not None
    assert (failure.error, failure.position) == ("AssertionError", "0:1")
    commit_step(engine, "pairs", closed_to=START + HOUR)
    assert engine.failures.of("pairs") is None


def test_a_scrape_reads_the_store_and_opens_no_table_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeMetrics(engine))
    assert 'tidemark_table_steps_total{table="pairs"} 1.0' in generate_latest(registry).decode()
    opened, open_table = list[str](), ReadTables.delta
    monkeypatch.setattr(ReadTables, "delta", lambda lake, table: opened.append(table) or open_table(lake, table))
    commit_step(engine, "pairs", closed_to=START)
    opened.clear()
    text = generate_latest(registry).decode()
    assert 'tidemark_table_steps_total{table="pairs"} 2.0' in text
    assert "tidemark_up 1.0" in text
    assert {*opened} <= {"events/l", "events/r"}, "the event logs do not exist, so no opened table can be kept"
