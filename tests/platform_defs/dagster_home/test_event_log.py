"""The event log in SQLite, which keeps connections open: what it stores, who can read it, and how many connections a run opens."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from platform_defs.dagster_home import event_log
from platform_defs.dagster_home.event_log import EventLogStorage
from platform_defs.dagster_home.instance import prepare
from platform_defs.settings import PROJECT
from tests.platform_defs.dagster_home.numbers import numbers


@pytest.fixture
def instance(tmp_path):
    with dg.DagsterInstance.from_config(str(prepare(str(tmp_path / "home")))) as made:
        yield made


def _databases(instance: dg.DagsterInstance) -> Path:
    return Path(instance.root_directory) / "history" / "runs"


def test_the_configured_instance_uses_this_storage(instance):
    assert isinstance(instance.event_log_storage, EventLogStorage)


def test_dagsters_own_class_reads_the_same_events(instance):
    run = dg.materialize([numbers], instance=instance)
    stored = instance.all_logs(run.run_id)
    instance.dispose()
    others = SqliteEventLogStorage(str(_databases(instance)))
    assert [e.to_json() for e in others.get_logs_for_run(run.run_id)] == [e.to_json() for e in stored]
    record = others.get_asset_records([dg.AssetKey("numbers")])[0]
    assert record.asset_entry.last_materialization.asset_materialization.metadata["rows"].value == 3


def test_a_run_opens_a_few_connections_only(instance, monkeypatch):
    opened, connect = Counter[str](), sqlite3.connect

    def counted(database, *args, **options):
        opened[Path(database).parent.name] += 1
        return connect(database, *args, **options)

    dg.materialize([numbers], instance=instance)
    monkeypatch.setattr(sqlite3.dbapi2, "connect", counted)
    run = dg.materialize([numbers], instance=instance)
    assert len(instance.all_logs(run.run_id)) > 10
    assert opened["runs"] <= 6, "several connections create the run's database; the database of all runs is open already"


def test_old_databases_are_closed(instance, monkeypatch):
    monkeypatch.setattr(event_log, "_MOST_OPEN", 2)
    for _ in range(2):
        dg.materialize([numbers], instance=instance)
    assert len(instance.event_log_storage._engines) == 2, "the database of all runs, and the database of the second run"


def test_an_event_modifies_the_file_that_the_ui_watches_and_reading_it_does_not(instance, monkeypatch):
    seen, reads, read = threading.Event(), Counter[str](), EventLogStorage.get_records_for_run
    run = dg.materialize([numbers], instance=instance)
    monkeypatch.setattr(EventLogStorage, "get_records_for_run", lambda *args, **named: (reads.update("r"), read(*args, **named))[1])
    instance.event_log_storage.watch(run.run_id, None, lambda *_: seen.set())
    try:
        instance.report_engine_event("hello", run.dagster_run)
        assert seen.wait(30)
        time.sleep(0.5)
        assert reads.total() <= 10, "reading the events does not modify the file, or the UI would read them again without end"
    finally:
        instance.event_log_storage.dispose()


def test_two_processes_store_events_at_the_same_time_and_import_neither_settings_nor_spark(instance):
    made, by_other = 1, 2
    stored = instance.all_logs(dg.materialize([numbers], instance=instance).run_id)
    work = f"store_events_of_runs({str(_databases(instance))!r}, {by_other})"
    code = f"import gc; gc.disable(); from tests.platform_defs.dagster_home.numbers import store_events_of_runs; {work}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write("".join(f"{entry.to_json()}\n" for entry in stored))
        other.stdin.close()
        assert other.stdout.readline() == "ready set()\n"
        while other.poll() is None or made == 1:  # on a busy machine the other process may have ended
            dg.materialize([numbers], instance=instance)
            made += 1
    assert other.returncode == 0
    assert len(instance.fetch_materializations(dg.AssetKey("numbers"), limit=99).records) == made + by_other


def test_a_forked_process_opens_connections_of_its_own(instance, monkeypatch):
    dg.materialize([numbers], instance=instance)
    before = {*instance.event_log_storage._engines.values()}
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert instance.get_latest_materialization_event(dg.AssetKey("numbers"))
    assert before.isdisjoint(instance.event_log_storage._engines.values())


def test_wiping_deletes_every_event(instance):
    run = dg.materialize([numbers], instance=instance)
    instance.event_log_storage.wipe()
    assert instance.all_logs(run.run_id) == []
    assert dg.materialize([numbers], instance=instance).success
