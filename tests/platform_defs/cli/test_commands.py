"""The command line, end to end: the demo through Dagster, and the other commands on its lake."""

import csv
import io
import json
import shutil
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkValueError

from platform_defs.cli import commands as cli
from platform_defs.cli import render
from platform_defs.cli.demo_lake import DemoLake
from platform_defs.cli.main import main
from platform_defs.configured_engine import make_engine
from platform_defs.settings import settings
from platform_defs.simulator import QUARANTINED, SOURCES, Shop, simulate
from platform_defs.simulator.olist import ITEMS as ITEMS_FILE
from platform_defs.simulator.olist import ORDERS as ORDERS_FILE
from platform_defs.simulator.olist import PAYMENTS as PAYMENTS_FILE
from platform_defs.simulator.olist import PRODUCTS as PRODUCTS_FILE
from platform_defs.simulator.olist import prepare
from tests.support.shared_data import OLIST

ORDERS, PARTS = 200, 2
WIDE = "payment_order_wide"
LATENESS_ASSETS = {
    "orders": WIDE,
    "payments": WIDE,
    "order_items": "item_sales",
    "clicks": "item_clicks",
    "order_updates": "order_status_board",
}
"""For each source an asset that reads it, and that decides which of its rows are late."""
ASSETS = [WIDE, "order_wide", "payment_wide", "item_sales", "item_clicks", "item_conversion", "hot_items", "category_hot_items"]
LEADERBOARDS = ["seller_leaderboard", "seller_revenue", "category_leaderboard", "order_status_board"]
ALL = [*ASSETS, *LEADERBOARDS]


@dataclass(frozen=True)
class Result:
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)


def tidemark(*args: str) -> Result:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    settings.cache_clear()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["tidemark", *args])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    settings.cache_clear()
    return Result(code, out.getvalue(), err.getvalue())


def _use_lake(patch: pytest.MonkeyPatch, root: Path) -> Path:
    """Set the environment to a separate lake of this test."""
    values = {"LAKE": root / "lake", "DAGSTER_HOME": root / "lake/_dagster", "SHUFFLE_PARTITIONS": 2, "DRIVER_MEMORY": "3g"}
    for name, value in values.items():
        patch.setenv(f"TIDEMARK_{name}", str(value))
    return root / "lake"


