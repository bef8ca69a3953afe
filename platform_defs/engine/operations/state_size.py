"""The size of a table's state, from commits and the statistics of data files, without a Spark job."""

from collections.abc import Iterable
from typing import get_args

from assets.contracts import DerivedAsset
from platform_defs.engine.advance.advance import strategy_of
from platform_defs.engine.advance.state import StateKind
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.reader import Reading
from platform_defs.engine.lake.data_skipping import FileSize


def state_size(reading: Reading, asset: DerivedAsset) -> dict[StateKind, FileSize]:
    """The size of the data files that later steps may read again, by kind of table.

    The rows that the next step handles are not state, nor are final results. Files are counted whole.

    Args:
        reading: reads the lake and its ledger; it needs no session.
        asset: the asset that makes the table.
    """
    files = dict[StateKind, dict[tuple[str, str], FileSize]]()
    for state_part in strategy_of(reading, asset).state(stored_progress(reading.lake, asset)):
        files.setdefault(state_part.kind, {}).update(state_part.files(reading.lake))  # an input that is read twice counts once
    return {kind: total(files[kind].values()) for kind in get_args(StateKind) if kind in files}


def total(sizes: Iterable[FileSize]) -> FileSize:
    """The sum of sizes."""
    all_sizes = [*sizes]
    return FileSize(sum(size.rows for size in all_sizes), sum(size.bytes for size in all_sizes))
