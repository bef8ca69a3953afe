"""One kill at every fault point, in one short trial with the most difficult stream."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_defs import faults
from platform_defs.engine.ledger import store as ledger_store
from tests.chaos.content import content, differences
from tests.chaos.inprocess import ACTIONS, GOOD, attempt, undisturbed
from tests.chaos.plan import REMOVAL_POINTS
from tests.chaos.stream import ASSETS
from tests.chaos.trial import delete_abandoned_files


def test_a_kill_at_every_point_leads_to_the_lake_of_an_undisturbed_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_store, "MANY_FILES", 6)
    expected, passages = undisturbed(spark, tmp_path / "undisturbed")
    early = [asset.early for asset in ASSETS.values()]
    assert all(sum(rows.values()) for table, rows in expected.items() if table not in early), "every table has rows to compare"
    home, killed = tmp_path / "disturbed", Counter[str]()
    for index, action in enumerate(ACTIONS):
        abandoned = action.kind == "abandoned"
        removals = REMOVAL_POINTS if index and ACTIONS[index - 1].kind == "abandoned" else ()
        points = ["ingest.after_quarantine"] if abandoned else [p for p in dict.fromkeys([*removals, *passages[index]]) if not killed[p]]
        for point in points:
            died, _ = attempt(spark, home, index, {str(index): (point, 1)})
            killed.update([died] if died else [])
        if abandoned:
            delete_abandoned_files(home)
        else:
            _, messages = attempt(spark, home, index, {})
    assert GOOD in messages
    assert differences(expected, content(str(home / "lake"), home)) == []
    assert {p for p in faults.POINTS if not p.startswith("lease.")} == set(killed), "only writers of a lake with a URI take leases"
