"""Dagster's configuration file: Tidemark writes it and brings it up to date, and never changes one that a user has edited."""

import hashlib

import dagster as dg
import pytest
import yaml
from dagster._core.execution.api import create_execution_plan
from dagster._core.op_concurrency_limits_counter import GlobalOpConcurrencyLimitsCounter
from dagster._core.run_coordinator import QueuedRunCoordinator

from assets.factories.pool import SPARK
from platform_defs.dagster_home.event_log import EventLogStorage
from platform_defs.dagster_home.instance import main, prepare
from platform_defs.settings import settings

EARLIER = "nux: {enabled: false}\ntelemetry: {enabled: false}\n"


def _config(folder):
    return yaml.safe_load((folder / "dagster.yaml").read_text())


def test_the_file_names_the_storage_and_sends_no_telemetry(tmp_path):
    folder = prepare(str(tmp_path / "a: 'quoted' folder"))
    config = _config(folder)
    assert config["telemetry"] == {"enabled": False}
    assert config["event_log_storage"]["config"] == {"base_dir": f"{folder}/history/runs"}


@dg.op(pool=SPARK)
def uses_spark() -> None:
    """A step in the pool of Spark."""


@dg.job
def uses_the_pool() -> None:
    """A job with a step in the pool of Spark."""
    uses_spark()


def test_the_second_of_two_runs_with_spark_is_queued(tmp_path):
    with dg.DagsterInstance.from_config(str(prepare(str(tmp_path)))) as instance:
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
        granularity = instance.get_concurrency_config().pool_config.pool_granularity
        running, waiting = (
            instance.create_run_for_job(uses_the_pool, status=status, execution_plan=create_execution_plan(uses_the_pool))
            for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.NOT_STARTED)
        )

        def is_blocked(*active):
            records, storage = instance.get_run_records(dg.RunsFilter(run_ids=[*active])) if active else [], instance.event_log_storage
            counter = GlobalOpConcurrencyLimitsCounter(instance, [waiting], records, {SPARK}, storage.get_pool_limits(), 0, granularity)
            return counter.is_blocked(waiting)

        assert is_blocked(running.run_id)
        assert not is_blocked()


def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path):
    (tmp_path / "dagster.yaml").write_text(EARLIER)
    assert "event_log_storage" in _config(prepare(str(tmp_path)))
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert _config(prepare(str(moved)))["event_log_storage"]["config"] == {"base_dir": f"{moved}/history/runs"}


def _with_the_former_module(folder, openlineage):
    """The file of a version whose event log was in `platform_defs.resources`: the first line, with a hash of the rest, and the rest."""
    mark, rest = (prepare(str(folder), openlineage=openlineage) / "dagster.yaml").read_text().split("\n", 1)
    former = rest.replace("platform_defs.dagster_home.event_log", "platform_defs.resources.event_log")
    assert former != rest
    return mark.replace(hashlib.sha256(rest.encode()).hexdigest()[:12], hashlib.sha256(former.encode()).hexdigest()[:12]), former


@pytest.mark.parametrize("openlineage", [False, True])
def test_a_file_with_the_former_module_of_the_event_log_is_brought_up_to_date(tmp_path, openlineage):
    file = tmp_path / "dagster.yaml"
    file.write_text("\n".join(_with_the_former_module(tmp_path, openlineage)))
    prepare(str(tmp_path), openlineage=openlineage)
    assert "module: platform_defs.dagster_home.event_log" in file.read_text()
    assert "platform_defs.resources" not in file.read_text()


def test_a_changed_file_with_the_former_module_of_the_event_log_works(tmp_path):
    changed = "\n".join(_with_the_former_module(tmp_path, openlineage=False)).replace("nux: {enabled: false}", "nux: {enabled: true}")
    (tmp_path / "dagster.yaml").write_text(changed)
    with dg.DagsterInstance.from_config(str(prepare(str(tmp_path)))) as instance:
        assert isinstance(instance.event_log_storage, EventLogStorage)
    assert (tmp_path / "dagster.yaml").read_text() == changed


def test_the_file_is_replaced_as_a_whole_and_only_if_it_differs(tmp_path):
    """A Dagster that runs may read it, and after a kill a part of it would be kept like a file of a user."""
    file = prepare(str(tmp_path)) / "dagster.yaml"
    content, written = file.read_text(), file.stat()
    prepare(str(tmp_path))
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    for former in (EARLIER, ""):  # earlier versions emptied the file before they wrote it
        file.write_text(former)
        with file.open() as opened_before:
            prepare(str(tmp_path))
            assert opened_before.read() == former
        assert file.read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["dagster.yaml"]


def test_a_link_in_place_of_the_file_stays(tmp_path):
    (tmp_path / "mounted.yaml").touch()
    (tmp_path / "dagster.yaml").symlink_to(tmp_path / "mounted.yaml")
    prepare(str(tmp_path))
    assert (tmp_path / "dagster.yaml").is_symlink()
    assert "storage" in (tmp_path / "mounted.yaml").read_text()


def test_a_file_that_a_user_has_changed_is_kept(tmp_path):
    file = prepare(str(tmp_path)) / "dagster.yaml"
    changed = file.read_text().replace("telemetry: {enabled: false}", "telemetry: {enabled: true}")
    file.write_text(changed)
    prepare(str(tmp_path))
    assert file.read_text() == changed


def test_a_users_own_file_is_kept(tmp_path):
    (tmp_path / "dagster.yaml").write_text("run_monitoring: {enabled: true}\n")
    assert _config(prepare(str(tmp_path))) == {"run_monitoring": {"enabled": True}}


def test_the_folder_is_printed_for_a_script(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TIDEMARK_DAGSTER_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    assert main() == 0
    (tmp_path / "home/dagster.yaml").write_bytes("# \xe4".encode("latin-1"))
    assert main() == 1
    monkeypatch.setenv("TIDEMARK_DAGSTER_HOME", str(tmp_path / "home/dagster.yaml"))
    settings.cache_clear()
    assert main() == 1
    monkeypatch.setenv("TIDEMARK_LAKE", "")
    settings.cache_clear()
    assert main() == 1
    monkeypatch.undo()
    settings.cache_clear()
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path}/home\n"
    not_utf8, not_a_folder, no_lake = printed.err.splitlines()
    assert not_utf8.startswith(f"error: {tmp_path}/home/dagster.yaml cannot be read: 'utf-8' codec")
    assert not_a_folder == f"error: [Errno 17] File exists: '{tmp_path}/home/dagster.yaml'"
    assert no_lake.startswith("error: TIDEMARK_LAKE")
