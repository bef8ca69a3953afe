"""Micro-batches of one shape reuse the code that Spark generates. The module runs compiled plans: interpreted plans generate no code."""

import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeEngine
from tests.support.small_sources import Event, join, land, source

pytestmark = pytest.mark.compiled


def test_micro_batches_of_one_shape_reuse_generated_code(make_engine: MakeEngine, spark: SparkSession) -> None:
    """The batch number, the clock and the range of times must not change the code that Spark generates, or each batch compiles it again."""
    assert spark.conf.get("spark.sql.codegen.wholeStage", "true") == "true", "interpreted plans generate no code"
    engine = make_engine(
        [source("a", unique_key=("k",), future_skew="24 hours"), source("b", unique_key=("k",))], [join("wide", ("a", "b"))]
    )
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    new = []
    for n in range(6):
        before = compiled.getCount()
        for name in ("a", "b"):
            land(engine, name, f"{n}.jsonl", [Event(f"{n}{i}", 1, 10 * n + i).line for i in range(3)])
        engine.ingest()
        for step in engine.advance("wide"):
            engine.accounts.step("wide", step)
        new.append(compiled.getCount() - before)
    assert min(new[3:]) <= 2, new
