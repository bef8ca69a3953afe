"""A command in the folder of a pipeline whose settings are not loaded warns that it works on the example shop."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_defs.cli.main import main
from platform_defs.settings import settings

WARNING = (
    "warning: TIDEMARK_PIPELINE is not set, so this command uses the example shop; "
    "to load the settings of this folder: set -a; . ./.env; set +a\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / ".env").write_text(f"TIDEMARK_PIPELINE={tmp_path}/pipeline.py\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMARK_LAKE", str(tmp_path / "lake"))
    monkeypatch.delenv("TIDEMARK_PIPELINE", raising=False)
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["tidemark", *arguments])
    main()


def test_the_warning_is_on_stderr_and_json_stays_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _run(monkeypatch, "status", "--json")
    out, err = capsys.readouterr()
    assert err == WARNING
    assert "payment_order_wide" in json.loads(out)["assets"]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "A=1 # TIDEMARK_PIPELINE=old.py\nMY_TIDEMARK_PIPELINE=x",
        *(f"TIDEMARK_PIPELINE={empty}\n" for empty in ("", '""', "''", ";")),
    ],
)
def test_a_folder_without_settings_of_a_pipeline_gives_no_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    (folder / ".env").unlink() if text is None else (folder / ".env").write_text(text)
    _run(monkeypatch, "status", "--json")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("before", ["export ", "export A=1 ", "A=1; ", "A=1;", "declare -x ", "  "])
def test_an_assignment_anywhere_in_a_line_is_a_setting(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: str
) -> None:
    (folder / ".env").write_text(f"TIDEMARK_LAKE=/srv/lake\n{before}TIDEMARK_PIPELINE='pipeline.py'\n")
    _run(monkeypatch, "status", "--json")
    assert capsys.readouterr().err == WARNING


def test_loaded_settings_give_no_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINE", "platform_defs.shop:absent")
    with pytest.raises(SystemExit, match=r"^1$"):
        _run(monkeypatch, "status")
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["new", "rides"], ["demo", "--help"], ["spark-config"]])
def test_commands_that_use_no_pipeline_give_no_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    _run(monkeypatch, *arguments)
    assert capsys.readouterr().err == ""
