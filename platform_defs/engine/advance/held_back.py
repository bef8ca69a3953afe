"""Finds the source that holds back the watermark of a table, in the ledger and without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

from platform_defs.engine.inputs.reader import Reading

_BEFORE_ALL = -(1 << 63)


@dataclass(frozen=True)
class HeldBack:
    """The source with the lowest watermark among the sources for which a table waits.

    Args:
        source: the source.
        behind_ms: how far its watermark is behind the next one, in ms; None if it has no watermark yet.
    """

    source: str
    behind_ms: int | None


def held_back(reading: Reading, asset: str) -> HeldBack | None:
    """The source that holds back an asset's watermark, directly or through other tables.

    An idle source holds nothing back, nor does a table whose sources are all idle, unless an earlier version of Tidemark recorded them as
    idle; see `watermarks.table_idleness`.

    Returns:
        The source. None for a table that waits for no watermark, or only for one source, because it has no others or they are idle.
    """
    table = reading.assets[asset]
    if not table.operator.reads.closes_ranges or not reading.ledger.head:
        return None
    watermarks = _watermarks(reading, asset, even_if_idle=False)
    if len(watermarks) < 2:
        return None
    source = min(watermarks, key=lambda name: watermarks[name])
    next_one = min(watermark for name, watermark in watermarks.items() if name != source)
    return HeldBack(source, None if watermarks[source] == _BEFORE_ALL else next_one - watermarks[source])


def _watermarks(reading: Reading, asset: str, *, even_if_idle: bool) -> Mapping[str, int]:
    """By source for which an asset waits, its watermark minus the delays of the tables in between; the lowest of all paths to it."""
    found, head, table = dict[str, int](), reading.ledger.head, reading.assets[asset]
    for which, of in enumerate(reading.inputs_of(table)):
        if table.operator.reads.is_by_arrival(which):
            continue
        seen = reading.timeline(of.name)
        if of.table is not None and seen.idle[head] and not even_if_idle:
            watermarks = {}
        elif of.table is not None:
            delay = of.table.operator.reads.watermark_delay
            all_idle = all(reading.timeline(source).idle[head] for source in of.sources)
            watermarks = {name: watermark - delay for name, watermark in _watermarks(reading, of.name, even_if_idle=all_idle).items()}
        elif even_if_idle or not seen.idle[head]:
            watermark = seen.after[head]
            watermarks = {of.name: _BEFORE_ALL if watermark is None else watermark}
        else:
            watermarks = {}
        found |= {name: min(watermark, found.get(name, watermark)) for name, watermark in watermarks.items()}
    return {name: max(watermark, _BEFORE_ALL) for name, watermark in found.items()}