@pytest.fixture
def lake(monkeypatch, tmp_path):
    return _use_lake(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def demo(spark, tmp_path_factory):
    """A small demo. The settings name the user's lake during the demo, and the demo's lake afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("demo")
        user_lake = _use_lake(patch, root / "users")
        (user_lake / "landing/orders").mkdir(parents=True)
        (user_lake / "landing/orders/mine.csv").write_text("precious")
        (user_lake / "_made_by_the_demo").write_text("The demo empties this folder each time it starts.\n")
        report = tidemark("demo", "--orders", str(ORDERS), "--parts", str(PARTS), "--lake", str(root / "lake"), "--json").json
        assert sorted(p.name for p in user_lake.rglob("*")) == ["_made_by_the_demo", "landing", "mine.csv", "orders"]
        assert not (root / "users/dagster").exists()
        _use_lake(patch, root)
        yield report


@pytest.fixture(scope="module")
def drained(demo):
    return tidemark("drain", "--json").json


def _planned(source: str) -> Counter[str]:
    return Counter(getattr(simulate(Shop(orders=ORDERS, parts=PARTS)).truth, source))


def test_the_demo_reports_the_simulated_rows(demo):
    assert {source: Counter(kinds) for source, kinds in demo["planned"].items()} == {source: _planned(source) for source in SOURCES}


@pytest.mark.parametrize("source", SOURCES)
def test_the_demo_ingests_the_planned_rows(demo, source):
    planned, counts = _planned(source), demo["status"]["sources"][source]
    assert counts["rows_read"] == planned.total()
    assert counts["duplicate"] == planned["duplicate"]
    assert counts["quarantined"] == sum(planned[kind] for kind in QUARANTINED)
    assert counts["accepted"] == planned["clean"] + planned["late"]


@pytest.mark.parametrize("source", SOURCES)
def test_the_demo_accounts_for_every_row(demo, source):
    asset = demo["status"]["assets"][LATENESS_ASSETS[source]]
    assert asset["late"][source] == (0 if LATENESS_ASSETS[source] in LEADERBOARDS else _planned(source)["late"])
    assert _planned(source)["late"] > 0
    assert asset["accepted"][source] == sum(asset[term][source] for term in ("matched", "unmatched", "pending", "late"))
    assert asset["accepted"][source] == demo["status"]["sources"][source]["accepted"]


@pytest.mark.parametrize("asset", ALL)
def test_the_demo_checks_the_conservation_law_of_every_asset(demo, asset):
    account = demo["status"]["assets"][asset]
    assert account["law"] == {"holds": True, "broken": [], "ledger_differs_from_log": []}
    assert sum(account["matched"].values()) > 0 or asset == "category_leaderboard"
    assert account.get("results", 1) > 0


def test_the_demo_lists_its_tables_and_the_ui_command(demo):
    assert {"ledger", "events/orders", "events/payments", *ASSETS, *LEADERBOARDS} <= set(demo["tables"])
    assert all((Path(path) / "_delta_log").is_dir() for path in demo["tables"].values())
    lake = demo["status"]["lake"]
    days = "TIDEMARK_FIRST_DAY=2026-03-01 TIDEMARK_LAST_DAY=2026-03-02"
    assert demo["ui"] == f"TIDEMARK_LAKE={lake} TIDEMARK_DAGSTER_HOME={lake}/_dagster {days} make ui"


def test_the_demo_recognizes_its_own_lake(demo):
    """No file that a demo writes prevents the next demo from emptying the lake."""
    folder = DemoLake(Path(demo["status"]["lake"]))
    folder.require_own(make_engine(settings()))


def test_the_demo_records_its_runs_in_dagster(demo):
    import dagster as dg

    with dg.DagsterInstance.from_config(str(Path(settings().dagster_home))) as instance:
        runs = Counter((run.job_name, run.status.value) for run in instance.get_runs())
        assert runs == {("ingest", "SUCCESS"): PARTS, ("advance", "SUCCESS"): PARTS}
        assert instance.get_materialized_partitions(dg.AssetKey(WIDE)) == {"2026-03-01", "2026-03-02"}


def test_status_as_tables_fits_a_narrow_terminal(demo):
    result = tidemark("status", "--recount", WIDE)
    assert "The conservation law holds" in result.out
    assert "…" not in result.out


@pytest.fixture(scope="module")
def maintained(demo):
    """The report of the maintenance, by table, and the tables of a second one by Dagster."""
    from platform_defs.definitions import build

    tables = {t["table"]: t for t in tidemark("maintain", "--json").json["tables"]}
    run = build(settings()).resolve_job_def("maintenance").execute_in_process()
    [output] = [e for e in run.all_events if e.is_successful_output]
    return tables, set(output.step_output_data.metadata)


@pytest.fixture(scope="module")
def rebuilt(maintained):
    """The report of a rebuild of a day, after the maintenance."""
    return tidemark("backfill", "--from", "2026-03-01", "--to", "2026-03-01", "--rebuild", "--json").json


def test_maintenance_by_command_and_by_dagster_covers_every_table(maintained):
    tables, of_dagster = maintained
    others = [f"{folder}/{source}" for folder in ("events", "quarantine") for source in SOURCES]
    assert set(tables) == {"ledger", *ALL, *others, *[f"changelog/{name}" for name in LEADERBOARDS], "kept_rows/order_status_board"}
    assert {(t["left"], t["after"] == t["before"] > 0) for t in tables.values()} == {(None, True)}
    assert of_dagster == set(tables)


def test_late_shows_the_late_rows(demo):
    result, late = tidemark("late", "payments"), _planned("payments")["late"]
    assert result.code == 0
    assert result.out.count("2026-03-0") >= late
    assert "payment_id" in result.out
    assert f"Late rows of payments for payment_order_wide: {late}" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    assert tidemark("late", "clicks", "--json").json["asset"] == "item_clicks", "the first asset that reads the source"
    report = tidemark("late", "payments", "--limit", "1", "--json").json
    assert (report["source"], report["asset"], report["total"], len(report["rows"])) == ("payments", WIDE, late, 1)
    assert {"payment_id", "event_time", "seq", "arrival"} <= set(report["rows"][0])
    assert tidemark("late", "payments", "--limit", "1").out.startswith(f"Late rows of payments for payment_order_wide: {late}, of which 1")


def test_control_sequences_in_a_row_are_escaped(demo, monkeypatch):
    """Control sequences, markup and bidirectional overrides in a row, printed in a table and in an error."""
    evil = "\x1b[31m\x9b2J[bold]:warning:\u202e\x07"
    shown = render.late_rows(make_engine(settings()), "payments", WIDE, 2)
    shown["rows"][0]["payment_id"] = shown["rows"][1]["payment_id"] = evil
    monkeypatch.setattr(render, "late_rows", lambda *_: shown)
    for width in ("80", "400"):
        monkeypatch.setattr(render.out, "_width", int(width))
        result = tidemark("late", "payments")
        assert r"\x1b[31m\x9b2J[bold]:warning:\u202e\x07" in result.out
        assert result.out.replace("\n", "").isprintable()


def test_rebuilding_a_correct_day_repairs_nothing(rebuilt):
    assert rebuilt == {
        "rebuilt": [{"asset": name, "days_corrected": [], "missing": 0, "extra": 0} for name in ALL],
        "steps": [],
    }


@pytest.mark.usefixtures("rebuilt")
def test_the_status_after_maintenance_and_a_rebuild_equals_the_report_of_the_demo(demo):
    assert tidemark("status", "--recount", "--json").json == demo["status"]


def test_a_second_advance_does_nothing(demo):
    assert tidemark("advance", "--json").json == {"steps": []}
    assert "every table is at its watermark." in tidemark("advance").out


def test_a_drain_finalizes_every_row(drained):
    truth = simulate(Shop(orders=ORDERS, parts=PARTS)).truth
    wide = tidemark("status", "--recount", WIDE, "--json").json["assets"][WIDE]
    assert [batch["kind"] for batch in drained["entries"]] == ["drain"]
    assert wide["pairs"] == truth.paid_within_on_time
    assert wide["pending"] == {"orders": 0, "payments": 0}
    assert wide["law"]["holds"]


def _naive_olist_result(data: Path, within: timedelta) -> dict[str, int]:
    """A naive join of Olist's files; the time of a payment is the approval of its order."""
    with (data / ORDERS_FILE).open(newline="", encoding="utf-8") as file:
        orders = {row["order_id"]: row for row in csv.DictReader(file)}
    with (data / PAYMENTS_FILE).open(newline="", encoding="utf-8") as file:
        payments = [orders.get(row["order_id"], {}) for row in csv.DictReader(file)]
    accepted = [order for order in payments if order.get("order_approved_at")]
    pairs = [order["order_id"] for order in accepted if timedelta(0) <= _delay_of_payment(order) <= within]
    return {
        "pairs": len(pairs),
        "orders": len(orders) - len(set(pairs)),
        "payments": len(accepted) - len(pairs),
        "accepted": len(accepted),
        "quarantined": len(payments) - len(accepted),
    }


def _delay_of_payment(order: dict[str, str]) -> timedelta:
    return datetime.fromisoformat(order["order_approved_at"]) - datetime.fromisoformat(order["order_purchase_timestamp"])


needs_olist = pytest.mark.skipif(not OLIST.is_dir(), reason=f"Olist's sample is not here: {OLIST}")


def _olist_result() -> dict[str, int]:
    status = tidemark("status", "--recount", WIDE, "--json").json
    wide, payments = status["assets"][WIDE], status["sources"]["payments"]
    assert wide["law"]["holds"]
    assert (wide["late"], wide["pending"]) == ({"orders": 0, "payments": 0}, {"orders": 0, "payments": 0})
    return {"pairs": wide["pairs"], **wide["unmatched"], "accepted": payments["accepted"], "quarantined": payments["quarantined"]}


@needs_olist
@pytest.mark.soak
def test_the_demo_of_olist_equals_a_naive_join(spark, lake, monkeypatch):
    assert tidemark("demo", "--data", str(OLIST), "--parts", "1", "--lake", str(lake), "--json").json["planned"] == {}
    monkeypatch.setenv("TIDEMARK_PAYMENT_WITHIN", "72 hours")
    assert (
        _olist_result()
        == _naive_olist_result(OLIST, timedelta(hours=72))
        == {"pairs": 8547, "orders": 340, "payments": 216, "accepted": 8763, "quarantined": 161}
    )


@pytest.fixture
def few_orders(tmp_path) -> Path:
    """Olist's files with a sixteenth of the orders, by the first digit of their ids, and all products."""
    folder = tmp_path / "olist"
    folder.mkdir()
    for name in (ORDERS_FILE, PAYMENTS_FILE, ITEMS_FILE):
        header, *lines = (OLIST / name).read_text("utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join([header, *(line for line in lines if line.startswith("0"))]), "utf-8")
    (folder / PRODUCTS_FILE).symlink_to(OLIST / PRODUCTS_FILE)
    return folder


@needs_olist
def test_the_join_interval_comes_from_the_environment(spark, lake, few_orders, monkeypatch):
    monkeypatch.setenv("TIDEMARK_PAYMENT_WITHIN", "24 hours")
    prepare(few_orders, lake / "landing")
    for source in ("order_items", "order_updates"):  # the join does not read them
        shutil.rmtree(lake / "landing" / source)
    assert len(tidemark("ingest", "--json").json["entries"]) == 1
    tidemark("drain", WIDE)
    found = _olist_result()
    assert found == _naive_olist_result(few_orders, timedelta(hours=24))
    assert all(found.values())


def test_an_empty_lake_is_reported_by_every_command(spark, lake):
    assert "nothing is finalized yet" in tidemark("status", "--recount").out
    assert "Nothing was ingested yet." in tidemark("late", "payments").out
    assert "Nothing new has landed." in tidemark("ingest").out
    report = tidemark("backfill", "--from", "2026-03-01", "--to", "2026-03-01", "--rebuild", "--json").json
    assert report == {
        "rebuilt": [{"asset": name, "days_corrected": [], "missing": 0, "extra": 0} for name in ALL],
        "steps": [],
    }


def test_a_lake_that_no_demo_made_is_refused_and_unchanged(lake):
    lake.mkdir()
    (lake / "precious").touch()
    result = tidemark("demo", "--lake", str(lake))
    assert result.code == 1
    assert "Nothing was deleted. Legal: a new or empty folder, or one of an earlier demo" in result.err
    assert [path.name for path in lake.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            ["backfill", "--from", "2026-03-02", "--to", "2026-03-01"], "`--from` is 2026-03-02 and `--to` is 2026-03-01", id="range"
        ),
        pytest.param(
            ["backfill", "--from", "yesterday", "--to", "2026-03-01"], "`--from` is 'yesterday'; legal: a day, YYYY-MM-DD", id="no day"
        ),
        pytest.param(
            ["backfill", "--from", "20260301", "--to", "2026-03-01"], "`--from` is '20260301'; legal: a day, YYYY-MM-DD", id="another form"
        ),
        pytest.param(
            ["backfill", "--from", "2026-03-01", "--to", "2026-02-30"], "`--to` is '2026-02-30'; legal: a day, YYYY-MM-DD", id="no such day"
        ),
        pytest.param(["status", "narrow"], "`assets` is 'narrow'; legal: payment_order_wide, order_wide", id="asset of a status"),
        pytest.param(["late", "refunds"], "`source` is 'refunds'; legal: orders, payments", id="source"),
        pytest.param(["late", "orders", "--asset", "narrow"], "`asset` is 'narrow'; legal: payment_order_wide, order_wide", id="asset"),
        pytest.param(["demo", "--parts", "0"], "--parts", id="parts"),
        pytest.param(["demo", "--orders", "0"], "--orders", id="orders"),
        pytest.param(["demo", "--data", "/nowhere"], "/nowhere", id="data"),
        pytest.param(["demo", "--lake", "s3a://b/x"], "`--lake` is 's3a://b/x'; legal: a folder on this machine", id="demo's lake"),
        pytest.param(["publish", "seller_leaderboard", "hdfs:/x"], "`folder` is 'hdfs:/x'; legal: a path", id="published folder"),
        pytest.param(["publish", "seller_leaderboard", "s3a://u:s3cret@b/x"], "`folder` is 's3a://***@b/x'", id="published secret"),
        pytest.param(["quarantine"], "quarantine` needs a command; legal: list, release, retry", id="no command"),
        pytest.param(["ingest", "--every", "0 s"], "`--every` is '0 s'; legal: a duration of more than zero", id="every"),
        pytest.param(["late", "orders", "--limit", "0"], "--limit", id="limit"),
        pytest.param(["late", "\x1b[31m"], r"`source` is '\x1b[31m'; legal", id="escapes"),
    ],
)
def test_a_wrong_argument_is_a_one_line_error(lake, args, message):
    result = tidemark(*args)
    assert result.code in (1, 2)
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("error: ")
    assert not lake.exists()


