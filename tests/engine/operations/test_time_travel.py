"""Time travel of an upserted table: before its first step, and with a clock that was set back between two steps."""

import pytest

from assets.contracts import DerivedAsset
from operators import OperatorError
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import HOUR, MINUTE, Event, replay, rows_of, source


def test_time_travel_requires_every_earlier_step(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name="total", inputs=("l",), operator=RunningTotal())])
    with pytest.raises(OperatorError, match="total has no step yet, so it has no earlier state; advance it first"):
        engine.views.as_of("total", NOON)
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    clock.pass_ms(5 * MINUTE)
    assert len(engine.advance("total")) == 1
    clock.pass_ms(-HOUR)
    replay(engine, [{"l": [Event("b", 1, 0)]}])
    assert len(engine.advance("total")) == 1
    assert engine.views.as_of("total", NOON + MINUTE).isEmpty()
    assert rows_of(engine.views.as_of("total", NOON + 5 * MINUTE)) == rows_of(engine.views.table("total"))
