"""`tidemark new` writes a pipeline that works: its settings are found, its tests pass, its sample rows make tables."""

import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from platform_defs.cli import commands as cli
from platform_defs.cli.arguments import ArgumentError
from platform_defs.cli.new import TEMPLATE
from platform_defs.definitions import build
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.pipelines import load
from platform_defs.settings import Settings
from platform_defs.testing import Sandbox
from tests.support.modules import modules_of


@pytest.fixture(params=["pipeline.py", "pipeline.yaml", "pipeline.sql"])
def pipeline(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(tmp_path: Path, pipeline: str) -> Iterator[Path]:
    target = tmp_path / "my rides"
    options = {"pipeline.yaml": ["--yaml"], "pipeline.sql": ["--sql"]}.get(pipeline, [])
    result = CliRunner().invoke(cli.app, ["new", str(target), "--json", *options])
    assert json.loads(result.output)["files"] == [
        ".env",
        "README.md",
        "landing/fares/2026-03-01.csv",
        "landing/rides/2026-03-01.csv",
        pipeline,
        "test_pipeline.py",
    ]
    with modules_of(tmp_path):
        yield target


def test_a_shell_and_dagster_read_the_settings(folder, pipeline):
    script = 'set -a; . ./.env; python3 -c "import os, json; print(json.dumps(dict(os.environ)))"'
    loaded = json.loads(subprocess.run(["/bin/sh", "-c", script], cwd=folder, capture_output=True, check=True, text=True).stdout)
    values = {name.removeprefix("TIDEMARK_").lower(): value for name, value in loaded.items() if name.startswith("TIDEMARK_")}
    assert values["pipeline"] == f"{folder}/{pipeline}"
    settings = Settings(**values)
    assert (settings.lake, settings.landing) == (f"{folder}/lake", f"{folder}/landing")
    checks = {c.name for c in build(settings).get_repository_def().asset_graph.asset_check_keys}
    assert {"join_completeness", "conservation_law"} <= checks
    assert ("amount_is_plausible" in checks) == (pipeline != "pipeline.sql")  # SQL has no expectations


def _module_of_tests(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("test_pipeline", folder / "test_pipeline.py")
    module = importlib.util.module_from_spec(spec)  # pyright: ignore[reportArgumentType]
    spec.loader.exec_module(module)  # pyright: ignore[reportOptionalMemberAccess]
    return module


@pytest.mark.parametrize("pipeline", ["pipeline.py", pytest.param("pipeline.sql", marks=pytest.mark.soak)])
def test_the_tests_of_the_new_pipeline_pass(spark, folder, pipeline, tmp_path):
    load(str(folder / pipeline))
    _module_of_tests(folder).test_rides_are_joined_and_counted(tmp_path / "sandbox")


@pytest.mark.parametrize("pipeline", ["pipeline.yaml", "pipeline.sql"])
def test_a_pipeline_in_another_language_has_the_same_tests(folder, pipeline):
    loaded, text = f'load(str(Path(__file__).with_name("{pipeline}")))', (folder / "test_pipeline.py").read_text()
    assert text.count(loaded) == 1
    _, marker, rows_and_tests = text.replace(loaded, "pipeline").partition("RIDES = ")
    assert marker
    assert rows_and_tests == (TEMPLATE / "test_pipeline.py").read_text().partition(marker)[2]
    assert _module_of_tests(folder).load is load


@pytest.mark.parametrize("pipeline", ["pipeline.sql"])
def test_the_sample_rows_make_every_table(spark, folder, pipeline, tmp_path):
    """The pipeline in YAML equals that in Python (`declared/test_pipeline.py`), whose tests pass."""
    sandbox = Sandbox(load(str(folder / pipeline)), tmp_path / "sandbox")
    for source in ("rides", "fares"):
        sandbox.land(source, "1.csv", (folder / "landing" / source / "2026-03-01.csv").read_text())
    sandbox.run()
    joined = sandbox.rows("ride_fares", "ride_id", "amount")
    assert len(joined) == 60
    assert [ride for ride, amount in joined if amount is None] == [f"ride-{n:02d}" for n in range(4, 60, 9)]
    assert sum(rides for _, rides in sandbox.rows("rides_per_hour", "zone", "rides")) == 60
    assert max(rank for (rank,) in sandbox.rows("busy_zones", "rank")) == 3
    with pytest.raises(IngestError, match="ridez"):
        sandbox.land("ridez", "1.csv", "")


@pytest.mark.parametrize("content", ["a file", "a folder with a file"])
def test_nothing_is_written_into_a_folder_that_contains_something(tmp_path, content):
    target = tmp_path / "taken"
    if content == "a file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    result = CliRunner().invoke(cli.app, ["new", str(target)])
    assert isinstance(result.exception, ArgumentError)
    assert "legal: a folder that is absent or empty; nothing was written" in str(result.exception)
    assert [p.name for p in tmp_path.rglob("*")] == ["taken", *(["mine"] if content != "a file" else [])]


def test_a_folder_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    result = CliRunner().invoke(cli.app, ["new", str(tmp_path)])
    assert isinstance(result.exception, ArgumentError)
    assert "legal: a folder that can be read and written to (Permission denied)" in str(result.exception)


def test_a_pipeline_is_written_in_one_language(tmp_path):
    result = CliRunner().invoke(cli.app, ["new", str(tmp_path / "rides"), "--yaml", "--sql"])
    assert str(result.exception) == "`--yaml` and `--sql` are both given; legal: at most one of them"


def test_an_illegal_variable_of_the_environment_is_no_fault_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEMARK_MAX_STEP", "abc")
    result = CliRunner().invoke(cli.app, ["new", str(tmp_path / "rides")])
    assert "`folder`" not in str(result.exception)


@pytest.mark.parametrize(
    ("name", "legal"), [("rides[1]", "a folder .*without"), ("proc/rides", "a folder that .*written to .*; if it has some")]
)
def test_a_folder_that_no_lake_can_use_is_refused(tmp_path, name, legal):
    target = "/proc/rides" if name.startswith("proc") else str(tmp_path / name)
    result = CliRunner().invoke(cli.app, ["new", target])
    assert isinstance(result.exception, ArgumentError)
    assert re.search(f"`folder` is .*; legal: {legal}", str(result.exception))
    assert [*tmp_path.iterdir()] == []
