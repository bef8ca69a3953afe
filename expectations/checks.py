"""The factory from a suite to Dagster asset checks: one check for each expectation, and one validation for all of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg
from great_expectations import ExpectationSuite
from great_expectations.expectations.expectation import Expectation
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampType

from assets.factories.keys import check_step_name
from assets.factories.partitions import Days
from assets.factories.pool import SPARK
from assets.factories.sentences import from_to
from assets.factories.work import RunDetails, Worker
from assets.ports import EnginePort, LogPort
from expectations.completeness import checked_days, with_late_rows
from expectations.finding import Finding, Row, check_name, expectations_by_name
from expectations.new_rows import CHECKED, FULL, expectation_values, passed_batches, passed_record, select_row_checks
from expectations.validation import validate
from operators.columns import RESULT_TIME

NO_TABLE = frozenset(
    {"PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_MISSING_DELTA_TABLE"}
)
"""Spark's error conditions for a table that does not exist yet."""


def suite_checks(
    asset_key: dg.AssetKey,
    table: str,
    suite: ExpectationSuite,
    *,
    day_column: str | None = None,
    result_delay_ms: int = 0,
    source: str | None = None,
    sample: int = 10,
    blocking: bool = False,
    worker: Worker | None = None,
) -> dg.AssetChecksDefinition:
    """Turn a suite into the checks of an asset.

    Each expectation is a check of its own, named by its `meta["check"]`. A failed check shows how many rows fail and some of them. The
    failure is an error if the expectation is critical or could not be evaluated, else a warning. A table that does not exist yet passes.

    Args:
        asset_key: the asset.
        table: its table, as `engine.views.table` names it.
        suite: the expectations; their names differ.
        day_column: a timestamp column; a run over partitions checks the rows of its days (UTC) only.
        result_delay_ms: the longest time from `result_time` to `day_column`, in ms. If it is more than 1 ms, a run over partitions counts
            joined rows on earlier days, see `ExpectRowsToBeJoinedOnEachDay`.
        source: the source whose event log the table is; single rows are checked in new batches only, see `expectations.new_rows`.
        sample: how many failing rows to show.
        blocking: whether a failed critical expectation blocks downstream assets in the same run.
        worker: evaluates the suite; None for the step itself.

    Raises:
        ContractError: two expectations have the same name.
    """
    expectations = expectations_by_name(suite)
    specs = [_spec(asset_key, name, e, blocking) for name, e in expectations.items()]

    suite_name = check_step_name(asset_key.path[-1], "suite")

    def evaluate(names: Sequence[str], engine: EnginePort, run: RunDetails) -> Findings | None:
        selected = [expectations[name] for name in names]
        if source is None:
            days = run.days if day_column else None
            return findings(engine, table, selected, day_column=day_column, result_delay_ms=result_delay_ms, days=days, sample=sample)
        is_full = FULL in run.tags
        passed_before = (lambda expectations_of_rows, log: {}) if is_full else partial(passed_batches, run.instance, asset_key)
        return log_findings(engine, source, selected, passed_before, sample=sample)

    if worker is not None:
        worker.add(suite_name, [table], partial(evaluate, [*expectations]))

    @dg.multi_asset_check(name=suite_name, specs=specs, can_subset=True, compute_kind="greatexpectations", pool=SPARK)
    def checks(context: dg.AssetCheckExecutionContext, engine: dg.ResourceParam[EnginePort]) -> Iterator[dg.AssetCheckResult]:
        selected = {name: e for name, e in expectations.items() if dg.AssetCheckKey(asset_key, name) in context.selected_asset_check_keys}
        run = RunDetails.of(context)
        days = run.days if day_column else None
        if worker is not None and len(selected) == len(expectations):
            outcome: Findings | None = worker.do(context, engine, suite_name)
        else:
            outcome = evaluate([*selected], engine, run)
        if outcome is None:
            yield from (_no_rows_result(asset_key, name, e) for name, e in selected.items())
            return
        for name, finding in outcome.by_check.items():
            checked = days and checked_days(selected[name], days, result_delay_ms)
            rows = {"days": from_to(*checked)} if checked else outcome.new_rows(selected[name])
            yield _check_result(asset_key, selected[name], finding, outcome, rows)

    return checks


@dataclass(frozen=True)
class Findings:
    """The findings of the expectations of a table.

    Args:
        by_check: the findings, by check name.
        schema: the table's schema.
        log: the event log whose new rows were checked; None for a table.
        starts: by name of each check of new rows, the batch after which rows were checked.
    """

    by_check: Mapping[str, Finding]
    schema: StructType
    log: LogPort | None = None
    starts: Mapping[str, int] = field(default_factory=dict)

    def new_rows(self, expectation: Expectation) -> dict[str, Any]:
        """The metadata of a check of new rows: the batches whose rows were checked, and the record of those that have passed."""
        name = check_name(expectation)
        if self.log is None or name not in self.starts:
            return {}
        start, head = self.starts[name], self.log.head
        batches = from_to(start + 1, head) if start < head else "none is new"
        return {"batches": batches, CHECKED: passed_record(expectation, self.log, head if self.by_check[name].passed else start)}


