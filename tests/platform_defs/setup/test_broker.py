"""The local Kafka broker: its start, its end, its errors, and the records that it keeps."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from platform_defs.settings import PROJECT
from platform_defs.setup.broker import Broker, BrokerError, main, parsed_port
from platform_defs.setup.ports import HOST
from tests.support.kafka import Kafka, Record


@pytest.fixture(scope="module")
def of_1970(kafka: Kafka) -> tuple[str, float]:
    """A topic with a record of 1970, and the monotonic time in seconds at which it was written: before the other tests, to save waiting."""
    topic = kafka.create("of-1970")
    kafka.produce(topic, [Record(b"k", b"v", timestamp=1_000)])
    return topic, time.monotonic()


@pytest.mark.usefixtures("of_1970")
def test_records_come_back_from_every_partition(kafka: Kafka):
    topic = kafka.create("round-trip", partitions=12)
    sent = [
        Record(b"%d" % n, None if n == 3 else b"v%d" % n, partition=n % 5, timestamp=1_000 + n, headers={"n": b"h%d" % n}) for n in range(9)
    ]
    kafka.produce(topic, sent)
    assert kafka.offsets(topic) == [(0, 2), (0, 2), (0, 2), (0, 2), (0, 1), *[(0, 0)] * 7]
    found = sorted(kafka.read(topic), key=lambda r: int(r.key or b""))
    assert [(r.key, r.value, r.partition, r.timestamp, r.headers) for r in found] == [
        (r.key, r.value, r.partition, r.timestamp, r.headers) for r in sent
    ]


def test_a_topic_that_is_deleted_and_created_again_is_empty(kafka: Kafka):
    topic = kafka.create("anew")
    kafka.produce(topic, [Record(b"k", b"v")])
    kafka.delete(topic)
    kafka.create(topic)
    assert kafka.read(topic) == []


@pytest.mark.kafka
def test_a_broker_that_cannot_start_shows_its_log(tmp_path: Path):
    with pytest.raises(BrokerError, match=r"(?s)ended with status 1 before it answered.*num\.network\.threads"):
        Broker(tmp_path, options={"num.network.threads": "few"}).start()


def test_a_port_in_use_is_refused_before_the_folder_is_formatted(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"`port` is {port}, and another process listens on it; legal: a free port"):
            Broker(tmp_path, port).start()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.kafka
def test_a_broker_in_the_foreground_ends_on_ctrl_c():
    command = [sys.executable, "-m", "platform_defs.setup.broker", "0"]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            printed = process.stdout.readline()
            assert "A Kafka broker listens at 127.0.0.1:" in printed
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    with pytest.raises(ConnectionRefusedError, match="refused"):
        socket.create_connection((HOST, int(printed.split(":")[1].split(",")[0])), 1)


@pytest.mark.parametrize("port", ["65536", "-1", "broker", "9092.5"])
def test_a_port_that_does_not_exist_is_refused_before_a_broker_starts(capsys: pytest.CaptureFixture[str], port: str):
    with pytest.raises(SystemExit, match="2"):
        parsed_port([port])
    assert f"`port` is '{port}'; legal: 0 to 65535, and 0 is any free port" in capsys.readouterr().err
    assert [parsed_port(arguments) for arguments in ([], ["0"], ["65535"])] == [9092, 0, 65535]


def test_a_missing_jar_is_an_error_that_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    monkeypatch.setattr("platform_defs.setup.jars.jars_folder", lambda: tmp_path)
    assert main() == 1
    assert "Run `make setup-broker`, which fetches them" in capsys.readouterr().err


def test_records_with_old_timestamps_are_kept(kafka: Kafka, of_1970: tuple[str, float]):
    topic, written = of_1970
    time.sleep(max(0.0, 2.5 - (time.monotonic() - written)))  # the broker looks for records past their retention time each second
    assert len(kafka.read(topic)) == 1
