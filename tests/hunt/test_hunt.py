"""A short hunt, and tests of the hunt itself: it finds reintroduced defects, is reproducible, and shrinks its findings."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from assets.contracts import DerivedAsset
from operators.contract import Operator
from platform_defs.engine.advance.advance import Advance, Step
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.ledger.summarize import summary_of
from tests.engine.source_batches import source_batch
from tests.hunt import history, model, world
from tests.hunt.adapters import SimLedger, SimLedgerStore
from tests.hunt.history import generate
from tests.hunt.lake import SimLake
from tests.hunt.mutants import MUTANTS
from tests.hunt.operators import SimAsOf, SimJoin
from tests.hunt.process import Fault, Process
from tests.hunt.simulation import shrink, simulate
from tests.hunt.store import Conflict, Store
from tests.hunt.world import RECIPES, Action
from tests.support.example_counts import example_count

HISTORIES = 120
"""`make test` runs a small set of these histories that has every kind (see `_kinds`); `make test-fast` only considers the first quarter.

`make hunt` runs thousands.
"""
BUDGET = 800
"""Histories within which a reintroduced defect must be found."""


def _kinds(seed: int) -> set[object]:
    """The set-up of a history, the kinds of its actions, and for each the kinds of its faults and where they happen."""
    found = generate(seed)
    faults = {(action.kind, fault.kind, fault.on) for action in found.actions for fault in action.faults}
    return {(found.setup.sources, found.setup.assets, found.setup.owners), *(action.kind for action in found.actions), *faults}


@cache
def _seeds_of_all_kinds() -> list[int]:
    """A small set of seeds that has every kind: each next seed adds the most missing kinds."""
    kinds, seeds = {seed: _kinds(seed) for seed in range(example_count(HISTORIES))}, list[int]()
    missing = set[object]().union(*kinds.values())
    while missing:
        seeds.append(max(kinds, key=lambda seed: len(kinds[seed] & missing)))
        missing -= kinds[seeds[-1]]
    return seeds


def _join_with_lateness(join: SimJoin) -> Operator:
    return replace(join, allowed_lateness="1 hour")


def _as_of_join(join: SimJoin) -> Operator:
    return SimAsOf(on=join.on, how="left")


def _as_of_join_with_lateness(join: SimJoin) -> Operator:
    return SimAsOf(on=join.on, how="left", allowed_lateness="1 hour")


def _changed(asset: DerivedAsset, change: Callable[[SimJoin], Operator]) -> DerivedAsset:
    return replace(asset, operator=change(asset.operator)) if isinstance(asset.operator, SimJoin) else asset


def test_random_histories_equal_the_model() -> None:
    found = {seed: finding for seed in _seeds_of_all_kinds() if (finding := simulate(generate(seed))) is not None}
    assert not found


@pytest.mark.parametrize("change", [_join_with_lateness, pytest.param(_as_of_join, marks=pytest.mark.soak), _as_of_join_with_lateness])
def test_histories_with_another_join_equal_the_model(monkeypatch: pytest.MonkeyPatch, change: Callable[[SimJoin], Operator]) -> None:
    """Histories without a join are left out: they would be the same as in the test above."""
    recipes = {window: {name: _changed(asset, change) for name, asset in recipe.items()} for window, recipe in RECIPES.items()}
    for module in (history, model, world):
        monkeypatch.setattr(module, "RECIPES", recipes)
    windows = {identity_of(asset): window for window, recipe in recipes.items() for asset in recipe.values()}
    monkeypatch.setattr(model, "_WINDOW_OF_OPERATOR", windows)
    corrected, correct = Counter[str](), Advance.correct

    def counted(self: Advance, *args: Any) -> Step:
        corrected[self.asset.name] += 1
        return correct(self, *args)

    monkeypatch.setattr(Advance, "correct", counted)
    histories = [one for one in map(generate, _seeds_of_all_kinds()) if "pairs" in one.setup.assets]
    found = {one.seed: finding for one in histories if (finding := simulate(one)) is not None}
    assert not found
    assert change is _as_of_join or corrected["pairs"] > len(_seeds_of_all_kinds()) // 10


@pytest.mark.parametrize("number", MUTANTS)
def test_a_reintroduced_defect_is_found(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[number]
    for seed in range(BUDGET):
        history = mutant.history(seed)
        with monkeypatch.context() as patch:
            mutant.mutate(patch)
            found = simulate(history)
        if found is not None and simulate(history) is None:
            return
    pytest.fail(f"none of {BUDGET} histories found the defect")


def test_a_finding_is_reproducible_also_after_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS["14"]
    mutant.mutate(monkeypatch)
    seed, finding = next((n, found) for n in range(BUDGET) if (found := simulate(mutant.history(n))) is not None)
    history = mutant.history(seed)
    assert str(simulate(history)) == str(finding)
    fewer, cut = shrink(history, finding)
    assert cut.kind == finding.kind == "file read twice"
    assert {action.kind for action in fewer.actions} == {"land", "ingest", "move"}
    assert {len(action.args[2]) for action in fewer.actions if action.kind == "land"} == {1}, "rows of the landed files"
    assert not any(action.faults for action in fewer.actions)
    assert shrink(history, finding, tries=0) == (history, finding)


def test_a_seed_determines_the_history() -> None:
    assert generate(7) == generate(7)
    assert str(generate(7)).startswith("seed 7: Setup(")
    assert generate(7).actions != generate(8).actions


def test_an_action_prints_its_faults() -> None:
    assert str(Action("ingest", 1, (), (Fault("kill", "write", 2),))) == "ingest() by process 1 [kill at write 2]"


def test_a_commit_on_an_outdated_version_fails_and_a_lost_commit_is_restored() -> None:
    store = Store()
    assert store.commit("t", lambda rows: (*rows, (1,)), {}, written=1, seen=-1) == 0
    assert store.commit("t", lambda rows: (*rows, (2,)), {}, written=1) == 1
    with pytest.raises(Conflict, match=r"^t$"):
        store.commit("t", lambda rows: (*rows, (3,)), {}, written=1, seen=0)
    assert store.tables["t"].newest.rows == ((1,), (2,))
    assert store.lose("t", torn=False)
    assert (store.tables["t"].newest.rows, store.restore()) == (((1,),), [])
    assert store.tables["t"].newest.number == 1


def test_a_summary_replaces_batches_of_the_ledger_in_memory_as_in_a_table() -> None:
    store = Store()
    lake = SimLake(store.home, store=store, process=Process(1))
    ledger = SimLedger(lake, lambda: 50, SimLedgerStore(lake))
    ledger.commit([(source_batch("l", n, watermark=n, accepted=1, rows_read=1), source_batch("r", n)) for n in range(1, 7)])
    seen = ledger.version
    ledger.summarize(seen, summary_of(ledger, 4, {}))
    assert (ledger.head, ledger.history.summarized, ledger.totals("l")["accepted"]) == (6, 4, 6)
    assert [row.seq for row in ledger.newest_rows().values()] == [6, 6]
    with pytest.raises(LakeError, match="newer batch than this process started from"):
        ledger.summarize(seen, summary_of(ledger, 5, {}))
