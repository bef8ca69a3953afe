"""An expectation of Great Expectations on the rows of an outer join: the share of rows that have a partner, on each day."""

from collections.abc import Iterator, Sequence
from datetime import date
from functools import cache
from typing import Any, ClassVar

from great_expectations.compatibility.pydantic import validator  # pyright: ignore[reportPrivateImportUsage]
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, Expectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.validator.metric_configuration import MetricConfiguration
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from assets.days import read_day
from assets.factories.partitions import Days
from assets.ports import EnginePort
from operators.columns import RESULT_TIME, quoted_name
from operators.timing import DAY_MS

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
        rows_of_side = rows if side is None else rows.where(F.col(quoted_name(side)).isNotNull())
        by_day = rows_of_side.groupBy(_utc_day(rows, day).alias("day")).agg(F.count("*"), F.count(quoted_name(column)))
        return {str(date): [count, joined] for date, count, joined in by_day.where("day IS NOT NULL").collect()}


def _utc_day(rows: DataFrame, column: str) -> Column:
    """The UTC day of a column; a cast of a timestamp to a date would give the day in the session's time zone."""
    value = F.col(quoted_name(column))
    if not isinstance(rows.select(value).schema[0].dataType, TimestampType):
        return value.cast("date")
    return F.date_from_unix_date(F.floor(F.unix_seconds(value) / 86_400).cast("int"))


class ExpectRowsToBeJoinedOnEachDay(BatchExpectation):
    """Expect that on each day at least a share of the rows of one side of an outer join has a partner on the other side.

    It reads a table that keeps the unmatched rows of the side: a `left` or `full` join for the left side. The table does not
    contain late rows, so their number must be known: Tidemark counts them if `side` names an input of the table; else `late_rows` has it.
    For a warning and an error at different shares, use two expectations with different `severity`. A table without rows passes if there
    are no late rows.

    Args:
        column: a column of the other side that is null in unmatched rows only, such as `payment_seq`.
        side_column: a column of the side itself that is null in unmatched rows of the other side only; None if the table has no such rows.
        day_column: the timestamp by whose UTC day rows are counted.
        mostly: the least share of rows with a partner, on each day, from 0 to 1.
        side: the input of a table of Tidemark whose late rows count as rows without a partner, on the day of their event time; None to
            count no late rows. Tidemark replaces `late_rows` when it runs the suite, at the cost of an account of the table. Great
            Expectations alone does not count them.
        late_rows: the number of late rows by UTC day, as `{"2026-03-01": 3}`; they count as rows without a partner.
        only_days: the first and the last UTC day that are checked, as `["2026-03-01", "2026-03-02"]`; empty for all days. In a run over
            days Tidemark sets it, if `day_column` is `result_time`, to the days whose last rows become final on the run's days. These are
            the run's days if rows become final at most 1 ms after their `result_time`, and earlier days otherwise, as in an interval join
            with `result_time="left"`. With another `day_column`, each run checks all days.

    Returns:
        `observed_value` is the least share of all days; `details` has the share of each day, the late rows, and the days below `mostly`.

    Raises:
        ValidationError: `mostly` is not a share, or `late_rows` is not a mapping of days to numbers of rows.

    Example:
        ```python
        ExpectRowsToBeJoinedOnEachDay(column="payment_seq", side_column="order_seq", side="orders", mostly=0.9)
        ```
    """

    column: str
    side_column: str | None = None
    day_column: str = RESULT_TIME
    mostly: float = 1.0
    side: str | None = None
    late_rows: dict[str, int] = {}  # fields with defaults, which pydantic copies
    only_days: list[str] = []

    metric_dependencies: ClassVar[tuple[str, ...]] = (_METRIC,)
    success_keys: ClassVar[tuple[str, ...]] = ("column", "side_column", "day_column", "mostly", "side", "late_rows", "only_days")
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id",)

    @validator("mostly")
    def _is_share(cls, mostly: float) -> float:  # noqa: N805  # pydantic makes it a class method
        if not 0 <= mostly <= 1:
            raise ValueError(f"mostly={mostly}; legal: a share from 0 to 1")
        return mostly

    @validator("late_rows")
    def _are_numbers_by_day(cls, late_rows: dict[str, int]) -> dict[str, int]:  # noqa: N805  # pydantic makes it a class method
        for day, rows in late_rows.items():
            if read_day(day) is None or rows < 0:
                raise ValueError(f"late_rows={{{day!r}: {rows}}}; legal: numbers of rows by day, such as {{'2026-03-01': 3}}")
        return late_rows

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
        counts: dict[str, list[int]] = metrics[_METRIC]
        late = {day: rows for day, rows in self.late_rows.items() if rows and self._is_checked(day)}
        days = sorted({*filter(self._is_checked, counts), *late})
        by_day = {day: (*counts.get(day, (0, 0)), late.get(day, 0)) for day in days}
        shares = {day: joined / (rows + late_rows) for day, (rows, joined, late_rows) in by_day.items()}
        below = [day for day, share in shares.items() if share < self.mostly]
        worst = min(shares.values(), default=1.0)
        details = {"shares": shares, "late_rows": late, "days_below": below}
        return {"success": not below, "result": {"observed_value": worst, "details": details}}

    def _is_checked(self, day: str) -> bool:
        return not self.only_days or self.only_days[0] <= day <= self.only_days[-1]


def checked_days(expectation: Expectation, days: Days, result_delay_ms: int) -> Days | None:
    """The first and the last day that an expectation checks in a run over days; None if it checks all rows.

    Args:
        expectation: the expectation.
        days: the days of the run.
        result_delay_ms: the longest time after its `result_time` at which a row of the table becomes final, in ms.

    Returns:
        The run's days, of the time at which rows become final. For joined rows by day, the days of `result_time` whose last rows become
        final on the run's days; these are earlier days if rows become final more than 1 ms after their `result_time`.
    """
    if not isinstance(expectation, ExpectRowsToBeJoinedOnEachDay):
        return days
    if expectation.day_column != RESULT_TIME:
        return None
    earlier = -(-(result_delay_ms - 1) // DAY_MS)
    first, last = (date.fromordinal(max(1, day.toordinal() - earlier)) for day in days)
    return first, last


def with_late_rows(
    expectations: Sequence[Expectation], engine: EnginePort, table: str, days: tuple[date, date] | None
) -> list[Expectation]:
    """The expectations, with `only_days` and `late_rows` set in each `ExpectRowsToBeJoinedOnEachDay` (see there).

    Args:
        expectations: the expectations.
        engine: counts the late rows.
        table: the derived table.
        days: the first and the last day of `result_time` whose rows are checked; None for all.
    """
    matches = cache(lambda: engine.accounts.matches(table, days))

    def late_rows(side: str) -> Iterator[tuple[str, int]]:
        return ((match.day.isoformat(), match.late) for match in matches() if match.side == side and match.late)

    of_days = {"only_days": [day.isoformat() for day in days]} if days else {}

    def with_details(expectation: Expectation) -> Expectation:
        if not isinstance(expectation, ExpectRowsToBeJoinedOnEachDay):
            return expectation
        of_side = {"late_rows": dict(late_rows(expectation.side))} if expectation.side else {}
        return expectation.copy(update={**of_days, **of_side})

    return [*map(with_details, expectations)]
