"""Reads the rows of an engine's log and the results in its window tables, to compare them with a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import functions as F

from platform_defs.engine import Engine
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from tests.support.json_rows import values_of
from tests.support.windows_model import TimedRow


def rows_with_watermark(engine: Engine, asset: str) -> list[TimedRow]:
    """The rows of the log `l`, each with the watermark of an asset before its batch."""
    watermarks = operator_timeline(engine.workspace, engine.assets[asset]).after
    rows = read_log(engine.workspace, "l", engine.ledger.head).select("k", F.unix_millis("event_time"), "v", "seq").collect()
    return [TimedRow(k, t, v, watermarks[seq - 1]) for k, t, v, seq in rows]


def window_results_of(engine: Engine, columns: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of window tables: the key, the window's start and end in epoch ms, and the given columns; read by one query."""
    times = [F.unix_millis(c).alias(c) for c in ("window_start", "window_end")]
    return values_of({table: engine.views.table(table).select("k", *times, *table_columns) for table, table_columns in columns.items()})
