"""Two kinds of rebuild.

- `rebuild_days` (`tidemark backfill --rebuild`) recomputes closed days, and writes only the rows that differ, as one correction. The
  table must have been made with the present settings. Downstream tables read the correction as a step.
- `empty_tables` (`tidemark rebuild`) empties whole tables, also those that were made with other settings. Their next steps compute every
  row again. Downstream tables must be emptied too.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date

from assets.days import day_end, day_of, day_start
from operators.changelog import CHANGE, CHANGED_AT, DELETE, INSERT, STEP, UPDATE_AFTER, UPDATE_BEFORE
from operators.timing import ClosedRange
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.inputs.progress import Progress, progress, readers_of, results_table, stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.retained import kept_days_of
from platform_defs.engine.lake.commits import APPLICATION
from platform_defs.engine.lake.errors import LakeError


@dataclass(frozen=True)
class Rebuilt:
    """The result of a rebuild.

    Args:
        first: the first day.
        last: the last day.
        days: the days that differed and were repaired; always empty for an upserted table.
        missing: the number of rows that the table lacked.
        extra: the number of rows that the table should not have had.
        kept_from: the first day that can be computed, if retention has removed older rows. Earlier results are left as they are, and an
            upserted table is compared with its changelog. None if all days can be computed.
        is_compared: whether the rows were compared. The rows of a table that neither is upserted nor closes ranges cannot be.
    """

    first: date
    last: date
    days: tuple[date, ...] = ()
    missing: int = 0
    extra: int = 0
    kept_from: date | None = None
    is_compared: bool = True


def rebuild_days(advance: Advance, first: date, last: date) -> Rebuilt:
    """Recompute the closed part of days (of `final_at`, UTC) and repair the rows that differ.

    The repair is one correction: one step that writes only the rows that differ. So the table's change data feed contains only these
    rows, and every downstream table is corrected too. An upserted table is recomputed completely, because its rows have no day. If
    nothing differs, nothing is written. Results of which retention has removed rows are left as they are.

    Raises:
        LakeError: the asset has a writer.
    """
    if advance.asset.operator.emits.upserts:
        return _repair(advance, first, last)
    if not advance.asset.operator.reads.closes_ranges:
        return Rebuilt(first, last, is_compared=False)
    with advance.workspace.lake.writer(advance.asset.name):
        advance.recover()
        advance.strategy.forget()
        return _rebuild(advance.take_snapshot(), first, last)


def _repair(advance: Advance, first: date, last: date) -> Rebuilt:
    point("rebuild.before_write")
    kinds = advance.repair()
    point("rebuild.after_write")
    lacked, extra = kinds.get(INSERT, 0) + kinds.get(UPDATE_AFTER, 0), kinds.get(DELETE, 0) + kinds.get(UPDATE_BEFORE, 0)
    return Rebuilt(first, last, (), lacked, extra, _kept_from(advance))


def _kept_from(advance: Advance) -> date | None:
    """The first day that can be computed; None if all can."""
    kept_days = kept_days_of(advance.workspace, advance.asset)
    return None if kept_days is None else day_of(kept_days.first)


def _rebuild(advance: Advance, first: date, last: date) -> Rebuilt:
    now = progress(advance.workspace.lake, advance.asset)
    kept_from = _kept_from(advance)
    start, end = day_start(first if kept_from is None else max(first, kept_from)) - 1, day_end(last)
    if now.closed_to is None or now.closed_to <= start or end <= start:
        return Rebuilt(first, last, kept_from=kept_from)
    closing = ClosedRange(start, min(end, now.closed_to))
    differences = advance.differing_days(closing, now.seq)
    if not differences:
        return Rebuilt(first, last, kept_from=kept_from)
    days = tuple(sorted(differences))
    point("rebuild.before_write")
    advance.correct(now, replace(now, step=now.step + 1), closing)
    point("rebuild.after_write")
    return Rebuilt(
        first, last, days, sum(missing for missing, _ in differences.values()), sum(extra for _, extra in differences.values()), kept_from
    )


def empty_tables(advances: Mapping[str, Advance], names: Sequence[str], *, downstream: bool = False, from_kept: bool = False) -> list[str]:
    """Empty tables, so that an advance rebuilds them from the event logs with their present settings.

    Args:
        advances: every asset of the lake, by name, each after those that it reads.
        names: the assets to rebuild.
        downstream: whether to empty every downstream asset too; if not, no downstream asset may have a table.
        from_kept: whether tables may lose results that cannot be computed again, because retention has removed the rows.

    Returns:
        The assets that are empty now, in the order in which to advance them.

    Raises:
        ProgressError: nothing was emptied, because a downstream table of a rebuilt table has rows and `downstream` is false; a table would
            stay empty, since one of its sources was renamed; or a table would lose results and `from_kept` is false.
        LakeError: an asset has a writer.
    """
    assets = {name: advance.asset for name, advance in advances.items()}
    readers = readers_of(assets, names)
    if not downstream and (with_steps := [name for name in readers if stored_progress(advances[name].workspace.lake, assets[name]).step]):
        raise ProgressError.read_by(names, with_steps)
    to_empty = [name for name in advances if name in names or name in readers]
    for name in to_empty:
        _check_sources(advances[name])
        if not from_kept and all(_has_progress(advances[input_name]) for input_name in assets[name].inputs if input_name in advances):
            _check_kept(advances[name])
    for name in to_empty:
        empty_table(advances[name])
    return to_empty


def _check_kept(advance: Advance) -> None:
    """Raise if a table has results that cannot be computed again. Nothing is known of a table that was emptied or has lost its progress."""
    now = _stored_progress(advance)
    kept_days = kept_days_of(advance.workspace, advance.asset) if now.seq else None
    if kept_days is not None and (now.complete_from is None or now.complete_from < kept_days.first):
        raise ProgressError.loses_results(advance.asset.name, str(day_of(kept_days.first)))


def _has_progress(advance: Advance) -> bool:
    """Whether a table's progress can be read; also true for a table without a step."""
    try:
        stored_progress(advance.workspace.lake, advance.asset)
    except (LakeError, ProgressError):
        return False
    return True


