"""Micro-batches of one shape reuse the code that Spark generates. The module runs compiled plans: interpreted plans generate no code."""

import pytest
from pyspark.sql import SparkSession

from assets.contracts import RowRule
from platform_defs.engine.lake import small_queries
from tests.conftest import MakeEngine
from tests.support.small_sources import Event, join, land, source

pytestmark = pytest.mark.compiled


def test_an_expression_that_raises_an_error_rejects_its_row_in_generated_code_too(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark computes a part that several expressions share once, before all of them, unless it is below a condition in each."""
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", -1)
    rule = RowRule("recent", "to_timestamp(k) > '2020-01-01' and to_timestamp(k) < '2030-01-01'", "warn")
    twice = "greatest(to_timestamp(k), to_timestamp(k) - interval 1 day)"
    engine = make_engine([source("a", event_time=twice, rules=(rule,)), source("b", rules=(rule,))], [])
    for name in ("a", "b"):
        land(engine, name, "1.jsonl", [Event(k, 1, 0).line for k in ("2026-03-01 00:00:00", "hello", "2019-01-01 00:00:00")])
    [batch] = engine.ingest()
    assert [(s.source, s.accepted, s.quarantined, s.warned) for s in batch] == [("a", 2, 1, 1), ("b", 3, 0, 2)]


def test_micro_batches_of_one_shape_reuse_generated_code(make_engine: MakeEngine, spark: SparkSession) -> None:
    """The batch number, the clock and the range of times must not change the code that Spark generates, or each batch compiles it again."""
    assert spark.conf.get("spark.sql.codegen.wholeStage", "true") == "true", "interpreted plans generate no code"
    engine = make_engine(
        [source("a", unique_key=("k",), future_skew="24 hours"), source("b", unique_key=("k",))], [join("wide", ("a", "b"))]
    )
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    new = []
    for n in range(5):
        before = compiled.getCount()
        for name in ("a", "b"):
            land(engine, name, f"{n}.jsonl", [Event(f"{n}{i}", 1, 10 * n + i).line for i in range(3)])
        engine.ingest()
        for step in engine.advance("wide"):
            engine.accounts.step("wide", step)
        new.append(compiled.getCount() - before)
    assert min(new[2:]) <= 2, new
