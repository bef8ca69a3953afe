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
def _one_look_at_migrations() -> Iterator[None]:
    """Load Dagster's scripts of migrations once, and not several times for each database: they do not change."""
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
