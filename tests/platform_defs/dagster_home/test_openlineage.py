"""OpenLineage: off by default; if it is on, a Dagster run sends events about its assets to a real server. No test starts Spark."""

import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from platform_defs.dagster_home import instance as instance_module
from platform_defs.dagster_home.event_log import EventLogStorage
from platform_defs.dagster_home.instance import IntegrationError, main, prepare
from platform_defs.settings import settings

DAY = "2026-03-01"


SCHEMA = dg.TableSchema([dg.TableColumn("order_id", "string")])
LINEAGE = dg.TableColumnLineage({"order_id": [dg.TableColumnDep(dg.AssetKey(["events", "orders"]), "order_id")]})


@dg.asset(key=["events", "orders"])
def orders() -> None: ...


@dg.asset(
    deps=[orders], check_specs=[dg.AssetCheckSpec("conservation_law", asset="wide")], partitions_def=dg.DailyPartitionsDefinition(DAY)
)
def wide() -> dg.MaterializeResult:
    passed = dg.AssetCheckResult(passed=True, check_name="conservation_law")
    return dg.MaterializeResult(metadata={"dagster/column_schema": SCHEMA, "dagster/column_lineage": LINEAGE}, check_results=[passed])


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The events that a server of this machine receives."""
    found = list[dict[str, Any]]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.append(json.loads(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # `shutdown` returns within this time
        thread.start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        yield found
        server.shutdown()
        thread.join()


def _run(home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert dg.materialize([orders, wide], selection=[orders], instance=instance).success
        assert dg.materialize([orders, wide], selection=[wide], instance=instance, partition_key=DAY).success
        assert instance.get_materialized_partitions(dg.AssetKey("wide")) == {DAY}


def _names(events: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(event["eventType"], output["name"]) for event in events for output in event.get("outputs", [])}


def test_openlineage_is_off_by_default(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    _run(prepare(str(tmp_path)))
    assert events == []
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert isinstance(instance.event_log_storage, EventLogStorage)


def test_a_run_sends_the_events_of_its_assets(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    _run(prepare(str(tmp_path), openlineage=True))
    assert {("COMPLETE", "events/orders"), ("COMPLETE", "wide")} <= _names(events)
    assert {event["job"]["namespace"] for event in events} == {"tidemark"}
    outputs = [output for event in events if event["eventType"] == "COMPLETE" for output in event.get("outputs", [])]
    [facets] = [output["facets"] for output in outputs if output["name"] == "wide"]
    assert [field["name"] for field in facets["schema"]["fields"]] == ["order_id"]
    [column] = facets["columnLineage"]["fields"]["order_id"]["inputFields"]
    assert (column["name"], column["field"]) == ("events/orders", "order_id")
    inputs = [source.get("inputFacets", {}) for event in events for source in event.get("inputs", [])]
    assertions = [one for found in inputs if "dataQualityAssertions" in found for one in found["dataQualityAssertions"]["assertions"]]
    assert [(one["assertion"], one["success"]) for one in assertions] == [("conservation_law", True)]


def test_a_server_that_does_not_answer_does_not_fail_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = {"type": "http", "url": "http://127.0.0.1:9", "retry": {"total": 0, "connect": 0}}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    began = time.monotonic()
    _run(prepare(str(tmp_path), openlineage=True))
    assert time.monotonic() - began < 20, "with OPENLINEAGE_URL alone, each event is tried six times, for nine seconds"


def test_a_missing_package_is_named_with_the_way_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_module, "find_spec", lambda _: None)
    with pytest.raises(IntegrationError, match=r"dagster-openlineage is not installed: .*--group openlineage"):
        prepare(str(tmp_path), openlineage=True)
    prepare(str(tmp_path))


def test_a_changed_file_that_would_send_no_event_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dagster.yaml"
    file.write_text("run_monitoring: {enabled: true}\n", encoding="utf-8")
    with pytest.raises(IntegrationError, match=r"dagster\.yaml, which you have changed, names no storage of dagster_openlineage"):
        prepare(str(tmp_path), openlineage=True)
    own = "event_log_storage: {module: dagster_openlineage}\n"
    file.write_text(own, encoding="utf-8")
    prepare(str(tmp_path), openlineage=True)
    assert file.read_text("utf-8") == own


@pytest.mark.parametrize("is_on", [True, False])
def test_the_setting_turns_openlineage_on(
    is_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_OPENLINEAGE", str(is_on).lower())
    settings.cache_clear()
    try:
        assert main() == 0
    finally:
        settings.cache_clear()
    assert ("dagster_openlineage" in (tmp_path / "dagster.yaml").read_text("utf-8")) == is_on
    assert capsys.readouterr().out == f"{tmp_path}\n"
