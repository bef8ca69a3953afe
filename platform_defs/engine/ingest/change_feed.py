"""What a source, and what is made of it, need so that a Delta table's changes can come in as its rows."""

from collections.abc import Iterable

from assets.contracts import DerivedAsset, SourceContract
from operators.changelog import CHANGE
from operators.contract import ByTimeRange
from platform_defs.engine.formats.delta_change_feed import ChangeFeedError
from platform_defs.engine.formats.files import is_local


def check_feed(source: SourceContract, assets: Iterable[DerivedAsset], folder: str) -> None:
    """Pass if a source takes changes as what they are, and so does every asset that reads it.

    Args:
        source: the source that the changes are to come in by.
        assets: the derived assets.
        folder: where the changes are to land.

    Raises:
        ChangeFeedError: one does not, or the folder is not on this machine.
    """
    if CHANGE not in source.struct.fieldNames() or source.unique_key:
        raise ChangeFeedError(
            f"source {source.name!r} needs a column {CHANGE!r}, and no `unique_key`, by which an update would be a duplicate"
        )
    for asset in assets:
        if source.name in asset.inputs and not _tells_changes(asset):
            kind = type(asset.operator).__name__
            raise ChangeFeedError(
                f"{asset.name} reads source {source.name!r}, and {kind} would take a row that went for one that came; give it "
                f"`change={CHANGE!r}`"
            )
    if not is_local(folder):
        raise ChangeFeedError(f"the folder of source {source.name!r} is {folder!r}; legal: one on this machine")


def _tells_changes(asset: DerivedAsset) -> bool:
    """Whether an asset knows a row that went from one that came. ByTimeRange ranges are let pass: they take each change as a row."""
    reads = asset.operator.reads
    return isinstance(reads, ByTimeRange) or reads.change is not None
