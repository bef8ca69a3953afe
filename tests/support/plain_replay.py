"""A replay of rows that are known to pass their contract, without the Spark jobs that parse, validate and count rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from assets.contracts import BoundedOutOfOrderness, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.ingest.replay import Replay, RowCounts
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.small_queries import in_memory

Row = tuple[str | None, int, int, int, int]
"""A row's key, value, time in epoch ms, batch, and number within the batch."""
MOST_ROWS_OF_BATCH = 1_000_000
"""A row's arrival is its number plus this for each batch before, because arrivals must be unique in a replay."""
_COLUMNS = pa.schema(
    {
        **{"seq": pa.int64(), "arrival": pa.int64()},
        **dict.fromkeys(("event_time", "event_time_raw"), pa.timestamp("us", "UTC")),
        **{"k": pa.string(), "v": pa.int32(), "ts": pa.timestamp("us", "UTC")},
    }
)


def is_plain(contract: SourceContract) -> bool:
    """Whether a source has the columns of `small_sources.ROW`, rejects no row, and takes event times and watermarks from `ts` only."""
    own = [(f.name, f.dataType.simpleString(), f.nullable) for f in contract.struct.fields]
    return (
        own == [("k", "string", True), ("v", "int", True), ("ts", "timestamp", True)]
        and contract.event_time == "ts"
        and not contract.rules
        and contract.future_skew is None
        and isinstance(contract.watermark, BoundedOutOfOrderness)
    )


def plain_replay(engine: Engine, rows: Mapping[str, Sequence[Row]], watermarks: Sequence[Mapping[str, int]]) -> None:
    """Replay rows of plain sources; see `Replay`."""
    engine_replay = engine.ingestion.replay
    rows_by_source: Any = {name: of_source for name, of_source in rows.items() if of_source}
    plain = _PlainReplay(
        engine_replay.spark, engine_replay.lake, engine_replay.ledger, engine_replay.contracts, require=engine_replay.require
    )
    plain(rows_by_source, watermarks)


class _PlainReplay(Replay):
    """A replay whose rows are tuples instead of frames."""

    def _append_valid_rows(self, rows: Any, contract: SourceContract, head: int, batch_count: int, now: int) -> dict[int, RowCounts]:
        times: dict[int, list[int]] = {}
        for _, _, at, batch, _ in rows:
            times.setdefault(batch, []).append(at)
        written = [
            (head + 1 + batch, batch * MOST_ROWS_OF_BATCH + number, *(at * 1_000,) * 2, k, v, at * 1_000)
            for k, v, at, batch, number in rows
        ]
        columns = [pa.array(column, field.type) for column, field in zip(zip(*written, strict=True), _COLUMNS, strict=True)]
        self._append(in_memory(self.spark, pa.table(columns, schema=_COLUMNS), log_schema(contract)), contract, head, batch_count)
        return {batch: RowCounts(len(of_batch), min(of_batch), max(of_batch)) for batch, of_batch in times.items()}
