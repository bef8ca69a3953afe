"""A short trial of the most difficult stream, twice: with a kill at every fault point, and with the kill of a real process group."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from platform_defs import faults
from platform_defs.engine.ledger import store as ledger_store
from tests.chaos.content import Content, content, differences
from tests.chaos.inprocess import ACTIONS, GOOD, PARTS, SEED, attempt, finish, undisturbed
from tests.chaos.plan import REMOVAL_POINTS, Passages, Planner
from tests.chaos.stream import ASSETS
from tests.chaos.trial import Trial, delete_abandoned_files

KILLS = 1


@pytest.fixture(scope="module", autouse=True)
def _compacted_ledger() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_store, "MANY_FILES", 6)
        yield


@pytest.fixture(scope="module")
def undisturbed_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Content, Passages]:
    """The content of the lake after a run without a kill, and the points that its actions pass."""
    return undisturbed(spark, tmp_path_factory.mktemp("undisturbed"))


def test_a_kill_of_the_process_group_leads_to_the_lake_of_an_undisturbed_run(
    spark: SparkSession, tmp_path: Path, undisturbed_run: tuple[Content, Passages]
) -> None:
    """A process is killed; then this process performs the rest of the script. `make chaos` kills 300."""
    expected, passages = undisturbed_run
    messages: list[str] = []
    planner = Planner(ACTIONS, passages, KILLS, share=1)
    trial = Trial(tmp_path / "trial", SEED, PARTS, True, None, messages.append)
    trial.disturbed(planner, Random(SEED), expected, lambda at: finish(spark, trial.home, trial.lake, at))
    assert planner.made.total() == KILLS
    assert sum("was killed" in line for line in messages) == KILLS


def test_a_kill_at_every_point_leads_to_the_lake_of_an_undisturbed_run(
    spark: SparkSession, tmp_path: Path, undisturbed_run: tuple[Content, Passages]
) -> None:
    expected, passages = undisturbed_run
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
    elsewhere = ("lease.", "kafka.", "retention.", "kept.")  # a lake with a URI takes leases; the others have tests of their own
    assert {p for p in faults.POINTS if not p.startswith(elsewhere)} == set(killed)
