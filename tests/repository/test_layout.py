"""The tests of a package are in the folders that the package has."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIRRORED = {
    "tests/assets": "assets",
    "tests/engine": "platform_defs/engine",
    "tests/expectations": "expectations",
    "tests/operators": "operators",
    "tests/platform_defs": "platform_defs",
}


@pytest.mark.parametrize(("tests", "package"), MIRRORED.items())
def test_a_folder_of_tests_has_the_path_of_a_folder_of_the_product(tests: str, package: str) -> None:
    folders = {file.parent.relative_to(ROOT / tests) for file in (ROOT / tests).rglob("test_*.py")}
    assert folders
    assert [str(folder) for folder in sorted(folders) if not any((ROOT / package / folder).glob("*.py"))] == []
