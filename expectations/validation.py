"""Runs a suite on a Spark frame, and returns a finding for each expectation.

One query evaluates all expectations that can be counted together (see `one_pass`). The others, and the sample rows of those that fail,
come from Great Expectations. It runs in memory here: no files, no telemetry, no progress bars. Its Spark datasource caches the frame
by default and never frees it, so caching is off; without a cache, a scan reads only the columns that it needs. Its first validation asks
only for counts, which are aggregates that share their scans. Failed expectations are run again for sample rows. (Asking
for samples in the first validation costs one or two Spark jobs for each expectation.)
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import great_expectations as gx
from great_expectations.core import ExpectationValidationResult
from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults, ProgressBarsConfig
from great_expectations.datasource.fluent.interfaces import Batch
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import DataFrame

from expectations import one_pass
from expectations.finding import Finding, check_name


def validate(frame: DataFrame, expectations: Sequence[Expectation], sample: int = 10) -> dict[str, Finding]:
    """Run expectations on a frame.

    Args:
        frame: a static Spark frame.
        expectations: the expectations, of one suite or a part of it; their names differ.
        sample: how many unexpected rows to show for each that fails.

    Returns:
        The findings, by check name.
    """
    findings = one_pass.evaluate(frame, expectations)
    batch = cache(partial(batch_of, frame))  # a data context takes longer than the one query, so it is made only if it is needed
    remaining = [e for e in expectations if check_name(e) not in findings]
    if remaining:
        findings |= run(batch(), remaining, {"partial_unexpected_count": 0})
    failed = [e for e in expectations if not findings[check_name(e)].passed and findings[check_name(e)].unexpected]
    if failed and sample:
        findings |= run(batch(), failed, {"partial_unexpected_count": sample, "include_unexpected_rows": True})
    return {name: findings[name] for name in map(check_name, expectations)}


def batch_of(frame: DataFrame) -> Batch:
    """A frame as a batch of Great Expectations, in a data context of its own."""
    config = DataContextConfig(
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
        store_backend_defaults=InMemoryStoreBackendDefaults(),
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("frame")
    return asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": frame})


def run(batch: Batch, expectations: Sequence[Expectation], result_format: dict[str, Any]) -> dict[str, Finding]:
    """Run expectations in Great Expectations; returns the findings, by check name."""
    named = [e.copy(update={"meta": {"check": check_name(e)}}) for e in expectations]
    result = batch.validate(
        gx.ExpectationSuite(name="suite", expectations=named), result_format={"result_format": "BASIC", **result_format}
    )
    return {r.expectation_config.meta["check"]: _finding(r) for r in result.results if r.expectation_config}


def _finding(result: ExpectationValidationResult) -> Finding:
    values = result.result
    return Finding(
        passed=bool(result.success),
        evaluated=values.get("element_count"),
        unexpected=values.get("unexpected_count") or 0,
        percent=values.get("unexpected_percent") or 0.0,
        observed=values.get("observed_value"),
        sample=tuple(values.get("unexpected_rows") or ()),
        error=_error(result.exception_info or {}),
    )


def _error(info: Mapping[str, Any]) -> str | None:
    """The messages of the errors: one, or one for each metric that could not be computed."""
    raised = [info] if "raised_exception" in info else [i for i in info.values() if isinstance(i, Mapping)]
    messages = dict.fromkeys(str(i.get("exception_message")) for i in raised if i.get("raised_exception"))
    return "; ".join(messages) or None
