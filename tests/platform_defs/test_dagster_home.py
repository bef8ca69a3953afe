"""Dagster's configuration file: written once, brought up to date, and never changed once a user has written it."""

import yaml

from platform_defs import dagster_home
from platform_defs.dagster_home import prepare
from platform_defs.settings import settings

EARLIER = "nux: {enabled: false}\ntelemetry: {enabled: false}\n"


def _config(folder):
    return yaml.safe_load((folder / "dagster.yaml").read_text())


def test_the_file_names_the_storage_and_sends_no_telemetry(tmp_path):
    folder = prepare(str(tmp_path / "a: 'quoted' folder"))
    config = _config(folder)
    assert config["telemetry"] == {"enabled": False}
    assert config["event_log_storage"]["config"] == {"base_dir": f"{folder}/history/runs"}


def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path):
    (tmp_path / "dagster.yaml").write_text(EARLIER)
    assert "event_log_storage" in _config(prepare(str(tmp_path)))
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert _config(prepare(str(moved)))["event_log_storage"]["config"] == {"base_dir": f"{moved}/history/runs"}


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
    assert dagster_home.main() == 0
    monkeypatch.setenv("TIDEMARK_LAKE", "")
    settings.cache_clear()
    assert dagster_home.main() == 1
    monkeypatch.undo()
    settings.cache_clear()
    printed = capsys.readouterr()
    assert (printed.out, printed.err[:20]) == (f"{tmp_path}/home\n", "error: TIDEMARK_LAKE")
