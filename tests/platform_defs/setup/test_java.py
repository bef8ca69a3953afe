"""The search for a supported Java: its order, the versions, and the error if there is none."""

import os
from pathlib import Path

import pytest

from platform_defs.settings import settings
from platform_defs.setup import java


@pytest.fixture(autouse=True)
def _fresh_settings(monkeypatch: pytest.MonkeyPatch):
    for name in ("JAVA_HOME", "TIDEMARK_JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


def home_of(path: Path, release: str | None, prints: str = "exit 1") -> Path:
    program = path / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{prints}\n")
    program.chmod(0o755)
    if release is not None:
        (path / "release").write_text(release)
    return path


@pytest.mark.parametrize(
    ("release", "version"),
    [
        pytest.param('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n', 17, id="17"),
        pytest.param('JAVA_VERSION="21"\n', 21, id="a first release without dots"),
        pytest.param('JAVA_VERSION="1.8.0_402"\n', 8, id="before 9, with the major number second"),
    ],
)
def test_the_version_is_read_from_the_release_file(tmp_path: Path, release: str, version: int):
    assert java.java_version(home_of(tmp_path / "jdk", release)) == version


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for java is a shell script")
@pytest.mark.parametrize(
    ("prints", "version"),
    [
        pytest.param("""echo 'openjdk version "21.0.4" 2024-07-16' >&2""", 21, id="printed on stderr"),
        pytest.param("echo 'Unable to locate a Java Runtime.' >&2; exit 1", None, id="the stub of macOS"),
        pytest.param("echo hello", None, id="something else named java"),
    ],
)
def test_without_a_release_file_java_is_run_for_its_version(tmp_path: Path, prints: str, version: int | None):
    assert java.java_version(home_of(tmp_path / "jdk", None, prints)) == version


def test_a_folder_without_java_is_not_a_java_home(tmp_path: Path):
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.15"\n')
    assert java.java_version(tmp_path) is None


def test_a_folder_that_cannot_be_read_is_not_a_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home, good = (home_of(tmp_path / name, 'JAVA_VERSION="17.0.15"\n') for name in ("locked", "good"))
    is_file = Path.is_file

    def locked(path: Path) -> bool:
        if path.is_relative_to(home):
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", locked)
    assert java.find_java([home, good]) == str(good)


def test_the_first_supported_home_is_used(tmp_path: Path):
    homes = [home_of(tmp_path / version, f'JAVA_VERSION="{version}.0.1"\n') for version in ("11", "25", "21", "17")]
    assert java.find_java([tmp_path / "absent", *homes]) == str(tmp_path / "21")


def test_the_error_of_a_missing_java_says_how_to_install_one(tmp_path: Path):
    with pytest.raises(java.JavaNotFound, match="found no Java at all") as caught:
        java.find_java([tmp_path])
    for advice in ("apt-get install openjdk-17-jre-headless", "brew install openjdk@17", "winget install EclipseAdoptium.Temurin.17.JRE"):
        assert advice in str(caught.value)


def test_an_unsupported_newer_java_is_named_in_the_error(tmp_path: Path):
    home = home_of(tmp_path / "jdk", 'JAVA_VERSION="25.0.1"\n')
    with pytest.raises(java.JavaNotFound, match=r"needs Java 17 or 21; found Java 25 in .*jdk\b"):
        java.find_java([home])


@pytest.mark.parametrize("variable", ["JAVA_HOME", "TIDEMARK_JAVA_HOME"])
def test_the_setting_takes_precedence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str):
    monkeypatch.setenv(variable, str(tmp_path))
    assert next(java.java_homes()) == tmp_path


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a right on Windows")
def test_the_java_on_the_path_is_resolved_through_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    home = home_of(tmp_path / "jvm" / "jdk", 'JAVA_VERSION="17"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert next(java.java_homes()) == home.resolve()


@pytest.mark.skipif(os.name == "nt", reason="a link to a folder needs a right on Windows")
def test_well_known_folders_are_searched_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    homes = [home_of(tmp_path / "jvm" / name, 'JAVA_VERSION="17"\n') for name in ("a", "b")]
    monkeypatch.setenv("JAVA_HOME", str(home_of(tmp_path / "set", 'JAVA_VERSION="17"\n')))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java, "_KNOWN_FOLDERS", (f"{tmp_path}/jvm/*", "C:/Program Files/*/jdk*"))
    monkeypatch.setattr("sys.platform", "linux")
    assert list(java.java_homes()) == [tmp_path / "set", *homes]
