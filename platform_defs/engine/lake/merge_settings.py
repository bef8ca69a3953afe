"""The settings of a session that Spark's MERGE reads, because it takes no options."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

from platform_defs.engine.lake.commit_settings import APPLICATION_ID, METADATA, NUMBER, SOURCE, VECTORS
from platform_defs.engine.lake.commits import APPLICATION

_ONE_AT_A_TIME = Lock()


@contextmanager
def merge_settings(
    spark: SparkSession, metadata: dict[str, Any], number: int | None, *, deletion_vectors: bool, stored: bool
) -> Iterator[None]:
    """While the block runs, set the session settings that a MERGE reads. They apply to the whole session, so one MERGE runs at a time.

    Args:
        spark: the session.
        metadata: what the commit records.
        number: the step's number; None for a commit without one.
        deletion_vectors: whether to mark deleted rows, which takes eight Spark jobs, instead of rewriting the files that contain them.
        stored: whether reading the merged rows twice gives the same rows; otherwise Delta copies them first.
    """
    settings = {METADATA: json.dumps(metadata)}
    settings |= {} if number is None else {APPLICATION_ID: APPLICATION, NUMBER: str(number)}
    settings |= {} if deletion_vectors else {VECTORS: "false"}
    settings |= {SOURCE: "none"} if stored else {}
    with _ONE_AT_A_TIME:
        try:
            for key, value in settings.items():
                spark.conf.set(key, value)
            yield
        finally:
            for key in settings:
                spark.conf.unset(key)


@contextmanager
def without_merge_settings() -> Iterator[None]:
    """Let no MERGE of another thread run during the block: Delta would apply its session settings to other writers too."""
    with _ONE_AT_A_TIME:
        yield
