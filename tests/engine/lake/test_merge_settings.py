"""The settings of a session that a MERGE reads. No test starts Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from platform_defs.engine.lake.commit_settings import NUMBER
from platform_defs.engine.lake.merge_settings import merge_settings


class _Conf:
    """The settings of a session; the number of a commit cannot be set."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        if key == NUMBER:
            raise ConnectionError("no answer")
        self.values[key] = value

    def unset(self, key: str) -> None:
        self.values.pop(key, None)


def test_a_setting_that_cannot_be_set_leaves_no_other_on_the_session() -> None:
    session: Any = SimpleNamespace(conf=_Conf())
    with merge_settings(session, {}, None, deletion_vectors=False, stored=True):
        assert len(session.conf.values) == 3
    with pytest.raises(ConnectionError, match="no answer"), merge_settings(session, {}, 7, deletion_vectors=False, stored=True):
        pass
    assert session.conf.values == {}
