"""The project is installed in place only."""

from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from platform_defs.setup.editable_only import EditableOnly

PROJECT = Path(__file__).resolve().parents[3]


def test_a_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"is not built as a wheel \(version 'standard'\).*Legal: an editable installation"):
        list(WheelBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"]))
    assert [*tmp_path.glob("*.whl")] == []


def test_an_editable_installation_is_legal() -> None:
    hook: Any = EditableOnly
    hook(str(PROJECT), {}, None, None, "", "wheel").initialize("editable", {})
