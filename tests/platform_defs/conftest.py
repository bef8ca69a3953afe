"""Fixtures of the platform's tests."""

from collections.abc import Iterator

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log import in_memory as events
from dagster._core.storage.runs import in_memory as runs


@pytest.fixture(scope="session", autouse=True)
def _unversioned_memory() -> Iterator[None]:
    """Do not record the version of the schema in Dagster's databases in memory: it takes most of the time of making one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (events, runs):
            patch.setattr(module, "stamp_alembic_rev", lambda *_: None)
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
