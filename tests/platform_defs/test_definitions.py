"""Dagster's definitions: the graph as a snapshot, and the requests of the sensors and the schedule. No test starts Spark."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.utils import DISALLOWED_NAMES

from assets.factories.event_log import event_logs
from assets.names import table_name_fault
from expectations.new_rows import FULL
from operators import Sliding
from platform_defs.configured_engine import make_engine
from platform_defs.definitions import build
from platform_defs.engine import Engine
from platform_defs.engine.ingest.stream import writer_name
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Batch, Ledger, SourceBatch
from platform_defs.orchestration.schedules import nightly
from platform_defs.orchestration.sensors import configuration, lake_identity, ledger_moved, new_input
from platform_defs.orchestration.stream_runs import newest_runs
from platform_defs.settings import Settings
from platform_defs.shop import shop
from tests.support.clock import NOON, Clock
from tests.support.small_sources import DAY, HOUR, START, source

LOG = ("seq_not_null", "arrival_not_null", "event_time_not_null", "row_identity_unique", "event_time_floored")
RESULTS = ("result_time_not_null", "final_at_not_null", "final_after_result")
WINDOWS = ("conservation_law", "days_finalized", "event_times_in_partitions", "one_row_a_window", *RESULTS)
LEADERBOARD_CHECKS = ("conservation_law", "changelog_folds_to_the_table", "ranks_without_gaps", "no_more_than_n")
CHECKS = {
    "events/order_items": {
        "order_item_id_not_null",
        "order_id_not_null",
        "item_id_not_null",
        "category_not_null",
        "price_not_negative",
        "quantity_positive",
        *LOG,
    },
    "events/clicks": {"click_id_not_null", "item_id_not_null", "seconds_not_negative", *LOG},
    "order_wide": {
        "conservation_law",
        "days_finalized",
        "event_times_in_partitions",
        "join_completeness",
        "order_id_not_null",
        "row_has_a_side",
        "pair_unique",
        "price_not_negative",
        *RESULTS,
    },
    "payment_wide": {
        "conservation_law",
        "days_finalized",
        "event_times_in_partitions",
        "join_completeness",
        "payment_id_not_null",
        "pair_unique",
        "payment_not_before_order",
        "payment_amount_not_negative",
        *RESULTS,
    },
    "item_sales": {"orders_at_least_1", "units_at_least_1", "revenue_not_negative", "window_not_empty", *WINDOWS},
    "item_clicks": {"clicks_at_least_1", "seconds_not_negative", "window_not_empty", *WINDOWS},
    "item_conversion": {"item_id_not_null", "join_completeness", *WINDOWS},
    "seller_revenue": {"conservation_law", "one_row_a_key", "revenue_not_negative", "items_at_least_1", "changelog_folds_to_the_table"},
    "seller_leaderboard": {*LEADERBOARD_CHECKS},
    "category_leaderboard": {*LEADERBOARD_CHECKS},
    "order_status_board": {"one_row_an_order", "status_not_null", *LEADERBOARD_CHECKS} - {"ranks_without_gaps"},
    "events/order_updates": {"order_update_id_not_null", "order_id_not_null", "status_not_null", "status_known", *LOG},
    "hot_items": {"rank_in_range", "one_item_a_rank", "window_not_empty", *WINDOWS},
    "category_hot_items": {"rank_in_range", "one_item_a_rank", "window_not_empty", *WINDOWS},
    "events/orders": {"order_id_not_null", "customer_id_not_null", "status_known", "amount_not_negative", *LOG},
    "events/payments": {"payment_id_not_null", "order_id_not_null", "amount_not_null", "method_known", "amount_not_negative", *LOG},
    "payment_order_wide": {
        "conservation_law",
        "days_finalized",
        "event_times_in_partitions",
        "join_completeness",
        "order_id_not_null",
        "result_time_not_null",
        "final_at_not_null",
        "final_after_result",
        "payment_not_before_order",
        "row_has_a_side",
        "pair_unique",
        "status_known",
        "method_known",
        "order_amount_not_negative",
        "payment_amount_not_negative",
        "payment_not_above_order",
    },
}


EVENTS = {key for key in CHECKS if key.startswith("events/")}
DERIVED = CHECKS.keys() - EVENTS
UPSERTED = {"seller_revenue", "seller_leaderboard", "category_leaderboard", "order_status_board"}


@pytest.fixture
def values(tmp_path: Path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"))


@pytest.fixture(scope="module")
def values_of_repository(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(lake=str(tmp_path_factory.mktemp("definitions") / "lake"))


@pytest.fixture(scope="module")
def repository(values_of_repository: Settings) -> dg.RepositoryDefinition:
    """The definitions, which the tests only read."""
    return build(values_of_repository).get_repository_def()


@pytest.fixture
def engine(values: Settings) -> Engine:
    return make_engine(values)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_the_graph_has_these_asset_keys(repository):
    assert {k.to_user_string() for k in repository.asset_graph.get_all_asset_keys()} == set(CHECKS)


def test_each_asset_has_these_dependencies(repository):
    graph = repository.asset_graph
    assert {k.to_user_string(): {p.to_user_string() for p in graph.get(k).parent_keys} for k in graph.get_all_asset_keys()} == {
        **{key: set() for key in EVENTS},
        "payment_order_wide": {"events/orders", "events/payments"},
        "order_wide": {"events/orders", "events/order_items"},
        "payment_wide": {"events/payments", "order_wide"},
        "item_sales": {"events/order_items"},
        "item_clicks": {"events/clicks"},
        "item_conversion": {"item_clicks", "item_sales"},
        "hot_items": {"item_sales"},
        "category_hot_items": {"item_sales"},
        "seller_leaderboard": {"events/order_items"},
        "seller_revenue": {"events/order_items"},
        "category_leaderboard": {"seller_revenue"},
        "order_status_board": {"events/order_updates"},
    }


def test_each_asset_has_a_group_and_kinds(repository):
    graph = repository.asset_graph
    found = {k.to_user_string(): graph.get(k).group_name for k in graph.get_all_asset_keys()}
    wide = dict.fromkeys(("payment_order_wide", "order_wide", "payment_wide"), "wide")
    leaderboards = dict.fromkeys(UPSERTED, "leaderboards")
    assert found == {**dict.fromkeys(DERIVED, "windows"), **dict.fromkeys(EVENTS, "events"), **wide, **leaderboards}
    assert all(graph.get(k).kinds == {"spark", "delta"} for k in graph.get_all_asset_keys())


def test_each_asset_has_an_owner_tags_and_described_engine_columns(repository):
    graph = repository.asset_graph
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert [*node.owners] == ["team:shop"]
        assert node.tags["domain"] == "shop"
    columns = graph.get(dg.AssetKey(["events", "orders"])).metadata["dagster/column_schema"].columns
    assert {c.name: c.description for c in columns}["arrival"] == "the row's order in its batch"


def test_every_step_that_uses_spark_is_in_the_pool_except_the_stream_which_would_hold_it_for_ever(repository):
    pools = {node.name: node.definition.pools for job in repository.get_all_jobs() for node in job.nodes}
    assert len(pools) > 20
    assert {name for name, pools_of_step in pools.items() if pools_of_step != {"spark"}} == {"run_stream"}


def test_every_asset_and_check_is_described(repository):
    graph = repository.asset_graph
    assert [k for k in graph.get_all_asset_keys() if not graph.get(k).description] == []
    assert [k for k in graph.asset_check_keys if not graph.get(k).description] == []


def test_descriptions_say_that_maintenance_removes_rows(repository):
    described = [repository.get_job("maintenance").description, repository.get_schedule_def("nightly_maintenance").description]
    logs = event_logs([replace(source("l"), retention="720 hours"), source("r")]).specs
    assert ["retention" in text for text in described] == [True, True]
    assert ["removes whole days of rows that are more than 30 d behind" in str(spec.description) for spec in logs] == [True, False]


def test_the_engine_and_every_field_of_a_configuration_are_described(repository):
    assert (build(Settings()).resources or {})["engine"].description
    fields = {
        f"{job.name}.{node.name}.{name}": field.description
        for job in repository.get_all_jobs()
        for node in job.nodes
        if node.definition.has_config_field
        for name, field in getattr(node.definition.config_schema.config_type, "fields", {}).items()
    }
    assert len(fields) > 10
    assert [name for name, description in fields.items() if not description] == []


def test_partitions_are_days_of_final_at(repository):
    graph = repository.asset_graph
    found = {k.to_user_string(): graph.get(k).partitions_def for k in graph.get_all_asset_keys()}
    assert {found.pop(key) for key in EVENTS | UPSERTED} == {None}
    [days] = set(found.values())
    assert isinstance(days, dg.DailyPartitionsDefinition)
    assert (days.timezone, days.get_first_partition_key(), days.end_offset) == ("UTC", "2016-01-01", 3)


def test_partitions_include_every_day_on_which_a_result_can_become_final(values):
    wide = build(values.model_copy(update={"payment_within": "36 hours", "future_skew": "1 hour"})).resolve_assets_def("payment_order_wide")
    days = wide.partitions_def
    assert days is not None
    with dg.partition_loading_context(datetime.fromisoformat("2026-03-01T23:00:00Z")):
        assert days.get_last_partition_key() == "2026-03-03"


def test_a_backfill_of_several_days_is_one_run(repository):
    """Dagster's command line demands this of all assets of a run over a range, also of those without partitions."""
    policies = {repository.asset_graph.get(dg.AssetKey(key)).backfill_policy for key in DERIVED}
    assert policies == {dg.BackfillPolicy.single_run()}


