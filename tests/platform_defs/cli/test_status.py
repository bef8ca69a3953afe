"""The status of a lake shows recorded accounts and needs no JVM; a recount accounts for every row and records the result."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner

from assets.contracts import DerivedAsset
from operators import Aggregate, TopN, Tumbling, WindowedAggregate
from platform_defs.cli import commands as cli
from platform_defs.cli import render, status, watch
from platform_defs.cli.failures import StatusError
from platform_defs.cli.render import Terminal
from platform_defs.cli.status import recorded_status
from platform_defs.engine import Engine
from platform_defs.engine.accounting import accounts
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.recorded_account import FOLDER
from platform_defs.engine.lake.errors import LakeError
from tests.conftest import CopyEngine, MakeEngine
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.no_session import without_session
from tests.support.recorded_accounts import record_accounts
from tests.support.small_sources import DAY, MINUTE, START, Event, join, replay, source
from tests.support.status_reports import status_report

STREAM = [
    {"l": [Event("a", 1, 0), Event("b", 2, MINUTE)], "r": [Event("a", 3, MINUTE)]},
    {"l": [Event("c", 4, DAY)], "r": [Event("c", 5, DAY)]},
]


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine([source("l"), source("r")], [join()])
    replay(engine, STREAM)
    engine.advance("pairs")
    return engine


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    return copy_engine(prepared_engine)


def _status(monkeypatch: pytest.MonkeyPatch, engine: Engine, *options: str) -> tuple[str, BaseException | None]:
    monkeypatch.setattr(cli, "_engine", lambda: engine)
    result = CliRunner().invoke(cli.app, ["status", *options], env={"COLUMNS": "80"})
    return result.output, result.exception


TERMS = {
    "accepted": {"l": 3, "r": 2},
    "matched": {"l": 1, "r": 1},
    "unmatched": {"l": 1, "r": 0},
    "pending": {"l": 1, "r": 1},
    "late": {"l": 0, "r": 0},
}


def test_the_status_shows_the_recorded_account_without_a_session(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    other = without_session(engine)
    out, error = _status(monkeypatch, other)
    assert error is None
    assert "never" in out
    assert max(map(len, out.splitlines()[1:])) <= 80, "the first line has the lake's path, which is not broken"
    counted = json.loads(_status(monkeypatch, engine, "--recount", "--json")[0])["assets"]["pairs"]
    found = json.loads(_status(monkeypatch, other, "--json")[0])["assets"]["pairs"]
    account = found.pop("last_account")
    assert found == {key: counted[key] for key in found if key != "law"} | {
        "law": {"holds": True, "broken": [], "ledger_differs_from_log": []}
    }
    assert {term: account[term] for term in TERMS} == TERMS
    assert (account["at"], account["oldest_at"], account["days"]) == ("2026-03-01 12:00:00.000Z", "2026-03-01 12:00:00.000Z", 2)
    out, _ = _status(monkeypatch, other)
    assert "pairs   2026-03-01 23:58:59   0 s   holds   2026-03-01 12:00\n" in out
    assert "…" not in out


def test_the_status_fails_while_the_last_account_is_violated(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    DeltaTable(engine.lake.path("pairs")).delete("left_v = 1")
    assert isinstance(_status(monkeypatch, engine, "--recount")[1], StatusError)
    out, error = _status(monkeypatch, without_session(engine))
    assert isinstance(error, StatusError)
    assert "`tidemark backfill --from 2026-03-01 --to 2026-03-02 --rebuild` repairs the tables; after a repair, run" in str(error)
    assert "pairs: the law is violated for l on 2026-03-01: accepted 2, " in out
    assert "missing 1, extra 0" in out
    engine.rebuild_days("pairs")  # repairs the rows, so the account is one of other rows
    out, error = _status(monkeypatch, without_session(engine))
    assert error is None
    assert "unknown" in out
    assert _status(monkeypatch, engine, "--recount")[1] is None
    engine.rebuild_days("pairs")  # finds no difference
    assert "holds" in _status(monkeypatch, without_session(engine))[0]


def test_a_table_that_is_refused_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch, engine: Engine, make_engine: MakeEngine) -> None:
    assert _status(monkeypatch, engine, "--recount")[1] is None
    out, error = _status(monkeypatch, without_session(make_engine([source("l"), source("r")], [join(upper="20 minutes")])))
    assert isinstance(error, StatusError)
    assert "upper was 600000, and is 1200000" in out
    assert "violated" not in out, "the last account held"
    changed = make_engine([source("l"), source("r")], [join(upper="20 minutes")])
    law = json.loads(_status(monkeypatch, changed, "--recount", "--json")[0])["assets"]["pairs"]["law"]
    assert "upper was 600000, and is 1200000" in law.pop("refused")
    assert law == {"holds": False, "broken": [], "ledger_differs_from_log": []}


ACCOUNTED = ("2026-03-01", "12:00")


def _table(**parts: Any) -> dict[str, Any]:
    """A table in a report for `print_recorded`, which has been accounted for."""
    law = {"holds": True, "broken": [], "ledger_differs_from_log": []}
    times = {
        "steps": 1,
        "ledger_entry": 1,
        "closed_to": None,
        "lag_seconds": 0,
        "waits_for": [],
        "held_back_by": None,
        "held_back_seconds": None,
        "last_failure": None,
    }
    return {**times, "law": law, "last_account": {"oldest_at": "2026-03-01 12:00:00.000Z"}} | parts


def test_the_law_of_a_table_that_is_refused_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """The last account is that of rows which the table's present operator does not explain."""
    refused = _table(law={**_table()["law"], "holds": False, "refused": "upper was 1"})
    status.print_recorded(status_report(assets={"good": _table(), "refused": refused, "never": _table(last_account=None)}))
    lines = capsys.readouterr().out.splitlines()
    laws = {
        name: line.partition("0 s")[2].split() for name in ("good", "refused", "never") for line in lines if line.startswith(f"{name} ")
    }
    assert laws == {"good": ["holds", *ACCOUNTED], "refused": ["unknown", *ACCOUNTED], "never": ["unknown", "never"]}


