"""Checks that a source and the assets that read it can process a Delta table's change data feed."""

from collections.abc import Iterable

from assets.contracts import DerivedAsset, SourceContract
from operators.changelog import CHANGE
from platform_defs.engine.formats.delta_change_feed import ChangeFeedError
from platform_defs.paths import is_local


def check_feed(source: SourceContract, assets: Iterable[DerivedAsset], folder: str) -> None:
    """Raise unless a source has the change kind as a column and no key, and every asset that reads it interprets that column.

    Args:
        source: the source that is to ingest the changes.
        assets: the derived assets.
        folder: the source's landing folder.

    Raises:
        ChangeFeedError: the source lacks the column or has a `unique_key`, an asset ignores the column, or the folder is not local.
    """
    if CHANGE not in source.struct.fieldNames() or source.unique_key:
        raise ChangeFeedError(
            f"source {source.name!r} needs a column {CHANGE!r}, and no `unique_key`: with a key, an update would be a duplicate"
        )
    for asset in assets:
        if source.name in asset.inputs and not _interprets_changes(asset):
            kind = type(asset.operator).__name__
            raise ChangeFeedError(
                f"{asset.name} reads source {source.name!r}, and {kind} would treat a deleted row as an inserted one; give it "
                f"`change={CHANGE!r}`"
            )
    if not is_local(folder):
        raise ChangeFeedError(f"the folder of source {source.name!r} is {folder!r}; legal: a folder on this machine")


def _interprets_changes(asset: DerivedAsset) -> bool:
    """Whether an asset distinguishes deletes from inserts. Operators of closed ranges are allowed: each change is a row for them."""
    reads = asset.operator.reads
    return reads.closes_ranges or reads.change is not None