def test_each_asset_has_these_checks(repository):
    found: dict[str, set[str]] = {}
    for key in repository.asset_graph.asset_check_keys:
        found.setdefault(key.asset_key.to_user_string(), set()).add(key.name)
    assert found == CHECKS


def test_only_the_conservation_law_blocks_downstream_assets(repository):
    graph = repository.asset_graph
    assert {(k.asset_key.to_user_string(), k.name) for k in graph.asset_check_keys if graph.get(k).blocking} == {
        (key, "conservation_law") for key in DERIVED
    }


def test_each_job_has_these_assets_or_ops(repository):
    found = {
        name: {k.to_user_string() for k in repository.get_job(name).asset_layer.executable_asset_keys} for name in ("ingest", "advance")
    }
    assert found == {"ingest": EVENTS, "advance": DERIVED}
    assert {j.name for j in repository.get_all_jobs() if not j.name.startswith("__")} == {
        *found,
        "full_checks",
        "maintenance",
        "export",
        "land_changes",
        "stream",
    }
    assert [node.name for node in repository.get_job("maintenance").nodes] == ["maintain"]
    assert repository.get_job("full_checks").tags[FULL] == "true"
    suites = {node.name for node in repository.get_job("full_checks").nodes}
    assert len(suites) == 19
    assert {"_orders_suite", "_seller_leaderboard_changelog"} <= suites


