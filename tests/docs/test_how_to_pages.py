"""Every block of the how-to guides runs."""

from pathlib import Path

import pytest

from tests.docs.page import needs_spark, pages, run


@pytest.mark.parametrize("page", pages("how-to"))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run(page, tmp_path / "page", request.getfixturevalue("spark") if needs_spark(page) else None)
