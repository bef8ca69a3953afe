"""An asset's progress, which is stored in the metadata of the Delta commit that writes its rows."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from operators.errors import TidemarkError
from platform_defs.engine.inputs.identity import differences
from platform_defs.engine.lake.reads import Commit
from platform_defs.engine.lake.table_columns import differing_columns
from platform_defs.engine.lake.tables import Lake

Corrected = tuple[int, int, int]
"""A step, and the first and the last `final_at` of the closed results that it changed, in epoch ms."""

PROGRESS = "progress"
"""The metadata key of an asset's progress."""


class ProgressError(TidemarkError, RuntimeError):
    """An asset cannot be advanced from its stored progress."""

    @classmethod
    def other_operator(cls, asset: str, differing: Sequence[str]) -> "ProgressError":
        """The table was made with other settings."""
        return cls(
            f"{asset} was made with other settings than it has now: {'; '.join(differing)}. One table cannot have rows of both. "
            f"Use the former settings, or another lake (TIDEMARK_LAKE), or run `tidemark rebuild {asset} --downstream`, "
            "which rebuilds the table, and every table that reads it, from the log"
        )

    @classmethod
    def input_replaced(cls, asset: str, replaced: Sequence[str], readers: Sequence[str]) -> "ProgressError":
        """An input was rebuilt, or lost commits, after the asset read it."""
        others = f", and the tables that read it ({', '.join(readers)})," if readers else ""
        return cls(
            f"{asset} was computed from an earlier {', '.join(replaced)}, which has been replaced since, so its rows may be wrong. "
            f"Run `tidemark rebuild {asset} --downstream`, which rebuilds {asset}{others} from the log"
        )

    @classmethod
    def read_by(cls, names: Sequence[str], readers: Sequence[str]) -> "ProgressError":
        """Tables that are to be rebuilt have downstream tables."""
        return cls(
            f"{', '.join(readers)} {'read' if len(readers) > 1 else 'reads'} {', '.join(names)}, and must be rebuilt too. "
            "Nothing was changed. Add `--downstream` to rebuild these tables as well"
        )

    @classmethod
    def renamed_source(cls, asset: str, former: Sequence[str], empty: Sequence[str]) -> "ProgressError":
        """A table is to be rebuilt from sources of which no row was ingested, in place of those from which it was computed."""
        return cls(
            f"{asset} was computed from {', '.join(former)}, and would be empty now: no row of {', '.join(empty)} was ingested. Nothing "
            f"was changed. If a source was renamed, give it its former name, since its rows are stored under that name; or ingest files of "
            f"{', '.join(empty)} first"
        )

    @classmethod
    def other_columns(cls, asset: str, differing: Sequence[str]) -> "ProgressError":
        """A step's rows have other columns than the table."""
        why = f"{asset} would have other columns than its table has: {'; '.join(differing)}. Nothing was computed"
        return cls(
            f"{why}. Give its inputs the columns they had, or run `tidemark rebuild {asset} --downstream`, which rebuilds the table, and "
            "every table that reads it, from the log"
        )

    @classmethod
    def lost_changelog(cls, asset: str, changelog: str, step: int) -> "ProgressError":
        """An upserted table exists, but its changelog does not."""
        return cls(
            f"{asset} has the changes of its changelog up to step {step}, but {changelog} does not exist. "
            f"Run `tidemark rebuild {asset} --downstream`, which rebuilds both, and every table that reads them, from the log"
        )

    @classmethod
    def shorter_changelog(cls, asset: str, changelog: str, held: int, step: int) -> "ProgressError":
        """A changelog has lost steps that were applied to its table."""
        return cls(
            f"{asset} has the changes of its changelog up to step {held}, but {changelog} has lost its newest commits: it ends at step "
            f"{step}. Run `tidemark rebuild {asset} --downstream`, which rebuilds both, and every table that reads them, from the log"
        )

    @classmethod
    def lost_state(cls, asset: str, table: str, step: int) -> "ProgressError":
        """The state of a table from which another one was computed can no longer be read."""
        why = f"{asset} was computed from {table} as of its step {step}, and a file of that state was deleted by maintenance"
        return cls(f"{why}. Advance {asset}, which reads the present {table}")

    @classmethod
    def lost_rows(cls, asset: str, source: str) -> "ProgressError":
        """Retention removed rows that a table had not handled, because the table was not in the pipeline then."""
        return cls(
            f"{asset} has not handled rows of {source} that retention has removed since, because {asset} was not in the pipeline then. "
            f"Run `tidemark rebuild {asset} --downstream --from-kept`, which computes it from the rows that are kept"
        )

    @classmethod
    def loses_results(cls, asset: str, day: str) -> "ProgressError":
        """A table that is to be rebuilt has results that cannot be computed again."""
        return cls(
            f"{asset} would lose its results before {day}, because retention has removed the rows of which they were made. Nothing "
            "was changed. Add `--from-kept` to rebuild it from the rows that are kept; `tidemark export` keeps a copy of its results"
        )

    @classmethod
    def replaced_steps(cls, asset: str, after: int, replaced: int) -> "ProgressError":
        """A reader needs steps of a changelog that retention has replaced by their result."""
        return cls(
            f"the changes of {asset} after its step {after} cannot be read: retention has replaced the steps up to {replaced} by their "
            f"result. Publish {asset} into a new folder or topic; rebuild a table that reads it: `tidemark rebuild NAME --downstream`"
        )

    @classmethod
    def not_ours(cls, table: str) -> "ProgressError":
        """A commit's progress is not in the engine's format."""
        return cls(
            f"the newest commit of {table} has no progress in the engine's format: another program, or a later version of Tidemark, "
            "wrote to the table. Restore the table to the version before that commit, or delete it and advance again"
        )

    @classmethod
    def made_anew(cls, table: str, read: int, step: int) -> "ProgressError":
        """A reader has read more steps of a table than the table has."""
        return cls(
            f"{table} was read up to its step {read}, but its newest step is {step}: it was recreated, or lost commits, since. "
            "Run `tidemark rebuild NAME --downstream` for each table that reads it; publish it into a new folder"
        )