def test_a_run_of_the_stream_has_the_tag_of_its_stream_while_it_waits_in_the_queue(values_of_repository, repository):
    job = repository.get_job("stream")
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(job, tags=dict(job.tags))  # as Dagster does for a launch in its UI
        [record] = newest_runs(instance, make_engine(values_of_repository))
        assert record.dagster_run.run_id == run.run_id


def test_no_table_can_have_the_name_of_a_job_or_of_another_step(repository):
    names = {name for job in repository.get_all_jobs() for name in [job.name, *(d.name for d in job.graph.iterate_node_defs())]}
    assert {name for name in names - DERIVED if table_name_fault(name) is None} == set()


def test_no_table_can_have_a_name_that_dagster_refuses():
    assert {name for name in DISALLOWED_NAMES if table_name_fault(name) is None} == set()


def test_the_schedules_have_these_times(repository):
    assert {(s.name, s.job_name, s.cron_schedule, s.execution_timezone) for s in repository.schedule_defs} == {
        ("nightly", "advance", "30 2 * * *", "UTC"),
        ("nightly_maintenance", "maintenance", "30 3 * * *", "UTC"),
        ("nightly_checks", "full_checks", "30 4 * * *", "UTC"),
    }


def test_the_sensors_have_these_jobs_and_intervals(repository):
    assert {(s.name, s.job_name if s.targets else None, s.minimum_interval_seconds) for s in repository.sensor_defs} == {
        ("alerts", None, 60),
        ("new_input", "ingest", 30),
        ("ledger_moved", "advance", 30),
        ("stream_supervisor", "stream", 30),
    }
    assert {s.default_status for s in repository.sensor_defs} == {dg.DefaultSensorStatus.STOPPED}


