"""Makes the summary of a ledger's oldest batches."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from platform_defs.engine.formats.files import TOPIC
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.known_files import KnownFiles
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.new_rows import ACTIVE, IDLE
from platform_defs.engine.ledger.rows import Batch, SourceBatch
from platform_defs.engine.ledger.snapshot import last_with_rows
from platform_defs.engine.ledger.summary import LateRange, SourceSummary, Summary


def summary_of(
    ledger: Ledger, upto: int, watermarks: Mapping[str, int | None], late: Mapping[str, tuple[LateRange, ...]] | None = None
) -> Batch:
    """The rows that replace the rows of the batches up to `upto`: one for each source that these batches record.

    Args:
        ledger: the ledger.
        upto: the last of the batches.
        watermarks: the watermarks of operators after these batches, as in `Summary`.
        late: the results that may be late for a reader, as in `Summary`.
    """
    history, rows, counts = ledger.history, ledger.newest_rows(upto), ledger.totals_by_source(upto=upto)
    sources = {name: _source_summary(ledger, name, upto) for name in rows}
    text = Summary(upto, history.clocks[0], sources, watermarks, late or {}).as_json
    time, clock = history.times[upto - 1], history.clocks[upto - 1]
    summary_rows = list[SourceBatch]()
    for name, row in sorted(rows.items()):
        batch = SourceBatch(
            seq=upto,
            kind="summary",
            ingested_at=time,
            source=name,
            watermark=row.watermark,
            max_event_time=row.max_event_time,
            first_event_time=pc.min(history.source(name).table(["first_event_time"], 0, upto)["first_event_time"]).as_py(),
            idle=row.idle,
            offsets=(*_offsets_to_keep(offset for seq, offset in ledger.offsets_in_order(name) if seq <= upto),),
            clock=None if clock == time else clock,
            partitions=row.partitions,
            summary=text,
        )
        summary_rows.append(replace(batch, **counts[name]))
    return tuple(summary_rows)


def _source_summary(ledger: Ledger, name: str, upto: int) -> SourceSummary:
    history = ledger.history
    source = history.source(name)
    rows, before = source.table(["accepted", "idle_rule"], 0, upto), source.before or SourceSummary()
    rules = rows["idle_rule"].drop_null()
    active_in = _if_summarized(source.active_in, upto)
    return SourceSummary(
        accepted=before.accepted + (pc.sum(rows["accepted"]).as_py() or 0),
        accepted_in=last_with_rows(ledger, name, upto) or None,
        rejected_in=_if_summarized(source.rejected_in, upto),
        active_in=active_in,
        active_at=before.active_at if active_in == before.active_in else _clock_at(history, active_in),
        idle_rule=rules[-1].as_py() if len(rules) else ACTIVE,
        idle_since=_if_summarized(source.first_idle_batch(IDLE), upto),
    )


def _if_summarized(seq: int | None, upto: int) -> int | None:
    return None if seq is None or seq > upto else seq


def _clock_at(history: History, seq: int | None) -> int | None:
    """The wall clock at a batch: at most that of each later batch, since a clock that had jumped ahead was set back later."""
    return None if seq is None else pc.min(history.clocks.between(seq - 1)).as_py()


def _offsets_to_keep(offsets: Iterable[str]) -> list[str]:
    """All offsets of files, because a file may be listed again at any time; of each topic partition only the end offset."""
    files, ranges, known_files = list[str](), list[str](), KnownFiles()
    for offset in offsets:
        (ranges if offset.startswith(TOPIC) else files).append(offset)
    if ranges:
        known_files.add(pa.array(ranges, pa.string()))
    return [*files, *[f"{path}|{end}|0" for path, end in known_files.topic_ends().items()]]
