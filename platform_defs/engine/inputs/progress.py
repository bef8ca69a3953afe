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
from platform_defs.engine.lake.table_columns import differing_columns
from platform_defs.engine.lake.tables import Lake

Corrected = tuple[int, int, int]
"""A step, and the first and the last `final_at` of the closed results that it changed, in epoch ms."""

PROGRESS = "progress"


class ProgressError(TidemarkError, RuntimeError):
    """An asset cannot be advanced from its stored progress."""

    @classmethod
    def other_operator(cls, asset: str, differing: Sequence[str]) -> "ProgressError":
        """The table was made with other settings."""
        return cls(
            f"{asset} was made with other settings than it has now: {'; '.join(differing)}. Rows of both in one table would mean nothing. "
            f"Use the former settings, or another lake (TIDEMARK_LAKE), or run `tidemark rebuild {asset} --downstream`: "
            "it makes the table, and every table that reads it, again from the log"
        )

    @classmethod
    def input_replaced(cls, asset: str, replaced: Sequence[str], readers: Sequence[str]) -> "ProgressError":
        """An input was rebuilt after the asset read it."""
        others = f", and the tables that read it ({', '.join(readers)})," if readers else ""
        return cls(
            f"{asset} was made of an earlier {', '.join(replaced)}, which has been made again since, so its rows may be wrong. "
            f"Run `tidemark rebuild {asset} --downstream`: it makes {asset}{others} again from the log"
        )

    @classmethod
    def read_by(cls, names: Sequence[str], readers: Sequence[str]) -> "ProgressError":
        """Tables that are to be rebuilt have downstream tables."""
        return cls(
            f"{', '.join(readers)} {'are' if len(readers) > 1 else 'is'} made of {', '.join(names)}, and would have to be made again too. "
            "Nothing was changed. Add `--downstream` to make these tables again as well"
        )

    @classmethod
    def other_columns(cls, asset: str, differing: Sequence[str]) -> "ProgressError":
        """The table's rows would have other columns than it holds."""
        return cls(
            f"{asset} would have other columns than its table holds: {'; '.join(differing)}. Nothing was computed. Give its inputs the "
            f"columns they had, or run `tidemark rebuild {asset} --downstream`: it makes the table, and every table that reads it, "
            "again from the log"
        )

    @classmethod
    def lost_changelog(cls, asset: str, changelog: str, step: int) -> "ProgressError":
        """An upserted table exists, but its changelog does not."""
        return cls(
            f"{asset} holds the changes of its changelog up to step {step}, and {changelog} is not there. "
            f"Run `tidemark rebuild {asset} --downstream`: the log holds all that is needed"
        )

    @classmethod
    def shorter_changelog(cls, asset: str, changelog: str, held: int, step: int) -> "ProgressError":
        """A changelog has lost steps that were applied to its table."""
        return cls(
            f"{asset} holds the changes of its changelog up to step {held}, and {changelog} has lost its newest commits: it ends at step "
            f"{step}. Run `tidemark rebuild {asset} --downstream`: it makes both, and every table that reads them, again from the log"
        )

    @classmethod
    def not_ours(cls, table: str) -> "ProgressError":
        """A commit's progress is not in the engine's format."""
        return cls(
            f"the newest commit of {table} records no progress that the engine writes: something else wrote to the table, or a later "
            "version of the project did. Restore the table to the version before that commit, or delete it and advance again"
        )

    @classmethod
    def made_anew(cls, table: str, read: int, step: int) -> "ProgressError":
        """A reader has read more steps of a table than the table has."""
        return cls(
            f"{table} was read up to its step {read}, and stands at step {step}: it was made anew since. "
            "Run `tidemark rebuild NAME --downstream` for each table that reads it; publish it into a new folder"
        )