def test_the_totals_of_no_day_are_not_called_retained(capsys: pytest.CaptureFixture[str]) -> None:
    retention = {"kept_from": "2026-03-02", "complete_from": None, "totals": {}}
    tables = {name: _table(retention={**retention, "days": days}) for name, days in (("old", 1), ("new", 0))}
    status.print_recorded(status_report(assets=tables))
    old, new = (line for line in capsys.readouterr().out.splitlines() if "2026-03-02" in line)
    assert old == "  old: the totals of 1 day before 2026-03-02 are retained; their rows have been removed"
    assert new == "  new: can be computed from 2026-03-02 on; older rows of its inputs have been removed"


def test_no_days_to_rebuild_are_reported_for_a_table_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    violated = SimpleNamespace(side="l", day="2026-03-01", terms={})
    last = SimpleNamespace(holds=False, violations=[violated], differences=[], days=[violated], at=0, oldest_at=0, terms={})
    pending = SimpleNamespace(refusal_reason={"refused": "upper was 1"}.get)
    accounts_of = SimpleNamespace(recorded_account=lambda name: last)
    tables = dict.fromkeys(("good", "refused"), join())
    monkeypatch.setattr(status, "_progress", lambda engine, name: {})
    engine = cast(Engine, SimpleNamespace(pending=pending, accounts=accounts_of, assets=tables))
    laws = {name: status._recorded_table(engine, name)["law"] for name in tables}  # pyright: ignore[reportPrivateUsage]
    assert laws["good"]["days_to_rebuild"]["first"] == "2026-03-01"
    assert "days_to_rebuild" not in laws["refused"]
    assert laws["refused"]["broken"] == laws["good"]["broken"]


def test_a_recount_of_an_empty_lake_has_every_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock) -> None:
    sums = DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))
    engine = bare_engine(tmp_path, clock, [source("l"), source("r")], [join(), sums])
    found = json.loads(_status(monkeypatch, engine, "--recount", "--json")[0])["assets"]
    terms: dict[str, Any] = {term: {} for term in (*TERMS, "filtered", "missing", "extra")}
    law = {"holds": True, "broken": [], "ledger_differs_from_log": []}
    for name, number in (("pairs", "pairs"), ("sums", "results")):
        counted = {key: value for key, value in found[name].items() if key in ("pairs", "results", "law", *terms)}
        assert counted == {number: 0, "law": law, **terms}


@pytest.mark.parametrize("damaged", ["counts", "changelog/sums"])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_table_that_cannot_be_read_is_named_and_others_are_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock, damaged: str, as_json: bool
) -> None:
    name = damaged.rpartition("/")[2]
    counts = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
    tables = [
        DerivedAsset(name="counts", inputs=("l",), operator=counts),
        DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"})),
        DerivedAsset(name="top", inputs=(name,), operator=TopN(by="k", order_by="n DESC", rank_end=1)),
        join(),
    ]
    engine = bare_engine(tmp_path, clock, [source("l"), source("r")], tables)
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START - MINUTE)
    log = Path(engine.lake.path(damaged), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("x")
    out, error = _status(monkeypatch, engine, *["--json"] * as_json)
    assert isinstance(error, StatusError)
    assert f"the Delta log of {damaged} cannot be read" in out
    if as_json:
        assets = json.loads(out)["assets"]
        assert {table for table in assets if "refused" not in assets[table]["law"]} == {"counts", "sums", "pairs"} - {name}
        assert assets["pairs"]["steps"] == 1
        assert assets[name].keys() == assets["pairs"].keys()
    else:
        assert f"{name}: cannot be accounted for: the Delta log of {damaged}" in out


FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)


