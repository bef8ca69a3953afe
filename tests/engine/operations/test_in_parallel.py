"""Assets are advanced in parallel, each after its inputs, and an error or an interrupt lets running steps end."""

import threading
from collections.abc import Generator
from concurrent.futures import wait
from typing import Any

import pytest

from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.waits import Busy, take_or_wait
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.operations.in_parallel import advance_in_parallel, compute_in_parallel

WAIT_S = 30
READS = {"a": ["log"], "b": ["log"], "of_a": ["a"], "of_both": ["a", "b"], "of_all": ["of_a", "of_both"]}


class Assets:
    """Assets of two steps each, which record the order in which they are advanced."""

    def __init__(self) -> None:
        self.done, self.begun, self.most_running = list[str](), set[str](), 0

    def steps(self, name: str) -> Generator[Any]:
        """Two steps of an asset."""
        self.begun.add(name)
        self.most_running = max(self.most_running, len(self.begun - {*self.done}))
        yield 1
        yield None  # the value of a step does not matter
        self.done.append(name)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_each_asset_is_advanced_once_and_after_its_inputs(threads: int) -> None:
    assets = Assets()
    advance_in_parallel(READS, READS, assets.steps, threads)
    assert sorted(assets.done) == sorted(READS)
    assert all(assets.done.index(of) < assets.done.index(name) for name in READS for of in READS[name] if of in READS)
    assert assets.most_running <= threads


def test_only_the_named_assets_are_advanced() -> None:
    assets = Assets()
    advance_in_parallel(READS, ["of_all", "a"], assets.steps, 1)
    assert sorted(assets.done) == ["a", "of_all"]


def test_an_asset_is_advanced_after_those_that_it_reads_through_others() -> None:
    assets = Assets()
    advance_in_parallel(READS, ["of_all", "a"], assets.steps, 8)
    assert assets.done == ["a", "of_all"]


def test_independent_assets_are_advanced_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def steps(_: str) -> Generator[Any]:
        both.wait(WAIT_S)
        yield 1

    advance_in_parallel({"a": ["log"], "b": ["log"]}, ["a", "b"], steps, 2)
    assert not both.broken


def test_after_an_error_a_running_step_ends_and_no_further_one_begins() -> None:
    failed, steps_made, closed = threading.Event(), list[str](), list[str]()

    def steps(name: str) -> Generator[Any]:
        try:
            if name == "b":
                assert running.wait(WAIT_S)
                raise ArithmeticError("overflow")
            running.set()
            assert failed.wait(WAIT_S)
            steps_made.append("first")
            yield 1
            steps_made.append("second")
        finally:
            closed.append(name)
            failed.set()

    running = threading.Event()
    with pytest.raises(ArithmeticError, match="overflow"):
        advance_in_parallel(READS, READS, steps, 2)
    assert "of_a" not in closed
    assert "of_both" not in closed
    assert steps_made[0] == "first", "the running step has ended"


def test_of_several_errors_one_is_raised_and_the_others_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    both = threading.Barrier(2)

    def steps(name: str) -> Generator[Any]:
        both.wait(WAIT_S)  # both have begun, so both fail
        raise LedgerError(f"{name} is torn")
        yield

    with pytest.raises(LedgerError, match="a is torn"):
        advance_in_parallel({"a": ["log"], "b": ["log"]}, ["a", "b"], steps, 2)
    assert [r.getMessage() for r in caplog.records if r.name.endswith("in_parallel")] == ["b failed too: b is torn"]


def test_a_wait_for_a_lock_ends_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, ended = threading.Event(), list[str]()

    def busy() -> None:
        waits.set()
        raise Busy("process 7", "maintenance")

    def steps(_: str) -> Generator[Any]:
        try:
            take_or_wait("t", busy, "write", 600)
        except LakeBusy as error:
            ended.append(str(error))
        yield 1

    def interrupt(*_: Any, **__: Any) -> Any:
        assert waits.wait(WAIT_S)
        monkeypatch.undo()
        raise KeyboardInterrupt("by hand")

    monkeypatch.setattr("platform_defs.engine.operations.in_parallel.wait", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        advance_in_parallel({"t": ["log"]}, ["t"], steps, 1)
    assert len(ended) == 1
    assert "process 7" in ended[0]


def test_an_interrupt_is_raised_after_the_running_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, interrupted, steps_made = threading.Event(), threading.Event(), list[int]()

    def interrupt(*_: Any, **__: Any) -> Any:
        assert begun.wait(WAIT_S)
        monkeypatch.undo()
        interrupted.set()
        raise KeyboardInterrupt("by hand")

    def steps(_: str) -> Generator[Any]:
        begun.set()
        assert interrupted.wait(WAIT_S)
        for n in range(1_000_000):
            steps_made.append(n)
            yield n

    monkeypatch.setattr("platform_defs.engine.operations.in_parallel.wait", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        advance_in_parallel(READS, READS, steps, 1)
    assert 1 <= len(steps_made) < 1_000_000


def test_values_are_computed_for_all_names_or_the_error_is_raised() -> None:
    assert compute_in_parallel("abc", str.upper, 2) == {"a": "A", "b": "B", "c": "C"}
    begun = list[str]()

    def compute(name: str) -> str:
        begun.append(name)
        raise ValueError(name)

    with pytest.raises(ValueError, match="a"):
        compute_in_parallel([*"abcdefghij"], compute, 1)
    assert begun[0] == "a"


def test_after_an_error_no_further_value_is_computed_while_earlier_names_are(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed, begun, names = threading.Event(), list[str](), ["slow", "fails", *map(str, range(1000))]

    def notice(*futures: Any, **options: Any) -> Any:
        done = wait(*futures, **options)
        noticed.set()
        return done

    def compute(name: str) -> None:
        begun.append(name)
        if name == "fails":
            raise ValueError(name)
        assert noticed.wait(WAIT_S)

    monkeypatch.setattr("platform_defs.engine.operations.in_parallel.wait", notice)
    with pytest.raises(ValueError, match="fails"):
        compute_in_parallel(names, compute, 2)
    assert len(begun) < len(names), "the error is noticed while `slow` is running"
