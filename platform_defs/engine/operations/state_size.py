"""The size of a table's state, from commits and the statistics of data files, without a Spark job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from assets.contracts import DerivedAsset
from operators.engine_columns import SEQ
from platform_defs.engine.advance.advance import strategy_of
from platform_defs.engine.advance.state import StateKind, StatePart
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.tables import Lake


@dataclass(frozen=True)
class StateSize:
    """The data files that later steps may read again. Files are counted with all of their rows.

    Args:
        rows: the rows of the files.
        bytes: their bytes.
        files: their number.
        skipped_files: the other files with handled rows of the same tables, which data skipping leaves out.
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    skipped_files: int = 0


def state_size(workspace: Workspace, asset: DerivedAsset) -> dict[StateKind, StateSize]:
    """The size of the data files that later steps may read again, by kind of table.

    The rows that the next step handles are not state, nor are final results.

    Args:
        workspace: the lake and its ledger; it needs no session.
        asset: the asset that makes the table.
    """
    parts, now = dict[StateKind, list[StatePart]](), stored_progress(workspace.lake, asset)
    for part in strategy_of(workspace, asset).state(now):
        parts.setdefault(part.kind, []).append(part)
    return {kind: _size(workspace.lake, parts[kind], now.seq) for kind in get_args(StateKind) if kind in parts}


def total(sizes: Iterable[StateSize]) -> StateSize:
    """The sum of sizes."""
    all_sizes = [*sizes]
    sums = {name: sum(getattr(size, name) for size in all_sizes) for name in ("rows", "bytes", "files", "skipped_files")}
    return StateSize(**sums)


def _size(lake: Lake, parts: Sequence[StatePart], seq: int) -> StateSize:
    """The size of some parts of one kind; a file that several of them contain, such as one of an input that is read twice, counts once.

    Args:
        lake: the lake.
        parts: the parts.
        seq: the last batch that the asset has handled: files of later batches are not counted as skipped.
    """
    files = {key: size for part in parts for key, size in part.files(lake).items()}
    handled = {part.table: {SEQ: (None, seq)} if part.kind == "event_log" else {} for part in parts if part.within}  # others skip no file
    all_files = {(table, path) for table, within in handled.items() for path in lake.file_sizes(table, within)}
    sizes = files.values()
    return StateSize(sum(size.rows for size in sizes), sum(size.bytes for size in sizes), len(files), len(all_files - files.keys()))
