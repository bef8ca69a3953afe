"""The audit of the lock fails on a known vulnerability, but not without a network."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
LOCK = """
[[package]]
name = "a"
version = "1"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "a"
version = "2"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "b"
version = "3"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "tidemark"
version = "0"
source = { editable = "." }
"""
ANSWERS = """
import json, sys
names = [line.split("==") for line in open(sys.argv[sys.argv.index("--requirement") + 1]).read().split()]
known = json.loads(sys.argv[1])
print(json.dumps({"dependencies": [known.get(n + v) or {"name": n, "version": v, "vulns": []} for n, v in names]}))
"""


@pytest.fixture
def audit() -> ModuleType:
    spec = spec_from_file_location("audit", PROJECT / ".ci/audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    (tmp_path / "uv.lock").write_text(LOCK)
    return tmp_path / "uv.lock"


def _audit_command(**found: dict[str, Any]) -> tuple[str, ...]:
    return sys.executable, "-c", ANSWERS, json.dumps(found)


def test_the_lock_file_is_parsed_into_names_and_versions(audit: ModuleType, lock: Path) -> None:
    assert audit.locked(lock) == [["a==1", "b==3"], ["a==2"]]
    [*layers] = audit.locked(audit.LOCK)
    assert "pip-audit" in {requirement.partition("==")[0] for layer in layers for requirement in layer}


def test_a_lock_without_known_vulnerabilities_passes(audit: ModuleType, lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main([], lock=lock, command=_audit_command()) == 0
    assert capsys.readouterr().out == "audit: no known vulnerability in 3 of 3 dependencies\n"


def test_a_known_vulnerability_fails_with_its_name_and_the_fix(audit: ModuleType, lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"name": "a", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}, {"id": "GHSA-2", "fix_versions": []}]}
    skipped = {"name": "b", "version": "3", "skip_reason": "not found"}
    assert audit.main([], lock=lock, command=_audit_command(a2=bad, b3=skipped)) == 1
    out = capsys.readouterr().out
    assert "audit: a 2: PYSEC-1; fixed in: 2.1\naudit: a 2: GHSA-2; fixed in: none\n" in out
    assert "1 of 3 dependencies have known vulnerabilities" in out


def test_an_advisory_that_cannot_be_fetched_is_reported_and_passes(
    audit: ModuleType, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = {"name": "b", "version": "3", "skip_reason": "Dependency not found"}
    assert audit.main([], lock=lock, command=_audit_command(b3=skipped)) == 0
    out = capsys.readouterr().out
    assert "could not be fetched for 1 of 3 dependencies (Dependency not found); nothing is known of these\n" in out
    assert "no known vulnerability in 2 of 3" in out


@pytest.mark.parametrize(
    ("code", "why"),
    [("raise SystemExit('ConnectionError: no route')", "ConnectionError: no route"), ("import time; time.sleep(30)", "no answer within")],
    ids=["no network", "no answer"],
)
def test_without_a_network_the_audit_passes_within_its_timeout(
    audit: ModuleType, lock: Path, capsys: pytest.CaptureFixture[str], code: str, why: str
) -> None:
    assert audit.main(["--seconds", "1"], lock=lock, command=(sys.executable, "-c", code)) == 0
    assert f"could not be fetched for 3 of 3 dependencies ({why}" in capsys.readouterr().out
