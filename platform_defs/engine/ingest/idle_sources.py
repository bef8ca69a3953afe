"""Finds the sources that have become idle, by the wall clock."""

from collections.abc import Mapping

from assets.contracts import SourceContract
from operators.timing import length_ms
from platform_defs.engine.ingest.alignment import sources_ahead
from platform_defs.engine.ingest.clock import follows_clock
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.ledger.ledger import Ledger, SourceBatch
from platform_defs.engine.ledger.new_rows import IDLE


def idle_sources(
    ledger: Ledger, contracts: Mapping[str, SourceContract], now: int, looks: Mapping[str, Look] | None = None
) -> dict[str, SourceBatch]:
    """The newest ledger row of each source whose idle timeout has passed by the wall clock, and which is not recorded as idle yet.

    The timeout starts with the newest rows of a source, or with the newest watermark that was set for it. For a source that has neither, it
    starts with the ledger's first batch. A source that an earlier version of Tidemark recorded as idle is recorded again, so that the
    present rule applies from then on. Two kinds of sources are never idle: a source whose watermark follows the clock, and a source that is
    not read because it is ahead of its alignment group.

    Args:
        ledger: the ledger.
        contracts: the sources, by name.
        now: the time of the next batch in epoch ms.
        looks: the newest look for the input of each source; a source is not idle if its look found input. If the caller has not looked for
            a source's input (or if `looks` is None), the source counts as silent up to now.
    """
    now, began = min(now, ledger.wall_clock()), ledger.first_batch_at()
    last, ahead, newly_idle = ledger.newest_rows(), sources_ahead(ledger, contracts), dict[str, SourceBatch]()
    for name, contract in contracts.items():
        row = last.get(name) or SourceBatch(seq=0, kind="inactive", ingested_at=began, source=name)
        last_active = ledger.last_active_at(name)
        look = (looks or {}).get(name, Look(now))
        is_recorded = row.idle and ledger.source(name).idle_rule == IDLE
        if contract.idle_timeout is None or is_recorded or follows_clock(contract) or name in ahead or look.has_input:
            continue
        if look.silent_ms(began if last_active is None else last_active, now) > length_ms(contract.idle_timeout, "idle_timeout"):
            newly_idle[name] = row
    return newly_idle
