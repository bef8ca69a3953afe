"""Checks of an event log look at the rows of new batches only, unless a run checks all rows; what fails once keeps failing."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import great_expectations as gx
import pytest
from great_expectations.expectations.expectation import Expectation

from expectations import suite_checks
from expectations.new_rows import FULL
from platform_defs.engine import Engine
from tests.conftest import CopyEngine, MakeEngine
from tests.support.clock import Clock
from tests.support.plain_replay import plain_replay
from tests.support.small_sources import START, Event, land, source

pytestmark = pytest.mark.usefixtures("interpreted_plans")
LOG = dg.AssetKey(["events", "l"])
POSITIVE = gx.expectations.ExpectColumnValuesToBeBetween(column="v", min_value=0, meta={"check": "positive"})
HAS_SEQ = gx.expectations.ExpectColumnValuesToNotBeNull(column="seq", meta={"check": "has_seq"})
IDENTITY = gx.expectations.ExpectCompoundColumnsToBeUnique(column_list=["seq", "arrival"], meta={"check": "identity"})
ONE_A_KEY = gx.expectations.ExpectColumnValuesToBeUnique(column="k", meta={"check": "one_a_key"})
MOSTLY = gx.expectations.ExpectColumnValuesToNotBeNull(column="k", mostly=0.5, meta={"check": "mostly"})
ROWS = gx.expectations.ExpectTableRowCountToBeBetween(max_value=3, meta={"check": "few_rows"})


def _run(
    engine: Engine, instance: dg.DagsterInstance, *expectations: Expectation, full: bool = False
) -> dict[str, dg.AssetCheckEvaluation]:
    checks = suite_checks(LOG, "events/l", gx.ExpectationSuite(name="l", expectations=[*expectations]), source="l")
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
    defs = dg.Definitions(assets=[dg.AssetSpec(LOG)], asset_checks=[checks], jobs=[job], resources={"engine": engine})
    done = defs.resolve_job_def("checks").execute_in_process(instance=instance, tags={FULL: "true"} if full else None)
    return {e.check_name: e for e in done.get_asset_check_evaluations()}


def _append(engine: Engine, *batches: Sequence[tuple[str | None, int]]) -> None:
    """Append batches of rows to the log."""
    for batch in batches:
        plain_replay(engine, {"l": [(k, v, START + n, 0, n) for n, (k, v) in enumerate(batch)]}, [{}])


def _rows(evaluation: dg.AssetCheckEvaluation) -> Any:
    return evaluation.metadata["evaluated_rows"].value


def _unreachable(source: str) -> None:
    raise ConnectionError(f"no lake with {source}")


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    """An engine with one batch of one row."""
    engine = make_module_engine([source("l")], [])
    _append(engine, [("a", 1)])
    return engine


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake with one batch."""
    return copy_engine(prepared_engine)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def test_rows_are_checked_once_unless_all_are_asked_for(make_engine: MakeEngine, instance: dg.DagsterInstance) -> None:
    engine = make_engine([source("l")], [])
    seen: list[tuple[Any, Any]] = []
    for batches, full in (
        ([[("a", 1)], [("b", 2), ("c", 3)]], False),
        ([], False),
        ([[("d", 4)]], False),
        ([], True),
        ([[("e", 5)]], False),
    ):
        _append(engine, *batches)
        evaluation = _run(engine, instance, POSITIVE, full=full)["positive"]
        assert evaluation.passed
        seen.append((_rows(evaluation), evaluation.metadata["batches"].value))
    assert seen == [(3, "1 to 2"), (0, "none is new"), (1, "3"), (4, "1 to 3"), (1, "4")]


def test_rows_that_failed_are_checked_in_every_run(engine: Engine, instance: dg.DagsterInstance) -> None:
    assert _run(engine, instance, POSITIVE, HAS_SEQ)["positive"].passed
    seen: list[tuple[bool, Any, bool]] = []
    for batch in ([("b", -1), ("c", 1)], [("d", 1)], [("e", -2)]):
        _append(engine, batch)
        found = _run(engine, instance, POSITIVE, HAS_SEQ)
        seen.append((found["positive"].passed, found["positive"].metadata["unexpected_count"].value, found["has_seq"].passed))
    assert seen == [(False, 1, True), (False, 1, True), (False, 2, True)]
    assert (_rows(found["positive"]), _rows(found["has_seq"])) == (4, 1)  # the rows since the batch that failed, and the new ones


