"""The account of a step reads no more of an old lake than of a new one, however old a late row is."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from assets.contracts import DerivedAsset
from operators import AsOfJoin
from platform_defs.engine import Engine
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.lake import compaction
from tests.conftest import MakeEngine
from tests.support.rows_read import RowsRead
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, replay, source, totals, totals_of

ASSETS = [
    join(),
    join("lenient", how="left", allowed_lateness="3 hours"),
    DerivedAsset(name="valid", inputs=("l", "r"), operator=AsOfJoin(on="k", how="left")),
]
BEGINNING = -20_000 * DAY
"""The time of a row from a device whose clock was reset: in 1971."""


def _events(rng: random.Random, batch: int, *others: Event) -> list[Event]:
    return [*(Event(rng.choice("ab"), rng.randrange(6), batch * HOUR + n * 10 * MINUTE) for n in range(6)), *others]


def _batch(rng: random.Random, batch: int) -> dict[str, list[Event]]:
    """A batch with a row of 1971, and one within three hours."""
    others = [Event("a", 9, BEGINNING + batch), Event("b", 8, (batch - 1) * HOUR)]
    return {side: _events(rng, batch, *others) for side in "lr"}


def _rows_read_by_accounts(engine: Engine, counted: RowsRead, steps_by_table: Mapping[str, Sequence[Step]]) -> dict[str, Counter[str]]:
    """The rows that the accounts of each table's steps read."""
    found: dict[str, Counter[str]] = {}
    for name, steps in steps_by_table.items():
        found[name] = counted.during(lambda name=name, steps=steps: [engine.accounts.step(name, step) for step in steps])
    return found


def test_the_account_of_a_step_reads_as_many_rows_of_an_old_lake_as_of_a_new_one(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MANY_FILES", "MANY_TINY_FILES"):  # the few rows of this test would all be in one file
        monkeypatch.setattr(compaction, limit, 1_000)
    engine, rng = make_engine([source("l"), source("r")], ASSETS), random.Random(5)
    counted, read, batches = RowsRead(engine, monkeypatch), list[dict[str, Counter[str]]](), 0
    for ends in ((4, 5), (295, 299, 300)):  # the rows that the last step finalizes are in the files of the last two steps, as in a stream
        for last in ends:
            replay(engine, [_batch(rng, batch) for batch in range(batches, last)])
            batches, steps = last, {name: engine.advance(name) for name in engine.assets}
        read.append(_rows_read_by_accounts(engine, counted, steps))
    young, old = read
    for name in engine.assets:
        assert sum(old[name].values()) <= 2 * sum(young[name].values()), (name, young[name], old[name])
        assert {"events/l", "events/r", name} <= {*old[name]}


@pytest.mark.parametrize("batches", [2, pytest.param(5, marks=pytest.mark.soak)])
def test_the_accounts_of_steps_with_very_old_rows_add_up_to_the_account_of_all_days(make_engine: MakeEngine, batches: int) -> None:
    """Each batch but the first has two late rows of each side, of which `lenient` accepts one. The last step has no rows."""
    engine, rng = make_engine([source("l"), source("r")], [*ASSETS, join("joined", late_rows="join")]), random.Random(6)
    accounts, corrections = {name: list[DayAccount]() for name in engine.assets}, Counter[str]()
    for batch in [*range(batches), None]:
        replay(engine, [_batch(rng, batch)]) if batch is not None else engine.drain()
        for name, of_steps in accounts.items():
            for step in engine.steps(name):  # an account is of the table after its step: later steps may correct results
                of_steps.extend(engine.accounts.step(name, step))
                corrections[name] += sum(number > step.before.step for number, *_ in step.after.corrected)
    assert corrections["lenient"]
    for name, of_steps in accounts.items():
        assert not [account for account in of_steps if not account.holds], name
        if name not in ("lenient", "joined"):
            of_days = totals(engine, name)
            assert totals_of(of_steps) == of_days, name
            assert [of_days[side, "late"] for side in "lr"] == [2 * (batches - 1)] * 2, name
