"""A failed run is requested again, with growing delays and without a limit; a successful run is not repeated. No test starts Spark."""

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest

from platform_defs.configured_engine import make_engine
from platform_defs.definitions import build
from platform_defs.engine import Engine
from platform_defs.engine.advance.pending_work import PendingWork
from platform_defs.engine.engine import wall_clock
from platform_defs.engine.ingest.control_batches import ControlBatches
from platform_defs.engine.ledger.ledger import SourceBatch
from platform_defs.orchestration import sensors
from platform_defs.orchestration.jobs import advance_request, partition_days
from platform_defs.orchestration.readable_tables import readable_tables
from platform_defs.orchestration.schedules import nightly
from platform_defs.orchestration.sensors import lake_identity, ledger_moved, new_input
from platform_defs.settings import Settings
from tests.support.clock import Clock
from tests.support.runs import added_run
from tests.support.small_sources import DAY, HOUR, START

FIRST, LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@dataclass
class Daemon:
    """Simulates Dagster's daemon, which never launches a second run for a run key."""

    instance: dg.DagsterInstance
    engine: Engine
    clock: Clock
    repository: dg.RepositoryDefinition
    cursor: str | None = None

    def tick(self, sensor: dg.SensorDefinition) -> str:
        """Evaluate a sensor; returns `requested`, `skipped by the daemon` if the run key was launched before, or the reason of a skip."""
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, repository_def=self.repository, resources={"engine": self.engine}
        ) as context:
            result = sensor.evaluate_tick(context)
        self.cursor = result.cursor or self.cursor
        for request in result.run_requests or ():
            known = self.instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": request.run_key or ""}))
            if known:
                return "skipped by the daemon"
            tags = {**request.tags, "dagster/run_key": request.run_key or ""}
            self.run = added_run(
                self.instance, self.repository.get_job(str(sensor.job_name)), tags, asset_selection=request.asset_selection
            )
            self.request = request
            return "requested"
        return result.skip_message or ""

    def end_run(self, status: dg.DagsterRunStatus) -> None:
        """End the newest run now."""
        event = dg.DagsterEventType.PIPELINE_SUCCESS if status == dg.DagsterRunStatus.SUCCESS else dg.DagsterEventType.PIPELINE_FAILURE
        self.instance.report_dagster_event(dg.DagsterEvent(event.value, self.run.job_name), run_id=self.run.run_id)
        assert self.instance.get_run_by_id(self.run.run_id).status == status  # pyright: ignore[reportOptionalMemberAccess]
        [record] = self.instance.get_run_records(dg.RunsFilter(run_ids=[self.run.run_id]))
        self.clock.now = int((record.end_time or 0) * 1000) + 1


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    return build(Settings()).get_repository_def()


@pytest.fixture
def daemon(tmp_path: Path, repository: dg.RepositoryDefinition) -> Iterator[Daemon]:
    with dg.DagsterInstance.ephemeral() as instance:
        clock = Clock(wall_clock())  # the instance stamps run records with the real time
        yield Daemon(instance, replace(make_engine(Settings(lake=str(tmp_path / "lake"))), clock=clock), clock, repository)


def _land(engine: Engine, file: str) -> None:
    path = Path(engine.folders["orders"]) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"order_id": "a"}) + "\n")


def _commit(engine: Engine, first: int, mark: int, sources: tuple[str, ...] = ("orders", "payments")) -> None:
    now = engine.ledger.now()
    fields: dict[str, Any] = {
        "watermark": mark,
        "max_event_time": mark,
        "first_event_time": first,
        "last_event_time": mark,
        "rows_read": 1,
        "accepted": 1,
    }
    engine.ledger.commit(
        [tuple(SourceBatch(seq=engine.ledger.head + 1, kind="rows", ingested_at=now, source=s, **fields) for s in sources)]
    )


def test_a_failed_ingest_is_retried_with_growing_delays_and_without_a_limit(daemon: Daemon) -> None:
    _land(daemon.engine, "1.jsonl")
    assert daemon.tick(new_input) == "requested"
    assert "has not ended yet" in daemon.tick(new_input)
    for tries, wait_s in enumerate([30, 60, 120, 240, 480, *[900] * 12], 1):
        daemon.end_run(dg.DagsterRunStatus.FAILURE)
        _land(daemon.engine, f"1{tries}.jsonl")
        daemon.clock.pass_ms((wait_s - 1) * 1000)
        assert f"did not succeed, the last of {min(tries, 16)} in a row" in daemon.tick(new_input), "another file shortens no delay"
        daemon.clock.pass_ms(1000)
        assert daemon.tick(new_input) == "requested"


