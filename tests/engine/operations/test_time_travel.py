"""Time travel of an upserted table: before its first step, and after the clock was set back between two steps."""

import pytest

from assets.contracts import DerivedAsset
from operators import OperatorError
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import HOUR, MINUTE, Event, replay, rows_of, source

TOTAL = DerivedAsset(name="total", inputs=("l",), operator=RunningTotal())


def test_time_travel_of_a_table_without_steps_is_refused(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [TOTAL])
    with pytest.raises(OperatorError, match="total has no step yet, so it has no earlier state; advance it first"):
        engine.views.as_of("total", NOON)


def test_a_step_is_shown_only_with_all_earlier_steps(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l")], [TOTAL])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    clock.pass_ms(5 * MINUTE)
    assert len(engine.advance("total")) == 1
    clock.pass_ms(-HOUR)
    replay(engine, [{"l": [Event("b", 1, 0)]}])
    assert len(engine.advance("total")) == 1
    # the second step has an earlier time than the first one, because the clock was set back
    assert engine.views.as_of("total", NOON + MINUTE).isEmpty()
    assert rows_of(engine.views.as_of("total", NOON + 5 * MINUTE)) == rows_of(engine.views.table("total"))
    clock.pass_ms(2 * HOUR)
    [*_] = engine.rebuild_tables(["total"])
    with pytest.raises(OperatorError, match=r"total has no state of .* any more: it was rebuilt, and its changelog begins after that time"):
        engine.views.as_of("total", NOON + HOUR)
    assert rows_of(engine.views.as_of("total", clock() + HOUR)) == rows_of(engine.views.table("total"))
