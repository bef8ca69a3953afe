"""A replay of rows that are known to pass their contract, without the Spark jobs that parse, validate and count rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from assets.contracts import BoundedOutOfOrderness, SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.ingest.replay import Replay
from platform_defs.engine.ingest.uncommitted import ATTEMPT, REPLAY
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.small_queries import in_memory

Row = tuple[str | None, int, int, int, int]
"""A row's key, value, time in epoch ms, batch, and number within the batch."""
_COLUMNS = pa.schema(
    {
        **{"seq": pa.int64(), "arrival": pa.int64()},
        **dict.fromkeys(("event_time", "event_time_raw"), pa.timestamp("us", "UTC")),
        **{"k": pa.string(), "v": pa.int32(), "ts": pa.timestamp("us", "UTC")},
    }
)


def is_plain(contract: SourceContract) -> bool:
    """Whether a source has the columns of `small_sources.ROW`, and its contract accepts every row."""
    own = [(f.name, f.dataType.simpleString(), f.nullable) for f in contract.struct.fields]
    return (
        own == [("k", "string", True), ("v", "int", True), ("ts", "timestamp", True)]
        and contract.event_time == "ts"
        and not contract.rules
        and contract.future_skew is None
        and isinstance(contract.watermark, BoundedOutOfOrderness)
    )


def plain_replay(engine: Engine, rows: Mapping[str, Sequence[Row]], marks: Sequence[Mapping[str, int]]) -> None:
    """Replay rows of plain sources; see `Replay`."""
    real = engine.ingestion.replay
    frames: Any = {name: of_source for name, of_source in rows.items() if of_source}
    _PlainReplay(real.spark, real.lake, real.ledger, real.contracts, require=real.require)(frames, marks)


class _PlainReplay(Replay):
    """Appends rows that are given as tuples in place of frames."""

    def _log(self, frame: Any, contract: SourceContract, head: int, batches: int, now: int) -> dict[int, tuple[int, int, int]]:
        times: dict[int, list[int]] = {}
        for _, _, at, batch, _ in frame:
            times.setdefault(batch, []).append(at)
        written = [
            (head + 1 + batch, batch * 1_000_000 + number, at * 1_000, at * 1_000, k, v, at * 1_000) for k, v, at, batch, number in frame
        ]
        columns = [pa.array(column, field.type) for column, field in zip(zip(*written, strict=True), _COLUMNS, strict=True)]
        self.lake.append(
            in_memory(self.spark, pa.table(columns, schema=_COLUMNS), log_schema(contract)),
            contract.log,
            {ATTEMPT: {"seq": head + batches, "input": REPLAY}},
            after=self._newest_attempt(contract, head),
            pruned_by=["seq", "event_time", *contract.unique_key[:1]],
        )
        return {batch: (len(of_batch), min(of_batch), max(of_batch)) for batch, of_batch in times.items()}
