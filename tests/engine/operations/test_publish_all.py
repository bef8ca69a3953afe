"""Publishing tables while a stream runs: each after its step, again after a failure, and not if nothing changed. No test starts Spark."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event

import pytest

from platform_defs.engine.lake.lost_jvm import JvmLostError
from platform_defs.engine.operations import publish_all
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.publish_all import PUBLISHED_AGAIN_AFTER_S, PublishAll
from platform_defs.engine.operations.publish_to_topic import Published

WAIT_S = 30.0


@dataclass
class Topics:
    """Topics that count their publishes; one can be held up, or fail."""

    now: float = 0.0
    calls: list[str] = field(default_factory=list)
    upto: list[int] = field(default_factory=list)
    failing: dict[str, BaseException] = field(default_factory=dict)
    free: dict[str, Event] = field(default_factory=dict)
    entered: Event = field(default_factory=Event)
    reports: list[tuple[str, int]] = field(default_factory=list)

    def publish(self, name: str, upto: int) -> Published:
        self.calls.append(name)
        self.upto.append(upto)
        self.entered.set()
        if name in self.free:
            assert self.free[name].wait(WAIT_S)
        if name in self.failing:
            raise self.failing[name]
        return Published(name, self.calls.count(name), 1, 10)

    def report(self, name: str, failed: PendingRetry) -> None:
        self.reports.append((name, failed.tries))


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def all_of(topics: Topics) -> Iterator[PublishAll]:
    with PublishAll(topics.publish, {"a", "b"}, topics.report, lambda: topics.now) as made:
        yield made


def test_only_tables_with_a_sink_that_have_changed_are_published(topics: Topics, all_of: PublishAll) -> None:
    assert (all_of(), all_of.publish_rest(), topics.calls) == ({}, {}, [])
    all_of.publish_steps({"a": 1, "other": 1})
    assert all_of.publish_rest() == {"a": Published("a", 1, 1, 10)}
    assert (all_of(), all_of.publish_rest(), topics.calls) == ({}, {}, ["a"]), "what was reported is not reported again"


def test_steps_that_are_made_during_a_publish_are_published_once_after_it(topics: Topics, all_of: PublishAll) -> None:
    topics.free["a"] = Event()
    all_of.publish_steps({"a": 3})
    assert topics.entered.wait(WAIT_S)
    for step in range(4, 9):
        all_of.publish_steps({"a": step})
    assert all_of() == {}, "it waits for nothing"
    topics.free["a"].set()
    assert all_of.publish_rest() == {"a": Published("a", 2, 2, 20)}
    assert (topics.calls, topics.upto) == (["a", "a"], [3, 8]), "each publish is given the newest step that was checked"


def test_a_sink_that_fails_is_reported_and_tried_again_later_and_others_go_on(topics: Topics, all_of: PublishAll) -> None:
    topics.failing["a"] = OSError("no route")
    all_of.publish_steps({"a": 1, "b": 1})
    assert [*all_of.publish_rest()] == ["b"]
    assert (topics.reports, [*all_of.failed]) == ([("a", 1)], ["a"])
    for seconds in (0.9, 0.2, 1.9, 0.2):  # the waits are 1 s and 2 s
        topics.now += seconds
        all_of.publish_steps({"a": 1})
        all_of()
        all_of.publish_rest()
    assert topics.calls.count("a") == 3
    assert topics.reports == [("a", 1), ("a", 2), ("a", 3)]
    del topics.failing["a"]
    topics.now += 4.0
    all_of()
    assert all_of.publish_rest() == {"a": Published("a", 4, 1, 10)}
    assert all_of.failed == {}


def test_a_table_without_new_steps_is_published_again_once_a_day(topics: Topics, all_of: PublishAll) -> None:
    all_of.publish_steps({"a": 1})
    all_of.publish_rest()
    for _ in range(4):
        topics.now += PUBLISHED_AGAIN_AFTER_S / 2
        all_of()
        all_of()
        all_of.publish_rest()
    assert topics.calls == ["a", "a", "a"]


def test_the_end_of_the_jvm_is_raised_and_not_tried_again(topics: Topics, all_of: PublishAll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_all, "lost_jvm", lambda _: JvmLostError("it has ended"))
    topics.failing["a"] = OSError("a broken pipe")
    all_of.publish_steps({"a": 1})
    with pytest.raises(JvmLostError, match="it has ended") as raised:
        all_of.publish_rest()
    assert raised.value.__cause__ is topics.failing["a"]
    assert (all_of(), topics.calls) == ({}, ["a"])


def test_an_exit_in_a_publish_is_raised_and_not_tried_again(topics: Topics, all_of: PublishAll) -> None:
    topics.failing["a"] = SystemExit("a library ends the process")
    all_of.publish_steps({"a": 1})
    with pytest.raises(SystemExit, match="a library ends"):
        all_of.publish_rest()
    assert (all_of.publish_rest(), topics.calls) == ({}, ["a"])


def test_after_an_error_no_queued_table_is_published(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"t{n}" for n in range(6)}
    free = Event()
    topics.free |= dict.fromkeys(names, free)
    monkeypatch.setattr(publish_all, "_CANCEL_EVERY_S", 0.01)
    monkeypatch.setattr(publish_all, "cancel_jobs", free.set)

    def stream() -> None:
        with PublishAll(topics.publish, names, topics.report) as all_of:
            all_of.publish_steps(dict.fromkeys(names, 1))
            assert topics.entered.wait(WAIT_S)
            raise KeyboardInterrupt("ctrl-c")

    with pytest.raises(KeyboardInterrupt, match="ctrl-c"):
        stream()
    assert len(topics.calls) <= publish_all.THREADS
