"""A kill at every fault point of the registry, once each, along one short life of the worst stream."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_defs import faults
from platform_defs.engine import ledger
from tests.chaos.child import Child, Order
from tests.chaos.content import Content, content, differences
from tests.chaos.life import bury
from tests.chaos.plan import ORPHANS, Passages
from tests.chaos.stream import script, shop
from tests.support.kills import Killed

SEED, PARTS = 11, 1
ACTIONS = script(shop(SEED, PARTS))
GOOD = {"law": [], "uncounted": "{}", "folds": True}


class InProcess(Child):
    """Dies by an exception that nothing may catch."""

    def _die(self, point: str) -> None:
        faults.install(None)
        raise Killed(point)


@pytest.fixture(autouse=True)
def _short_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MANY_FILES", 5)


def attempt(spark: SparkSession, home: Path, index: int, kills: dict[str, tuple[str, int]]) -> tuple[str | None, list[dict[str, Any]]]:
    """Do one action as a process started anew; returns the point it died at, if it did, and what it said."""
    said: list[dict[str, Any]] = []
    child = InProcess(Order(str(home), str(home / "lake"), SEED, PARTS, index, kills), said.append, lambda: spark)
    try:
        child.act(child.engine(), index)
    except Killed as killed:
        return str(killed), said
    return None, said


def undisturbed(spark: SparkSession, home: Path) -> tuple[Content, Passages]:
    passages: Passages = {}
    for index in range(len(ACTIONS)):
        _, said = attempt(spark, home, index, {})
        passages[index] = [s["passed"] for s in said if "passed" in s]
    assert GOOD in said
    return content(str(home / "lake"), home), passages


def test_a_kill_at_every_point_leads_to_the_lake_of_an_undisturbed_run(spark: SparkSession, tmp_path: Path) -> None:
    wanted, passages = undisturbed(spark, tmp_path / "undisturbed")
    assert all(sum(rows.values()) for rows in wanted.values()), "every table has rows to compare"
    home, killed = tmp_path / "disturbed", Counter[str]()
    for index, action in enumerate(ACTIONS):
        ghost = action.what == "ghost"
        orphans = ORPHANS if index and ACTIONS[index - 1].what == "ghost" else ()
        due = ["ingest.after_quarantine"] if ghost else [p for p in dict.fromkeys([*orphans, *passages[index]]) if not killed[p]]
        for point in due:
            died, _ = attempt(spark, home, index, {str(index): (point, 1)})
            killed.update([died] if died else [])
        if ghost:
            bury(home)
        else:
            _, said = attempt(spark, home, index, {})
    assert GOOD in said
    assert differences(wanted, content(str(home / "lake"), home)) == []
    assert {p for p in faults.POINTS if not p.startswith("lease.")} == set(killed)
