"""Views of a table: its present state, an earlier state, or with early results; and the Delta table that an export writes."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from assets.contracts import DerivedAsset
from operators import EveryStep, OperatorError, Tumbling, WindowedAggregate
from platform_defs.cli import tables as cli
from platform_defs.cli.commands import app
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.operations import export as operation
from platform_defs.engine.operations.export import ExportFolderError, View, ViewError, delete_old_files, view_of
from platform_defs.engine.operations.publish import PublishError
from tests.conftest import MakeEngine
from tests.support.bare_lake import bare_engine
from tests.support.clock import NOON, Clock
from tests.support.example_operators import RunningTotal
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, START, Event, replay, rows_of, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="5 minutes"), aggregates={"n": "count(*)"}, early=EveryStep())
ASSETS = [DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()), DerivedAsset(name="counts", inputs=("l",), operator=COUNT)]


def test_a_time_without_an_offset_is_utc() -> None:
    assert view_of("total", as_of="1970-01-01T00:00:01").as_of == 1_000
    assert view_of("total", event_times_to="1970-01-01T01:00:00.5+01:00").event_times_to == 500
    assert view_of("total") == View("total")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"as_of": "yesterday"}, "`as_of` is 'yesterday'; legal: a time such as 2026-11-22T08:30:00Z; without an offset it is UTC"),
        ({"event_times_to": ""}, "`event_times_to` is ''; legal: a time such as"),
        ({"early": True, "as_of": "2026-01-01"}, "`early` and `as_of` are given; legal: only one of them"),
    ],
)
def test_an_illegal_view_is_refused(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ViewError, match=message):
        view_of("total", **parameters)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("error", [ViewError, PublishError])
def test_a_refused_folder_is_shown_without_credentials(error: type[ViewError] | type[PublishError]) -> None:
    text = str(error.bad_folder("s3a://user:secret@bucket/out", "a path"))
    assert "bucket/out" in text
    assert "secret" not in text
    assert "user" not in text


def test_a_table_is_shown_and_exported_in_its_present_state_an_earlier_one_and_with_early_results(
    make_engine: MakeEngine, clock: Clock, tmp_path: Path
) -> None:
    engine, target = make_engine([source("l")], ASSETS), str(tmp_path / "export")
    with pytest.raises(ViewError, match=r"counts has no rows yet: no step of it is committed\. `tidemark advance counts` advances it"):
        engine.views.show(View("counts"))
    with pytest.raises(ViewError, match="`table` is 'sums'; legal: total, counts"):
        engine.views.show(View("sums"))
    for batch in ([Event("a", 1, 0)], [Event("b", 2, 6 * MINUTE)]):
        replay(engine, [{"l": batch}])
        clock.pass_ms(MINUTE)
        engine.advance("total")
    engine.advance("counts")

    then, exported = View("total", as_of=NOON + MINUTE), engine.views.export(View("total"), target)
    frames = {"earlier": engine.views.show(then), "up to an event time": engine.views.show(View("total", event_times_to=START))}
    rows = values_of({"now": engine.views.table("total"), "exported": engine.spark.read.format("delta").load(target), **frames})
    now, earlier = rows["now"], rows["earlier"]
    assert exported == {"folder": target, "rows": len(now)}
    assert rows["exported"] == now != earlier == rows["up to an event time"]
    DeltaTable(target).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    first_files = {*DeltaTable(target).file_uris()}
    assert engine.views.export(then, target)["rows"] == len(earlier), "an export replaces the content of the folder"
    assert all(Path(file).exists() for file in first_files)
    assert engine.views.export(View("total"), target)["rows"] == len(now)
    assert not any(Path(file).exists() for file in first_files)
    assert rows_of(engine.views.show(View("counts", early=True)), "k", "n", "is_final") == [("a", 1, True), ("b", 1, False)]
    with pytest.raises(OperatorError, match="counts"):
        engine.views.show(View("counts", as_of=NOON))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        ViewError, match=r"^`folder` is '.*/file/out'; legal: a folder or a bucket to which this process and Spark can write"
    ):
        engine.views.export(View("total"), str(tmp_path / "file" / "out"))
    with pytest.raises(ViewError, match="legal: a folder outside the lake"):
        engine.views.export(View("total"), engine.lake.path("mine"))


def test_files_of_earlier_exports_are_deleted_after_their_retention(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target, kept = tmp_path / "copy", {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    delete_old_files(str(target), None)
    for n in range(3):
        write_deltalake(target, pa.table({"n": [n]}), mode="overwrite", configuration=kept)
    (target / "mine.csv").write_text("n")
    os.utime(target / "mine.csv", (0, 0))
    delete_old_files(str(target), None)
    assert [*target.glob("*.parquet")] == [Path(file) for file in DeltaTable(target).file_uris()]
    assert (target / "mine.csv").exists()
    assert not caplog.records
    (target / "_delta_log" / "00000000000000000000.json").write_text("{")
    delete_old_files(str(target), None)
    assert "the old files of the export" in caplog.text


@pytest.mark.parametrize("command", [["show"], ["export"], ["show", "--early"], ["export", "--early"]])
@pytest.mark.parametrize(("table", "message"), [("totl", "`table` is 'totl'; legal: total, counts"), ("counts", "counts has no rows yet")])
def test_a_command_refuses_a_table_without_rows_without_a_session(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], table: str, message: str
) -> None:
    engine = bare_engine(tmp_path, clock, [source("l")], ASSETS)
    monkeypatch.setattr(cli, "_engine", lambda: engine)
    with pytest.raises(ViewError, match=message):
        CliRunner().invoke(app, [*command, table, *[str(tmp_path / "out")] * (command[0] == "export")], catch_exceptions=False)


@pytest.mark.parametrize("error", [OSError("NoSuchBucket"), OSError("Connection refused")])
def test_a_store_that_refuses_an_export_is_not_the_store_of_the_lake(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """An error of the export's store has the same text as one of the lake's store, and must not be reported as such."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(operation, "hadoop_file", fail)
    lake, rows = Lake("s3a://prod/lake"), cast(Any, SimpleNamespace(sparkSession=None))
    with (
        pytest.raises(ExportFolderError, match=rf"`folder` is 's3a://typo/copy'; legal: a folder or a bucket to .* \({error}\)"),
        naming_lost_files(lake, []),
    ):
        operation.export(rows, lake, "s3a://typo/copy")