def test_runs_share_one_jvm(repository):
    assert {repository.get_job(name).executor_def.name for name in ("ingest", "advance", "full_checks", "maintenance", "stream")} == {
        "in_process"
    }


def _commit(ledger: Ledger, *files: Path, mark: int | None = None) -> None:
    """Commit a batch with these files for both sources; `mark` is the watermark of both."""
    offsets = tuple(f"{file.as_uri()}|{file.stat().st_mtime_ns // 1_000_000}|{file.stat().st_size}" for file in files)
    recorded = {
        "watermark": mark,
        "max_event_time": mark,
        "first_event_time": START,
        "last_event_time": mark,
        "rows_read": 1,
        "accepted": 1,
    }
    now = ledger.now()
    batch: Batch = tuple(
        SourceBatch(seq=ledger.head + 1, kind="rows", ingested_at=now, source=source, offsets=offsets, **recorded)
        for source in ("orders", "payments")
    )
    ledger.commit([batch])


def _land(engine: Engine, file: str, source: str = "orders") -> Path:
    path = Path(engine.folders[source]) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"order_id": "a"}) + "\n")
    return path


def _evaluate(definition, instance, engine, cursor=None):
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"engine": engine}) as context:
        return definition.evaluate_tick(context)


def test_new_input_skips_when_no_file_landed(instance, engine):
    tick = _evaluate(new_input, instance, engine)
    assert (tick.run_requests, tick.skip_message) == ([], "nothing new has landed")


def test_new_input_requests_a_run_for_an_unread_file(instance, engine):
    _land(engine, "part-0.jsonl")
    tick = _evaluate(new_input, instance, engine)
    assert len(tick.run_requests) == 1
    assert tick.run_requests[0].run_key == _evaluate(new_input, instance, engine).run_requests[0].run_key, (
        "the same files have the same run key"
    )


def test_new_input_requests_another_run_when_another_file_lands(instance, engine):
    _land(engine, "part-1.jsonl")
    before = _evaluate(new_input, instance, engine).run_requests[0].run_key
    _land(engine, "part-0.jsonl")
    assert _evaluate(new_input, instance, engine).run_requests[0].run_key != before


def test_new_input_requests_another_run_when_a_waiting_file_is_replaced_by_an_older_one(instance, engine):
    """For example, by a copy that keeps the modification time of its original."""
    first, newest = _land(engine, "part-0.jsonl"), _land(engine, "part-1.jsonl")
    os.utime(newest, (2_000_000_000, 2_000_000_000))
    before = _evaluate(new_input, instance, engine).run_requests[0].run_key
    first.write_text("another row\n")
    os.utime(first, (1_000_000_000, 1_000_000_000))
    assert _evaluate(new_input, instance, engine).run_requests[0].run_key != before


@pytest.mark.parametrize("name", ["part-0.jsonl", "a day/päivä 50%.jsonl"])
def test_new_input_skips_a_file_that_was_read(instance, engine, name):
    _commit(engine.ledger, _land(engine, name).resolve())
    assert _evaluate(new_input, instance, engine).run_requests == []


@pytest.mark.parametrize("content", ["", "another row\n"])
def test_new_input_requests_a_run_for_a_file_that_changed_after_it_was_read(instance, engine, content):
    path = _land(engine, "part-0.jsonl")
    _commit(engine.ledger, path.resolve())
    path.write_text(content)
    assert len(_evaluate(new_input, instance, engine).run_requests) == 1


@pytest.mark.parametrize("name", [".part-0.jsonl", "_part-0.jsonl", "_tmp/part-0.jsonl"])
def test_new_input_skips_files_that_a_stream_ignores(instance, engine, name):
    _land(engine, name)
    assert _evaluate(new_input, instance, engine).run_requests == []


