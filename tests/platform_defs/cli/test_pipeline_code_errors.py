"""The command line shows an error of the code in the user's pipeline in one line, and its traceback on request."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from pyspark.errors import PySparkException

from operators.errors import TidemarkError
from platform_defs.cli.main import main
from platform_defs.pipelines.user_code import UserCodeError
from platform_defs.settings import settings
from tests.support.modules import modules_of


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "of_unknown_name.py"
    file.write_text("a = 1\npipeline = b\n")
    monkeypatch.setattr("sys.argv", ["tidemark", "status"])
    monkeypatch.setenv("TIDEMARK_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("TIDEMARK_PIPELINE", str(file))
    settings.cache_clear()
    with modules_of(tmp_path):
        yield file
    settings.cache_clear()


def test_an_error_is_one_line_with_the_line_in_the_users_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^1$"):
        main()
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: TIDEMARK_PIPELINE is '{file}': {file}, line 2: NameError: name 'b' is not defined\n"


def test_a_pipeline_that_ends_the_process_is_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("import sys\n\nsys.exit(0)\n")
    with pytest.raises(SystemExit, match=r"^1$"):
        main()
    assert capsys.readouterr() == ("", f"error: TIDEMARK_PIPELINE is '{file}': {file}, line 3: SystemExit: 0\n")


def test_the_error_is_raised_with_its_cause_on_request(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_TRACEBACK", "1")
    with pytest.raises(UserCodeError, match="line 2: NameError") as raised:
        main()
    assert isinstance(raised.value.__cause__, NameError)


def test_an_error_of_a_parameter_ends_with_the_line_in_the_users_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("from operators import IntervalJoin\n\njoin = IntervalJoin(\n    on='k', lower=0, upper='1 hour', how='outer'\n)\n")
    with pytest.raises(SystemExit, match=r"^1$"):
        main()
    assert capsys.readouterr().err == f"error: `how` is 'outer'; legal: inner, left, right, full, semi, anti ({file}, line 3)\n"


def test_an_error_of_spark_that_another_error_names_is_raised_on_request(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise TidemarkError("an expression fails") from PySparkException("quotes a row")

    monkeypatch.setattr(typer.main, "get_command", lambda _: SimpleNamespace(main=fail))
    with pytest.raises(SystemExit, match=r"^1$"):
        main()
    assert capsys.readouterr().err == "error: an expression fails\n"
    monkeypatch.setenv("TIDEMARK_TRACEBACK", "1")
    settings.cache_clear()
    with pytest.raises(TidemarkError, match="an expression fails") as raised:
        main()
    assert isinstance(raised.value.__cause__, PySparkException)
