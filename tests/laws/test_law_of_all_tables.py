"""A stream checks the conservation law of every table: each step of a join at once, and the accounts of all tables in turn."""

from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.cli.stream_output import StreamOutput
from platform_defs.engine import Engine, LawError
from platform_defs.engine.operations.stream_accounting import StreamAccounting
from platform_defs.stream import run
from platform_defs.stream.run import StreamRun
from tests.conftest import MakeEngine
from tests.engine.source_batches import source_batch
from tests.support.small_sources import HOUR, MINUTE, Event, join, replay, source

COUNT = {"n": "count(*)"}
ASSETS = [
    join(),
    DerivedAsset(name="windows", inputs=("l",), operator=WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates=COUNT)),
    DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates=COUNT)),
]
FIRST = {"l": [Event("a", 1, 0), Event("a", 2, MINUTE), Event("b", 3, HOUR)], "r": [Event("a", 4, MINUTE), Event("b", 5, HOUR)]}
SECOND = {"l": [Event("a", 6, 2 * HOUR)], "r": [Event("a", 7, 2 * HOUR)]}


@pytest.fixture
def after_first(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Callable[[], list[str]]]:
    """An engine whose tables have made their first step, and a function that advances them and returns the printed lines."""
    monkeypatch.setattr(run, "StreamAccounting", lambda *arguments: StreamAccounting(*arguments, share=1_000.0, most_saved_s=1_000.0))
    engine, lines = make_engine([source("l"), source("r")], ASSETS), list[str]()
    stream = StreamRun(engine, StreamOutput(engine, lines.append, pytest.fail))

    def advance() -> list[str]:
        lines.clear()
        stream.after((source_batch("l", 1),))
        return lines

    replay(engine, [FIRST])
    [held] = [line for line in advance() if "the conservation law holds: " in line]
    assert all(asset.name in held for asset in ASSETS)
    return engine, advance


@pytest.mark.parametrize(
    ("table", "lost", "found"),
    [
        ("windows", "k = 'a'", r"windows breaks the conservation law: l 2026-03-01: .*results: 1 missing, 0 too many"),
        ("totals", "k = 'b'", r"totals breaks the conservation law: .*1 missing, 0 too many"),
    ],
)
def test_a_stream_ends_when_a_table_has_lost_a_result(
    after_first: tuple[Engine, Callable[[], list[str]]], table: str, lost: str, found: str
) -> None:
    engine, advance = after_first
    assert engine.accounts.recorded_account(table), "the account is shown by `tidemark status`"
    DeltaTable(engine.lake.path(table)).delete(lost)
    replay(engine, [SECOND])
    with pytest.raises(LawError, match=found):
        advance()


def test_only_tables_that_have_changed_are_accounted_for(after_first: tuple[Engine, Callable[[], list[str]]]) -> None:
    _, advance = after_first
    assert [line for line in advance() if "law" in line] == []
