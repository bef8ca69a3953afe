"""Accounts in turn: which table is next, and how much of a stream's time accounts take. Without Spark and without waiting."""

from dataclasses import dataclass, field, replace

import pytest

from platform_defs.engine import LawError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.operations.stream_accounting import StreamAccounting


@dataclass
class Stream:
    """A stream whose clock moves by hand, and whose accounts take some seconds.

    Args:
        takes_s: the seconds that the account of a table takes.
    """

    takes_s: dict[str, float]
    time: float = 0.0
    accounts: list[tuple[str, int, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    fails: Exception | None = None

    def turn(self) -> StreamAccounting:
        return StreamAccounting(self._account, lambda asset, error: self.errors.append(f"{asset}: {error}"), now=lambda: self.time)

    def _account(self, asset: str, step: Step) -> None:
        self.time += self.takes_s[asset]
        if self.fails:
            raise self.fails
        self.accounts.append((asset, step.before.step, step.after.step))


def _step(number: int) -> Step:
    after = Progress(step=number)
    return Step(replace(after, step=number - 1), after, 1)


def test_accounts_take_their_share_of_the_time_and_each_changed_table_has_its_turn() -> None:
    stream = Stream({"cheap": 0.1, "expensive": 5.0, "other": 0.2})
    law, spent = stream.turn(), 0.0
    for number in range(1, 201):
        stream.time += 1.0
        for asset in stream.takes_s:
            law.note_step(asset, _step(number))
        before = stream.time
        law()
        spent += stream.time - before
        assert spent <= 0.15 * stream.time + 5.0, "the last account may take longer than the time that is left"
    made = [asset for asset, _, _ in stream.accounts]
    assert min(made.count(asset) for asset in stream.takes_s) >= 5
    assert spent > 0.1 * stream.time


def test_steps_that_wait_are_accounted_for_as_one() -> None:
    stream = Stream({"a": 10.0, "b": 1.0})
    law = stream.turn()
    for number in (1, 2, 3):
        law.note_step("a", _step(number))
    law.note_step("b", _step(7))
    assert law() == [], "no time has passed"
    stream.time = 1.0
    assert law() == ["a"]
    stream.time += 60
    assert law() == [], "the account of a has taken more than its share"
    stream.time += 60
    assert law() == ["b"]
    assert stream.accounts == [("a", 0, 3), ("b", 6, 7)]
    stream.time += 60
    assert law() == [], "nothing has changed"


def test_a_quiet_night_is_not_followed_by_a_long_pause() -> None:
    stream = Stream({str(n): 5.0 for n in range(20)})
    law = stream.turn()
    stream.time = 100_000.0
    for asset in stream.takes_s:
        law.note_step(asset, _step(1))
    assert len(law()) == 2


def test_an_account_that_fails_is_reported_and_tried_again_but_a_broken_law_is_raised() -> None:
    stream = Stream({"a": 0.1}, fails=OSError("disk"))
    law = stream.turn()
    law.note_step("a", _step(1))
    for _ in range(2):
        stream.time += 10
        assert law() == []
    assert stream.errors == ["a: disk"], "it is tried again after the next step"
    stream.fails = None
    law.note_step("a", _step(2))
    stream.time += 10
    assert law() == ["a"]
    assert stream.accounts == [("a", 0, 2)]
    stream.fails = LawError.of_table("a", [], {("l", 3): (4, 5)})
    law.note_step("a", _step(3))
    stream.time += 10
    with pytest.raises(LawError, match=r"a breaks the conservation law: l, batch 3: 4 rows in the ledger, 5 in the log"):
        law()
