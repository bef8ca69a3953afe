"""The counts and bounds of a source's rows in a batch, all measured in one pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, IntegralType, StringType

from assets.contracts import SourceContract
from operators.engine_columns import EVENT_TIME
from operators.timing import millis
from platform_defs.engine.formats.built_once import built_once
from platform_defs.engine.formats.raw_rows import RAW
from platform_defs.engine.ingest import event_time_spread
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.validate import IS_MARKER, REASON, ROW_WATERMARK, VIOLATED


@dataclass(frozen=True)
class BatchCounts:
    """The counts and bounds of a source's rows in a batch; times in epoch ms.

    Args:
        read: all rows.
        good: rows that are neither rejected nor markers, including duplicates, which are not appended to the log.
        quarantined: rows with a reason for rejection.
        markers: rows that only have a watermark.
        warned: good rows that violate a rule with the action `warn`.
        first: the first event time of a good row.
        last: the last event time of a good row.
        watermark: the highest watermark that a row has.
        mean: the mean event time of good rows.
        deviation: the standard deviation of their event times.
        min_key: the lowest value of the column that `ranged_key` names.
        max_key: its highest value.
        bytes: the size of all original rows, in bytes; None if none of the rows is a record of a topic.
    """

    read: int
    good: int
    quarantined: int
    markers: int
    warned: int
    first: int | None
    last: int | None
    watermark: int | None
    mean: float | None
    deviation: float | None
    min_key: Any = None
    max_key: Any = None
    bytes: int | None = None


@built_once
def measures(contract: SourceContract, *, with_bytes: bool = False) -> list[Column]:
    """The aggregates over a batch's validated rows from which `counts_of` makes its counts.

    Args:
        contract: the source's contract.
        with_bytes: whether to measure the size of the original rows.
    """
    good = is_good()
    return [
        *([F.sum(F.octet_length(RAW)).alias("bytes")] if with_bytes else []),
        F.count("*").alias("read"),
        F.count_if(good).alias("good"),
        F.count_if(F.col(REASON).isNotNull()).alias("quarantined"),
        F.count_if(F.col(REASON).isNull() & F.col(IS_MARKER)).alias("markers"),
        F.count_if(good & (F.size(VIOLATED) > 0)).alias("warned"),
        F.min(F.when(good, millis(F.col(EVENT_TIME)))).alias("first"),
        F.max(F.when(good, millis(F.col(EVENT_TIME)))).alias("last"),
        F.max(F.when(F.col(REASON).isNull(), millis(F.col(ROW_WATERMARK)))).alias("watermark"),
        *event_time_spread.aggregates(good),
        *[
            aggregate(F.when(good, F.col(column))).alias(f"{aggregate.__name__}_key")
            for column in ranged_key(contract)
            for aggregate in (F.min, F.max)
        ],
        *[F.count_if(good & F.array_contains(VIOLATED, name)).alias(f"failed_{name}") for name in _failing(contract)],
    ]


def counts_of(contract: SourceContract, measured: Mapping[str, Any]) -> BatchCounts:
    """The counts from the values of `measures`. A bound of the key that is a date may be given as ISO text.

    Raises:
        IngestError: rows violate a rule with the action `fail`.
    """
    violations = {name: measured[f"failed_{name}"] for name in _failing(contract) if measured[f"failed_{name}"]}
    if violations:
        raise IngestError.rule_failed(contract.name, violations)
    counts = {name: value for name, value in measured.items() if not name.startswith("failed_")}
    if any(isinstance(contract.struct[k].dataType, DateType) for k in ranged_key(contract)):
        bounds = {name: counts.get(name) for name in ("min_key", "max_key")}
        counts |= {name: date.fromisoformat(bound) if isinstance(bound, str) else bound for name, bound in bounds.items()}
    return BatchCounts(**counts)


@built_once
def is_good() -> Column:
    """Whether a validated row is appended to the log, unless it is a duplicate."""
    return F.col(REASON).isNull() & ~F.col(IS_MARKER)


def is_good_in_memory() -> pc.Expression:
    """The condition of `is_good` for rows in memory."""
    return pc.field(REASON).is_null() & ~pc.field(IS_MARKER)


def ranged_key(contract: SourceContract) -> list[str]:
    """The key's first column, or none if it cannot be used for data skipping.

    Its values must be exact in Python, and ordered as in the statistics of the log's files.
    """
    return [key for key in contract.unique_key[:1] if _has_ordered_values(contract.struct[key].dataType)]


def _has_ordered_values(kind: DataType) -> bool:
    """Whether a bound of a column, as a value of Python, can be compared with the column's statistics.

    The statistics of a text with a collation are ordered by its bytes, and not by the collation.
    """
    return isinstance(kind, (IntegralType, DateType)) or kind == StringType()


def _failing(contract: SourceContract) -> list[str]:
    """The names of the rules that no good row may violate."""
    return [r.name for r in contract.rules if r.action == "fail"]
