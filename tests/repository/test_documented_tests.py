"""The tests that the pages on guarantees name exist."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = [(PROJECT / "docs/explanation" / name).read_text("utf-8") for name in ("security.md", "reliability.md")]
NAMED = [found for page in PAGES for found in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)]


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_a_named_test_exists(file: str, test: str) -> None:
    assert (f"def {test}(" if test else "def ") in (PROJECT / file).read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=["security", "reliability"])
def test_the_claims_of_a_page_name_tests(page: str) -> None:
    claims = [line for line in page.splitlines() if "`tests/" in line and line.startswith("|")]
    assert len(claims) > 15