def test_a_run_whose_process_was_killed_does_not_block_the_sensor(daemon: Daemon) -> None:
    _land(daemon.engine, "1.jsonl")
    assert daemon.tick(new_input) == "requested"
    daemon.clock.pass_ms(HOUR // 2)
    assert "has not ended yet" in daemon.tick(new_input)
    daemon.clock.pass_ms(HOUR)
    assert daemon.tick(new_input) == "requested"


def test_an_ingest_that_skipped_its_file_is_not_repeated_until_another_file_lands(daemon: Daemon) -> None:
    _land(daemon.engine, "1.jsonl")
    assert daemon.tick(new_input) == "requested"
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    assert "succeeded, but did not finish the work" in daemon.tick(new_input)
    _land(daemon.engine, "2.jsonl")
    assert daemon.tick(new_input) == "requested"
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    daemon.clock.pass_ms(900_000)
    assert daemon.tick(new_input) == "requested"


def test_a_recreated_lake_is_requested_at_once(daemon: Daemon) -> None:
    engine = daemon.engine
    _commit(engine, START, START + 2 * DAY)
    before = lake_identity(engine)
    assert daemon.tick(ledger_moved) == "requested"
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    assert daemon.tick(ledger_moved) == "all tables are advanced up to batch 1"
    shutil.rmtree(engine.lake.root)
    daemon.engine = replace(engine)
    _commit(daemon.engine, START, START + 2 * DAY)
    assert lake_identity(daemon.engine) != before
    assert daemon.tick(ledger_moved) == "requested"


def test_the_cursor_of_an_advance_moves_after_it_succeeds(daemon: Daemon) -> None:
    _commit(daemon.engine, START, START + 2 * DAY)
    assert daemon.tick(ledger_moved) == "requested"
    assert daemon.cursor is None
    daemon.end_run(dg.DagsterRunStatus.FAILURE)
    assert "did not succeed, the last of 1 in a row" in daemon.tick(ledger_moved)
    daemon.clock.pass_ms(30_000)
    assert daemon.tick(ledger_moved) == "requested"
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    assert daemon.tick(ledger_moved) == "all tables are advanced up to batch 1"
    assert str(daemon.cursor).startswith(f"{lake_identity(daemon.engine)}:1:")
    daemon.clock.pass_ms(DAY)
    assert daemon.tick(ledger_moved) == "the ledger has no batch after 1"
    _commit(daemon.engine, START, START + 3 * DAY)
    assert daemon.tick(ledger_moved) == "requested", "a run for an earlier batch does not delay one for a later batch"


def test_the_cursor_stays_while_days_after_the_last_partition_are_open(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has advanced the days up to the last partition; the later days are requested as soon as they are partitions."""
    _commit(daemon.engine, START, START + 2 * DAY)
    assert daemon.tick(ledger_moved) == "requested"
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    monkeypatch.setattr(sensors, "later_days", lambda *_: "the tables are behind")
    assert daemon.tick(ledger_moved) == "the tables are behind"
    assert daemon.cursor is None


def test_a_restored_asset_is_advanced_without_a_new_batch(daemon: Daemon) -> None:
    engine = daemon.engine
    daemon.engine = replace(engine, assets={name: asset for name, asset in engine.assets.items() if name != "hot_items"})
    _commit(daemon.engine, START, START + 2 * DAY)
    assert daemon.tick(ledger_moved) == "requested"
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    assert daemon.tick(ledger_moved) == "all tables are advanced up to batch 1"
    assert daemon.tick(ledger_moved) == "the ledger has no batch after 1"
    daemon.engine = engine
    assert daemon.tick(ledger_moved) == "requested"


def test_idle_sources_are_recorded_without_a_new_file(daemon: Daemon) -> None:
    engine = daemon.engine
    _commit(engine, START, START + DAY)
    assert daemon.tick(new_input) == "nothing new has landed"
    daemon.clock.pass_ms(HOUR + 1)
    assert daemon.tick(new_input) == "requested"
    no_session: Any = None
    ControlBatches(no_session, engine.lake, engine.ledger, engine.sources).record_idle_sources()  # as the run does
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    daemon.clock.pass_ms(DAY)
    assert daemon.tick(new_input) == "nothing new has landed"
    assert daemon.tick(ledger_moved) == "requested"


@dataclass(frozen=True)
class Range:
    id: str
    first: int
    mark: int
    requested: tuple[str, str] | None


TODAY = "2026-03-02"
YEAR_1 = -62_135_596_800_000
RANGES = [
    Range("a row of 1970", 0, START + DAY, (TODAY, TODAY)),
    Range("a row of the year 1", YEAR_1, START + DAY, (TODAY, TODAY)),
    Range("only rows before the first day", YEAR_1, YEAR_1 - 60_001, ("2016-01-01", "2016-01-01")),
    Range("a watermark in the year 9999", START, 253_402_300_799_999, ("2026-03-01", "the last")),
    Range("a watermark after the year 9999", START, 253_402_300_799_999 + DAY, ("2026-03-01", "the last")),
    Range("only rows of the far future", 253_402_300_700_000, 253_402_300_799_999, None),
]


@pytest.fixture
def _partitions_end_in_march() -> Iterator[None]:
    """Let partitions end on 7 March 2026. A run has events for each day, and with the real clock there would be more every day."""
    with dg.partition_loading_context(datetime(2026, 3, 5, 12, tzinfo=UTC)):
        yield


@pytest.fixture(scope="module")
def stored_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """An instance without runs. A schedule does not get an instance in memory."""
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as instance:
        yield instance


@pytest.mark.usefixtures("_partitions_end_in_march")
@pytest.mark.parametrize("case", RANGES, ids=lambda c: c.id)
def test_a_run_covers_existing_partitions_only(daemon: Daemon, case: Range, stored_instance: dg.DagsterInstance) -> None:
    _commit(daemon.engine, case.first, case.mark)
    days = partition_days(daemon.repository)
    assert days is not None
    request = advance_request(daemon.engine, readable_tables(daemon.engine)[0], days=days)
    if case.requested is None:
        assert request is None
        assert (
            daemon.tick(ledger_moved)
            == "the tables are behind, but the days from 9999-12-31 on are after the last daily partition, 2026-03-07"
        )
        return
    assert request is not None
    last = days.get_last_partition_key() if case.requested[1] == "the last" else case.requested[1]
    assert (request.tags[FIRST], request.tags[LAST]) == (case.requested[0], last)
    assert days.has_partition_key(request.tags[FIRST])
    assert daemon.tick(ledger_moved) == "requested"
    with dg.build_schedule_context(
        instance=stored_instance, resources={"engine": daemon.engine}, repository_def=daemon.repository
    ) as context:
        [nightly_request] = [*(nightly.evaluate_tick(context).run_requests or ())]
    assert nightly_request.tags[FIRST] == case.requested[0]
    assert daemon.engine.pending.describe_progress("payment_order_wide")["watermark"] == case.mark


def test_a_row_of_1970_does_not_widen_the_requested_days(daemon: Daemon) -> None:
    """Dagster writes some events for each asset and day of a run; ten years of empty days take minutes."""
    for first, mark in ((START + HOUR, START + HOUR), (0, START + DAY), (START + DAY, START + 2 * DAY)):
        _commit(daemon.engine, first, mark)
    request = advance_request(daemon.engine, readable_tables(daemon.engine)[0], days=partition_days(daemon.repository))
    assert request is not None
    assert (request.tags[FIRST], request.tags[LAST]) == ("2026-03-01", "2026-03-03")


def test_jobs_retry_transient_errors(daemon: Daemon) -> None:
    for name in ("ingest", "advance", "maintenance"):
        policy = daemon.repository.get_job(name)._op_retry_policy
        assert policy is not None, name
        assert (policy.max_retries, policy.backoff) == (2, dg.Backoff.EXPONENTIAL), name


def _damage(engine: Engine, table: str) -> Path:
    """Make the Delta log of a table unreadable; returns its folder."""
    log = Path(engine.lake.path(table), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("x")
    return log.parent


@pytest.mark.parametrize("damaged", ["item_sales", "changelog/seller_revenue", "seller_revenue"])
def test_a_table_that_cannot_be_read_is_left_out_until_it_can_be_read(daemon: Daemon, damaged: str) -> None:
    _commit(daemon.engine, START, START + 2 * DAY)
    damaged_table = _damage(daemon.engine, damaged)
    request = advance_request(daemon.engine, readable_tables(daemon.engine)[0], days=partition_days(daemon.repository))
    assert request is not None
    selected = {key.to_user_string() for key in request.asset_selection or ()}
    readers = {"item_conversion", "hot_items", "category_hot_items"} if damaged == "item_sales" else {"category_leaderboard"}
    left_out = {damaged.rpartition("/")[2], *readers}
    assert selected == daemon.engine.assets.keys() - left_out
    assert daemon.tick(ledger_moved) == "requested"
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    assert daemon.tick(ledger_moved).startswith(f"all other tables are advanced up to batch 1; the Delta log of {damaged} cannot be read: ")
    assert daemon.cursor is None
    shutil.rmtree(damaged_table)
    assert daemon.tick(ledger_moved) == "requested", "the tables that were left out are requested"


def test_the_nightly_schedule_names_a_table_that_cannot_be_read(daemon: Daemon, stored_instance: dg.DagsterInstance) -> None:
    _damage(daemon.engine, "item_sales")
    with dg.build_schedule_context(
        instance=stored_instance, resources={"engine": daemon.engine}, repository_def=daemon.repository
    ) as context:
        assert str(nightly.evaluate_tick(context).skip_message).startswith("the Delta log of item_sales cannot be read: ")


@pytest.mark.parametrize("ranged", [True, False])
def test_a_failed_run_is_repeated_although_its_tables_were_advanced(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, ranged: bool) -> None:
    """For example, the run was killed before it accounted for its last table, or a topic could not be reached."""
    _commit(daemon.engine, START, START + 2 * DAY)
    monkeypatch.setattr(PendingWork, "upserted_tables", lambda _: [] if ranged else ["seller_revenue"])
    monkeypatch.setattr(PendingWork, "all_days", lambda *_: (date(2026, 3, 1), date(2026, 3, 2)) if ranged else None)
    assert daemon.tick(ledger_moved) == "requested"
    asked = daemon.request
    monkeypatch.setattr(PendingWork, "upserted_tables", lambda _: [])
    monkeypatch.setattr(PendingWork, "all_days", lambda *_: None)
    daemon.end_run(dg.DagsterRunStatus.FAILURE)
    assert "did not succeed, the last of 1 in a row" in daemon.tick(ledger_moved)
    daemon.clock.pass_ms(30_000)
    assert daemon.tick(ledger_moved) == "requested"
    assert (daemon.request.asset_selection, daemon.request.tags) == (asked.asset_selection, asked.tags)
    assert daemon.request.tags.get(FIRST) == ("2026-03-01" if ranged else None)
    daemon.end_run(dg.DagsterRunStatus.SUCCESS)
    assert daemon.tick(ledger_moved) == "all tables are advanced up to batch 1"


def test_a_topic_whose_publish_failed_is_published_without_a_new_row(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = replace(daemon.engine, sinks={"seller_revenue": cast(Any, None), "hot_items": cast(Any, None)})
    _commit(engine, START, START + 2 * DAY)
    with suppress(OSError), engine.failures.recorded_of_sink("hot_items"):
        raise OSError("no broker")
    topic = dg.AssetKey(["kafka", "hot_items"])
    monkeypatch.setattr(PendingWork, "all_days", lambda *_: None)
    for behind in ([], ["seller_revenue"], ["hot_items"]):
        monkeypatch.setattr(PendingWork, "upserted_tables", lambda _, behind=behind: behind)
        request = advance_request(engine, readable_tables(engine)[0])
        assert request is not None
        keys = [*map(dg.AssetKey, behind), *(dg.AssetKey(["kafka", name]) for name in behind)]
        assert request.asset_selection == (keys if topic in keys else [*keys, topic])
    with engine.failures.recorded_of_sink("hot_items"):
        pass
    monkeypatch.setattr(PendingWork, "upserted_tables", lambda _: [])
    assert advance_request(engine, readable_tables(engine)[0]) is None
