"""Checks that the folders of input files overlap neither each other nor the tables of the lake, and do not contain the lake."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset
from assets.names import RESERVED
from platform_defs.paths import is_local


def check_folders(root: str, folders: Mapping[str, str], assets: Mapping[str, DerivedAsset]) -> None:
    """Raise if folders overlap: otherwise two sources would ingest one file, or a source the files of a table of the pipeline.

    Args:
        root: the lake's root.
        folders: each source's folder of input files.
        assets: the derived assets, by name.

    Raises:
        ContractError: a source's folder overlaps the folder of another source or of a table of the pipeline, or contains the lake.
    """
    lake = _resolve(root)
    for name, folder in folders.items():
        resolved = _resolve(folder)
        if lake.startswith(resolved):
            raise _bad_folder(name, folder, f"a folder that does not contain the lake, {root}")
        top = resolved.removeprefix(lake).split("/", 1)[0] if resolved.startswith(lake) else ""
        if top.startswith("_") or top in (RESERVED - {"landing"}) | assets.keys():
            raise _bad_folder(name, folder, f"a folder outside the lake's tables, such as {root}/landing/{name}")
    for source, other_source in _overlapping_folders(folders):
        legal = f"a folder of its own: that of {source!r} is {folders[source]}, so a file would be ingested twice"
        raise _bad_folder(other_source, folders[other_source], legal)


def _bad_folder(source: str, folder: str, legal: str) -> ContractError:
    return ContractError.bad_value("folders", {source: folder}, legal)


def _overlapping_folders(folders: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The pairs of sources with the same folder, or with one folder inside the other."""
    resolved = {name: _resolve(folder) for name, folder in folders.items()}
    for source, other_source in combinations(resolved, 2):
        if resolved[source].startswith(resolved[other_source]) or resolved[other_source].startswith(resolved[source]):
            yield source, other_source


def _resolve(path: str) -> str:
    """A folder's path, for comparisons: with one slash at its end, and without double slashes. A local path has no symbolic links."""
    local = path.removeprefix("file://") if path.startswith("file:///") else path
    return f"{str(Path(local).resolve()) if is_local(local) else local.rstrip('/')}/".replace("//", "/")
