"""The security page names tests that exist."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (PROJECT / "docs/security.md").read_text("utf-8"))


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_a_named_test_exists(file: str, test: str) -> None:
    assert f"def {test}" in (PROJECT / file).read_text("utf-8")


def test_every_claim_names_one() -> None:
    claims = [line for line in (PROJECT / "docs/security.md").read_text("utf-8").splitlines() if "`tests/" in line and line.startswith("|")]
    assert len(claims) > 15
