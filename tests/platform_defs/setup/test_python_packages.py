"""`make setup` installs the locked Python packages, also from a mirror. In the tests, `uv` only records its arguments."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from platform_defs.settings import PROJECT

STAMP = ".tidemark/setup.stamp"
LOCKED = "sync --frozen"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with an environment, and a program `uv` that records its arguments."""
    shutil.copyfile(PROJECT / "Makefile", tmp_path / "Makefile")
    for name in ("pyproject.toml", "uv.lock"):
        (tmp_path / name).touch()
    for program, script in ((".venv/bin/python", 'case "$*" in -c*import*) exit 1; esac'), ("bin/uv", 'echo "$@" >> uv.log')):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / program).chmod(0o755)
    return tmp_path


def commands_of_uv(folder: Path, target: str = STAMP, **variables: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "UV_", "MFLAGS"))}
    environment = {**kept, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **variables}
    subprocess.run(["make", target], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return (folder / "uv.log").read_text().splitlines()


def test_packages_come_from_the_addresses_in_the_lock_file(folder: Path) -> None:
    assert commands_of_uv(folder) == [LOCKED]


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_with_a_mirror_packages_are_installed_by_their_hashes_before_the_sync(folder: Path, variable: str) -> None:
    *before, last = commands_of_uv(folder, **{variable: "https://mirror.example/simple"})
    assert before == [
        "export --frozen --quiet --no-emit-project --output-file .tidemark/requirements.txt",
        "pip install --python .venv/bin/python --require-hashes --requirement .tidemark/requirements.txt",
    ]
    assert last == LOCKED


@pytest.mark.parametrize("group", ["bench", "docs"])
def test_a_group_is_installed_from_the_mirror_too(folder: Path, group: str) -> None:
    assert commands_of_uv(folder, f"{group}-setup")[-1] == f"{LOCKED} --quiet --inexact --group {group}"
    (folder / "uv.log").unlink()
    assert commands_of_uv(folder, f"{group}-setup", UV_DEFAULT_INDEX="https://mirror.example/simple") == [
        f"export --frozen --quiet --no-emit-project --group {group} --output-file .tidemark/requirements.txt",
        "pip install --python .venv/bin/python --require-hashes --requirement .tidemark/requirements.txt",
        f"{LOCKED} --quiet --inexact --group {group}",
    ]
