"""Runs a suite on a Spark frame, and returns a finding for each expectation.

Great Expectations runs in memory here: no files, no telemetry, no progress bars. Its Spark datasource caches the frame
by default and never frees it, so caching is off: a scan reads only the columns it needs. The first validation asks
only for counts, which are aggregates that share their scans. Failed expectations are run again for sample rows. (Asking
for samples in the first validation costs one or two Spark jobs for each expectation, and makes a passing suite two to
three times slower.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import great_expectations as gx
from great_expectations.core import ExpectationValidationResult
from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults, ProgressBarsConfig
from great_expectations.datasource.fluent.interfaces import Batch
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import DataFrame

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one expectation.

    Args:
        passed: whether the data is as expected.
        evaluated: the number of evaluated rows; None for an expectation that counts no rows.
        unexpected: the number of these rows that are not as expected.
        percent: their share of the rows that are not null, in percent.
        observed: the value that an expectation on the whole table observed.
        sample: some of the unexpected rows.
        error: why it could not be evaluated.
    """

    passed: bool
    evaluated: int | None = None
    unexpected: int = 0
    percent: float = 0.0
    observed: Any = None
    sample: Sequence[Row] = field(default=(), repr=False)
    error: str | None = None


def check_name(expectation: Expectation) -> str:
    """The name of an expectation's check: `meta["check"]`, else its type and columns."""
    if expectation.meta and "check" in expectation.meta:
        return str(expectation.meta["check"])
    config = expectation.configuration
    columns = [config.kwargs[key] for key in ("column", "column_A", "column_B") if key in config.kwargs]
    return "_".join([config.type, *columns, *config.kwargs.get("column_list", [])])


def validate(frame: DataFrame, expectations: Sequence[Expectation], sample: int = 10) -> dict[str, Finding]:
    """Run expectations on a frame.

    Args:
        frame: a static Spark frame.
        expectations: the expectations, of one suite or a part of it; their names differ.
        sample: how many unexpected rows to show for each that fails.

    Returns:
        The findings, by check name.
    """
    batch = _batch(frame)
    found = _run(batch, expectations, {"partial_unexpected_count": 0})
    failed = [e for e in expectations if not found[check_name(e)].passed and found[check_name(e)].unexpected]
    if failed and sample:
        found |= _run(batch, failed, {"partial_unexpected_count": sample, "include_unexpected_rows": True})
    return found


def _batch(frame: DataFrame) -> Batch:
    config = DataContextConfig(
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
        store_backend_defaults=InMemoryStoreBackendDefaults(),
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("frame")
    return asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": frame})


def _run(batch: Batch, expectations: Sequence[Expectation], result_format: dict[str, Any]) -> dict[str, Finding]:
    named = [e.copy(update={"meta": {"check": check_name(e)}}) for e in expectations]
    result = batch.validate(
        gx.ExpectationSuite(name="suite", expectations=named), result_format={"result_format": "BASIC", **result_format}
    )
    return {r.expectation_config.meta["check"]: _finding(r) for r in result.results if r.expectation_config}


def _finding(result: ExpectationValidationResult) -> Finding:
    found = result.result
    return Finding(
        passed=bool(result.success),
        evaluated=found.get("element_count"),
        unexpected=found.get("unexpected_count") or 0,
        percent=found.get("unexpected_percent") or 0.0,
        observed=found.get("observed_value"),
        sample=tuple(found.get("unexpected_rows") or ()),
        error=_error(result.exception_info or {}),
    )


def _error(info: Mapping[str, Any]) -> str | None:
    """The messages of the errors: one, or one for each metric that could not be computed."""
    raised = [info] if "raised_exception" in info else [i for i in info.values() if isinstance(i, Mapping)]
    messages = dict.fromkeys(str(i.get("exception_message")) for i in raised if i.get("raised_exception"))
    return "; ".join(messages) or None
