"""Fixtures of the platform's tests."""

from collections.abc import Iterator

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from tests.support.dagster_in_memory import quick_databases


@pytest.fixture(scope="session", autouse=True)
def _quick_databases() -> Iterator[None]:
    with quick_databases():
        yield


@pytest.fixture(scope="session", autouse=True)
def _migrations_loaded_once() -> Iterator[None]:
    """Load Dagster's migration scripts, which do not change, once instead of several times for each database."""
    known: dict[tuple[str | None, str | None], ScriptDirectory] = {}
    load = ScriptDirectory.from_config

    def loaded(config: Config) -> ScriptDirectory:
        key = config.config_file_name, config.get_main_option("script_location")
        if key not in known:
            known[key] = load(config)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", loaded)
        yield
