"""The check of a changelog reads the steps since the last state that passed; what fails keeps failing."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from expectations.leaderboards import FOLDS, leaderboard_checks
from expectations.new_rows import FULL
from operators import Aggregate
from platform_defs.engine import Engine
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import Event, replay, source

pytestmark = pytest.mark.usefixtures("interpreted_plans")
SUMS = DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "s": "sum(v)"}))


def _evaluate(engine: Engine, instance: dg.DagsterInstance, *, full: bool = False) -> dg.AssetCheckEvaluation:
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
    defs = dg.Definitions(assets=[dg.AssetSpec("sums")], asset_checks=[leaderboard_checks(SUMS)], jobs=[job], resources={"engine": engine})
    done = defs.resolve_job_def("checks").execute_in_process(instance=instance, tags={FULL: "true"} if full else None)
    [evaluation] = [e for e in done.get_asset_check_evaluations() if e.check_name == FOLDS]
    return evaluation


def _check(engine: Engine, instance: dg.DagsterInstance, *, full: bool = False) -> tuple[bool, Any]:
    """Whether the check passes, and the step after which it read the changelog."""
    evaluation = _evaluate(engine, instance, full=full)
    return evaluation.passed, evaluation.metadata["after_step"].value


def _step(engine: Engine, *keys: str) -> None:
    replay(engine, [{"l": [Event(k, 1, n) for n, k in enumerate(keys)]}])
    engine.advance("sums")


def _delete_rows(engine: Engine, table: str, predicate: str) -> None:
    DeltaTable(engine.lake.path(table)).delete(predicate)


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine([source("l")], [SUMS])
    _step(engine, "a", "b")
    return engine


@pytest.fixture(scope="module")
def first_evaluation(prepared_engine: Engine) -> dg.AssetCheckEvaluation:
    """The first evaluation of the check, which passes and reads the whole changelog."""
    with dg.DagsterInstance.ephemeral() as instance:
        evaluation = _evaluate(prepared_engine, instance)
    assert (evaluation.passed, evaluation.metadata["after_step"].value) == (True, 0)
    return evaluation


@pytest.fixture
def instance(first_evaluation: dg.AssetCheckEvaluation) -> Iterator[dg.DagsterInstance]:
    """An instance with the first evaluation."""
    with dg.DagsterInstance.ephemeral() as made:
        found = first_evaluation
        made.report_runless_asset_event(dg.AssetCheckEvaluation(found.asset_key, found.check_name, found.passed, found.metadata))
        yield made


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake, which a test damages."""
    return copy_engine(prepared_engine)


def test_the_changelog_is_read_since_the_last_state_that_passed(engine: Engine, instance: dg.DagsterInstance) -> None:
    assert _check(engine, instance) == (True, 1)
    _step(engine, "a", "c")
    _step(engine, "b")
    assert _check(engine, instance) == (True, 1)
    assert _check(engine, instance) == (True, 3)
    assert _check(engine, instance, full=True) == (True, 0)
    _step(engine, "c")
    found = engine.views.newest_snapshot("sums", engine.views.newest_snapshot("sums").state)  # pyright: ignore[reportOptionalMemberAccess]
    assert found is not None
    assert (found.since, found.changelog.where("change != '+I'").count()) == (4, 0)


def test_a_row_that_the_table_loses_is_found_until_it_is_back(engine: Engine, instance: dg.DagsterInstance) -> None:
    _delete_rows(engine, "sums", "k = 'a'")
    assert _check(engine, instance) == (False, 1)
    assert _check(engine, instance) == (False, 1)
    engine.rebuild_days("sums")
    assert _check(engine, instance)[0]


def test_a_change_that_the_changelog_loses_is_found(engine: Engine, instance: dg.DagsterInstance) -> None:
    _step(engine, "c", "d")
    _delete_rows(engine, "changelog/sums", "k = 'c'")
    assert _check(engine, instance) == (False, 1)


def test_an_older_change_that_the_changelog_loses_is_found_by_a_full_check(engine: Engine, instance: dg.DagsterInstance) -> None:
    _delete_rows(engine, "changelog/sums", "k = 'a'")
    assert _check(engine, instance) == (True, 1)
    assert _check(engine, instance, full=True) == (False, 0)


def test_the_whole_changelog_is_read_if_the_state_is_gone(engine: Engine, instance: dg.DagsterInstance) -> None:
    old = DeltaTable(engine.lake.path("sums")).file_uris()
    _step(engine, "a", "b")
    for uri in old:
        Path(uri.removeprefix("file://")).unlink()
    assert _check(engine, instance) == (True, 0)
    assert _check(engine, instance) == (True, 2)


def test_a_version_that_is_another_one_in_a_restored_lake_is_not_used(engine: Engine, instance: dg.DagsterInstance, tmp_path: Path) -> None:
    shutil.copytree(engine.lake.root, tmp_path / "backup")
    delta = DeltaTable(engine.lake.path("sums"))
    delta.create_write_transaction([], "append", delta.schema())  # a commit that the backup lacks
    assert _check(engine, instance) == (True, 1)
    shutil.rmtree(engine.lake.root)
    shutil.move(tmp_path / "backup", engine.lake.root)
    _step(engine, "a", "c")
    assert _check(engine, instance) == (True, 0)


def test_the_whole_changelog_of_another_table_of_the_same_name_is_read(
    engine: Engine, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    other = replace(engine, lake=replace(engine.lake, root=str(tmp_path / "other")))
    _step(other, "a", "b")
    assert _check(other, instance) == (True, 0)