def _accounts(*days: date, matched: int = 1) -> list[DayAccount]:
    return [DayAccount(side, day, accepted=1, matched=matched) for day in days for side in ("l", "r")]


def test_an_account_of_days_replaces_those_of_these_days_only(engine: Engine) -> None:
    assert engine.accounts.recorded_account("pairs") is None
    assert recorded_status(engine, ["pairs"])["assets"]["pairs"]["last_account"] is None
    record_accounts(engine, "pairs", _accounts(FIRST, SECOND, matched=0))
    later = replace(engine, clock=lambda: engine.clock() + 1000)
    record_accounts(later, "pairs", _accounts(SECOND), {}, (SECOND, SECOND))
    found = later.accounts.recorded_account("pairs")
    assert found is not None
    assert [(d.side, d.day) for d in found.violations] == [("l", "2026-03-01"), ("r", "2026-03-01")]
    assert found.terms["matched"] == {"l": 1, "r": 1}
    assert (found.oldest_at, found.at) == (engine.clock(), engine.clock() + 1000)
    record_accounts(later, "pairs", _accounts(FIRST), {}, (FIRST, FIRST))
    assert later.accounts.recorded_account("pairs").holds
    record_accounts(later, "pairs", _accounts(FIRST))
    assert len(later.accounts.recorded_account("pairs").days) == 2


def test_an_account_of_ten_years_is_recorded(engine: Engine) -> None:
    days = [FIRST + timedelta(days=n) for n in range(3_650)]
    record_accounts(engine, "pairs", _accounts(*days))
    assert engine.accounts.recorded_account("pairs").terms["accepted"] == {"l": 3_650, "r": 3_650}


