"""Processing time as a clock: the watermark of a source with processing time follows the ledger's clock, even if no rows arrive.

The event time of a row with processing time is the time of its batch, so after a batch every row up to the batch's time has been seen. Each
batch of the ledger, even one with rows of other sources only, records the watermarks of the sources that follow the clock. While no rows
arrive, control batches move the clock, as long as a table that reads one of these sources may have pending results.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, SourceContract
from platform_defs.engine.inputs.input import Input, TableInput, input_named
from platform_defs.engine.ledger.ledger import Batch, Ledger, SourceBatch, next_row

MOST_STEPS, LONGEST_STEP = 60, 3_600_000
"""While results are pending, control batches move the clock: after each 60th (`MOST_STEPS`) of the longest time for which the results may
be pending, and at least once an hour (`LONGEST_STEP`, in ms)."""


@dataclass(frozen=True)
class Wait:
    """How long results of a table may be pending.

    Args:
        sources: the sources of the table.
        longest: the longest time, in ms of the watermark, after a row's event time until every result that contains the row is final.
    """

    sources: frozenset[str]
    longest: int


def follows_clock(contract: SourceContract) -> bool:
    """Whether a source's watermark follows the ledger's clock: its event time is processing time, and no row carries a watermark."""
    return contract.by_ingest_time and isinstance(contract.watermark, BoundedOutOfOrderness)


def watermark_at(contract: SourceContract, now: int) -> int:
    """The watermark of a source that follows the clock after a batch at the ledger's time `now`, in epoch ms."""
    assert isinstance(contract.watermark, BoundedOutOfOrderness)
    return now - contract.watermark.bound_ms - 1


def clock_rows(
    last: Mapping[str, SourceBatch], contracts: Mapping[str, SourceContract], seq: int, now: int, sources_with_rows: Collection[str] = ()
) -> Batch:
    """The rows that a batch gets for the sources that follow the clock.

    Args:
        last: the newest row of each source.
        contracts: the sources, by name.
        seq: the batch's number.
        now: the batch's time in epoch ms.
        sources_with_rows: the sources that have a row in the batch already.
    """
    rows: list[SourceBatch] = []
    for name, contract in contracts.items():
        if follows_clock(contract) and name not in sources_with_rows:
            row = last.get(name) or SourceBatch(seq=seq, kind="clock", ingested_at=now, source=name)
            watermark = watermark_at(contract, now) if row.watermark is None else max(row.watermark, watermark_at(contract, now))
            rows.append(next_row(row, seq=seq, kind="clock", ingested_at=now, watermark=watermark, idle=False))
    return tuple(rows)


def waits_of(contracts: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> dict[str, list[Wait]]:
    """For each source that follows the clock, how long results of the tables that are computed from it may be pending."""
    waits: dict[str, list[Wait]] = {name: [] for name, contract in contracts.items() if follows_clock(contract)}
    longest: dict[str, int] = {}
    for name in assets if waits else ():
        table_input = input_named(name, contracts, assets)
        for source in table_input.sources & waits.keys():
            waits[source].append(Wait(table_input.sources, _longest(table_input, longest)))
    return waits


def waiting_sources(ledger: Ledger, contracts: Mapping[str, SourceContract], waits: Mapping[str, Sequence[Wait]], now: int) -> list[str]:
    """The sources whose watermark a control batch at the time `now` should raise, since results may be pending until it rises.

    Args:
        ledger: the ledger.
        contracts: the sources, by name.
        waits: the result of `waits_of`.
        now: the time of the next batch in epoch ms.
    """
    last = ledger.newest_rows() if waits else {}
    return [
        name for name, waits_of_source in waits.items() if any(_must_move(last, contracts[name], wait, now) for wait in waits_of_source)
    ]


def may_be_pending(last: Mapping[str, SourceBatch], source: str, waits: Sequence[Wait]) -> bool:
    """Whether results may be pending until a source that follows the clock raises its watermark.

    Args:
        last: the newest ledger row of each source.
        source: the source.
        waits: its part of the result of `waits_of`.
    """
    final_at = [newest + wait.longest for wait in waits if (newest := _newest(last, wait)) is not None]
    row = last.get(source)
    return bool(final_at) and (row is None or row.watermark is None or row.watermark < max(final_at))


def _newest(last: Mapping[str, SourceBatch], wait: Wait) -> int | None:
    """The newest event time of the sources of a table."""
    return max((t for name in wait.sources if name in last and (t := last[name].max_event_time) is not None), default=None)


def _must_move(last: Mapping[str, SourceBatch], contract: SourceContract, wait: Wait, now: int) -> bool:
    newest = _newest(last, wait)
    if newest is None:
        return False
    row, target, final_at = last.get(contract.name), watermark_at(contract, now), newest + wait.longest
    watermark = None if row is None else row.watermark
    if watermark is None:
        return True
    # A row of another source that is far ahead of the clock waits for long; larger steps keep the ledger small meanwhile.
    is_far = newest > now + LONGEST_STEP
    step = LONGEST_STEP if is_far else min(wait.longest // MOST_STEPS, LONGEST_STEP)
    return watermark < final_at and target > watermark and (target >= final_at or target - watermark > step)


def _longest(upstream: Input, known: dict[str, int]) -> int:
    """The longest time, in ms of the watermark, after a row's event time until every result of a table that contains the row is final.

    It is computed once for each table: `known` has the times that are known, by the table's name.
    """
    if not isinstance(upstream, TableInput):
        return 0
    if upstream.name not in known:
        reads = upstream.table.operator.reads
        expires_after = reads.ttl + 1 if reads.ttl is not None and reads.ttl_by == "event" else 0  # a key expires when older than the TTL
        of_inputs = max((_longest(each, known) for each in upstream.inputs), default=0)
        known[upstream.name] = reads.longest_lookback + reads.watermark_delay + expires_after + of_inputs
    return known[upstream.name]