def test_new_input_waits_for_a_running_ingest(instance, engine):
    _land(engine, "part-0.jsonl")
    with engine.lake.writer(writer_name(engine.folders)):
        assert "has a writer already: process" in _evaluate(new_input, instance, engine).skip_message
    assert len(_evaluate(new_input, instance, engine).run_requests) == 1


def test_ledger_moved_waits_for_a_running_advance_and_keeps_its_cursor(instance, engine):
    _commit(engine.ledger, mark=START + 2 * DAY + HOUR)
    with engine.lake.writer("order_wide"):
        tick = _evaluate(ledger_moved, instance, engine)
    assert tick.skip_message.startswith("order_wide has a writer already: process")
    assert not tick.cursor
    assert len(_evaluate(ledger_moved, instance, engine).run_requests) == 1


def test_ledger_moved_skips_an_empty_ledger(instance, engine):
    assert _evaluate(ledger_moved, instance, engine).skip_message == "the ledger has no batch after 0"


def test_ledger_moved_requests_the_open_days_and_keeps_its_cursor(instance, engine):
    _commit(engine.ledger, mark=START + 2 * DAY + HOUR)
    tick = _evaluate(ledger_moved, instance, engine)
    assert tick.cursor is None, "the cursor moves when the advance has succeeded"
    (request,) = tick.run_requests
    assert request.tags["tidemark/lake"] == lake_identity(engine)
    assert request.tags["dagster/asset_partition_range_start"] == "2026-03-01"
    assert request.tags["dagster/asset_partition_range_end"] == "2026-03-03"
    assert str(engine.pending.days("payment_order_wide")[1]) == "2026-03-03"


def test_ledger_moved_requests_existing_partitions_only(instance, engine, values):
    _commit(engine.ledger, mark=START + 2 * DAY + HOUR)
    (request,) = _evaluate(ledger_moved, instance, engine).run_requests
    days = build(values).resolve_assets_def("payment_order_wide").partitions_def
    assert days is not None
    assert days.has_partition_key(request.tags["dagster/asset_partition_range_start"])
    assert days.has_partition_key(request.tags["dagster/asset_partition_range_end"])


def test_a_sensor_states_that_the_open_days_are_after_the_last_partition(instance, engine, values):
    _commit(engine.ledger, mark=START + 9 * DAY)
    made = {last: build(values.model_copy(update={"first_day": "2026-02-01", "last_day": last})) for last in ("2026-02-25", "2026-03-01")}
    ticks, cursor = {}, None
    for last, definitions in made.items():
        with dg.build_sensor_context(instance=instance, definitions=definitions, resources={"engine": engine}, cursor=cursor) as context:
            ticks[last] = ledger_moved.evaluate_tick(context)
        cursor = ticks[last].cursor
    early = ticks["2026-02-25"]
    message = "the tables are behind, but the days from 2026-03-01 on are after the last daily partition, 2026-02-27"
    assert (early.run_requests, early.skip_message) == ([], message)
    (request,) = ticks["2026-03-01"].run_requests
    assert request.tags["dagster/asset_partition_range_end"] == "2026-03-03"


def _cursor(engine: Engine, seq: int) -> str:
    return f"{lake_identity(engine)}:{seq}:{configuration(engine)}"


def test_ledger_moved_skips_a_handled_batch(instance, engine):
    _commit(engine.ledger, mark=START)
    assert _evaluate(ledger_moved, instance, engine, cursor=_cursor(engine, 1)).skip_message == "the ledger has no batch after 1"


def test_ledger_moved_ignores_the_cursor_of_another_lake_configuration_or_format(instance, engine):
    _commit(engine.ledger, mark=START)
    seen = _cursor(engine, 1)
    for cursor in (_cursor(engine, 0), _cursor(engine, 500), f"another:{seen}", f"{seen}0", "1"):
        assert len(_evaluate(ledger_moved, instance, engine, cursor=cursor).run_requests) == 1, cursor


def test_ledger_moved_skips_a_batch_that_gives_no_table_work(instance, engine):
    _commit(engine.ledger, mark=None)
    tick = _evaluate(ledger_moved, instance, engine)
    assert (tick.run_requests, tick.cursor) == ([], _cursor(engine, 1))