def test_a_table_without_an_account_by_day_holds(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    record_accounts(engine, "pairs", [])
    assert "holds   2026-03-01 12:00" in _status(monkeypatch, without_session(engine))[0]


def test_a_difference_between_ledger_and_log_is_shown(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    record_accounts(engine, "pairs", _accounts(FIRST), {("l", 1): (3, 2)})
    out, error = _status(monkeypatch, without_session(engine))
    assert isinstance(error, StatusError)
    assert "pairs: ledger and log differ for l, batch 1: 3 rows in the ledger, 2 in the log" in out
    record_accounts(engine, "pairs", [], {("r", 1): (3, 0)}, (SECOND, SECOND))
    assert [one[:2] for one in engine.accounts.recorded_account("pairs").differences] == [("r", 1), ("l", 1)]
    record_accounts(engine, "pairs", _accounts(FIRST))
    assert engine.accounts.recorded_account("pairs").holds


def test_a_violation_on_the_last_day_of_the_calendar_names_that_day(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    record_accounts(engine, "pairs", _accounts(date.max, matched=0))
    error = _status(monkeypatch, without_session(engine))[1]
    assert "`tidemark backfill --from 9999-12-31 --to 9999-12-31 --rebuild`" in str(error)


def test_an_account_of_a_table_that_was_rebuilt_since_is_not_recorded(engine: Engine) -> None:
    snapshot = engine.snapshot()
    assert [*engine.rebuild_tables(["pairs"])]
    record_accounts(snapshot, "pairs", _accounts(FIRST, matched=0))
    assert engine.accounts.recorded_account("pairs") is None


def _rebuild_table(engine: Engine) -> None:
    assert [*engine.rebuild_tables(["pairs"])]


def _repair(engine: Engine) -> None:
    assert engine.rebuild_days("pairs").missing == 1


@pytest.mark.parametrize("change", [_rebuild_table, _repair])
def test_an_account_of_rows_that_are_replaced_meanwhile_is_not_recorded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, change: Callable[[Engine], None]
) -> None:
    DeltaTable(engine.lake.path("pairs")).delete("left_v = 1")
    compare = accounts.count_batches
    monkeypatch.setattr(accounts, "count_batches", lambda *args: (change(engine), compare(*args))[1])
    found, _ = engine.accounts.account_for("pairs")
    assert not all(account.holds for account in found)
    assert engine.accounts.recorded_account("pairs") is None


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"table": 1}', b'{"table": "x", "days": [{"side": "l", "day": "x"}]}', b"\xff", b"null"])
def test_a_damaged_file_is_ignored_and_replaced(monkeypatch: pytest.MonkeyPatch, engine: Engine, damage: bytes) -> None:
    record_accounts(engine, "pairs", _accounts(FIRST))
    [file] = (Path(engine.lake.root) / FOLDER).iterdir()
    file.write_bytes(damage)
    assert "never" in _status(monkeypatch, without_session(engine))[0]
    record_accounts(engine, "pairs", _accounts(FIRST), {}, (FIRST, FIRST))
    assert engine.accounts.recorded_account("pairs").holds


def test_the_account_of_an_earlier_table_is_ignored(engine: Engine) -> None:
    record_accounts(engine, "pairs", _accounts(FIRST))
    [file] = (Path(engine.lake.root) / FOLDER).iterdir()
    file.write_text(file.read_text().replace(engine.lake.identity("pairs"), "another"))
    assert engine.accounts.recorded_account("pairs") is None


def test_a_lake_that_cannot_be_written_to_only_warns(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    (Path(engine.lake.root) / FOLDER).write_text("a file where the folder should be")
    record_accounts(engine, "pairs", _accounts(FIRST))
    assert "the account of pairs was not recorded for `tidemark status`" in caplog.text


def test_an_account_is_recorded_in_a_lake_behind_a_uri(engine: Engine) -> None:
    behind = replace(engine, lake=replace(engine.lake, root=f"file://{engine.lake.root}", leases=True))
    assert not behind.lake.is_local
    for days in ((FIRST,), (SECOND,)):
        record_accounts(behind, "pairs", _accounts(*days), {}, (days[0], days[0]))
    assert len(behind.accounts.recorded_account("pairs").days) == 4
    behind.accounts.forget("pairs")
    behind.accounts.forget("pairs")
    assert behind.accounts.recorded_account("pairs") is None


def test_watch_refreshes_the_status_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    shown, slept = without_session(engine), list[float]()
    commit = max((Path(engine.lake.path("pairs")) / "_delta_log").glob("0*.json"))
    whole = commit.read_text()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt
        commit.write_text("{" if len(slept) == 1 else whole)

    monkeypatch.setattr(watch, "_engine", lambda: shown)
    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    texts = list[str]()
    monkeypatch.setattr(watch, "_report", lambda *arguments, report=watch._report: texts.append(report(*arguments)) or texts[-1])
    assert CliRunner().invoke(cli.app, ["watch", "--every", "5 s"]).exit_code == 0
    assert slept == [5, 5, 5]
    assert ["error" in text for text in texts] == [False, True, False]
    assert "pairs   2026-03-01 23:58:59" in texts[2]


def test_watch_prints_each_state_once_in_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock) -> None:
    """There, a live display adds its present text to all that its console prints, also to the text of the next state."""
    engine, texts = bare_engine(tmp_path, clock, [source("l"), source("r")], [join()]), list[str]()

    def sleep(_: float) -> None:
        if len(texts) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "_engine", lambda: engine)
    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(watch, "_report", lambda *arguments, report=watch._report: texts.append(report(*arguments)) or texts[-1])
    monkeypatch.setattr(watch, "Terminal", partial(Terminal, force_terminal=True, force_interactive=True))
    monkeypatch.setattr(render.out, "_force_terminal", True)
    monkeypatch.setattr(render.out, "is_interactive", True)
    assert CliRunner().invoke(cli.app, ["watch"]).exit_code == 0
    assert texts[1:] == texts[:1] * 2


@pytest.mark.parametrize(
    "error", [DeltaError("no route to the store"), OSError("no route to the store"), LakeError("no route to the store")]
)
def test_watch_survives_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(status, "recorded_status", fail)
    assert "error: no route" in watch._report(cast(Any, None), [])


@pytest.mark.parametrize("version", ["", "1"])
def test_code_that_is_not_compared_is_named_unless_its_table_has_a_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock, version: str
) -> None:
    code = {name: replace(join(), name=name, shape=lambda rows: rows, version=version) for name in ("pairs", "more")}
    engine = bare_engine(tmp_path, clock, [source("l"), source("r")], [*code.values(), replace(join(), name="plain")])
    found = json.loads(_status(monkeypatch, engine, "--json")[0])["assets"]
    parts = {} if version else {name: ["shape"] for name in code}
    assert {name: table["code_without_version"] for name, table in found.items() if "code_without_version" in table} == parts
    line = (
        "The engine cannot compare the code of tables without a `version`: pairs (shape), more (shape). When you change that code, give "
        "the table a `version`, and run `tidemark rebuild NAME --downstream`.\n"
    )
    for options in ((), ("--recount",)):
        assert (line in _status(monkeypatch, engine, *options)[0]) == (not version)


def test_code_is_named_also_in_a_table_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, [source("l"), source("r")], [replace(join(), shape=lambda rows: rows)])
    log = Path(engine.lake.path("pairs"), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("x")
    [table] = json.loads(_status(monkeypatch, engine, "--json")[0])["assets"].values()
    assert "cannot be read" in table["law"]["refused"]
    assert table["code_without_version"] == ["shape"]