def test_expectations_of_the_whole_table_see_all_rows(engine: Engine, instance: dg.DagsterInstance) -> None:
    assert all(e.passed for e in _run(engine, instance, POSITIVE, ONE_A_KEY, MOSTLY, ROWS).values())
    _append(engine, [("a", 1), (None, 2), (None, 3)])
    found = _run(engine, instance, POSITIVE, ONE_A_KEY, MOSTLY, ROWS)
    assert {name for name, e in found.items() if not e.passed} == {"one_a_key", "few_rows"}
    assert {name: _rows(found[name]) for name in ("positive", "one_a_key", "mostly")} == {"positive": 3, "one_a_key": 4, "mostly": 4}


def test_all_rows_of_another_log_or_for_another_expectation_are_checked(
    engine: Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    other = replace(engine, lake=replace(engine.lake, root=str(tmp_path / "other")))
    _append(engine, [("b", 2)])
    _append(other, [("a", 1)], [("b", 2)])
    assert _rows(_run(engine, instance, POSITIVE)["positive"]) == 2
    assert _rows(_run(other, instance, POSITIVE)["positive"]) == 2
    stricter = gx.expectations.ExpectColumnValuesToBeBetween(column="v", min_value=2, meta={"check": "positive"})
    assert not _run(other, instance, stricter)["positive"].passed


def test_all_rows_of_a_lake_restored_from_a_backup_are_checked(
    engine: Engine, make_engine: MakeEngine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """The batches after the backup have the numbers of others that have passed."""
    shutil.copytree(engine.lake.root, tmp_path / "backup")
    _append(engine, [("b", 2)], [("c", 3)])
    assert _run(engine, instance, POSITIVE)["positive"].metadata["batches"].value == "1 to 3"
    shutil.rmtree(engine.lake.root)
    shutil.move(tmp_path / "backup", engine.lake.root)
    clock = cast(Clock, engine.clock)
    clock.pass_ms(1_000)
    restored = make_engine([source("l")], [])
    _append(restored, [("d", -1)], [("e", 5)])
    found = _run(restored, instance, POSITIVE)["positive"]
    assert (found.passed, found.metadata["batches"].value) == (False, "1 to 3")


def test_a_run_that_ended_without_an_evaluation_changes_nothing(engine: Engine, instance: dg.DagsterInstance) -> None:
    _run(engine, instance, POSITIVE)
    unreachable = SimpleNamespace(views=SimpleNamespace(log=_unreachable))
    with pytest.raises(ConnectionError, match="no lake"):
        _run(cast(Engine, unreachable), instance, POSITIVE)
    assert _run(engine, instance, POSITIVE)["positive"].metadata["batches"].value == "none is new"


def test_a_row_without_a_batch_and_a_repeated_row_are_found_among_new_rows(engine: Engine, instance: dg.DagsterInstance) -> None:
    assert all(e.passed for e in _run(engine, instance, HAS_SEQ, IDENTITY).values())
    seqs = "explode(array(cast(null as bigint), 7L, 7L)) AS seq"
    strays = engine.views.table("events/l").drop("seq").selectExpr(seqs, "*")
    strays.write.format("delta").mode("append").save(engine.lake.path("events/l"))
    _run(engine, instance, HAS_SEQ, IDENTITY)
    _append(engine, [("b", 1)])
    engine.maintain(retention_hours=0)  # compacts the stray rows with those that have passed
    found = _run(engine, instance, HAS_SEQ, IDENTITY)
    assert {name: (e.passed, e.metadata["unexpected_count"].value) for name, e in found.items()} == {
        "has_seq": (False, 1),
        "identity": (False, 2),
    }


def test_only_the_files_of_new_batches_are_read(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [])
    for n in range(2):  # an ingest writes the statistics by which files are skipped
        land(engine, "l", f"{n}.jsonl", [Event("a", n, 0).line])
        engine.ingest()
    log = engine.views.log("l")
    assert log is not None
    assert len(log.rows(0).inputFiles()) == 2
    assert len(log.rows(log.head - 1).inputFiles()) == 1
