"""The size of the product's modules."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("platform_defs", "operators", "assets", "expectations")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_has_at_most_300_lines(package: str) -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (ROOT / package).rglob("*.py")}
    assert lengths
    assert {path: length for path, length in lengths.items() if length > 300} == {}
