"""DuckDB for the tests of SQL."""

from collections.abc import Iterator

import duckdb
import pytest


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:  # tables of a few rows
        connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        yield connection
