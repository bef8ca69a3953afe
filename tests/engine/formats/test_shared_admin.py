"""The client for administration that is shared by all that use it at the same time. No test needs a broker."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from platform_defs.engine.formats import kafka_client
from platform_defs.engine.formats.kafka_client import SharedAdmin


@dataclass
class FakeAdmin:
    options: dict[str, str]
    closed: int = 0

    def close(self) -> None:
        self.closed += 1


@dataclass
class Made:
    """The clients that were made."""

    all: list[FakeAdmin] = field(default_factory=list)

    def client(self, _: Any, options: dict[str, str]) -> FakeAdmin:
        if "bad" in options:
            raise OSError("no resolvable address")
        self.all.append(FakeAdmin(options))
        return self.all[-1]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    found = Made()
    monkeypatch.setattr(kafka_client, "admin_client", found.client)
    return found


def test_users_at_the_same_time_share_one_client_and_the_last_closes_it(made: Made) -> None:
    jvm, finder = object(), SharedAdmin(object(), {})
    finder.close()
    finder = SharedAdmin(jvm, {"a": "1", "b": "2"})
    with SharedAdmin(jvm, {"b": "2", "a": "1"}) as check:
        assert check is finder.client
    assert [admin.closed for admin in made.all] == [1, 0]
    finder.close()
    assert [admin.closed for admin in made.all] == [1, 1]


def test_other_options_and_later_users_have_clients_of_their_own(made: Made) -> None:
    jvm = object()
    with SharedAdmin(jvm, {"a": "1"}) as one, SharedAdmin(jvm, {"a": "2"}) as other:
        assert one is not other
    with SharedAdmin(jvm, {"a": "1"}) as later:
        assert later is not one
    assert [admin.closed for admin in made.all] == [1, 1, 1]


def test_a_client_that_cannot_be_made_is_not_kept(made: Made) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="no resolvable address"):
            SharedAdmin(object(), {"bad": "1"})
    assert made.all == []
