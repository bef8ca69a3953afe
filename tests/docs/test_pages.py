"""Every block of README.md and of the docs runs.

The pages are in one module, so that one process runs them: a page changes the current folder of the JVM, which the processes share.
"""

from pathlib import Path

import pytest

from tests.docs.page import needs_spark, pages, run


@pytest.mark.parametrize("page", pages("tutorial", "how-to", "", "reference", "explanation"))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run(page, tmp_path / "page", request.getfixturevalue("spark") if needs_spark(page) else None)
