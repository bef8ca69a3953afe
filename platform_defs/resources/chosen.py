"""Which of a table's data files can hold rows within ranges: told by the statistics in its log, without a Spark job."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

Ranges = Mapping[str, tuple[Any, Any]]
"""By column, the lowest and the highest value sought; None for no end. Of timestamps in epoch ms."""

_HARMLESS = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}


def chosen_files(delta: DeltaTable, within: Ranges) -> list[str] | None:
    """The files to read, by their paths below the table; None where a data file alone does not tell its rows.

    That is so where the table has deletion vectors, mapped column names or partitions: no table of ours, until
    somebody alters it. A file without statistics of a column is read.
    """
    if not _is_plain(delta):
        return None
    told = pa.table(delta.get_add_actions(flatten=True))
    apart: set[int] = set()
    for column, (low, high) in within.items():
        apart |= {n for n, least in enumerate(_statistic(told, f"min.{column}")) if None not in (least, high) and least > high}
        apart |= {n for n, most in enumerate(_statistic(told, f"max.{column}")) if None not in (most, low) and most < low}
    return [path for n, path in enumerate(told["path"].to_pylist()) if n not in apart]


def _is_plain(delta: DeltaTable) -> bool:
    protocol, metadata = delta.protocol(), delta.metadata()
    features = protocol.min_reader_version == 3 and set(protocol.reader_features or ()) <= _HARMLESS
    mapped = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    return (protocol.min_reader_version == 1 or features) and not mapped and not metadata.partition_columns


def _statistic(told: pa.Table, name: str) -> list[Any]:
    """A statistic by file; of timestamps in epoch ms, which is as fine as the log has them."""
    if name not in told.column_names:
        return []
    found = told[name]
    if not pa.types.is_timestamp(found.type):
        return found.to_pylist()
    micros = found.cast(pa.timestamp("us", found.type.tz)).cast(pa.int64()).to_pylist()
    return [None if m is None else m // 1_000 for m in micros]