def findings(
    engine: EnginePort,
    table: str,
    expectations: Sequence[Expectation],
    *,
    day_column: str | None = None,
    result_delay_ms: int = 0,
    days: Days | None = None,
    sample: int = 10,
) -> Findings | None:
    """Run expectations on a table, without Dagster; None if the table does not exist yet.

    The arguments are those of `suite_checks`, and `days`: the first and the last day of the run, None for all rows.
    """
    frame = _table(engine, table)
    if frame is None:
        return None
    by_days: dict[Days | None, list[Expectation]] = {}
    for expectation in expectations:
        checked = checked_days(expectation, days, result_delay_ms) if day_column and days else None
        by_days.setdefault(checked, []).append(expectation)
    by_check = dict[str, Finding]()
    with engine.views.naming_lost_files():
        for checked, selected in by_days.items():
            column = day_column if checked == days else RESULT_TIME
            rows = frame.where(_is_in_days(column, checked)) if column and checked else frame
            found = validate(rows, with_late_rows(selected, engine, table, checked), sample)
            if any(finding.error for finding in found.values()):  # Great Expectations does not raise Spark's errors; a second read does
                rows.write.format("noop").mode("overwrite").save()
            by_check |= found
    return Findings({name: by_check[name] for name in map(check_name, expectations)}, frame.schema)


def log_findings(
    engine: EnginePort,
    source: str,
    expectations: Sequence[Expectation],
    passed_before: Callable[[Sequence[Expectation], LogPort], Mapping[str, int]],
    *,
    sample: int = 10,
) -> Findings | None:
    """Run expectations on a source's event log, those of single rows on the rows that have not passed yet; None if there is no log yet.

    Args:
        engine: the engine.
        source: the source.
        expectations: the expectations, whose names differ.
        passed_before: returns the last batch up to which the rows of a log have passed, by check name; 0 or nothing for none.
        sample: how many failing rows to show.
    """
    log = engine.views.log(source)
    if log is None:
        return None
    row_checks = select_row_checks(expectations, log.schema)
    passed_by_check = passed_before(row_checks, log)
    starts = {check_name(e): passed_by_check.get(check_name(e), 0) for e in row_checks}
    by_check: dict[str, Finding] = {}
    with engine.views.naming_lost_files():
        for start in {starts.get(check_name(e), 0) for e in expectations}:  # a check that keeps failing starts earlier than the others
            by_check |= validate(log.rows(start), [e for e in expectations if starts.get(check_name(e), 0) == start], sample)
        if any(finding.error for finding in by_check.values()):  # Great Expectations does not raise Spark's errors; a second read does
            log.rows(0).write.format("noop").mode("overwrite").save()
    return Findings({name: by_check[name] for name in map(check_name, expectations)}, log.schema, log, starts)


def _spec(asset_key: dg.AssetKey, name: str, expectation: Expectation, blocking: bool) -> dg.AssetCheckSpec:
    critical = _severity(expectation) is dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckSpec(name, asset=asset_key, description=expectation.description, blocking=blocking and critical)


def _severity(expectation: Expectation) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if expectation.severity == "critical" else dg.AssetCheckSeverity.WARN


def _table(engine: EnginePort, table: str) -> DataFrame | None:
    """The table, or None if it does not exist yet."""
    try:
        frame = engine.views.table(table)
        _ = frame.schema  # a Spark Connect session raises only here
    except AnalysisException as error:
        if error.getCondition() in NO_TABLE:
            return None
        raise
    return frame


def _is_in_days(column: str, days: Days) -> Any:
    first, end = (datetime(d.year, d.month, d.day, tzinfo=UTC) for d in (days[0], days[1] + timedelta(days=1)))
    return (F.col(column) >= F.lit(first)) & (F.col(column) < F.lit(end))


def _no_rows_result(asset_key: dg.AssetKey, name: str, expectation: Expectation) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset_key,
        check_name=name,
        passed=True,
        severity=_severity(expectation),
        description="no rows yet",
        metadata={"note": "no rows yet"},
    )


def _check_result(
    asset_key: dg.AssetKey, expectation: Expectation, finding: Finding, outcome: Findings, rows: Mapping[str, Any]
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset_key,
        check_name=check_name(expectation),
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.ERROR if finding.error else _severity(expectation),
        description=finding.description,
        metadata={**_metadata(expectation, finding, outcome.schema), **rows},
    )


def _metadata(expectation: Expectation, finding: Finding, schema: StructType) -> dict[str, Any]:
    metadata: dict[str, Any] = {"expectation": dg.MetadataValue.json(expectation_values(expectation))}
    if finding.evaluated is not None:
        metadata |= {"evaluated_rows": finding.evaluated, "unexpected_count": finding.unexpected, "unexpected_percent": finding.percent}
    if finding.error:
        metadata["error"] = finding.error
    elif finding.evaluated is None and finding.observed is not None:
        metadata["observed"] = str(finding.observed)
    if finding.sample:
        metadata["failing_rows"] = _failing_rows(finding.sample, schema)
    return metadata


def _failing_rows(rows: Sequence[Row], schema: StructType) -> dg.TableMetadataValue:
    columns = [dg.TableColumn(field.name, field.dataType.simpleString()) for field in schema.fields]
    records = [dg.TableRecord({f.name: _plain(row[f.name], f.dataType) for f in schema.fields}) for row in rows]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _plain(value: Any, kind: DataType) -> str | int | float | bool | None:
    """A value in a form that the UI's table accepts; PySpark returns timestamps as naive datetimes in the local time zone."""
    if isinstance(value, datetime) and isinstance(kind, TimestampType):
        return value.astimezone(UTC).isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
