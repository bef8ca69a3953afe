"""An asset's progress, which is stored in the metadata of the Delta commit that writes its rows."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.identity import differences
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.lake.reads import Commit
from platform_defs.engine.lake.table_columns import differing_columns
from platform_defs.engine.lake.tables import Lake

Corrected = tuple[int, int, int]
"""A step, and the first and the last `final_at` of the closed results that it changed, in epoch ms."""

PROGRESS = "progress"
"""The metadata key of an asset's progress."""


@dataclass(frozen=True)
class Progress:
    """An asset's progress.

    Args:
        step: the number of its newest step; 0 before the first.
        seq: the ledger batch up to which rows were handled; 0 before the first step.
        closed_to: the watermark up to which results are closed, in epoch ms; None if none are, or for an asset that closes no ranges.
        operator: the identity of the asset when it made the table, see `identity.identity_of`; None before the first step.
        read: for each derived input, the last step whose rows and corrections were read.
        corrected: the ranges of closed results that this asset's steps corrected; beyond `MAX_RANGES`, neighbouring ranges are combined.
        generation: how often the table was emptied and rebuilt in place.
        inputs: for each input, the identity of the table from which the rows were computed; see `same_inputs.input_identities`.
        steps_read: for each derived input, the `id` of its step in `read`.
        complete_from: the first ms (of `final_at`; for an upserted table, of event time) from which on the table is complete, if it was
            made after retention had removed older rows of an input; None if it is complete from the beginning on.
        id: identifies the step. If the table loses commits, and a step with the same number is computed again, it has another `id`. None
            before the first step.
    """

    step: int = 0
    seq: int = 0
    closed_to: int | None = None
    operator: str | None = None
    read: Mapping[str, int] = field(default_factory=dict)
    corrected: tuple[Corrected, ...] = ()
    generation: int = 0
    inputs: Mapping[str, str] = field(default_factory=dict)
    steps_read: Mapping[str, str] = field(default_factory=dict)
    complete_from: int | None = None
    id: str | None = None

    def metadata(self, before: "Progress") -> dict[str, Any]:
        """The metadata for the commit of a step. The `id` is a hash of these fields and the `id` of the step before.

        Args:
            before: the progress that the step started from.
        """
        fields = vars(self) | {"id": before.id}
        if self.complete_from is None:  # earlier versions do not know this field, and cannot read a progress with it
            del fields["complete_from"]
        identity = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
        return {PROGRESS: fields | {"id": identity}}

    @classmethod
    def from_metadata(cls, table: str, metadata: Any) -> "Progress":
        """The progress that a table's commit records.

        Raises:
            ProgressError: it is not in the engine's format.
        """
        try:
            corrected = tuple((int(step), int(first), int(last)) for step, first, last in metadata.get("corrected", ()))
            recorded = cls(**{**metadata, "corrected": corrected})
            numbers = (recorded.step, recorded.seq, recorded.generation, *recorded.read.values())
            times = (recorded.closed_to, recorded.complete_from)
            texts = (recorded.operator, recorded.id, *recorded.inputs.values(), *recorded.steps_read.values())
            if not (
                all(isinstance(number, int) for number in numbers)
                and all(isinstance(time, int | None) for time in times)
                and all(isinstance(text, str | None) for text in texts)
            ):
                raise TypeError("a field of another type")
        except (AttributeError, TypeError, ValueError) as error:
            raise ProgressError.unknown_format(table) from error
        return recorded


def progress(lake: Lake, asset: DerivedAsset) -> Progress:
    """An asset's progress, read from its own commits.

    Raises:
        ProgressError: the table was made with other settings.
    """
    stored = stored_progress(lake, asset)
    differing = [] if stored.operator is None else differences(stored.operator, asset)
    if differing:
        raise ProgressError.other_operator(asset.name, differing)
    return stored


def is_emptied(now: Progress) -> bool:
    """Whether a table was emptied in place and has no step since then, so that the next step may change its columns."""
    return now.generation > 0 and not now.seq and now.closed_to is None


def require_same_columns(lake: Lake, asset: DerivedAsset, rows: DataFrame) -> None:
    """Raise if the table of an asset's results exists and has other columns than new rows.

    Raises:
        ProgressError: the columns differ, for example because a source's contract has gained or lost a column.
    """
    schema = lake.schema(results_table(asset))
    if schema.fields and not is_emptied(progress(lake, asset)) and (differing := differing_columns(schema, rows.schema)):
        raise ProgressError.other_columns(asset.name, differing)


