"""Watermark alignment: a source whose watermark is too far ahead of its group waits for the other sources.

The lowest watermark of a group is that of its sources that are not idle. A source is ahead if its watermark is more than its `max_drift`
above the lowest one, or if another source that is not idle has no watermark yet. While a source is ahead, it is not read; its files and
records wait for a later batch. The source with the lowest watermark never waits. If it sends nothing, its idle timeout ends the wait of the
others, so no source waits for ever. Of a source of a group, a micro-batch reads one file, and the records of its topics up to the limit of
a micro-batch. So the source exceeds its drift by one micro-batch at most.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assets.contracts import SourceContract
from platform_defs.engine.formats.files import File
from platform_defs.engine.ledger.ledger import Ledger


@dataclass(frozen=True)
class SourceAhead:
    """A source that waits for its alignment group.

    Args:
        source: the source that is waited for: the one with the lowest watermark of the group.
        ahead_ms: how far the watermark of the waiting source is above the lowest one, in ms; None if `source` has no watermark yet.
    """

    source: str
    ahead_ms: int | None


def sources_ahead(ledger: Ledger, contracts: Mapping[str, SourceContract]) -> dict[str, SourceAhead]:
    """The sources that wait for their alignment groups, by name."""
    groups: dict[str, list[SourceContract]] = {}
    for contract in contracts.values():
        if contract.alignment is not None:
            groups.setdefault(contract.alignment.group, []).append(contract)
    last, ahead_by_source = ledger.newest_rows() if groups else {}, dict[str, SourceAhead]()
    for group in groups.values():
        watermarks = {contract.name: last[contract.name].watermark if contract.name in last else None for contract in group}
        active = [contract.name for contract in group if contract.name not in last or not last[contract.name].idle]
        lowest = min(active, key=lambda name: (watermarks[name] is not None, watermarks[name] or 0), default=None)
        if lowest is not None:
            ahead_by_source |= {contract.name: ahead for contract in group if (ahead := _ahead(contract, watermarks, lowest)) is not None}
    return ahead_by_source


def _ahead(contract: SourceContract, watermarks: Mapping[str, int | None], lowest: str) -> SourceAhead | None:
    watermark, lowest_watermark = watermarks[contract.name], watermarks[lowest]
    if contract.alignment is None or watermark is None or contract.name == lowest:
        return None
    if lowest_watermark is None:
        return SourceAhead(lowest, None)
    return SourceAhead(lowest, watermark - lowest_watermark) if watermark - lowest_watermark > contract.alignment.max_drift_ms else None


def next_files(files: Iterable[File], contracts: Mapping[str, SourceContract]) -> tuple[list[File], set[str]]:
    """The files to ingest next, and the sources with files left. Of a source in an alignment group, only the oldest file comes next."""
    first: dict[str, File] = {}
    next_to_ingest, sources_with_more = list[File](), set[str]()
    for file in sorted(files):
        if contracts[file.source].alignment is None:
            next_to_ingest.append(file)
        elif file.source in first:
            sources_with_more.add(file.source)
        else:
            first[file.source] = file
    return [*next_to_ingest, *first.values()], sources_with_more
