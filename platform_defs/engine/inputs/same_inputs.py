"""Checks that an asset's inputs are still the tables from which its rows were computed, and have the rows that it must still read."""

from collections.abc import Mapping
from dataclasses import replace

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.progress import Progress, readers_of
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.retained import has_lost_rows, removed_rows_of
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.tables import LakeSnapshot


def input_identities(workspace: Workspace, asset: DerivedAsset) -> dict[str, str]:
    """The identity of each of an asset's inputs; inputs without a table are left out."""
    identities = {upstream.name: upstream.identity(workspace.lake) for upstream in workspace.inputs_of(asset)}
    return {name: identity for name, identity in identities.items() if identity is not None}


def steps_read(workspace: Workspace, read: Mapping[str, int]) -> dict[str, str]:
    """For each derived input, the id of the step whose number is in `read`. A step that the table's log no longer has is left out."""
    ids = {name: workspace.input_named(name).step_id(workspace.lake, step) for name, step in read.items() if name in workspace.assets}
    return {name: step_id for name, step_id in ids.items() if step_id is not None}


def require_same_inputs(workspace: Workspace, asset: DerivedAsset, now: Progress) -> None:
    """Raise unless the inputs are still the tables from which an asset's rows were computed.

    Raises:
        ProgressError: an input was rebuilt since then, has lost the step up to which the asset has read it, or has lost rows that the
            asset has not handled.
    """
    snapshot = replace(workspace, lake=LakeSnapshot.of(workspace.lake))  # each table is opened once
    identities = input_identities(snapshot, asset)
    last_steps = {name: snapshot.input_named(name).last_step(snapshot.lake) for name in now.read if name in snapshot.assets}
    shortened = {name for name, last in last_steps.items() if last is not None and last < now.read[name]}
    present_steps = steps_read(snapshot, {name: now.read[name] for name in now.steps_read if name in now.read})
    replaced_steps = {name for name, step in present_steps.items() if step != now.steps_read[name]}  # lost and then replaced
    replaced = sorted({name for name, identity in now.inputs.items() if identities.get(name) != identity} | shortened | replaced_steps)
    if replaced:
        raise ProgressError.input_replaced(asset.name, replaced, readers_of(workspace.assets, [asset.name]))
    _require_rows(snapshot, asset, now)


def _require_rows(workspace: Workspace, asset: DerivedAsset, now: Progress) -> None:
    """Raise unless the logs still have all rows that an asset has not handled.

    Raises:
        ProgressError: retention has removed some of these rows.
    """
    for upstream in workspace.inputs_of(asset) if now.seq else []:
        removed = removed_rows_of(workspace.lake, workspace.sources[upstream.name]) if upstream.is_source else None
        if removed is not None and has_lost_rows(removed, asset, now):
            raise ProgressError.lost_rows(asset.name, upstream.name)
