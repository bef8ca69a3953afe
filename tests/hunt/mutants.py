"""Fixed defects, reintroduced by hand: the hunt must find each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from platform_defs.engine import engine
from platform_defs.engine.advance import advance, pending_work, snapshot
from platform_defs.engine.formats import files
from platform_defs.engine.ingest import control_batches as control_batches
from platform_defs.engine.ingest import ingest, uncommitted
from platform_defs.engine.ledger import open_batch as batch
from platform_defs.orchestration import requested_runs
from tests.hunt import inputs, lake
from tests.hunt.history import History, generate

Mutate = Callable[[pytest.MonkeyPatch], None]


def drain_keeps_idle_sources_idle(patch: pytest.MonkeyPatch) -> None:
    raised = control_batches._raise_mark
    patch.setattr(control_batches, "_raise_mark", lambda last, *how: replace(raised(last, *how), idle=bool(last and last.idle)))
    patch.setattr(
        control_batches, "_has_reached", lambda last, least: last is not None and last.watermark is not None and last.watermark >= least
    )


def uncommitted_rows_of_a_removed_source_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Readers use the newest batch of the ledger, and only rows of the next batch are removed as uncommitted."""
    patch.setattr(inputs, "last_with_rows", lambda ledger, source, head=None: ledger.head if head is None else head)
    for module in (ingest, control_batches):
        patch.setattr(module, "clear_uncommitted", _clear_by_number)


def _clear_by_number(spark: Any, of: Any, batch: Any, contracts: Mapping[str, Any], attempts: Any = None) -> None:
    for name, contract in contracts.items():
        for table in (contract.log, contract.quarantine):
            left = of.newest_commit(table, uncommitted.ATTEMPT)
            if left is not None and left.value["seq"] >= batch.seq and left.value != (attempts or {}).get(name):
                uncommitted.remove_uncommitted(spark, of.snapshot(), table, batch.seq - 1, batch)


def ledger_keeps_absolute_paths(patch: pytest.MonkeyPatch) -> None:
    """No file knows its source's folder, so the ledger keeps absolute paths."""
    made = files.File.__post_init__

    def forget(file: files.File) -> None:
        made(file)
        object.__setattr__(file, "folder", None)

    patch.setattr(files.File, "__post_init__", forget)


def lost_log_commits_are_not_detected(patch: pytest.MonkeyPatch) -> None:
    for module in (uncommitted, ingest, advance):
        patch.setattr(module, "require_logs", lambda *of: None)


def steps_commit_without_checking_progress(patch: pytest.MonkeyPatch) -> None:
    """A step commits on any version of the table."""
    commit = lake.SimLake.commit
    patch.setattr(lake.SimTables, "_check_follows", lambda *of: None)
    patch.setattr(lake.SimLake, "commit", lambda self, *of, **how: commit(self, *of, **how | {"guarded": False}))


def accounts_read_without_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine.Engine, "_snapshot", lambda self, asset: self._advance(asset))


def run_keys_do_not_name_the_previous_run(patch: pytest.MonkeyPatch) -> None:
    """A run key names the work, and not the previous run."""
    patch.setattr(requested_runs.RequestedRuns, "key", property(lambda self: self.work))


def uncommitted_rows_are_removed_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch.OpenBatch, "fence", lambda self: None)


def rows_are_taken_over_without_a_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest, "take_over", lambda *of: None)


def batches_commit_on_any_ledger_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch.OpenBatch, "commit", lambda self, batches: self.ledger.commit(batches))


def recreated_inputs_are_not_detected(patch: pytest.MonkeyPatch) -> None:
    for module in (advance, pending_work, snapshot):
        patch.setattr(module, "require_same_inputs", lambda *of: None)


@dataclass(frozen=True)
class Mutant:
    """A reintroduced defect.

    Args:
        mutate: reintroduces it.
        only: the kinds of actions that can cause it.
        assets: the assets of the histories; none for any.
        first: the seed of its first history, near one that finds it.
    """

    mutate: Mutate
    only: tuple[str, ...]
    assets: tuple[str, ...] = ()
    first: int = 0

    def history(self, number: int) -> History:
        """One of the histories that can cause it."""
        return generate(self.first + number, self.only, self.assets)


MUTANTS: Mapping[str, Mutant] = {
    "2": Mutant(drain_keeps_idle_sources_idle, ("land", "ingest", "tick", "drain", "advance"), first=110),
    "3": Mutant(accounts_read_without_a_snapshot, ("audit", "late"), first=7),
    "6": Mutant(recreated_inputs_are_not_detected, ("anew",), ("counts", "tops"), first=12),
    "8": Mutant(lost_log_commits_are_not_detected, ("outage", "late")),
    "11": Mutant(steps_commit_without_checking_progress, ("late", "meanwhile"), first=160),
    "13": Mutant(uncommitted_rows_of_a_removed_source_are_kept, ("land", "cut")),
    "14": Mutant(ledger_keeps_absolute_paths, ("land", "ingest", "move"), first=130),
    "18": Mutant(run_keys_do_not_name_the_previous_run, ("land", "daemon"), first=110),
    "rows deleted below a batch": Mutant(uncommitted_rows_are_removed_without_a_fence, ("land", "usurped")),
    "rows deleted that were taken over": Mutant(rows_are_taken_over_without_a_commit, ("land", "usurped"), first=80),
    "a batch upon another": Mutant(batches_commit_on_any_ledger_version, ("land", "usurped")),
}
"""By the number of the finding; a defect that the hunt itself has found, by its effect."""
