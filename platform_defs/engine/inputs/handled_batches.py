"""The tables of a lake as witnesses of its ledger: each knows up to which batch it was made."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from deltalake.exceptions import DeltaError

from assets.contracts import CHANGELOGS, DerivedAsset
from assets.names import name_fault
from platform_defs.engine.inputs.progress import PROGRESS, results_table
from platform_defs.engine.lake.commits import APPLICATION
from platform_defs.engine.lake.tables import Lake, LakeError


def handled(lake: Lake, assets: Mapping[str, DerivedAsset]) -> Iterator[tuple[str, int]]:
    """The newest batch that each derived table has handled, by table: also of assets that have left the pipeline.

    A table that cannot be read is left out: its own advance says so, and what comes in does not wait for it.
    """
    configured = [results_table(asset) for asset in assets.values()]
    for table in [*configured, *_others(lake, {*configured, *assets})]:
        with suppress(LakeError, DeltaError):
            commit = lake.newest(table, PROGRESS) if table in configured or lake.transaction(table, APPLICATION) is not None else None
            if commit is not None:
                yield table, commit.value["seq"]


def _others(lake: Lake, known: Collection[str]) -> list[str]:
    """The tables of no configured asset; an upserted table's steps are its changelog's. Those of others have no number of this project."""
    changelogs = lake.folders(CHANGELOGS)
    others = [name for name in lake.folders() if name not in changelogs and name_fault(name) is None]
    return sorted({*others, *[f"{CHANGELOGS}/{name}" for name in changelogs]} - {*known})
