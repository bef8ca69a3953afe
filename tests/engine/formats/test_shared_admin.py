"""Simultaneous users of a Kafka administration client share one client. No test needs a broker."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from platform_defs.engine.formats import kafka_client
from platform_defs.engine.formats.kafka_client import SharedAdmin, with_timeouts
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.ingest.topic_ranges import TopicRanges


@dataclass
class FakeAdmin:
    options: dict[str, str]
    closed: int = 0

    def close(self) -> None:
        self.closed += 1


@dataclass
class CreatedClients:
    """The clients that were created."""

    all: list[FakeAdmin] = field(default_factory=list)

    def client(self, _: Any, options: dict[str, str]) -> FakeAdmin:
        if "bad" in options:
            raise OSError("no resolvable address")
        self.all.append(FakeAdmin(options))
        return self.all[-1]


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> CreatedClients:
    found = CreatedClients()
    monkeypatch.setattr(kafka_client, "admin_client", found.client)
    return found


def test_users_at_the_same_time_share_one_client_and_the_last_closes_it(created: CreatedClients) -> None:
    jvm, finder = object(), SharedAdmin(object(), {})
    finder.close()
    finder = SharedAdmin(jvm, {"a": "1", "b": "2"})
    with SharedAdmin(jvm, {"b": "2", "a": "1"}) as check:
        assert check is finder.client
    assert [admin.closed for admin in created.all] == [1, 0]
    finder.close()
    assert [admin.closed for admin in created.all] == [1, 1]


def test_other_options_and_later_users_have_clients_of_their_own(created: CreatedClients) -> None:
    jvm = object()
    with SharedAdmin(jvm, {"a": "1"}) as one, SharedAdmin(jvm, {"a": "2"}) as other:
        assert one is not other
    with SharedAdmin(jvm, {"a": "1"}) as later:
        assert later is not one
    assert [admin.closed for admin in created.all] == [1, 1, 1]


def test_a_client_that_cannot_be_made_is_not_kept(created: CreatedClients) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="no resolvable address"):
            SharedAdmin(object(), {"bad": "1"})
    assert created.all == []


def test_a_use_ends_once(created: CreatedClients) -> None:
    jvm = object()
    one, other = SharedAdmin(jvm, {}), SharedAdmin(jvm, {})
    one.close()
    one.close()
    assert created.all[0].closed == 0, "the other use goes on"
    other.close()
    other.close()
    assert created.all[0].closed == 1


class Lost:
    """A JVM that has ended, or an object in it."""

    def __getattr__(self, name: str) -> Any:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_if_the_jvm_ends_during_a_look_the_error_names_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "admin_client", lambda *_: Lost())
    options = {"subscribe": "orders", "kafka.sasl.jaas.config": 'Login required username="u" password="S3CRET";'}
    finder = TopicRanges("orders", Topics(options=options), SimpleNamespace(topic_ends=lambda _: {}), 10)  # pyright: ignore[reportArgumentType]
    finder.begin(to_present=True)
    with pytest.raises(Py4JNetworkError, match="from Java side is empty") as error:
        finder.new(SimpleNamespace(_jvm=Lost()))  # pyright: ignore[reportArgumentType]
    assert "S3CRET" not in repr(error.value)
    finder.close()
    assert "S3CRET" not in repr(SharedAdmin._open)


@pytest.mark.parametrize(
    ("given", "request_ms", "call_ms"),
    [
        pytest.param({}, "20000", "20000", id="none"),
        pytest.param({"request.timeout.ms": "60000"}, "60000", "60000", id="a longer request"),
        pytest.param({"request.timeout.ms": "5000"}, "5000", "20000", id="a shorter request"),
        pytest.param({"default.api.timeout.ms": "5000"}, "5000", "5000", id="a shorter call"),
        pytest.param({"default.api.timeout.ms": "60000"}, "20000", "60000", id="a longer call"),
        pytest.param({"request.timeout.ms": "30000", "default.api.timeout.ms": "40000"}, "30000", "40000", id="both"),
        pytest.param({"request.timeout.ms": "soon"}, "soon", "20000", id="no number, which Kafka refuses"),
    ],
)
def test_a_call_has_at_least_the_time_of_a_request(given: dict[str, str], request_ms: str, call_ms: str) -> None:
    assert with_timeouts(given) == {"request.timeout.ms": request_ms, "default.api.timeout.ms": call_ms}
