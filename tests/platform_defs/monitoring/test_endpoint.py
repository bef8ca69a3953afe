"""The HTTP endpoint of the metrics, and the command that serves it. No test starts Spark."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from platform_defs.cli import commands as cli
from platform_defs.cli import metrics
from platform_defs.cli.arguments import ArgumentError
from platform_defs.engine import Engine
from platform_defs.monitoring.endpoint import EndpointError, serving_metrics
from platform_defs.monitoring.stream_metrics import metrics_of_stream
from platform_defs.settings import PROJECT
from tests.support.bare_lake import bare_engine, commit_batch
from tests.support.clock import Clock
from tests.support.small_sources import START, join, source


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    made = bare_engine(tmp_path, clock, [source("l"), source("r")], [join()])
    commit_batch(made, {"l": {"watermark": START}})
    return made


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return answer.read().decode()


def test_a_stream_serves_the_metrics_of_the_lake_and_of_its_steps(engine: Engine) -> None:
    lines = list[str]()
    stream, endpoint = metrics_of_stream(engine, "127.0.0.1", 0, lines.append)
    with endpoint:
        [step] = stream.measure_steps("pairs", (n for n in ["a step"]))  # pyright: ignore[reportArgumentType]
        [url] = re.findall(r"http://127\.0\.0\.1:\d+/metrics", lines[0])
        found = {s.name: s.value for f in text_string_to_metric_families(_read(url)) for s in f.samples}
    assert step == "a step"
    assert (found["tidemark_step_seconds_count"], found["tidemark_up"], found["tidemark_ledger_batches_total"]) == (1, 1, 1)
    with pytest.raises(OSError, match="refused"):
        _read(url)


def test_a_stream_without_a_port_serves_nothing(engine: Engine) -> None:
    lines = list[str]()
    _, endpoint = metrics_of_stream(engine, "127.0.0.1", None, lines.append)
    with endpoint:
        assert lines == []


def test_a_taken_port_and_a_wrong_address_are_refused_with_the_way_out() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EndpointError, match=rf"cannot be served at 127\.0\.0\.1:{port}: .*in use.* a free port"), _served(port):
            pass
    with (
        pytest.raises(EndpointError, match=r"not-a-host\.invalid:0: .*Legal: an address of this machine"),
        _served(0, "not-a-host.invalid"),
    ):
        pass
    with pytest.raises(EndpointError, match=r"cannot be served at 127\.0\.0\.1:65536: .* a free port"), _served(65_536):
        pass


def _served(port: int, host: str = "127.0.0.1"):
    return serving_metrics(CollectorRegistry(), host, port)


def test_the_command_prints_the_metrics_once(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setattr(metrics, "_engine", lambda: engine)
    result = CliRunner().invoke(cli.app, ["metrics", "--once"])
    assert result.exception is None
    families = {family.name: family for family in text_string_to_metric_families(result.output)}
    assert {"tidemark_source_rows", "tidemark_table_steps", "tidemark_up"} <= families.keys()
    assert all(family.documentation.endswith(".") and family.type != "unknown" for family in families.values())


def test_the_command_serves_until_an_interrupt_without_java_dagster_and_great_expectations(tmp_path: Path) -> None:
    environment = {**os.environ, "TIDEMARK_LAKE": str(tmp_path / "lake"), "JAVA_HOME": str(tmp_path)}
    code = "from platform_defs.cli.start import main; main()"
    unwanted = "{'dagster', 'great_expectations'} & {*sys.modules}"
    command = [sys.executable, "-c", f"{code}; import sys; print({unwanted})", "metrics", "--port", "0"]
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            [url] = re.findall(r"http://\S+/metrics", process.stdout.readline())
            assert "tidemark_up 1.0" in _read(url)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
        assert process.stdout.read().splitlines()[-1] == "set()"


@pytest.mark.parametrize("port", ["-1", "65536"])
@pytest.mark.parametrize("command", [["metrics", "--port"], ["ingest", "--every", "1 s", "--metrics-port"]], ids=["metrics", "ingest"])
def test_a_port_is_a_number_from_0_to_65535(command: list[str], port: str) -> None:
    result = CliRunner().invoke(cli.app, [*command, port])
    assert result.exit_code == 2, result.output
    assert "Invalid value for" in result.output


def test_the_port_of_a_stream_needs_a_stream() -> None:
    result = CliRunner().invoke(cli.app, ["ingest", "--metrics-port", "9000"])
    assert isinstance(result.exception, ArgumentError)
    assert "`--metrics-port` is '9000'; legal: a port together with --every" in str(result.exception)