@dataclass(frozen=True)
class Progress:
    """An asset's progress.

    Args:
        step: the number of its commits of results.
        seq: the ledger batch up to which rows were handled.
        closed_to: the watermark up to which results are closed, in epoch ms; None before the first.
        operator: what made the table; see `identity.identity_of`.
        read: for each derived input, the last step whose rows and corrections were read.
        corrected: the ranges of closed results that this asset's steps corrected; the oldest ranges are combined.
        generation: how often the table was emptied and rebuilt in place.
        inputs: for each input, the identity of the table from which the rows were computed; see `Reading.input_identities`.
        steps_read: for each derived input, the `id` of its step in `read`.
        id: tells the step from another with the same number, which was computed from other rows after the table lost commits.
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
    id: str | None = None

    def metadata(self, before: "Progress") -> dict[str, Any]:
        """The metadata for the commit of a step. The `id` is a hash of these fields and the `id` of the step before.

        Args:
            before: the progress that the step started from.
        """
        fields = asdict(self) | {"id": before.id}
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
    """Pass if the table of an asset's results, where there is one, holds the columns of its rows.

    Raises:
        ProgressError: it holds others: a source's contract has gained or lost a column.
    """
    held = lake.schema(results_table(asset))
    if held.fields and not is_emptied(progress(lake, asset)) and (differing := differing_columns(held, rows.schema)):
        raise ProgressError.other_columns(asset.name, differing)


def commit_step(
    lake: Lake, asset: DerivedAsset, rows: DataFrame, after: Progress, pruned_by: Sequence[str], *, followed: bool = False
) -> int:
    """Commit a step's rows with its progress if no other step was committed since it began; returns the number of rows.

    Raises:
        LakeError: another writer has made a step since.
    """
    before = stored_progress(lake, asset)
    table, metadata = results_table(asset), after.metadata(before)
    if not is_emptied(before):
        known = stored_value(lake, asset)
        return lake.append(rows, table, metadata, after=known, number=after.step, pruned_by=pruned_by, followed=followed)
    lake.overwrite(rows, table, metadata, number=after.step, pruned_by=pruned_by, followed=followed)
    made = lake.live.newest(table, PROGRESS)
    return 0 if made is None else made.rows


def stored_value(lake: Lake, asset: DerivedAsset) -> Any:
    """The stored progress as raw metadata, which a step's commit must still find; None before the first step."""
    commit = lake.newest(results_table(asset), PROGRESS)
    return None if commit is None else commit.value


def stored_progress(lake: Lake, asset: DerivedAsset) -> Progress:
    """An asset's progress, without a check of the operator that made the table."""
    commit = lake.newest(results_table(asset), PROGRESS)
    return Progress() if commit is None else Progress.recorded(results_table(asset), commit.value)


def step_id(lake: Lake, asset: DerivedAsset, step: int) -> str | None:
    """The `id` of one of an asset's steps; None where its table's log no longer holds the step."""
    now = stored_progress(lake, asset)
    if now.step == step:
        return now.id
    for commit in lake.commits(results_table(asset), PROGRESS):
        found = Progress.recorded(results_table(asset), commit.value)
        if found.step <= step:
            return found.id if found.step == step else None
    return None


def results_table(asset: DerivedAsset) -> str:
    """The table whose commits are the asset's commit points."""
    return asset.changelog if asset.operator.emits.upserts else asset.name


def table_identity(lake: Lake, asset: DerivedAsset) -> str | None:
    """A text that changes when a table is rebuilt: its Delta id and its generation; None if there is no table."""
    found = lake.identity(results_table(asset))
    generation = 0 if found is None else stored_progress(lake, asset).generation
    return f"{found}#{generation}" if generation else found


def readers_of(assets: Mapping[str, DerivedAsset], names: Iterable[str]) -> list[str]:
    """The assets downstream of others, directly or indirectly; each after those that it reads."""
    found: list[str] = []
    for name, asset in assets.items():
        if name not in names and any(of in found or of in names for of in asset.inputs):
            found.append(name)
    return found
