"""Fixed defects, reintroduced by hand: the hunt must find each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from platform_defs import tries
from platform_defs.engine import engine
from platform_defs.engine.advance import advance
from platform_defs.engine.formats import files
from platform_defs.engine.ingest import control_batches as signals
from platform_defs.engine.ingest import ingest
from platform_defs.engine.ingest import uncommitted as orphans
from platform_defs.engine.inputs import reader as reading
from platform_defs.engine.ledger import open_batch as batch
from tests.hunt import adapters, lake
from tests.hunt.history import History, generate

Mutate = Callable[[pytest.MonkeyPatch], None]


def a_drain_that_keeps_idle_sources_idle(patch: pytest.MonkeyPatch) -> None:
    lifted = signals._raised
    patch.setattr(signals, "_raised", lambda last, *how: replace(lifted(last, *how), idle=bool(last and last.idle)))
    patch.setattr(signals, "_has_reached", lambda last, mark: last is not None and last.watermark is not None and last.watermark >= mark)


def orphans_of_a_source_that_was_away(patch: pytest.MonkeyPatch) -> None:
    """Readers use the newest batch only, and only attempts at the next batch are taken for uncommitted rows."""
    patch.setattr(adapters, "last_with_rows", lambda ledger, source, head=None: ledger.head if head is None else head)
    for module in (ingest, signals):
        patch.setattr(module, "clear_uncommitted", _clear_by_number)


def _clear_by_number(spark: Any, of: Any, batch: Any, contracts: Mapping[str, Any], attempts: Any = None) -> None:
    for name, contract in contracts.items():
        for table in (contract.log, contract.quarantine):
            left = of.newest(table, orphans.ATTEMPT)
            if left is not None and left.value["seq"] >= batch.seq and left.value != (attempts or {}).get(name):
                orphans.remove_uncommitted(spark, of.pinned(), table, batch.seq - 1, batch)


def offsets_that_are_absolute(patch: pytest.MonkeyPatch) -> None:
    """The ledger keeps absolute paths, for no file knows its source's folder."""
    made = files.File.__post_init__

    def forget(file: files.File) -> None:
        made(file)
        object.__setattr__(file, "folder", None)

    patch.setattr(files.File, "__post_init__", forget)


def a_log_that_may_lose_its_last_commit(patch: pytest.MonkeyPatch) -> None:
    for module in (orphans, ingest, advance):
        patch.setattr(module, "require_logs", lambda *of: None)


def commits_that_ask_for_no_progress(patch: pytest.MonkeyPatch) -> None:
    """A step commits on any version of the table."""
    commit = lake.SimLake.commit
    patch.setattr(lake.SimTables, "_check_follows", lambda *of: None)
    patch.setattr(lake.SimLake, "commit", lambda self, *of, **how: commit(self, *of, **how | {"guarded": False}))


def an_account_that_asks_for_the_head_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine.Engine, "_snapshot", lambda self, asset: self._advance(asset))


def sensors_that_give_up(patch: pytest.MonkeyPatch) -> None:
    """A run key names the work, and not the previous run."""
    patch.setattr(tries.Tries, "key", property(lambda self: self.asked))


def orphans_deleted_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch.Batch, "fence", lambda self: None)


def rows_taken_over_without_a_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest, "take_over", lambda *of: None)


def batches_that_follow_any_ledger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch.Batch, "commit", lambda self, entries: self.ledger.commit(entries))


def a_table_made_anew_that_nobody_notices(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading.Reading, "require_same_inputs", lambda *of: None)


@dataclass(frozen=True)
class Mutant:
    """A reintroduced defect.

    Args:
        mutate: puts it back.
        only: the actions of the histories that bear on it.
        assets: the assets; none for any.
    """

    mutate: Mutate
    only: tuple[str, ...]
    assets: tuple[str, ...] = ()

    def history(self, seed: int) -> History:
        """A history that concerns it."""
        return generate(seed, self.only, self.assets)


MUTANTS: Mapping[str, Mutant] = {
    "2": Mutant(a_drain_that_keeps_idle_sources_idle, ("land", "ingest", "tick", "drain", "advance")),
    "3": Mutant(an_account_that_asks_for_the_head_twice, ("audit", "late")),
    "6": Mutant(a_table_made_anew_that_nobody_notices, ("anew",), ("counts", "tops")),
    "8": Mutant(a_log_that_may_lose_its_last_commit, ("outage", "late")),
    "11": Mutant(commits_that_ask_for_no_progress, ("late", "meanwhile")),
    "13": Mutant(orphans_of_a_source_that_was_away, ("land", "cut")),
    "14": Mutant(offsets_that_are_absolute, ("land", "ingest", "move")),
    "18": Mutant(sensors_that_give_up, ("land", "daemon")),
    "rows deleted below a batch": Mutant(orphans_deleted_without_a_fence, ("land", "usurped")),
    "rows deleted that were taken over": Mutant(rows_taken_over_without_a_commit, ("land", "usurped")),
    "a batch upon another": Mutant(batches_that_follow_any_ledger, ("land", "usurped")),
}
"""By the number of the finding; those that the hunt found itself, by the effect."""
