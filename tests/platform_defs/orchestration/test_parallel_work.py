"""A Dagster run processes its tables and checks in parallel: the order, what a failure or a violated law stops, and how the work ends."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import dagster as dg
import great_expectations.expectations as gxe
import pytest
from great_expectations import ExpectationSuite
from pyspark.sql.types import StructType

from assets.contracts import DerivedAsset
from assets.factories.work import Advanced
from expectations import leaderboard_checks, suite_checks
from expectations.checks import Findings
from expectations.finding import Finding, check_name
from operators import TopN
from platform_defs.engine.lake.interrupts import is_cancelled
from platform_defs.engine.operations.in_parallel import THREADS
from platform_defs.orchestration.parallel_work import ParallelWork
from platform_defs.resources.engine import engine_resource
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import Settings

READS = {"a": (), "b": (), "c": ("a",), "d": ("c", "b")}
SOON_S = 20


@dataclass
class Tables:
    """Assets whose work is a function of a test. `begun` and `ended` record the names of tables; `holds` says whether their law holds."""

    work: dict[str, Callable[[], object]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    holds: dict[str, bool] = field(default_factory=dict)

    def materialize(self, **options: Any) -> dg.ExecuteInProcessResult:
        worker = ParallelWork()
        return dg.materialize([self._asset(name, worker) for name in READS], raise_on_error=False, resources={"engine": None}, **options)

    def _asset(self, name: str, worker: ParallelWork) -> dg.AssetsDefinition:
        worker.add(name, READS[name], lambda *_: self._record_work(name))
        spec = dg.AssetCheckSpec("law", asset=name, blocking=True)

        @dg.asset(name=name, deps=READS[name], check_specs=[spec], config_schema={"x": dg.Field(int, is_required=False)})
        def asset(context: dg.AssetExecutionContext, engine: dg.ResourceParam[Any]) -> dg.MaterializeResult:
            done = worker.do(context, engine, name)
            return dg.MaterializeResult(metadata=done.metadata, check_results=[dg.AssetCheckResult(passed=done.holds, check_name="law")])

        return asset

    def _record_work(self, name: str) -> Advanced:
        self.begun.append(name)
        found = self.work.get(name, lambda: None)()
        self.ended.append(name)
        violations = {} if self.holds.get(name, True) else {("l", 1): (1, 2)}
        return Advanced({"of": name, "thread": threading.current_thread().name, "found": str(found)}, [], violations)


def _metadata_of(run: dg.ExecuteInProcessResult) -> dict[str, str]:
    return {
        e.asset_key.to_user_string(): e.materialization.metadata["of"].value  # pyright: ignore[reportOptionalMemberAccess]
        for e in run.get_asset_materialization_events()
    }


def _threads(run: dg.ExecuteInProcessResult) -> set[str]:
    events = run.get_asset_materialization_events()
    assert len(events) == len(READS)
    return {e.materialization.metadata["thread"].value for e in events}


def test_tables_that_do_not_read_each_other_are_worked_on_at_once():
    both = threading.Barrier(2)
    tables = Tables({"a": lambda: both.wait(SOON_S), "b": lambda: both.wait(SOON_S)})
    run = tables.materialize()
    assert run.success
    assert _metadata_of(run) == {name: name for name in READS}


def test_a_table_is_worked_on_once_and_after_its_inputs():
    tables = Tables()
    assert tables.materialize().success
    assert sorted(tables.begun) == sorted(READS)
    assert tables.begun.index("c") > tables.begun.index("a")
    assert tables.begun[-1] == tables.ended[-1] == "d"


def test_a_table_whose_input_breaks_the_law_is_not_worked_on():
    tables = Tables(holds={"a": False})
    run = tables.materialize()
    assert not run.success
    assert _metadata_of(run) == {"a": "a", "b": "b"}
    assert sorted(tables.begun) == ["a", "b"]


def test_the_error_of_a_tables_work_is_that_of_its_step_and_other_tables_are_not_affected():
    tables = Tables({"a": lambda: 1 // 0})
    run = tables.materialize()
    assert _metadata_of(run) == {"b": "b"}
    [failed] = [e for e in run.all_events if e.is_step_failure]
    assert (failed.step_key, failed.step_failure_data.error.cause.cls_name) == ("a", "ZeroDivisionError")


def test_a_retried_step_repeats_its_work_and_the_steps_after_it_succeed():
    divisors = iter([0, 1])
    tables = Tables({"a": lambda: 1 // next(divisors)})
    worker = ParallelWork()
    assets = [tables._asset(name, worker) for name in READS]
    job = dg.define_asset_job("job", op_retry_policy=dg.RetryPolicy(max_retries=1))
    definitions = dg.Definitions(assets=assets, jobs=[job], resources={"engine": None})
    run = definitions.resolve_job_def("job").execute_in_process()
    assert run.success
    assert sorted(tables.ended) == sorted(READS)
    assert tables.begun.count("a") == 2
    assert tables.ended[-1] == "d"


def test_a_run_that_configures_a_step_works_on_one_table_after_the_other():
    tables = Tables()
    run = tables.materialize(run_config={"ops": {"b": {"config": {"x": 1}}}})
    assert _threads(run) == {threading.main_thread().name}


def test_a_run_of_several_processes_works_on_one_table_in_each_step(monkeypatch):
    monkeypatch.setattr("platform_defs.orchestration.parallel_work.IN_PROCESS", ())
    assert _threads(Tables().materialize()) == {threading.main_thread().name}


def test_only_the_selected_tables_are_worked_on():
    tables = Tables()
    run = tables.materialize(selection=["b", "c"])
    assert run.success
    assert sorted(tables.begun) == ["b", "c"]


def _suite(
    worker: ParallelWork, monkeypatch: pytest.MonkeyPatch, ended: list[str], evaluated: threading.Event | None = None
) -> dg.AssetChecksDefinition:
    """The suite of the asset `a`, of two expectations that hold; `ended` records the thread of each evaluation and its expectations."""

    def evaluate(_: object, table: str, expectations: Sequence[gxe.Expectation], **__: object) -> Findings:
        names = [check_name(e) for e in expectations]
        ended.append(f"{threading.current_thread().name} {table} {' '.join(names)}")
        if evaluated is not None:
            evaluated.set()
        return Findings({name: Finding(passed=True, evaluated=1) for name in names}, StructType())

    monkeypatch.setattr("expectations.checks.findings", evaluate)
    expectations = [gxe.ExpectColumnValuesToNotBeNull(column=name, meta={"check": name}) for name in ("x", "y")]
    return suite_checks(dg.AssetKey("a"), "a", ExpectationSuite(name="a", expectations=[*expectations]), worker=worker)


def test_a_suite_is_evaluated_after_its_table_and_while_other_tables_are_worked_on(monkeypatch):
    worker, evaluated = ParallelWork(), threading.Event()
    tables = Tables({"a": lambda: time.sleep(0.2), "b": lambda: evaluated.wait(SOON_S)})
    assets = [tables._asset(name, worker) for name in READS]
    run = dg.materialize([*assets, _suite(worker, monkeypatch, tables.ended, evaluated)], resources={"engine": None})
    [evaluation] = {*tables.ended} - {*READS}
    assert tables.ended.index("a") < tables.ended.index(evaluation) < tables.ended.index("b")
    assert not evaluation.startswith(threading.main_thread().name)
    assert evaluation.endswith(" a x y")
    assert {e.check_name for e in run.get_asset_check_evaluations() if e.passed} == {"law", "x", "y"}


def test_a_suite_of_which_some_checks_are_selected_evaluates_only_these(monkeypatch):
    evaluated, worker = list[str](), ParallelWork()
    tables = [Tables()._asset(name, worker) for name in READS]
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey("a"), "y"))
    job = dg.define_asset_job("job", selection=selection)
    suite = _suite(worker, monkeypatch, evaluated)
    definitions = dg.Definitions(assets=tables, asset_checks=[suite], jobs=[job], resources={"engine": None})
    assert definitions.resolve_job_def("job").execute_in_process().success
    assert evaluated == [f"{threading.main_thread().name} a y"]


def test_the_checks_of_a_leaderboard_are_evaluated_in_a_thread_of_the_workers():
    worker, threads = ParallelWork(), list[str]()
    tables = [Tables()._asset(name, worker) for name in READS]
    leaderboard = leaderboard_checks(DerivedAsset(name="a", inputs=("rows",), operator=TopN(order_by="v", rank_end=2)), worker)
    views = SimpleNamespace(newest_snapshot=lambda *_: threads.append(threading.current_thread().name))
    run = dg.materialize([*tables, leaderboard], resources={"engine": SimpleNamespace(views=views)})
    assert len(threads) == 1
    assert threads != [threading.main_thread().name]
    assert {e.check_name: e.description for e in run.get_asset_check_evaluations() if e.check_name != "law"} == dict.fromkeys(
        ("changelog_folds_to_the_table", "ranks_without_gaps", "no_more_than_n"), "no rows yet"
    )


class Interrupted(BaseException):
    """An interrupt of the run."""


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when Spark's jobs are cancelled."""
    event = threading.Event()
    monkeypatch.setattr("platform_defs.orchestration.parallel_work.cancel_jobs", event.set)
    monkeypatch.setattr("platform_defs.orchestration.parallel_work.GRACE_S", 0.1)
    return event


