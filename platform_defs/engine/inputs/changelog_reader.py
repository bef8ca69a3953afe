"""Read an upserted table: the changes of its steps, and its rows as of a step."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, CHANGED_AT, STEP, fold, last_changes
from operators.columns import parameter
from operators.errors import OperatorError
from operators.steps import Emits
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.tables import LakeSnapshot

APPLIED = "folded"
"""The metadata key of an upserted table's commits: the last `step` of its changelog that was applied, its `seq` and its `generation`."""


def require_upserts(asset: DerivedAsset) -> Emits:
    """Require that an asset upserts its rows; returns how it writes them.

    Raises:
        OperatorError: the asset appends its rows.
    """
    emits = asset.operator.emits
    if not emits.upserts:
        raise OperatorError(f"{asset.name} only appends rows, so it has no changelog; read the table itself")
    return emits


def change_column(asset: DerivedAsset) -> str:
    """The column in which an asset reads the change kind of a row."""
    reads = asset.operator.reads
    return CHANGE if reads.change is None else reads.change


def upstream_table(asset: DerivedAsset, tables: Sequence[DerivedAsset]) -> DerivedAsset | None:
    """The table whose changes an asset reads step by step; None if it reads sources or closed ranges.

    Args:
        asset: the asset.
        tables: the tables among its inputs. `assets.input_checks` refuses several inputs if one of them is a table.
    """
    if asset.operator.reads.closes_ranges or not tables:
        return None
    [upstream] = tables
    return upstream


def newest_changes(workspace: Workspace, table: DerivedAsset, after: int, upto: int) -> DataFrame:
    """The last change of each key of an upserted table in the steps `after < step <= upto`, with its kind in `CHANGE`."""
    return last_changes(steps_of(workspace, table, after, upto), key=require_upserts(table).key, order=STEP).drop(STEP, CHANGED_AT)


def steps_of(workspace: Workspace, asset: DerivedAsset, after: int, upto: int) -> DataFrame:
    """The changelog of an asset's steps `after < step <= upto`.

    Retention replaces the oldest steps by their result. A changelog that is read from its first step on still leads to the same rows.

    Raises:
        ProgressError: retention has replaced the step after `after`.
    """
    replaced = workspace.lake.transaction(asset.changelog, RETENTION) or 0
    if 0 < after < replaced:
        raise ProgressError.replaced_steps(asset.name, after, replaced)
    changelog = workspace.lake.read(workspace.spark, asset.changelog, within={STEP: (after + 1, upto)})
    step = F.col(STEP)
    return changelog.where((step > parameter(after, STEP)) & (step <= parameter(upto, STEP)))


def as_of_step(workspace: Workspace, table: DerivedAsset, step: int) -> DataFrame:
    """A table as of a step: the table itself if the step is the last one applied, else its changelog merged up to the step."""
    lake = LakeSnapshot.of(workspace.lake)  # the rows and the metadata must be of the same version
    applied = lake.newest_commit(table.name, APPLIED)
    if applied is not None and applied.value["step"] == step:
        return lake.read(workspace.spark, table.name)
    return result_of_changelog(workspace, table, step)


def result_of_changelog(workspace: Workspace, table: DerivedAsset, step: int) -> DataFrame:
    """A table's rows as of a step, from its changelog."""
    return fold(steps_of(workspace, table, 0, step).drop(CHANGED_AT), key=require_upserts(table).key, order=STEP)
