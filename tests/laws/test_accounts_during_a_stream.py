"""No false alarms: the law holds in every account of a correct lake, even during the commits of a stream."""

import threading
from collections.abc import Iterator

import pytest

from assets.contracts import DerivedAsset
from operators import Session, TopK, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import MINUTE, Event, join, replay, source

LENIENT = {"by": "k", "aggregates": {"n": "count(*)"}, "allowed_lateness": "2 minutes"}
SOURCES = [source("l"), source("r")]
ASSETS = [
    join(),
    DerivedAsset(name="counts", inputs=("l",), operator=WindowedAggregate(window=Tumbling(size="1 minute"), **LENIENT)),
    DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by=("n DESC", "k"))),
    DerivedAsset(name="visits", inputs=("l",), operator=WindowedAggregate(window=Session(gap="30 seconds"), **LENIENT)),
    DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
]


def _batches() -> Iterator[dict[str, list[Event]]]:
    """Each batch has two rows on time, and in `l` also one within the allowed lateness of `LENIENT`, and one that is too late."""
    batch = 0
    while True:
        at = batch * 2 * MINUTE
        on_time = [Event("a", batch, at), Event("b", batch, at - MINUTE)]
        late = [Event("b", -batch, at - 4 * MINUTE), Event("a", -batch, at - 10 * MINUTE)]
        yield {"l": [*on_time, *late], "r": on_time}
        batch += 1


@pytest.mark.parametrize("accounts", [len(ASSETS), pytest.param(500, marks=pytest.mark.soak)])
def test_the_law_holds_in_accounts_taken_during_a_running_stream(make_engine: MakeEngine, accounts: int) -> None:
    writer, reader = (make_engine(SOURCES, ASSETS) for _ in range(2))
    is_ended, failed = threading.Event(), list[BaseException]()
    batches = _batches()

    def step(number: int) -> None:
        replay(writer, [next(batches)])
        for name in writer.assets:
            if not is_ended.is_set():
                writer.advance(name)
        if number % 5 == 4:
            writer.maintain(small_files=2)

    def stream() -> None:
        number = 0
        try:
            while not is_ended.is_set():
                step(number)
                number += 1
        except BaseException as error:
            failed.append(error)

    step(0)
    thread = threading.Thread(target=stream)
    thread.start()
    try:
        violations = [violation for n in range(accounts) for violation in _violations(reader, [*reader.assets][n % len(reader.assets)])]
    finally:
        is_ended.set()
        thread.join()
    assert not failed
    assert violations == []


def _violations(engine: Engine, name: str) -> list[object]:
    return [*[account for account in engine.accounts.days(name) if not account.holds], *engine.accounts.count_differences(name).items()]
