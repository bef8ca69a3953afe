"""Finds the source that holds back the watermark of a table, in the ledger and without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

from platform_defs.engine.inputs.timelines import input_timeline
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger.watermarks import BEFORE_ALL, or_before_all


@dataclass(frozen=True)
class HoldingSource:
    """The source with the lowest watermark among the sources for which a table waits.

    Args:
        source: the name of the source.
        behind_ms: how far its watermark is behind the second lowest one, in ms; None if the source has no watermark yet.
    """

    source: str
    behind_ms: int | None


def find_holding_source(workspace: Workspace, asset: str) -> HoldingSource | None:
    """The source that holds back an asset's watermark, directly or through other tables.

    An idle source holds back no table that reads it. A table whose sources are all idle holds back no reader either, unless an earlier
    version of Tidemark recorded the sources as idle; see `watermarks.table_idleness`.

    Returns:
        The source. None for a table that waits for no watermark, or that waits for a single source because the others are idle or it has
        no others.
    """
    table = workspace.assets[asset]
    if not table.operator.reads.closes_ranges or not workspace.ledger.head:
        return None
    watermarks = _watermark_by_source(workspace, asset, {}, even_if_idle=False)
    if len(watermarks) < 2:
        return None
    source = min(watermarks, key=lambda name: watermarks[name])
    next_watermark = min(watermark for name, watermark in watermarks.items() if name != source)
    return HoldingSource(source, None if watermarks[source] == BEFORE_ALL else next_watermark - watermarks[source])


def _watermark_by_source(
    workspace: Workspace, asset: str, known: dict[tuple[str, bool], Mapping[str, int]], *, even_if_idle: bool
) -> Mapping[str, int]:
    """The watermark of each source for which an asset waits, minus the delays of the tables between them.

    If several paths lead to a source, it is the lowest of these watermarks. Exponentially many paths may lead to a table, so it is visited
    once: `known` has the watermarks that are known, by asset and `even_if_idle`.
    """
    if (asset, even_if_idle) in known:
        return known[asset, even_if_idle]
    watermark_by_source, head, table = dict[str, int](), workspace.ledger.head, workspace.assets[asset]
    for index, upstream in enumerate(workspace.inputs_of(table)):
        if table.operator.reads.is_by_arrival(index):
            continue
        timeline = input_timeline(workspace, upstream.name)
        if upstream.table is not None and timeline.idle[head] and not even_if_idle:
            watermarks_through_input = {}
        elif upstream.table is not None:
            delay = upstream.table.operator.reads.watermark_delay
            all_idle = all(input_timeline(workspace, source).idle[head] for source in upstream.sources)
            of_table = _watermark_by_source(workspace, upstream.name, known, even_if_idle=all_idle)
            watermarks_through_input = {name: watermark - delay for name, watermark in of_table.items()}
        elif even_if_idle or not timeline.idle[head]:
            watermark = timeline.after[head]
            watermarks_through_input = {upstream.name: or_before_all(watermark)}
        else:
            watermarks_through_input = {}
        watermark_by_source |= {
            name: min(watermark, watermark_by_source.get(name, watermark)) for name, watermark in watermarks_through_input.items()
        }
    known[asset, even_if_idle] = {name: max(watermark, BEFORE_ALL) for name, watermark in watermark_by_source.items()}
    return known[asset, even_if_idle]
