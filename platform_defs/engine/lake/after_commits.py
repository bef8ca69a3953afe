"""The maintenance of a table after each commit to it: compaction, checkpoints, and the deletion of old commits."""

import logging
from contextlib import suppress
from dataclasses import dataclass

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from operators.errors import TidemarkError
from platform_defs.engine.lake import compaction
from platform_defs.engine.lake.commits import write_checkpoint
from platform_defs.engine.lake.compaction import CONFLICTS, MaintainedTables, count_small_files
from platform_defs.engine.lake.errors import store_reason
from platform_defs.engine.lake.reads import ReadTables
from platform_defs.faults import point

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TablesMaintainedAfterCommits(ReadTables, MaintainedTables):
    """Maintains the tables of a lake after commits."""

    @property
    def live(self) -> "TablesMaintainedAfterCommits":
        """The lake itself; for a snapshot, the lake from which it was taken (see `tables.LakeSnapshot`)."""
        return self

    def _after_commit(self, spark: SparkSession, table: str) -> None:
        """Compact small files if there are many. Every `CHECKPOINT_EVERY` versions, write a checkpoint and delete old commits.

        Delta's own post-commit hooks cost more: its checkpoints are Spark jobs, whose code takes seconds to compile, and it compacts
        after each process's first commit to a table, even if there are few files. deltalake's list the whole log after each commit.

        A fault is logged: the commit has succeeded, and the maintenance after the next one tries again.
        """
        try:
            self.live._maintain(spark, table)
        except (PySparkException, Py4JJavaError, DeltaError, OSError, TidemarkError) as error:
            _log.warning("%s has a new commit, but its maintenance failed: %s", table, store_reason(error))

    def _maintain(self, spark: SparkSession, table: str) -> None:
        delta = self.delta_for_reading(table)
        if delta is not None and count_small_files(delta) >= compaction.MANY_FILES:
            point("lake.before_compact")
            del delta  # otherwise the opened table could not be brought up to date
            with suppress(*CONFLICTS):
                self.optimize(spark, table)
            point("lake.after_compact")
            delta = self.delta_for_reading(table)
        every = compaction.CHECKPOINT_EVERY
        if delta is not None and delta.version() >= every and delta.version() % every < 2:  # a compaction takes one version
            write_checkpoint(delta)
