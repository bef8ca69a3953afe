"""The registry of fault points equals the points in the code."""

import re
from pathlib import Path

import platform_defs
from platform_defs.engine import faults

CODE = Path(platform_defs.__path__[0])
CALL = re.compile(r"""\bpoint\(\s*["']([^"']+)["']""")


def test_the_fault_points_in_the_code_equal_the_registry() -> None:
    passed = [name for file in CODE.rglob("*.py") for name in CALL.findall(file.read_text(encoding="utf-8"))]
    assert sorted(set(passed)) == sorted(faults.POINTS)
    assert len(passed) > 20


def test_a_point_is_named_by_a_literal() -> None:
    """A literal name lets the registry be compared with the code."""
    calls = [
        line.strip()
        for file in CODE.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bpoint\(", line)
    ]
    assert [line for line in calls if not CALL.search(line) and not line.startswith("def point(")] == []


def test_each_point_is_before_or_after_a_write_and_is_described() -> None:
    """A point before a write is named differently from a point after it."""
    sides = {name: name.partition(".")[2].partition("_")[0] for name in faults.POINTS}
    assert set(sides.values()) == {"before", "after"}
    assert all(len(meaning) > 20 for meaning in faults.POINTS.values())


def test_fault_points_do_nothing_unless_installed() -> None:
    passed: list[str] = []
    faults.point("ingest.after_log")
    faults.install(passed.append)
    faults.point("ingest.after_log")
    faults.install(None)
    faults.point("ingest.after_log")
    assert passed == ["ingest.after_log"]
