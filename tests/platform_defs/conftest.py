"""Fixtures of the platform's tests."""

from collections.abc import Iterator

import pytest
from dagster._core.storage.event_log import in_memory as events
from dagster._core.storage.runs import in_memory as runs


@pytest.fixture(scope="session", autouse=True)
def _unversioned_memory() -> Iterator[None]:
    """Do not record the version of the schema in Dagster's databases in memory: it takes most of the time of making one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (events, runs):
            patch.setattr(module, "stamp_alembic_rev", lambda *_: None)
        yield
