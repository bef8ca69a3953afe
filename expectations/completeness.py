"""An expectation of Great Expectations on the rows of an outer join: the share of rows that have a partner, on each day."""

from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.validator.metric_configuration import MetricConfiguration
from pyspark.sql import functions as F

from operators.columns import RESULT_TIME

_METRIC = "table.joined_rows_by_day"


class JoinedRowsByDay(TableMetricProvider):
    """The number of rows, and of those with a partner, by UTC day: `{"2026-03-01": [10, 9]}`; rows without a time are left out."""

    metric_name = _METRIC
    value_keys = ("column", "side_column", "day_column")

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805  # Great Expectations makes it a class method
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> dict[str, list[int]]:
        rows, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, MetricDomainTypes.TABLE)
        column, side, day = (metric_value_kwargs[key] for key in ("column", "side_column", "day_column"))
        rows_of_side = rows if side is None else rows.where(F.col(f"`{side}`").isNotNull())
        by_day = rows_of_side.groupBy(F.col(f"`{day}`").cast("date").alias("day")).agg(F.count("*"), F.count(F.col(f"`{column}`")))
        return {str(date): [count, joined] for date, count, joined in by_day.where("day IS NOT NULL").collect()}


class ExpectRowsToBeJoinedOnEachDay(BatchExpectation):
    """Expect that on each day at least a share of the rows of one side of an outer join has a partner on the other side.

    It reads a table that keeps the unmatched rows of the side: a `left` or `full` join for the left side. Unlike the check
    `join_completeness`, it can be in any suite, and knows no late rows. A table without rows passes.

    Args:
        column: a column of the other side that is null in unmatched rows only, such as `payment_seq`.
        side_column: a column of the side itself that is null in unmatched rows of the other side only; None if the table has none of those.
        day_column: the timestamp by whose UTC day rows are counted.
        mostly: the least share of rows with a partner, on each day, from 0 to 1.

    Returns:
        `observed_value` is the least share of all days; `details` has the share of each day, and the days below `mostly`.

    Example:
        ```python
        ExpectRowsToBeJoinedOnEachDay(column="payment_seq", side_column="order_seq", mostly=0.9)
        ```
    """

    column: str
    side_column: str | None = None
    day_column: str = RESULT_TIME
    mostly: float = 1.0

    metric_dependencies: ClassVar[tuple[str, ...]] = (_METRIC,)
    success_keys: ClassVar[tuple[str, ...]] = ("column", "side_column", "day_column", "mostly")
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id",)

    def get_validation_dependencies(
        self, execution_engine: ExecutionEngine | None = None, runtime_configuration: dict[str, Any] | None = None
    ) -> Any:
        """The metric, with the columns that it reads."""
        dependencies = super().get_validation_dependencies(execution_engine, runtime_configuration)
        values = {"column": self.column, "side_column": self.side_column, "day_column": self.day_column}
        domain = dependencies.metric_configurations[_METRIC].metric_domain_kwargs
        dependencies.set_metric_configuration(
            _METRIC, MetricConfiguration(_METRIC, metric_domain_kwargs=domain, metric_value_kwargs=values)
        )
        return dependencies

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine | None = None,
    ) -> dict[str, Any]:
        shares = {day: joined / rows for day, (rows, joined) in sorted(metrics[_METRIC].items())}
        below = [day for day, share in shares.items() if share < self.mostly]
        worst = min(shares.values(), default=1.0)
        return {"success": not below, "result": {"observed_value": worst, "details": {"shares": shares, "days_below": below}}}
