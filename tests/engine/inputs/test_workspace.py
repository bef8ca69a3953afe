"""A workspace on a snapshot."""

from dataclasses import replace
from pathlib import Path

import pytest

from platform_defs.engine.inputs.progress import results_table
from platform_defs.engine.lake.tables import LakeSnapshot
from tests.support.bare_lake import bare_engine
from tests.support.clock import Clock
from tests.support.small_sources import join, source


def test_a_snapshot_opens_each_table_once_and_after_its_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table is joined from the two before it. A walk along each path to the first table would not end: there are 10^12 of them."""
    steps = 60
    tables = [join("t0"), join("t1", ("l", "t0")), *[join(f"t{n}", (f"t{n - 2}", f"t{n - 1}")) for n in range(2, steps)], join("other")]
    opened = list[str]()
    workspace = bare_engine(tmp_path, Clock(), [source("l"), source("r")], []).pending.workspace
    workspace = replace(workspace, assets={table.name: table for table in tables})
    monkeypatch.setattr(LakeSnapshot, "delta_for_reading", lambda _, table: opened.append(table))
    last = f"t{steps - 1}"
    workspace.take_snapshot(last)
    assert workspace.input_named(last).sources == {"l", "r"}
    assert opened == [results_table(workspace.assets[last]), *[f"t{n}" for n in reversed(range(steps))]]
