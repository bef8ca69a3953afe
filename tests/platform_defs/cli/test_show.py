"""The command that shows rows of a table starts no session for present rows, and prints them as it does with Spark."""

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame
from typer.testing import CliRunner

from assets.contracts import DerivedAsset
from operators import Aggregate, EveryStep, Tumbling, WindowedAggregate
from platform_defs.cli import render
from platform_defs.cli import tables as cli
from platform_defs.cli.commands import app
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.no_session import without_session
from tests.support.small_sources import DAY, MINUTE, Event, join, replay, source

BEFORE_1970 = -57 * 365 * DAY
COUNT = WindowedAggregate(
    by="k",
    window=Tumbling(size="1 minute"),
    aggregates={"n": "count(*)", "mean": "avg(v)", "exact": "sum(cast(v as decimal(9, 2)))", "list": "array(max(v), null)"},
    early=EveryStep(),
)
TOTAL = Aggregate(by="k", aggregates={"n": "count(*)", "of_k": "map(k, count(*))", "last": "named_struct('v', max(v), 'at', max(ts))"})
ASSETS = [join(), DerivedAsset(name="counts", inputs=("l",), operator=COUNT), DerivedAsset(name="total", inputs=("l",), operator=TOTAL)]


@pytest.fixture(scope="module")
def engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine([source("l"), source("r")], ASSETS)
    first = [Event(f"k{n}", n, BEFORE_1970 + n * MINUTE) for n in range(5)]
    batches = first, [*(Event("k1", n, n * MINUTE) for n in range(20)), Event("k9", 7, DAY)]
    replay(engine, [{"l": batch, "r": [*batch[:3], batch[-1]]} for batch in batches])
    for name in engine.assets:
        engine.advance(name)
    return engine


def _show(monkeypatch: pytest.MonkeyPatch, engine: Engine, *arguments: str, columns: int = 80) -> str:
    monkeypatch.setattr(cli, "_engine", lambda: engine)
    return CliRunner().invoke(app, ["show", *arguments], catch_exceptions=False, env={"COLUMNS": str(columns)}).output


@pytest.mark.parametrize("limit", [None, 3, 1])
@pytest.mark.parametrize("table", [asset.name for asset in ASSETS])
def test_the_output_is_that_of_spark(monkeypatch: pytest.MonkeyPatch, engine: Engine, table: str, limit: int | None) -> None:
    options = [] if limit is None else ["--limit", str(limit)]

    def outputs(shown: Engine) -> list[str]:
        tables = [_show(monkeypatch, shown, table, *options, columns=columns) for columns in (80, 300)]
        return [*tables, _show(monkeypatch, shown, table, *options, "--json")]

    found = outputs(without_session(engine))
    head_of, by_spark = render.head_of, list[dict[str, Any]]()

    def head_once(rows: DataFrame, limit: int) -> dict[str, Any]:
        """Spark collects the rows once for the three outputs."""
        by_spark.extend([] if by_spark else [head_of(rows, limit)])
        return by_spark[0]

    monkeypatch.setattr(render, "first_rows", lambda *_: None)
    monkeypatch.setattr(render, "head_of", head_once)
    assert found == outputs(engine)
    assert by_spark


def test_times_before_1970_are_shown(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    rows: list[dict[str, Any]] = json.loads(_show(monkeypatch, without_session(engine), "counts", "--json", "--limit", "100"))["rows"]
    assert "1969-03-15T00:00:00.000Z" in {row["window_start"] for row in rows}


def test_early_results_are_shown_by_spark(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    with pytest.raises(AssertionError, match="a session is started"):
        _show(monkeypatch, without_session(engine), "counts", "--early")
    rows = json.loads(_show(monkeypatch, engine, "counts", "--early", "--json", "--limit", "100"))["rows"]
    assert {row["is_final"] for row in rows} == {True, False}
