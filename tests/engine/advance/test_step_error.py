"""An expression that fails for a row of the log: the error names the asset, other assets advance, and a wider type fixes it."""

import pytest

from assets.contracts import DerivedAsset, Preparation
from operators import Aggregate, Select, Tumbling, WindowedAggregate
from platform_defs.cli.failures import AdvanceError, Failures
from platform_defs.engine import StepError
from platform_defs.engine.lake.errors import spark_condition
from tests.conftest import MakeEngine
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, Event, replay, rows_of, source

LARGE = 2_000_000_000


def _windows(total: str) -> DerivedAsset:
    operator = WindowedAggregate(by="k", window=Tumbling(size="5 minutes"), aggregates={"total": total})
    return DerivedAsset(name="windows", inputs=("l",), operator=operator)


def _sums(total: str) -> DerivedAsset:
    return DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"total": total}))


def _squares(square: str) -> DerivedAsset:
    return DerivedAsset(name="squares", inputs=("l",), prepare={"l": Preparation(select=f"k, {square} AS square")}, operator=Select())


COUNTS = DerivedAsset(name="counts", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))


def test_the_error_of_an_overflow_names_the_asset_and_a_wider_type_fixes_it(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [_windows("sum(v * v)"), _sums("sum(v * v)"), _squares("v * v"), COUNTS])
    for part, rows in enumerate([[("a", 2, 0), ("a", 3, 6 * MINUTE)], [("a", LARGE, 7 * MINUTE)], [("b", 1, 60 * MINUTE)]]):
        replay(engine, [{"l": [Event(*row) for row in rows]}])
        failures = Failures(engine.assets, spark_condition)
        for name in engine.assets:
            with failures.recording(name):
                engine.advance(name)
        assert set(failures.reasons) == [set(), {"sums"}, {"windows", "sums", "squares"}][part]
    assert rows_of(engine.views.table("counts"), "k", "n") == [("a", 3), ("b", 1)]
    why = r"^windows: an expression of its operator fails with ARITHMETIC_OVERFLOW .*a wider type.*tidemark rebuild windows --downstream"
    with pytest.raises(StepError, match=why):
        engine.advance("windows")
    with pytest.raises(AdvanceError, match=r"(?s)^windows, sums, squares could not be advanced.*sums: .*ARITHMETIC_OVERFLOW"):
        failures.check()
    recorded = {name: failure for name in engine.assets if (failure := engine.failures.of(name)) is not None}
    assert {name: (failure.error, failure.message[:50]) for name, failure in recorded.items()} == {
        name: ("StepError", f"{name}: an expression of its operator fails with ARITHMETIC"[:50]) for name in ("windows", "sums", "squares")
    }

    wider = "sum(CAST(v AS DECIMAL(19, 0)) * v)"
    fixed = make_engine([source("l")], [_windows(wider), _sums(wider), _squares("CAST(v AS BIGINT) * v"), COUNTS])
    list(fixed.rebuild_tables(["windows", "sums", "squares"], downstream=True))  # as the error message says
    columns = {"windows": "total", "sums": "total", "squares": "square"}
    assert values_of({name: fixed.views.table(name).select("k", column) for name, column in columns.items()}) == {
        "windows": [("a", 4), ("a", 9 + LARGE**2)],
        "sums": [("a", 13 + LARGE**2), ("b", 1)],
        "squares": [("a", 4), ("a", LARGE**2), ("a", 9)],
    }
    assert all(a.holds for name in fixed.assets for a in fixed.accounts.days(name))
    assert [fixed.failures.of(name) for name in fixed.assets] == [None] * 4
