"""Timelines: the watermarks of inputs and of operators after each batch of the ledger. Only new batches are computed."""

from collections.abc import Callable
from functools import partial

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.waited_for import awaited_inputs, watermark_key
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.watermarks import NOTHING, Timeline


def input_timeline(workspace: Workspace, name: str) -> Timeline:
    """The watermark that readers of a source or a table see, after each batch."""
    upstream, workspace = workspace.input_named(name), workspace.on_one_ledger()

    def extend(earlier: Timeline, history: History) -> Timeline:
        return upstream.timeline(history, earlier, partial(operator_timeline, workspace))

    return _cached_timeline(workspace, f"seen:{name}", extend)


def operator_timeline(workspace: Workspace, asset: DerivedAsset) -> Timeline:
    """An asset's own watermark after each batch."""
    workspace = workspace.on_one_ledger()

    def extend(earlier: Timeline, _: History) -> Timeline:
        return watermarks.of_operator([input_timeline(workspace, name) for name in awaited_inputs(asset)], earlier)

    return _cached_timeline(workspace, f"own:{asset.name}", extend, asset)


def _cached_timeline(
    workspace: Workspace, key: str, extend: Callable[[Timeline, History], Timeline], asset: DerivedAsset | None = None
) -> Timeline:
    """A cached timeline, extended to the ledger's head.

    It is computed again if the ledger has become shorter, or begins with another summary. For summarized batches it has no values.
    """
    history = workspace.ledger.history
    summarized, timeline = workspace.timelines.get(key, (-1, NOTHING))
    if summarized != history.summarized or len(timeline.after) > history.head + 1:
        timeline = _timeline_after_summary(workspace, history, asset)
    if len(timeline.after) != history.head + 1:
        timeline = extend(timeline, history)
        workspace.timelines[key] = history.summarized, timeline
    return timeline


def _timeline_after_summary(workspace: Workspace, history: History, asset: DerivedAsset | None) -> Timeline:
    """A timeline up to the end of the summary with which the ledger begins; for an asset, with the watermark that the summary records."""
    summary = history.summary
    if summary is None or asset is None:
        return watermarks.after_summary(history.summarized)
    key = watermark_key(asset, workspace.input_named)
    if key not in summary.watermarks:
        return watermarks.after_summary(history.summarized)
    return watermarks.after_summary(summary.upto, summary.watermarks[key], is_known=True)
