"""`tidemark late` shows the late rows of a source, or counts those of all sources; it starts no session."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from assets.contracts import DerivedAsset
from operators import Aggregate, Deduplicate
from operators.contract import Operator
from platform_defs.cli import tables as cli
from platform_defs.cli.commands import app
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.no_session import without_session
from tests.support.small_sources import HOUR, Event, join, replay, source


def _of_l(name: str, operator: Operator) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=("l",), operator=operator)


SOURCES = [source("l"), source("r"), source("unread")]
ASSETS = [join(), _of_l("firsts", Deduplicate(by="k")), _of_l("totals", Aggregate(by="k", aggregates={"n": "count(*)"}))]


@pytest.fixture(scope="module")
def engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine(SOURCES, ASSETS)
    replay(engine, [{"l": [Event("a", 1, HOUR)], "r": [Event("a", 2, HOUR)]}, {"l": [Event("b", 3, 0), Event("c", 4, 1)]}])
    for name in engine.assets:
        engine.advance(name)
    return engine


def _late(monkeypatch: pytest.MonkeyPatch, engine: Engine, *arguments: str) -> str:
    monkeypatch.setattr(cli, "_engine", lambda: without_session(engine))
    return CliRunner().invoke(app, ["late", *arguments], catch_exceptions=False, env={"COLUMNS": "80"}).output


def test_without_a_source_the_late_rows_of_all_are_counted(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    out = _late(monkeypatch, engine)
    assert [line.split() for line in out.splitlines()[3:7]] == [
        ["l", "pairs", "2"],
        ["l", "firsts", "2"],
        ["l", "totals", "0"],
        ["r", "pairs", "0"],
    ]
    assert out.endswith("`tidemark late SOURCE --asset ASSET` shows the rows.\n")
    of_firsts = json.loads(_late(monkeypatch, engine, "--asset", "firsts", "--json"))
    assert of_firsts == {"late": [{"source": "l", "asset": "firsts", "total": 2}]}


def test_the_count_of_a_refused_table_is_unknown(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    changed = replace(engine, assets={**engine.assets, "firsts": _of_l("firsts", Deduplicate(by="v"))})
    out = _late(monkeypatch, changed)
    assert ["l", "firsts", "unknown"] in [line.split() for line in out.splitlines()]
    assert "Not counted: firsts. `tidemark status` gives the reason." in out


def test_the_late_rows_of_a_source_are_shown(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    assert _late(monkeypatch, engine, "l").startswith("Late rows of l for pairs: 2\n")
    assert _late(monkeypatch, engine, "r") == "No row of r is late for pairs.\n"
    [row] = json.loads(_late(monkeypatch, engine, "l", "--asset", "firsts", "--limit", "1", "--json"))["rows"]
    assert row == {
        "seq": 3,
        "arrival": 2_000_000,
        "event_time": "2026-03-01T00:00:00.000Z",
        "k": "b",
        "v": 3,
        "ts": "2026-03-01T00:00:00.000Z",
    }
