"""Accounts of operators whose results do not name rows: rows without a lateness decision, and rows between windows."""

from dataclasses import dataclass

from pyspark.sql import Column

from assets.contracts import DerivedAsset
from operators import Sliding, Tumbling, WindowedAggregate
from tests.conftest import MakeEngine
from tests.support.small_sources import HOUR, MINUTE, Event, replay, rows_of, source


@dataclass(frozen=True)
class _Strict(WindowedAggregate):
    """A row behind the watermark is late. Before there is a watermark, the condition is null, although it should be false."""

    def late(self, event_time: Column, watermark: Column) -> Column:
        return event_time < watermark


def test_a_row_whose_lateness_is_null_is_read(make_engine: MakeEngine) -> None:
    count = _Strict(by="k", window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"})
    engine = make_engine([source("s")], [DerivedAsset(name="t", inputs=("s",), operator=count)])
    batches = [[Event("x", 1, 0), Event("x", 2, 30 * MINUTE)], [Event("x", 3, 20 * MINUTE), Event("x", 4, 2 * HOUR)]]
    replay(engine, [{"s": events} for events in batches])
    list(engine.advance("t"))
    assert rows_of(engine.views.table("t"), "k", "n") == [("x", 2)]
    [account] = engine.accounts.days("t")
    assert (account.accepted, account.matched, account.late, account.pending) == (4, 2, 1, 1)
    assert account.holds


def test_a_row_between_windows_is_unmatched_before_and_after_the_first_step(make_engine: MakeEngine) -> None:
    count = WindowedAggregate(by="k", window=Sliding(size="10 minutes", slide="1 hour"), aggregates={"n": "count(*)"})
    engine = make_engine([source("s")], [DerivedAsset(name="t", inputs=("s",), operator=count)])
    replay(engine, [{"s": [Event("x", n, n * 15 * MINUTE) for n in range(9)]}])
    [account] = engine.accounts.days("t")
    assert (account.accepted, account.matched, account.unmatched, account.pending, account.holds) == (9, 0, 6, 3, True)
    list(engine.advance("t"))
    [account] = engine.accounts.days("t")
    assert (account.accepted, account.matched, account.unmatched, account.pending, account.holds) == (9, 2, 6, 1, True)
