"""The check of identifiers finds vague names, from any working directory, and does not pass without a file to check."""

import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = spec_from_file_location("words", PROJECT / ".ci/words.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_vague_name_is_found(words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "sides.py").write_text("count = 1\n\n\nclass _Done:\n    def _is(self, told): ...\n")
    assert words.main(tmp_path, ["package"]) == 1
    found = [line.split(":")[1:3] for line in capsys.readouterr().out.splitlines()]
    assert found == [[line, f" `{name}` is too vague"] for line, name in (("1", "sides"), ("4", "_Done"), ("5", "_is"), ("5", "told"))]


def test_a_folder_without_a_module_is_a_fault(words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words.main(tmp_path, ["absent"]) == 1
    assert "absent has no Python file" in capsys.readouterr().out


def test_paths_are_relative_to_the_project(words: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert words.main(folders=[".ci"]) == 0


def test_every_folder_with_a_module_is_checked(words: ModuleType) -> None:
    if not (PROJECT / ".git").exists():
        pytest.skip("this is no git checkout, so it is unknown which files belong to the project")
    files = subprocess.run(["git", "ls-files", "*.py"], cwd=PROJECT, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {*words.FOLDERS} == {Path(file).parts[0] for file in files if "/" in file}