@dataclass(frozen=True)
class Progress:
    """An asset's progress.

    Args:
        step: the number of its newest step; 0 before the first.
        seq: the ledger batch up to which rows were handled.
        closed_to: the watermark up to which results are closed, in epoch ms; None before the first.
        operator: the identity of the asset when it made the table; see `identity.identity_of`.
        read: for each derived input, the last step whose rows and corrections were read.
        corrected: the ranges of closed results that this asset's steps corrected; the oldest ranges are combined.
        generation: how often the table was emptied and rebuilt in place.
        inputs: for each input, the identity of the table from which the rows were computed; see `Reading.input_identities`.
        steps_read: for each derived input, the `id` of its step in `read`.
        complete_from: the first ms for which the table is complete, as results' `final_at`, or event times of an upserted table, if it was
            made after retention had removed older rows of an input; None if it is complete from the beginning on.
        id: identifies the step. A step with the same number, computed from other rows after the table lost commits, has another `id`.
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
        fields = asdict(self) | {"id": before.id}
        if self.complete_from is None:  # as earlier versions wrote it, and can read it
            del fields["complete_from"]
        identity = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
        return {PROGRESS: fields | {"id": identity}}

    @classmethod
    def recorded(cls, table: str, metadata: Any) -> "Progress":
        """The progress that a table's commit records.

        Raises:
            ProgressError: it is not in the engine's format.
        """
        try:
            corrected = tuple((int(step), int(first), int(last)) for step, first, last in metadata.get("corrected", ()))
            found = cls(**{**metadata, "corrected": corrected})
            numbers = (found.step, found.seq, found.generation, 0 if found.closed_to is None else found.closed_to)
            if not all(isinstance(n, int) for n in numbers) or not isinstance(found.operator, str | None):
                raise TypeError("a field of another type")
        except (AttributeError, TypeError, ValueError) as error:
            raise ProgressError.not_ours(table) from error
        return found


def progress(lake: Lake, asset: DerivedAsset) -> Progress:
    """An asset's progress, read from its own commits.

    Raises:
        ProgressError: the table was made with other settings.
    """
    found = stored_progress(lake, asset)
    differing = [] if found.operator is None else differences(found.operator, asset)
    if differing:
        raise ProgressError.other_operator(asset.name, differing)
    return found


def is_emptied(now: Progress) -> bool:
    """Whether a table was emptied in place and has no step since, so that the next step may change its columns."""
    return now.generation > 0 and not now.seq and now.closed_to is None


def require_same_columns(lake: Lake, asset: DerivedAsset, rows: DataFrame) -> None:
    """Raise if the table of an asset's results exists and has other columns than new rows.

    Raises:
        ProgressError: the columns differ, for example because a source's contract has gained or lost a column.
    """
    held = lake.schema(results_table(asset))
    if held.fields and not is_emptied(progress(lake, asset)) and (differing := differing_columns(held, rows.schema)):
        raise ProgressError.other_columns(asset.name, differing)


def commit_step(
    lake: Lake, asset: DerivedAsset, rows: DataFrame, after: Progress, pruned_by: Sequence[str], *, change_feed: bool = False
) -> int:
    """Commit a step's rows with its progress if no other step was committed since it began; returns the number of rows.

    Raises:
        LakeError: another writer has committed a step since.
    """
    before = stored_progress(lake, asset)
    table, metadata = results_table(asset), after.metadata(before)
    if not is_emptied(before):
        known = stored_value(lake, asset)
        return lake.append(rows, table, metadata, after=known, number=after.step, pruned_by=pruned_by, change_feed=change_feed)
    lake.overwrite(rows, table, metadata, number=after.step, pruned_by=pruned_by, change_feed=change_feed)
    made = lake.live.newest(table, PROGRESS)
    return 0 if made is None else made.rows


def stored_value(lake: Lake, asset: DerivedAsset) -> Any:
    """The stored progress as raw metadata, which must be unchanged when a step is committed; None before the first step."""
    commit = lake.newest(results_table(asset), PROGRESS)
    return None if commit is None else commit.value


def stored_progress(lake: Lake, asset: DerivedAsset) -> Progress:
    """An asset's progress, without a check of the operator that made the table."""
    commit = lake.newest(results_table(asset), PROGRESS)
    return Progress() if commit is None else Progress.recorded(results_table(asset), commit.value)