def _context(run: str, tables: int, **changes: Any) -> Any:
    """The context of a step of a run over many independent tables."""
    details = SimpleNamespace(run_id=run, run_config={}, step_keys_to_execute=None, tags={})
    job = SimpleNamespace(executor_def=SimpleNamespace(name="in_process"), nodes=[SimpleNamespace(name=f"t{n}") for n in range(tables)])
    return SimpleNamespace(**{"run": details, "job_def": job, "retry_number": 0, "instance": None, **changes})


def _worker(tables: int, work: Callable[[str], Advanced]) -> ParallelWork:
    worker = ParallelWork()
    for n in range(tables):
        worker.add(f"t{n}", (), lambda *_, name=f"t{n}": work(name))
    return worker


MANY = THREADS + 3


def test_an_interrupt_ends_running_and_waiting_work(cancelled, monkeypatch):
    begun, ended = list[str](), list[str]()

    def until_cancelled(name: str) -> Advanced:
        begun.append(name)
        assert cancelled.wait(SOON_S)
        assert is_cancelled(), "so an error of Spark in the work does not count as a failure of its table"
        ended.append(name)
        return Advanced({}, [], {})

    def interrupt(_: object) -> None:
        raise Interrupted("terminated")

    worker = _worker(MANY, until_cancelled)
    monkeypatch.setattr("platform_defs.orchestration.parallel_work.Future.result", interrupt)
    with pytest.raises(Interrupted, match="terminated"):
        worker.do(_context("run", MANY), None, "t0")
    assert sorted(begun) == sorted(ended) == [f"t{n}" for n in range(THREADS)], "waiting work did not begin"


