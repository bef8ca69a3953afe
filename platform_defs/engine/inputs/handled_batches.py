"""The newest ledger batch that each derived table has handled. A ledger without this batch has lost it."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from assets.contracts import CHANGELOGS, DerivedAsset
from assets.names import name_fault
from platform_defs.engine.inputs.progress import PROGRESS, Progress, results_table
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.lake.commits import APPLICATION
from platform_defs.engine.lake.errors import LakeError, MissingMetadataError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.snapshot import LedgerSnapshot


def newest_handled_batches(lake: Lake, assets: Mapping[str, DerivedAsset]) -> Iterator[tuple[str, int]]:
    """The newest batch that each derived table has handled, by table; tables of assets that have left the pipeline are included.

    A table that cannot be read is left out, so that ingest can continue: its own advance reports the error.
    """
    configured = [results_table(asset) for asset in assets.values()]
    for table in [*configured, *_tables_not_configured(lake, {*configured, *assets})]:
        with suppress(LakeError, ProgressError):
            commit = lake.newest_commit(table, PROGRESS) if table in configured or _has_steps(lake, table) else None
            if commit is not None:
                yield table, Progress.from_metadata(table, commit.value).seq


def require_handled_batches(lake: Lake, ledger: Ledger, assets: Mapping[str, DerivedAsset]) -> None:
    """Raise `LedgerError` if the ledger lacks a batch that a table has handled: otherwise the next batch would get the same number."""
    handled = [*newest_handled_batches(lake, assets)]
    known = LedgerSnapshot.of(ledger)  # after the tables were read: it has their batches
    for table, seq in handled:
        known.require(seq, f"table {table}")


def tables_outside(lake: Lake, assets: Mapping[str, DerivedAsset]) -> list[str]:
    """The names of the derived tables in the lake that no configured asset makes."""
    configured = {*[results_table(asset) for asset in assets.values()], *assets}
    tables = [table for table in _tables_not_configured(lake, configured) if _has_steps(lake, table)]
    return sorted({table.removeprefix(f"{CHANGELOGS}/") for table in tables})


def _has_steps(lake: Lake, table: str) -> bool:
    """Whether a table in the lake has steps of Tidemark."""
    if lake.transaction(table, APPLICATION) is not None:
        return True
    with suppress(MissingMetadataError):  # earlier versions did not record the number of a table's first step
        return lake.version(table) == 0 and lake.newest_commit(table, PROGRESS) is not None
    return False


def _tables_not_configured(lake: Lake, configured: Collection[str]) -> list[str]:
    """The tables in the lake that are not among `configured`. In place of an upserted table, its changelog, which has the progress.

    Some may be tables of other programs, whose commits have no step number of Tidemark.
    """
    changelogs = lake.folders(CHANGELOGS)
    tables = [name for name in lake.folders() if name not in changelogs and name_fault(name) is None]
    return sorted({*tables, *[f"{CHANGELOGS}/{name}" for name in changelogs]} - {*configured})
