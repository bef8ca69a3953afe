"""Checks that the columns and inputs which expectations name exist, before a check runs on rows."""

from collections.abc import Iterator, Sequence

from great_expectations import ExpectationSuite
from great_expectations.expectations.expectation import Expectation

from assets.contract_checks import ENGINE_COLUMNS, ContractError
from assets.expressions import check_columns_exist
from assets.factories.closed_range_table import EVENT_TIMES_IN_PARTITIONS, FINALIZED
from assets.factories.conservation_law import LAW
from assets.factories.join_completeness import COMPLETENESS
from assets.factories.upserted_table import PROMISE
from assets.pipeline import FRESH, Pipeline, Suites
from expectations.completeness import ExpectRowsToBeJoinedOnEachDay
from expectations.finding import check_name, expectations_by_name
from expectations.leaderboards import AT_MOST_N, FOLDS, GAPS
from operators.accounting import ReportsMatches

_ONE_COLUMN, _COLUMNS = ("column", "column_A", "column_B", "side_column", "day_column"), "column_list"
_OF_CLOSED_RANGES, _OF_UPSERTED = (LAW, EVENT_TIMES_IN_PARTITIONS, FINALIZED, COMPLETENESS), (LAW, PROMISE, FOLDS, GAPS, AT_MOST_N)
"""The names that are reserved for the checks that a table may have without a suite."""
_MAY_BE_ABSENT = "expect_column_to_exist"


def check_suite_columns(pipeline: Pipeline, suites: Suites) -> None:
    """Raise if an expectation names a column that its source or table does not have, as far as its columns are known without rows.

    Raise too if an expectation counts the late rows of an input that the table does not have, or of a table that is no join, if two
    expectations of a suite have the same name, or if one has a reserved name.

    Args:
        pipeline: the pipeline.
        suites: its suites, by the name of a source or table.

    Raises:
        ContractError: the message names the table, the check, the column and the most similar one, or the inputs; or suite and name.
    """
    for name, suite in suites.items():
        if not isinstance(suite, ExpectationSuite):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ContractError.bad_value("suites", suite, f"an ExpectationSuite for {name!r}")
        _check_names(pipeline, name, suite)
        _check_sides(pipeline, name, suite)
    tables = pipeline.columns_of_tables()
    for name, suite in suites.items():
        source = pipeline.sources_by_name.get(name)
        if source is None and name in tables:
            _check(suite, tables[name], f"table {name!r}", ())
        elif source is not None and source.new_columns != "add":  # the files may have added the column
            _check(suite, source.struct.fieldNames(), f"source {name!r}", ENGINE_COLUMNS)


def _check_names(pipeline: Pipeline, name: str, suite: ExpectationSuite) -> None:
    """Raise if an expectation of a table has a name that is reserved for the checks that Tidemark makes."""
    table, names = pipeline.tables_by_name.get(name), expectations_by_name(suite)
    if table is None:
        return
    own_names = _OF_CLOSED_RANGES if table.operator.reads.closes_ranges else _OF_UPSERTED
    own_names = own_names if pipeline.freshness_of(name) is None else (*own_names, FRESH)
    if taken := [check for check in names if check in own_names]:
        legal = f"a name other than {', '.join(own_names)}, which Tidemark reserves for its own checks"
        raise ContractError(f"suite {suite.name!r}: the name of the check is {taken[0]!r}; legal: {legal}")


def _check_sides(pipeline: Pipeline, name: str, suite: ExpectationSuite) -> None:
    """Raise unless each `side` of an expectation is an input of the join whose suite it is in."""
    table = pipeline.tables_by_name.get(name)
    joined = table.inputs if table is not None and isinstance(table.operator, ReportsMatches) else ()
    sides = [side for n, side in enumerate(joined) if table is not None and not table.operator.reads.is_versioned(n)]
    for expectation in suite.expectations:
        if isinstance(expectation, ExpectRowsToBeJoinedOnEachDay) and expectation.side is not None and expectation.side not in sides:
            legal = f"an input of {name!r}: {', '.join(sides)}" if sides else f"no `side`, since {name!r} is not the table of a join"
            raise ContractError(f"check {check_name(expectation)!r}: side={expectation.side!r}; legal: {legal}")


def _check(suite: ExpectationSuite, columns: Sequence[str], owner: str, engine_columns: Sequence[str]) -> None:
    for expectation in suite.expectations:
        try:
            check_columns_exist("column", _named_columns(expectation), columns, owner, engine_columns)
        except ContractError as error:
            raise ContractError(f"check {check_name(expectation)!r}: {error}") from error


def _named_columns(expectation: Expectation) -> Iterator[str]:
    """The columns that an expectation names; for a field of a struct, such as `address.city`, the struct."""
    config = expectation.configuration
    if config.type == _MAY_BE_ABSENT:
        return
    for name in (*(config.kwargs.get(key) for key in _ONE_COLUMN), *(config.kwargs.get(_COLUMNS) or ())):
        if isinstance(name, str):
            yield name.partition(".")[0].strip("`")