def test_ledger_moved_requests_only_upserted_tables_if_no_day_is_open(instance, engine):
    now = engine.ledger.now()
    engine.ledger.commit([(SourceBatch(seq=1, kind="rows", ingested_at=now, source="order_items", rows_read=1, accepted=1),)])
    assert engine.pending.upserted_tables() == ["seller_leaderboard", "seller_revenue", "category_leaderboard"]
    (request,) = _evaluate(ledger_moved, instance, engine).run_requests
    assert [key.to_user_string() for key in request.asset_selection] == engine.pending.upserted_tables()
    assert "dagster/asset_partition_range_start" not in request.tags


def test_assets_without_rows_are_pending_after_a_watermark_batch(engine):
    _commit(engine.ledger, mark=START + DAY)
    assert {name for name in engine.assets if engine.pending.days(name)} == {"payment_order_wide"}
    now = engine.ledger.now()
    silent = [
        SourceBatch(seq=2, kind="watermark", ingested_at=now, source=s, watermark=START + DAY)
        for s in ("order_items", "clicks", "order_updates")
    ]
    engine.ledger.commit([tuple(silent)])
    days = {name: engine.pending.days(name) for name in engine.assets}
    assert {name for name in days if days[name]} == {"payment_order_wide", "order_wide", "item_sales", "item_clicks"}
    assert engine.pending.all_days() == engine.pending.days("payment_order_wide")
    assert engine.pending.describe_progress("item_clicks")["lag_ms"] == 0


def _evaluate_nightly(home: Path, engine: Engine, repository: dg.RepositoryDefinition):
    with (
        dg.DagsterInstance.local_temp(str(home)) as instance,  # a schedule does not get an instance in memory
        dg.build_schedule_context(instance=instance, repository_def=repository, resources={"engine": engine}) as context,
    ):
        return nightly.evaluate_tick(context)


def test_nightly_skips_when_no_day_is_open(tmp_path, engine, repository):
    tick = _evaluate_nightly(tmp_path, engine, repository)
    assert (tick.run_requests, tick.skip_message) == ([], "every table is advanced up to its watermark")


def test_nightly_requests_a_run_while_another_process_writes_to_a_table(tmp_path, engine, repository):
    _commit(engine.ledger, mark=START + DAY)
    with engine.lake.writer("order_wide"):
        assert len(_evaluate_nightly(tmp_path, engine, repository).run_requests) == 1


def test_nightly_requests_the_open_days(tmp_path, engine, repository):
    _commit(engine.ledger, mark=START + DAY)
    (request,) = _evaluate_nightly(tmp_path, engine, repository).run_requests
    first, last = engine.pending.days("payment_order_wide")
    assert (request.tags["dagster/asset_partition_range_start"], request.tags["dagster/asset_partition_range_end"]) == (
        str(first),
        str(last),
    )


def test_another_process_reads_the_same_ledger(values, engine):
    _commit(engine.ledger, mark=START)
    other_process = Ledger(Lake(values.lake), Clock(NOON))
    assert other_process.batches() == engine.ledger.batches()


def test_the_parameters_of_the_pipeline_come_from_the_settings(values):
    changes = {
        "payment_within": "3 hours",
        "join_how": "left",
        "out_of_orderness": "90 s",
        "sales_window": "2 hours",
        "hot_items": 4,
        "category_hot_items": 2,
        "leaderboard": 5,
    }
    pipeline = shop(values.model_copy(update=changes))
    operators = {table.name: table.operator for table in pipeline.tables}
    assert {s.watermark.bound_ms for s in pipeline.sources} == {90_000}
    assert (operators["payment_order_wide"].upper, operators["payment_order_wide"].how) == ("3 hours", "left")
    assert operators["item_sales"].window == operators["item_clicks"].window == Sliding(size="2 hours", slide="10 minutes")
    assert (operators["hot_items"].k, operators["category_hot_items"].k) == (4, 2)
    assert {operators[name].rank_end for name in UPSERTED - {"seller_revenue"}} == {5}


def test_assets_are_ordered_after_their_inputs(values):
    pipeline = shop(values)
    known = {s.name for s in pipeline.sources}
    for table in pipeline.tables:
        assert {*table.inputs} <= known
        known.add(table.name)
