"""A ledger's rows: one for each batch and source, as an object and as a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import cast_values

Kind = Literal["rows", "watermark", "inactive", "drain", "clock", "retry", "silent", "idle", "summary"]

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("ingested_at", _TIME),
        ("source", pa.string()),
        ("watermark", _TIME),
        ("max_event_time", _TIME),
        ("first_event_time", _TIME),
        ("last_event_time", _TIME),
        ("rows_read", pa.int64()),
        ("accepted", pa.int64()),
        ("duplicate", pa.int64()),
        ("quarantined", pa.int64()),
        ("markers", pa.int64()),
        ("warned", pa.int64()),
        ("idle", pa.bool_()),
        ("offsets", pa.list_(pa.string())),
        ("clock", _TIME),
        ("spread", pa.list_(pa.int64())),
        ("partitions", pa.list_(pa.string())),
        ("summary", pa.string()),
    ]
)
IN_MS = pa.schema([f.with_type(pa.timestamp("ms", tz="UTC")) if f.type == _TIME else f for f in SCHEMA])
AS_INTS = pa.schema([f.with_type(pa.int64()) if f.type == _TIME else f for f in SCHEMA])
"""`SCHEMA` with times as timestamps in ms, and as numbers of ms since the epoch."""
COUNTS = ("rows_read", "accepted", "duplicate", "quarantined", "markers", "warned")

SHARES = (0.0, 0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
"""The shares of the quantiles that the ledger records of a batch's event times (`SourceBatch.spread`); 0.25 is the first quartile."""


@dataclass(frozen=True, kw_only=True)
class SourceBatch:
    """One row of the ledger: the record of one source in one batch. Times are epoch ms or None.

    Args:
        seq: the batch number: its position in the total order, from 1.
        kind: the kind of the batch for this source: `rows`, `watermark` (a watermark was set), `drain`, `clock` (processing time advanced,
            see `ingest.clock`), `inactive` (the source became idle), `retry` (a request to read files again, which does not change
            whether the source is idle), or `summary` (it replaces the rows of all batches up to `seq`). Earlier versions of Tidemark wrote
            `silent`, `idle` or `rows` when a source became idle; other rules apply to those, see `watermarks.table_idleness`.
        ingested_at: the ledger's clock, which strictly increases from batch to batch.
        source: the source.
        watermark: the source's watermark after the batch.
        max_event_time: the newest event time of the source so far.
        first_event_time: the oldest event time among the batch's rows.
        last_event_time: the newest event time among the batch's rows.
        rows_read: rows read: accepted + duplicate + quarantined + markers.
        accepted: rows written to the log.
        duplicate: rows with the key of a row that was ingested before, in this batch or an earlier one.
        quarantined: rows written to the quarantine with a reason.
        markers: rows that only carried a watermark.
        warned: accepted rows that violate a rule with the action `warn`.
        idle: whether the source no longer holds the watermark back.
        offsets: one `path|modified|length` for each file, with the path relative to the source's folder (`./`); with the suffix `|unread`
            or `|unread|n` if no row of it could be read, `|retry|n` if it is to be read again.
        clock: the wall clock if it was more than a minute behind `ingested_at`, because it had stepped back; else null.
        spread: quantiles of the event times of the batch's rows, at the shares 0, 0.001, 0.01, 0.05, 0.25, 0.5 and so on to 1; empty if
            they were not recorded.
        partitions: for a source that reads from Kafka, `path|newest event time|time of the newest batch with rows` of each partition of its
            topics, with times in epoch ms.
        summary: of a row of kind `summary`, what else is known of the batches that the row replaces, as JSON (see `Summary`). The row's
            counts and offsets are those of all of these batches, and `first_event_time` is the oldest of their rows.
    """

    seq: int
    kind: Kind
    ingested_at: int
    source: str
    watermark: int | None = None
    max_event_time: int | None = None
    first_event_time: int | None = None
    last_event_time: int | None = None
    rows_read: int = 0
    accepted: int = 0
    duplicate: int = 0
    quarantined: int = 0
    markers: int = 0
    warned: int = 0
    idle: bool = False
    offsets: tuple[str, ...] = ()
    clock: int | None = None
    spread: tuple[int, ...] = ()
    partitions: tuple[str, ...] = ()
    summary: str | None = None


Batch = tuple[SourceBatch, ...]
"""A batch of the ledger: a row for each source that it records."""


def as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows given as mappings, with the table's schema."""
    return cast_columns(pa.Table.from_pylist(list(rows), schema=IN_MS), SCHEMA)


def table_of(batches: Iterable[Batch]) -> pa.Table:
    """Batches, with the table's schema."""
    return as_table([vars(row) for batch in batches for row in batch])


def as_ints(rows: pa.Table) -> pa.Table:
    """Rows of the table with times in epoch ms."""
    return cast_columns(cast_columns(rows, IN_MS), AS_INTS)


def cast_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the types of another schema with the same columns. `Table.cast` would also compute columns that have their type already."""
    return pa.Table.from_arrays([cast_values(rows[field.name], field.type) for field in schema], schema=schema)


def batches_of(rows: pa.Table) -> list[Batch]:
    """Batches from their rows (`AS_INTS`; a missing column has its default), ordered by batch number and source."""
    batches: list[list[SourceBatch]] = []
    for row in rows.sort_by([("seq", "ascending"), ("source", "ascending")]).to_pylist():
        lists = {name: tuple(row[name] or ()) for name in ("offsets", "spread", "partitions") if name in row}
        source_row = SourceBatch(**row | lists)
        if not batches or batches[-1][0].seq != source_row.seq:
            batches.append([])
        batches[-1].append(source_row)
    return [tuple(batch) for batch in batches]


def next_row(row: SourceBatch, **changes: Any) -> SourceBatch:
    """A source's row in the next batch: state is carried over, counts and offsets are reset, then `changes` are applied."""
    carried = {"watermark": row.watermark, "max_event_time": row.max_event_time, "idle": row.idle, "partitions": row.partitions}
    batch: dict[str, Any] = {"seq": row.seq, "kind": row.kind, "ingested_at": row.ingested_at, "source": row.source}
    return SourceBatch(**{**batch, **carried, **changes})
