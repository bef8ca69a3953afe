"""The log store is compiled at set-up; its errors contain no secrets."""

import subprocess
from pathlib import Path

import pytest

from platform_defs.setup import log_store

OUTPUT = "Picked up JAVA_TOOL_OPTIONS: -Dhttps.proxyPassword=hunter2\nerror: \x1b[31mexpected in http://user:s3cret@host/\n"


def test_the_error_of_a_failed_compilation_contains_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", OUTPUT)

    monkeypatch.setattr(log_store, "jars_folder", lambda: tmp_path)
    monkeypatch.setattr(log_store, "jar_paths", list[str])
    monkeypatch.setattr(log_store, "find_java", lambda: "/java")
    monkeypatch.setattr(subprocess, "run", fail)
    assert log_store.main() == 1
    message = "ConditionalLogStore.scala could not be compiled; Scala printed:\nerror: \\x1b[31mexpected in http://***@host/\n\n"
    assert capsys.readouterr().err == message