def step_id(lake: Lake, asset: DerivedAsset, step: int) -> str | None:
    """The `id` of one of an asset's steps; None if its table's log no longer has the step."""
    found = progress_at(lake, asset, step)
    return None if found is None else found.id


def progress_at(lake: Lake, asset: DerivedAsset, step: int) -> Progress | None:
    """An asset's progress after one of its steps; None if its table's log no longer has the step."""
    commit = commit_at(lake, asset, step)
    return None if commit is None else Progress.recorded(results_table(asset), commit.value)


def commit_at(lake: Lake, asset: DerivedAsset, step: int) -> Commit | None:
    """A commit that records one of an asset's steps as the newest one; None if its table's log no longer has the step."""
    table = results_table(asset)
    newest = lake.newest(table, PROGRESS)
    if newest is None:
        return None
    found = _earlier(lake, table, newest, step)
    if found is not None:
        return found
    for commit in lake.commits(table, PROGRESS):
        if (reached := Progress.recorded(table, commit.value)).step <= step:
            return commit if reached.step == step else None
    return None


def step_time(lake: Lake, asset: DerivedAsset) -> int | None:
    """When an asset's newest step was committed, by the clock of its writer, in epoch ms; None before the first.

    Maintenance repeats the progress of a step in a later commit. If the log no longer has the step's own commit, it is the time of that.
    """
    at, newest = None, lake.newest(results_table(asset), PROGRESS)
    if newest is None:
        return None
    for commit in lake.commits(results_table(asset), PROGRESS, newest.version):
        if commit.value != newest.value:
            break
        at = commit.at
    return at


def _earlier(lake: Lake, table: str, newest: Commit, step: int) -> Commit | None:
    """A step of the newest generation, found without reading all commits since; None if this search does not find it.

    Each step is one commit, so step n - d is at least d versions before step n.
    """
    commit: Commit = newest
    now = found = Progress.recorded(table, newest.value)
    while found.step > step and found.generation == now.generation:
        earlier = next(lake.commits(table, PROGRESS, commit.version - (found.step - step)), None)
        if earlier is None:
            return None
        commit, found = earlier, Progress.recorded(table, earlier.value)
    return commit if found.step == step and found.generation == now.generation else None


def results_table(asset: DerivedAsset) -> str:
    """The table whose commits are the asset's commit points."""
    return asset.changelog if asset.operator.emits.upserts else asset.name


def table_identity(lake: Lake, asset: DerivedAsset) -> str | None:
    """A text that changes when a table is rebuilt: its Delta id and its generation; None if there is no table."""
    found = lake.identity(results_table(asset))
    generation = 0 if found is None else stored_progress(lake, asset).generation
    return f"{found}#{generation}" if generation else found


def readers_of(assets: Mapping[str, DerivedAsset], names: Iterable[str]) -> list[str]:
    """The assets that read the named ones, directly or indirectly; each after those that it reads."""
    found: list[str] = []
    for name, asset in assets.items():
        if name not in names and any(of in found or of in names for of in asset.inputs):
            found.append(name)
    return found
