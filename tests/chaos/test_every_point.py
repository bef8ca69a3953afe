"""One kill at every fault point of the registry, along one short life of the most difficult stream."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_defs import faults
from platform_defs.engine.ledger import store as ledger_store
from tests.chaos.content import content, differences
from tests.chaos.inprocess import ACTIONS, GOOD, attempt, undisturbed
from tests.chaos.life import bury
from tests.chaos.plan import ORPHANS
from tests.chaos.stream import ASSETS


def test_a_kill_at_every_point_leads_to_the_lake_of_an_undisturbed_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_store, "MANY_FILES", 6)
    wanted, passages = undisturbed(spark, tmp_path / "undisturbed")
    early = [asset.early for asset in ASSETS.values()]
    assert all(sum(rows.values()) for table, rows in wanted.items() if table not in early), "every table has rows to compare"
    home, killed = tmp_path / "disturbed", Counter[str]()
    for index, action in enumerate(ACTIONS):
        ghost = action.kind == "ghost"
        orphans = ORPHANS if index and ACTIONS[index - 1].kind == "ghost" else ()
        points = ["ingest.after_quarantine"] if ghost else [p for p in dict.fromkeys([*orphans, *passages[index]]) if not killed[p]]
        for point in points:
            died, _ = attempt(spark, home, index, {str(index): (point, 1)})
            killed.update([died] if died else [])
        if ghost:
            bury(home)
        else:
            _, messages = attempt(spark, home, index, {})
    assert GOOD in messages
    assert differences(wanted, content(str(home / "lake"), home)) == []
    assert {p for p in faults.POINTS if not p.startswith("lease.")} == set(killed), "leases are of lakes behind a URI"