def _check_sources(advance: Advance) -> None:
    """Raise if a table now reads a source that was never ingested, in place of a source from which it was computed."""
    workspace, asset = advance.workspace, advance.asset
    former = [name for name in _stored_progress(advance).inputs if name not in asset.inputs]
    without_rows = [
        upstream.name for upstream in workspace.inputs_of(asset) if upstream.is_source and upstream.identity(workspace.lake) is None
    ]
    if former and without_rows:
        raise ProgressError.renamed_source(asset.name, former, without_rows)


def empty_table(advance: Advance) -> None:
    """Empty a table in place, so that its next steps rebuild it from the log with its present settings and columns.

    This is a separate step, which starts the table's next generation. The engine refuses to advance a table that read the earlier
    generation until that table is rebuilt too. Step numbers continue, so that the commit of a paused writer is refused. A table without
    a step is not changed.

    Raises:
        LakeError: the asset has a writer.
    """
    workspace, asset = advance.workspace, advance.asset
    with workspace.lake.writer(asset.name):
        progress_before, schema = _stored_progress(advance), workspace.lake.schema(results_table(asset))
        if not progress_before.step:
            return
        if not schema.fields:  # the changelog was lost: it begins with the table's columns, and the first step writes its own
            schema = workspace.lake.schema(asset.name).add(CHANGE, "string").add(STEP, "long").add(CHANGED_AT, "timestamp")
        progress_after = Progress(step=progress_before.step + 1, operator=identity_of(asset), generation=progress_before.generation + 1)
        point("rebuild.before_empty")
        workspace.lake.overwrite(
            workspace.lake.no_rows(workspace.spark, schema),
            results_table(asset),
            progress_after.metadata(progress_before),
            number=progress_after.step,
        )
        point("rebuild.after_empty")
        advance.recover()


def _stored_progress(advance: Advance) -> Progress:
    """A table's stored progress. If its commits no longer contain it, a progress whose step number is not below that of any commit."""
    lake, asset, current = advance.workspace.lake, advance.asset, None
    try:
        stored = stored_progress(lake, asset)
    except (LakeError, ProgressError):
        table = results_table(asset)
        stored = Progress(step=max(lake.version(table) or 1, lake.transaction(table, APPLICATION) or 0))
    if asset.operator.emits.upserts:
        with suppress(LakeError):
            current = lake.newest_commit(asset.name, APPLIED)
    if current is None or current.value["step"] <= stored.step:
        return stored
    return Progress(step=current.value["step"], generation=max(stored.generation, current.value.get("generation", 0)))
