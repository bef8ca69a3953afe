"""The actions of a trial in this process, on the session of the tests; a kill is an exception."""

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from platform_defs.engine import Engine, faults
from platform_defs.engine.lake import compaction
from tests.chaos.child import NEVER, Child, Instructions
from tests.chaos.content import Content, content
from tests.chaos.plan import REMOVAL_POINTS, Passages
from tests.chaos.stream import script, shop
from tests.chaos.trial import Trial, delete_abandoned_files
from tests.support.kills import Killed

SEED, PARTS = 11, 1
ACTIONS = script(shop(SEED, PARTS))


class InProcess(Child):
    """A kill is an exception that nothing may catch.

    Files are merged by steps of a rebuild only, so that maintenance finds tables to compact.
    """

    def act(self, engine: Engine, index: int) -> None:
        many_files = 2 if self.actions[index].kind == "rebuild_days" else NEVER
        with patch.object(compaction, "MANY_TINY_FILES", many_files):
            super().act(engine, index)

    def _die(self, point: str) -> None:
        faults.install(None)
        raise Killed(point)


def attempt(
    spark: SparkSession, home: Path, index: int, kills: dict[str, tuple[str, int]], root: str | None = None
) -> tuple[str | None, list[dict[str, Any]]]:
    """Perform one action as a new process; returns the point of the kill, if any, and the messages to the parent."""
    messages: list[dict[str, Any]] = []
    child = InProcess(Instructions(str(home), root or str(home / "lake"), SEED, PARTS, index, kills), messages.append, lambda: spark)
    try:
        child.act(child.engine(), index)
    except Killed as killed:
        return str(killed), messages
    return None, messages


def finish(spark: SparkSession, trial: Trial, start: int, passages: Passages) -> tuple[dict[str, Any], Counter[str]]:
    """Perform the script of a trial from an action on, with a kill at each point that it passes for the first time.

    Args:
        spark: the session.
        trial: the trial, whose process was killed in the action, and whose leases have expired.
        start: the index of the action.
        passages: the points that an undisturbed run passes.

    Returns:
        The check of the lake, and the number of kills by point.
    """
    killed = Counter[str]()
    messages: list[dict[str, Any]] = []
    for index in range(start, len(ACTIONS)):
        root = trial.lake if index == start else None
        abandoned = ACTIONS[index].kind == "abandoned"
        removals = REMOVAL_POINTS if index and ACTIONS[index - 1].kind == "abandoned" else ()
        points = ["ingest.after_quarantine"] if abandoned else [p for p in dict.fromkeys([*removals, *passages[index]]) if not killed[p]]
        for point in points:
            died, _ = attempt(spark, trial.home, index, {str(index): (point, 1)}, root)
            killed.update([died] if died else [])
        if abandoned:
            delete_abandoned_files(trial.home)
        else:
            _, messages = attempt(spark, trial.home, index, {}, root)
    return next(s for s in messages if "law" in s), killed


def undisturbed(spark: SparkSession, home: Path) -> tuple[Content, Passages]:
    """The content of the lake after an undisturbed run, and the points that the run passes.

    The lake is not verified: the one of the trial must have the same content, and `finish` verifies that one.
    """
    passages: Passages = {}
    for index, action in enumerate(ACTIONS):
        messages = [] if action.kind == "verify" else attempt(spark, home, index, {})[1]
        passages[index] = [s["passed"] for s in messages if "passed" in s]
    return content(str(home / "lake"), home), passages
