"""The event logs: one asset for each source, all ingested by one step."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from assets.contracts import ENGINE_COLUMNS, SourceContract
from assets.factories.keys import event_key
from assets.factories.metadata import ENGINE_DESCRIPTIONS, table_schema, time_metadata
from assets.factories.pool import SPARK
from assets.factories.sentences import count, duration
from assets.ports import EnginePort, SourceBatchPort
from operators.timing import duration_ms

EVENTS = "events"
"""The group of the event logs."""
COUNTS = ("rows_read", "accepted", "duplicate", "quarantined")


def event_logs(contracts: Sequence[SourceContract]) -> dg.AssetsDefinition:
    """The event logs of a pipeline's sources, each an asset `events/<name>`.

    Args:
        contracts: the sources.

    Returns:
        A multi-asset. Its step ingests new files and records, reports each log, and then raises the error of input that could not be read.
    """

    @dg.multi_asset(name="event_logs", specs=[_spec(c) for c in contracts], can_subset=False, pool=SPARK)
    def logs(context: dg.AssetExecutionContext, engine: dg.ResourceParam[EnginePort]) -> Iterator[dg.MaterializeResult]:
        ingest_error: Exception | None = None
        try:
            batches = engine.ingest()
        except Exception as error:  # if some files cannot be read, the error has the batches of the others
            batches, ingest_error = getattr(error, "batches", None), error
            if not batches:
                raise
        context.log.info(f"{count(len(batches), 'ledger batch')} committed")
        for contract in contracts:
            rows = [s for batch in batches for s in batch if s.source == contract.name]
            yield dg.MaterializeResult(asset_key=event_key(contract.name), metadata=batch_metadata(rows))
        if ingest_error is not None:
            raise ingest_error

    return logs


def _spec(contract: SourceContract) -> dg.AssetSpec:
    return dg.AssetSpec(
        event_key(contract.name),
        group_name=EVENTS,
        kinds={"spark", "delta"},
        owners=contract.owners,
        tags=contract.tags,
        description=_description(contract),
        metadata={
            "dagster/column_schema": table_schema(_log_schema(contract), added=ENGINE_DESCRIPTIONS),
            "event_time": contract.event_time,
            "unique_key": list(contract.unique_key),
        },
    )


def _description(contract: SourceContract) -> str:
    """What the event log contains, and how long it keeps it."""
    text = (
        f"All accepted rows of the source `{contract.name}`, late ones too, in the order in which they were ingested. "
        f"Rows that violate the contract are in `{contract.quarantine}`, each with its reason."
    )
    if contract.retention is None:
        return text
    kept = duration(duration_ms(contract.retention, "retention") / 1000, most_units=4)
    return f"{text} Maintenance removes whole days of rows that are more than {kept} behind the watermark, if no table may still read them."


def _log_schema(contract: SourceContract) -> StructType:
    """The columns that the engine adds to account for a row, and the source's columns."""
    engine_columns = [StructField(name, TimestampType() if "time" in name else LongType(), nullable=False) for name in ENGINE_COLUMNS]
    return StructType([*engine_columns, *contract.struct.fields])


def batch_metadata(rows: Sequence[SourceBatchPort]) -> dict[str, Any]:
    """The metadata of a source's event log: the counts of the source's rows in some ledger batches, and the watermark after the last one.

    Without a batch there is no watermark.
    """
    counts = {name: sum(getattr(s, name) for s in rows) for name in COUNTS}
    watermark = {"watermark": time_metadata(rows[-1].watermark)} if rows else {}
    return counts | {"dagster/partition_row_count": counts["accepted"], "batches": len(rows)} | watermark
