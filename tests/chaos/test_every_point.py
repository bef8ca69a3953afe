"""A short trial of the most difficult stream, with the kill of a real process group, and then a kill at every fault point."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_defs.engine.ledger import store as ledger_store
from platform_defs.spark.served import serving_session
from tests.chaos.child import LEASE_S
from tests.chaos.content import Content
from tests.chaos.inprocess import ACTIONS, OF_SCRIPT, PARTS, SEED, finish, undisturbed
from tests.chaos.plan import Planner
from tests.chaos.stream import ASSETS
from tests.chaos.trial import Trial

KILLED_AT = "ingest.after_log"
"""Where the process is killed. The rows of a source are in its log; the next run still has to write its quarantine and the ledger batch."""


@pytest.fixture(scope="module", autouse=True)
def _compacted_ledger() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_store, "MANY_FILES", 6)
        yield


def test_kills_of_a_process_and_at_every_point_lead_to_the_lake_of_an_undisturbed_run(spark: SparkSession, tmp_path: Path) -> None:
    """A child process is killed in the first action; the test's own process then performs the whole script.

    Both use the JVM of the tests. `make chaos` kills 300 processes together with their JVMs, most of them on a lake with tables. While the
    leases of the killed process expire, the undisturbed run takes place.
    """
    expected: Content = {}  # filled by `perform_the_rest`, before the trial compares it
    messages, killed = list[str](), Counter[str]()
    planner = Planner(ACTIONS, {index: [KILLED_AT] for index in range(len(ACTIONS))}, kills=1, min_kills_per_point=1)
    session_file = tmp_path / "session.json"
    trial = Trial(tmp_path / "trial", SEED, PARTS, True, None, messages.append, str(session_file))

    def perform_the_rest(start: int) -> dict[str, Any]:
        assert start == 0, f"the process was killed in action {start}, not in the first"
        expired = time.monotonic() + LEASE_S + 0.5
        expected.update(undisturbed(spark, tmp_path / "undisturbed"))
        time.sleep(max(expired - time.monotonic(), 0))  # until the leases of the killed process have expired
        check, points = finish(spark, trial, start)
        killed.update(points)
        return check

    with serving_session(spark, {}, session_file):
        trial.disturbed(planner, Random(SEED), expected, perform_the_rest)
    early = [asset.early for asset in ASSETS.values()]
    assert all(sum(rows.values()) for table, rows in expected.items() if table not in early), "every table has rows to compare"
    assert planner.kills_by_point == {KILLED_AT: 1}
    assert [line.partition(" and ")[2].partition(",")[0] for line in messages] == [f"was killed at {KILLED_AT}"]
    assert set(killed) == OF_SCRIPT