def commit_step(
    lake: Lake, asset: DerivedAsset, rows: DataFrame, after: Progress, pruned_by: Sequence[str], *, change_feed: bool = False
) -> int:
    """Commit a step's rows with its progress; returns the number of rows.

    The commit succeeds only if no other step was committed since the step began, because `lake` is the step's snapshot.

    Raises:
        LakeError: another writer has committed a step since then.
    """
    before = stored_progress(lake, asset)
    table, metadata = results_table(asset), after.metadata(before)
    if not is_emptied(before):
        value_before = stored_value(lake, asset)
        return lake.append(rows, table, metadata, after=value_before, number=after.step, pruned_by=pruned_by, change_feed=change_feed)
    lake.overwrite(rows, table, metadata, number=after.step, pruned_by=pruned_by, change_feed=change_feed)
    commit = lake.live.newest_commit(table, PROGRESS)
    return 0 if commit is None else commit.rows


def stored_value(lake: Lake, asset: DerivedAsset) -> Any:
    """The stored progress as raw metadata, which must be unchanged when a step is committed; None before the first step."""
    commit = lake.newest_commit(results_table(asset), PROGRESS)
    return None if commit is None else commit.value


def stored_progress(lake: Lake, asset: DerivedAsset) -> Progress:
    """An asset's progress, without a check of the operator that made the table."""
    commit = lake.newest_commit(results_table(asset), PROGRESS)
    return Progress() if commit is None else Progress.from_metadata(results_table(asset), commit.value)


def step_id(lake: Lake, asset: DerivedAsset, step: int) -> str | None:
    """The `id` of one of an asset's steps; None if its table's log no longer has the step."""
    progress_then = progress_at(lake, asset, step)
    return None if progress_then is None else progress_then.id


def progress_at(lake: Lake, asset: DerivedAsset, step: int) -> Progress | None:
    """An asset's progress after one of its steps; None if its table's log no longer has the step."""
    commit = commit_at(lake, asset, step)
    return None if commit is None else Progress.from_metadata(results_table(asset), commit.value)


def commit_at(lake: Lake, asset: DerivedAsset, step: int) -> Commit | None:
    """A commit that records one of an asset's steps as the newest one; None if its table's log no longer has the step."""
    table = results_table(asset)
    newest = lake.newest_commit(table, PROGRESS)
    if newest is None:
        return None
    commit = _find_earlier_commit(lake, table, newest, step)
    if commit is not None:
        return commit
    for commit in lake.commits(table, PROGRESS):
        if (recorded := Progress.from_metadata(table, commit.value)).step <= step:
            return commit if recorded.step == step else None
    return None


def step_time(lake: Lake, asset: DerivedAsset) -> int | None:
    """When an asset's newest step was committed, by the clock of its writer, in epoch ms; None before the first.

    Maintenance repeats the progress of a step in a later commit. If the log no longer has the step's own commit, this is the time of the
    later one.
    """
    committed_at, newest = None, lake.newest_commit(results_table(asset), PROGRESS)
    if newest is None:
        return None
    for commit in lake.commits(results_table(asset), PROGRESS, newest.version):
        if commit.value != newest.value:
            break
        committed_at = commit.at
    return committed_at


def _find_earlier_commit(lake: Lake, table: str, newest: Commit, step: int) -> Commit | None:
    """A step of the newest generation, found without reading all commits since; None if this search does not find it.

    Each step is one commit, so step n - d is at least d versions before step n.
    """
    commit: Commit = newest
    newest_progress = progress_found = Progress.from_metadata(table, newest.value)
    while progress_found.step > step and progress_found.generation == newest_progress.generation:
        earlier = next(lake.commits(table, PROGRESS, commit.version - (progress_found.step - step)), None)
        if earlier is None:
            return None
        commit, progress_found = earlier, Progress.from_metadata(table, earlier.value)
    return commit if progress_found.step == step and progress_found.generation == newest_progress.generation else None


def results_table(asset: DerivedAsset) -> str:
    """The table whose commits are the asset's commit points."""
    return asset.changelog if asset.operator.emits.upserts else asset.name


def table_identity(lake: Lake, asset: DerivedAsset) -> str | None:
    """A text that changes when a table is rebuilt: its Delta id and its generation; None if there is no table."""
    delta_id = lake.identity(results_table(asset))
    generation = 0 if delta_id is None else stored_progress(lake, asset).generation
    return f"{delta_id}#{generation}" if generation else delta_id


def readers_of(assets: Mapping[str, DerivedAsset], names: Collection[str]) -> list[str]:
    """The other assets that read one of the named assets, directly or indirectly. They are in the order of `assets`.

    Args:
        assets: all assets, by name, each after those that it reads.
        names: the named assets.
    """
    readers: list[str] = []
    for name, asset in assets.items():
        if name not in names and any(input_name in readers or input_name in names for input_name in asset.inputs):
            readers.append(name)
    return readers