def test_work_that_no_step_waits_for_ends_with_the_run(cancelled):
    finished = list[str]()

    def slow(name: str) -> Advanced:
        assert name == "t0" or cancelled.wait(SOON_S)
        finished.append(name)
        return Advanced({}, [], {})

    worker = _worker(MANY, slow)
    assert worker.do(_context("run", MANY), None, "t0").holds
    worker.end("another run")
    assert not cancelled.is_set()
    worker.end("run")
    assert 1 < len(finished) <= THREADS + 1
    assert threading.active_count() < 50
    worker.end("run")


def test_after_an_interrupt_a_step_does_its_work_itself(cancelled):
    def work(name: str) -> Advanced:
        if threading.current_thread() is not threading.main_thread():
            assert cancelled.wait(SOON_S)
            raise ValueError("a job was cancelled")
        if name == "t0":
            raise Interrupted("terminated")
        return Advanced({"of": name}, [], {})

    worker = _worker(MANY, work)
    worker.add("t0", ("t1",), lambda *_: work("t0"))
    with pytest.raises(Interrupted, match="terminated"):
        worker.do(_context("run", MANY), None, "t0")
    assert worker.do(_context("run", MANY), None, "t1").metadata == {"of": "t1"}
    assert worker.do(_context("run", MANY), None, f"t{MANY - 1}").metadata == {"of": f"t{MANY - 1}"}


def test_the_engine_resource_ends_the_work_of_its_run(tmp_path):
    ended = list[str | None]()
    resource = engine_resource(Settings(lake=str(tmp_path)), None, ended.append)

    @dg.asset(required_resource_keys={"engine"})
    def asset(context: dg.AssetExecutionContext) -> None:
        raise ValueError(context.run.run_id)

    run = dg.materialize([asset], resources={"engine": resource, "spark": SparkResource()}, raise_on_error=False)
    assert (run.success, ended) == (False, [run.run_id])
