"""The actions of a trial in this process, on the session of the tests; a kill is an exception."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from platform_defs.engine import Engine, faults
from platform_defs.engine.lake import compaction
from tests.chaos.child import NEVER, Child, Instructions
from tests.chaos.content import Content, content
from tests.chaos.stream import script, shop
from tests.chaos.trial import Trial, delete_abandoned_files
from tests.support.kills import Killed

SEED, PARTS = 11, 1
ACTIONS = script(shop(SEED, PARTS))
ELSEWHERE = ("lease.", "kafka.", "retention.", "kept.")
"""The beginnings of points that have tests of their own: most of the script runs on a lake without leases, and it has no topic, retention
or kept rows."""
OF_SCRIPT = frozenset(point for point in faults.POINTS if not point.startswith(ELSEWHERE))


@dataclass
class InProcess(Child):
    """A kill is an exception that nothing may catch.

    Files are merged by steps of a rebuild only, so that maintenance finds tables to compact.

    Args:
        points: the process is killed at the first of these that it passes.
    """

    points: Collection[str] = ()

    def act(self, engine: Engine, index: int) -> None:
        many_files = 2 if self.actions[index].kind == "rebuild_days" else NEVER
        with patch.object(compaction, "MANY_TINY_FILES", many_files):
            super().act(engine, index)

    def _dies_at(self, point: str) -> bool:
        return point in self.points

    def _die(self, point: str) -> None:
        self.points = ()  # a source that is ingested at the same time goes on
        faults.install(None)
        raise Killed(point)


def attempt(
    spark: SparkSession, home: Path, index: int, points: Collection[str] = (), root: str | None = None
) -> tuple[str | None, list[dict[str, Any]]]:
    """Perform one action as a new process, which is killed at the first of the points that it passes.

    Returns:
        The point of the kill, if any, and the messages to the parent.
    """
    messages: list[dict[str, Any]] = []
    kills = {str(index): ("", 1)} if points else {}  # an `abandoned` action is performed only if it is killed
    instructions = Instructions(str(home), root or str(home / "lake"), SEED, PARTS, index, kills)
    child = InProcess(instructions, messages.append, lambda: spark, points=points)
    try:
        child.act(child.engine(), index)
    except Killed as killed:
        return str(killed), messages
    return None, messages


def finish(spark: SparkSession, trial: Trial, start: int) -> tuple[dict[str, Any], Counter[str]]:
    """Perform the script of a trial from an action on, with a kill at each point of `OF_SCRIPT` when it is passed for the first time.

    Args:
        spark: the session.
        trial: the trial, whose process was killed in the action, and whose leases have expired.
        start: the index of the action.

    Returns:
        The check of the lake, and the number of kills by point.
    """
    killed = Counter[str]()
    messages: list[dict[str, Any]] = []
    for index in range(start, len(ACTIONS)):
        if ACTIONS[index].kind == "abandoned":
            died, _ = attempt(spark, trial.home, index, ["ingest.after_quarantine"])
            delete_abandoned_files(trial.home)
            killed.update([died] if died else [])
            continue
        while True:
            died, messages = attempt(spark, trial.home, index, OF_SCRIPT - killed.keys(), trial.lake if index == start else None)
            if died is None:
                break
            killed[died] += 1
    return next(s for s in messages if "law" in s), killed


def undisturbed(spark: SparkSession, home: Path) -> Content:
    """The content of the lake after an undisturbed run.

    The lake is not verified: the one of the trial must have the same content, and `finish` verifies that one.
    """
    for index, action in enumerate(ACTIONS):
        if action.kind != "verify":
            attempt(spark, home, index)
    return content(str(home / "lake"), home)
