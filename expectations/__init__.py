"""Asset checks: Great Expectations suites of event logs and tables, and the checks of upserted tables."""

from dataclasses import dataclass

import dagster as dg

from expectations.deferred_imports import deferred

with deferred(
    "altair", "scipy.stats"
):  # for charts and statistical tests; without them great_expectations is imported in two thirds of the time
    from great_expectations import ExpectationSuite

from assets.contracts import DerivedAsset
from assets.factories.keys import event_key
from assets.factories.work import Worker
from assets.pipeline import Pipeline
from expectations.checks import suite_checks
from expectations.leaderboards import leaderboard_checks
from expectations.suite_columns import check_suite_columns
from operators.columns import FINAL_AT

__all__ = ["TableSuite", "leaderboard_checks", "suite_and_table_checks", "suite_checks", "table_suites"]


@dataclass(frozen=True)
class TableSuite:
    """A suite, and the table whose rows it checks.

    Args:
        key: the asset.
        table: its table, as `engine.views.table` names it.
        suite: the expectations.
        day_column: the timestamp of which a run over partitions checks only the rows of its days (UTC); None if there is none.
        source: the source whose event log the table is; its expectations of single rows are then checked on the rows of new batches only,
            except in the job `full_checks`.
        result_delay_ms: the longest time after its `result_time` at which a row becomes final, in ms.
    """

    key: dg.AssetKey
    table: str
    suite: ExpectationSuite
    day_column: str | None = None
    source: str | None = None
    result_delay_ms: int = 0

    def checks(self, worker: Worker | None = None) -> dg.AssetChecksDefinition:
        """The suite as checks of the asset; see `suite_checks`."""
        return suite_checks(
            self.key,
            self.table,
            self.suite,
            day_column=self.day_column,
            result_delay_ms=self.result_delay_ms,
            source=self.source,
            worker=worker,
        )


def table_suites(pipeline: Pipeline) -> list[TableSuite]:
    """The suites of a pipeline: of event logs, then of tables, in the pipeline's order.

    Raises:
        ContractError: a suite has the name of no source or table, or an expectation names a column that its source or table does not have.
    """
    suites = pipeline.suites_by_name()
    check_suite_columns(pipeline, suites)
    logs = [TableSuite(event_key(s.name), s.log, suites[s.name], source=s.name) for s in pipeline.sources if s.name in suites]
    return [*logs, *(_suite_of_table(table, suites[table.name]) for table in pipeline.tables if table.name in suites)]


def _suite_of_table(table: DerivedAsset, suite: ExpectationSuite) -> TableSuite:
    reads = table.operator.reads
    day_column = FINAL_AT if reads.closes_ranges else None
    return TableSuite(dg.AssetKey(table.name), table.name, suite, day_column, result_delay_ms=reads.watermark_delay)


def suite_and_table_checks(pipeline: Pipeline, worker: Worker | None = None) -> list[dg.AssetChecksDefinition]:
    """The suites of a pipeline, and the checks of its upserted tables.

    Args:
        pipeline: the pipeline.
        worker: evaluates the checks; None if each step evaluates its own.
    """
    upserted = [table for table in pipeline.tables if not table.operator.reads.closes_ranges]
    return [*(suite.checks(worker) for suite in table_suites(pipeline)), *(leaderboard_checks(table, worker) for table in upserted)]