def test_a_wrong_setting_is_a_one_line_error(lake, monkeypatch):
    monkeypatch.setenv("TIDEMARK_PAYMENT_WITHIN", "[a while]")
    result = tidemark("status")
    assert result.code == 1
    assert result.err.startswith("error: TIDEMARK_PAYMENT_WITHIN is '[a while]': legal: ")


def _java_error(kind: str) -> Py4JJavaError:
    java = SimpleNamespace(_target_id="o1", getClass=lambda: SimpleNamespace(getName=lambda: kind))
    return Py4JJavaError("a row: MARKED", java)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(PySparkException("a row: MARKED", "CAST_INVALID_INPUT", {}), "PySparkException CAST_INVALID_INPUT", id="condition"),
        pytest.param(PySparkValueError("a row: MARKED"), "PySparkValueError", id="a ValueError too, no condition"),
        pytest.param(_java_error("org.apache.spark.SparkException"), "org.apache.spark.SparkException", id="Java's"),
    ],
)
def test_an_error_of_spark_is_named_without_its_text(lake, monkeypatch, error, expected):
    def fail():
        raise error

    monkeypatch.setattr(cli, "_engine", fail)
    result = tidemark("status")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"error: Spark failed with {expected}; its text may quote rows, so it is not shown. "
        "TIDEMARK_TRACEBACK=1 shows it, with the traceback\n"
    )
    monkeypatch.setenv("TIDEMARK_TRACEBACK", "1")
    with pytest.raises(type(error)) as shown:
        tidemark("status")
    assert shown.value is error
