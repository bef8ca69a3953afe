"""Checks that the columns which expectations name exist, before a check runs on rows."""

from collections.abc import Iterator, Sequence

from great_expectations import ExpectationSuite
from great_expectations.expectations.expectation import Expectation

from assets.contract_checks import ENGINE_COLUMNS, ContractError
from assets.expressions import check_columns_exist
from assets.pipeline import Pipeline, Suites
from expectations.finding import check_name

_ONE_COLUMN, _COLUMNS = ("column", "column_A", "column_B", "side_column", "day_column"), "column_list"
_MAY_BE_ABSENT = "expect_column_to_exist"


def check_suite_columns(pipeline: Pipeline, suites: Suites) -> None:
    """Raise if an expectation names a column that its source or table does not have, as far as its columns are known without rows.

    Args:
        pipeline: the pipeline.
        suites: its suites, by the name of a source or table.

    Raises:
        ContractError: the message names the table, the check, the column and the most similar one.
    """
    tables = pipeline.columns_of_tables()
    for name, suite in suites.items():
        source = pipeline.sources_by_name.get(name)
        if source is None and name in tables:
            _check(suite, tables[name], f"table {name!r}", ())
        elif source is not None and source.new_columns != "add":  # the files may have added the column
            _check(suite, source.struct.fieldNames(), f"source {name!r}", ENGINE_COLUMNS)


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
