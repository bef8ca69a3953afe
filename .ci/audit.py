"""Audit the dependencies in uv.lock against the published advisories.

    python .ci/audit.py [--seconds 60]

The exit status is 1 if a locked version has a known vulnerability, else 0. It is also 0 if the advisories cannot be fetched in
time, since a build must not fail without a network; the reason is printed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent.parent / "uv.lock"
IGNORED: Mapping[str, str] = {}
"""Advisories that do not concern this project, by id, each with the reason."""
COMMAND = (sys.executable, "-m", "pip_audit")


def locked(lock: Path) -> list[list[str]]:
    """The pinned requirements of a lock, in as many lists as the versions of a package: a requirements file names a package once."""
    layers: list[dict[str, str]] = []
    for package in tomllib.loads(lock.read_text("utf-8"))["package"]:
        if "registry" in package["source"]:
            layer = next((found for found in layers if package["name"] not in found), None)
            if layer is None:
                layers.append(layer := {})
            layer[package["name"]] = package["version"]
    return [[f"{name}=={version}" for name, version in layer.items()] for layer in layers]


def audit(requirements: Sequence[str], command: Sequence[str], seconds: float) -> tuple[list[dict[str, Any]], str]:
    """The findings of pip-audit about each requirement; or none, and the reason."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(requirements))
        file.flush()
        options = [
            "--requirement",
            file.name,
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "--progress-spinner",
            "off",
            "--timeout",
            "10",
        ]
        ignored = [word for advisory in IGNORED for word in ("--ignore-vuln", advisory)]
        try:
            done = subprocess.run([*command, *options, *ignored], capture_output=True, text=True, timeout=seconds, check=False)
            return json.loads(done.stdout)["dependencies"], ""
        except subprocess.TimeoutExpired:
            return [], f"no answer within {seconds:.0f} s"
        except (ValueError, KeyError, TypeError):
            return [], (done.stderr.strip().splitlines() or ["no answer"])[-1][:300]


def report(dependencies: Sequence[Mapping[str, Any]], total: int, why: str) -> int:
    """Print what was found; returns the exit status."""
    vulnerable = [d for d in dependencies if d.get("vulns")]
    skipped = [d for d in dependencies if "skip_reason" in d]
    for found in vulnerable:
        for advisory in found["vulns"]:
            fixed = ", ".join(advisory.get("fix_versions") or []) or "none"
            print(f"audit: {found['name']} {found['version']}: {advisory['id']}; fixed in: {fixed}")
    audited = len(dependencies) - len(skipped)
    if vulnerable:
        print(f"audit: {len(vulnerable)} of {total} dependencies have known vulnerabilities. Raise them in pyproject.toml, then `uv lock`")
        return 1
    if audited < total:
        reason = why or (skipped[0]["skip_reason"] if skipped else "no answer")
        print(f"audit: advisories could not be fetched for {total - audited} of {total} dependencies ({reason}); nothing is known of these")
    if audited:
        print(f"audit: no known vulnerability in {audited} of {total} dependencies")
    return 0


def main(arguments: Sequence[str] | None = None, *, lock: Path = LOCK, command: Sequence[str] = COMMAND) -> int:
    """Audit the lock; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the whole audit may take")
    seconds = parser.parse_args(arguments).seconds
    if command is COMMAND and find_spec("pip_audit") is None:
        print("audit: pip-audit is not installed; run `make setup`")
        return 2
    layers = locked(lock)
    end = time.monotonic() + seconds
    answers = [audit(layer, command, max(1.0, end - time.monotonic())) for layer in layers]
    dependencies = [dependency for found, _ in answers for dependency in found]
    return report(dependencies, sum(map(len, layers)), next((why for _, why in answers if why), ""))


if __name__ == "__main__":
    sys.exit(main())
