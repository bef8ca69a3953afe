"""Checks of sources and derived assets against each other, made when an engine is created."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.names import RESERVED, first_twice, folded
from operators.changelog import CHANGE, CHANGED_AT
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, NamesColumns
from operators.errors import OperatorError
from platform_defs.engine.formats.files import is_local
from platform_defs.engine.inputs.changelog_reader import STEP

Named = SourceContract | DerivedAsset


def checked_assets(
    root: str, sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset], folders: Mapping[str, str]
) -> dict[str, DerivedAsset]:
    """The derived assets, checked, each after those that it reads.

    Args:
        root: the lake's root.
        sources: the sources, by name.
        assets: the derived assets, by name, in any order.
        folders: each source's folder of input files.

    Raises:
        ContractError: two of them have the same name, an input does not exist, assets read each other in a circle, an operator does not
            accept the columns of its inputs, a result has a column that its changelog adds, or a folder overlaps another or the lake.
    """
    for name, named in [*sources.items(), *assets.items()]:
        if name != named.name:
            raise ContractError.bad_value("name", name, f"{named.name!r}, the name of the source or asset under this key")
    if (again := first_twice([*sources, *assets])) is not None:
        raise ContractError.bad_value("name", again, "names of sources and assets that differ in more than case; rename one of the two")
    ordered = in_order(sources, assets)
    _check_changelogs(sources, ordered)
    _check_folders(root, {name: folder for name, folder in folders.items() if name in sources}, assets)
    return ordered


def in_order(sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> dict[str, DerivedAsset]:
    """The assets, each after those that it reads, and otherwise in the given order.

    Raises:
        ContractError: an input does not exist, or there is a circle.
    """
    ordered: dict[str, DerivedAsset] = {}

    def put(name: str, readers: Sequence[str]) -> None:
        if name in readers:
            circle = " -> ".join([*readers[readers.index(name) :], name])
            raise ContractError.bad_value(
                "inputs", circle, "assets that do not read each other in a circle; let one of these read a source"
            )
        if name in ordered or name in sources:
            return
        if name not in assets:
            legal = f"names of sources and assets: {', '.join([*sources, *assets])}"
            raise ContractError.bad_value("inputs", name, f"{legal}; {readers[-1]!r} reads it")
        for of in assets[name].inputs:
            put(of, [*readers, name])
        ordered[name] = assets[name]

    for name in assets:
        put(name, [])
    return ordered


def _check_changelogs(sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> None:
    """Raise if a result has a column that its changelog adds: the changelog could never be written."""
    known: dict[str, Sequence[str]] = {n: [*s.struct.fieldNames(), EVENT_TIME, SEQ, ARRIVAL] for n, s in sources.items()}
    for name, asset in assets.items():
        _check_kind_column(asset, assets, known)
        columns = _columns(asset, assets, known)
        if columns is None or not asset.operator.emits.upserts:
            continue
        known[name] = columns
        for column in columns:
            if folded(column) in (CHANGE, CHANGED_AT, STEP):
                kind = type(asset.operator).__name__
                way_out = f"rename it in the source's schema, or if it has change kinds, give its name to {kind} as `change`"
                legal = f"columns other than {CHANGE}, {CHANGED_AT} and {STEP}, which the changelog of {name!r} adds; {way_out}"
                raise ContractError.bad_value("operator", column, legal)


def _columns(asset: DerivedAsset, assets: Mapping[str, DerivedAsset], known: Mapping[str, Sequence[str]]) -> Sequence[str] | None:
    """The columns of an asset's rows; None if they are known only from its rows.

    Raises:
        ContractError: the operator does not accept the columns of its inputs.
    """
    if not isinstance(asset.operator, NamesColumns) or not all(name in known for name in asset.inputs):
        return None
    kind = asset.operator.reads.change
    added = [kind] if kind else []
    try:
        found = asset.operator.result_columns(*[[*known[name], *(added if name in assets else [])] for name in asset.inputs])
    except OperatorError as error:
        legal = f"inputs whose columns the operator of {asset.name!r} accepts: {error}"
        raise ContractError.bad_value("inputs", asset.inputs, legal) from error
    return None if asset.shape else found


def _check_kind_column(asset: DerivedAsset, assets: Mapping[str, DerivedAsset], known: Mapping[str, Sequence[str]]) -> None:
    """Raise if the column in which an asset reads the change kind has the name of a column of the upstream table."""
    kind = asset.operator.reads.change
    for name in asset.inputs:
        if kind and name in assets and folded(kind) in map(folded, known.get(name, ())):
            legal = f"a name that is no column of {name!r}: {asset.name!r} reads the change kind of a row of {name!r} in it"
            raise ContractError.bad_value("change", kind, legal)


def _check_folders(root: str, folders: Mapping[str, str], assets: Mapping[str, DerivedAsset]) -> None:
    """Raise if a file could be below the folders of two sources, which would ingest it twice, or in the folder of a table."""
    lake = _resolved(root)
    for name, folder in folders.items():
        inside = _resolved(folder).removeprefix(lake)
        if lake.startswith(_resolved(folder)):
            raise _bad_folder(name, folder, f"a folder that does not contain the lake, {root}")
        top = inside.split("/", 1)[0] if inside != _resolved(folder) else ""
        if top.startswith("_") or top in (RESERVED - {"landing"}) | assets.keys():
            raise _bad_folder(name, folder, f"a folder outside the lake's tables, such as {root}/landing/{name}")
    for one, other in _pairs(folders):
        legal = f"a folder of its own: that of {one!r} is {folders[one]}, so a file would be ingested twice"
        raise _bad_folder(other, folders[other], legal)


def _bad_folder(source: str, folder: str, legal: str) -> ContractError:
    return ContractError.bad_value("folders", {source: folder}, legal)


def _pairs(folders: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The pairs of sources whose folders are the same, or one inside the other."""
    resolved = {name: _resolved(folder) for name, folder in folders.items()}
    for one, other in combinations(resolved, 2):
        if resolved[one].startswith(resolved[other]) or resolved[other].startswith(resolved[one]):
            yield one, other


def _resolved(path: str) -> str:
    """A folder's path with a slash at its end: a local path with its symbolic links resolved, a URI as it is written."""
    local = path.removeprefix("file://") if path.startswith("file:///") else path
    return f"{str(Path(local).resolve()) if is_local(local) else local.rstrip('/')}/".replace("//", "/")
