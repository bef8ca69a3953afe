"""A source and a sink over TLS with a user and a password, as the documentation sets them up, in a process of its own."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from platform_defs.cli.new import create
from platform_defs.settings import PROJECT
from platform_defs.setup.broker import Broker, running_broker
from platform_defs.setup.java import find_java
from platform_defs.setup.ports import free_ports
from tests.support.kafka import Kafka, Record
from tests.support.quick_session import QUICK_CONNECTIONS

PASSWORD, STORE_PASSWORD, WRONG = "pa55-of-tidemark", "pa55-of-the-store", "wr0ng-password"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="tidemark" password="{}";'
CHILD = """
import json, os, pathlib, sys
from platform_defs.cli.main import main
for password, *arguments in json.loads(sys.argv[1]):
    os.environ["KAFKA_JAAS_CONFIG"] = json.loads(os.environ["JAAS_OF"])[password]
    sys.argv = ["tidemark", *arguments]
    try:
        main()
        print("exit 0", flush=True)
    except SystemExit as ended:
        print("exit", ended.code or 0, flush=True)
    for line in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            print("process", line.read_bytes().replace(b"\\0", b" ").decode(errors="replace"), flush=True)
        except OSError:
            pass
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The key store of the broker, which is also the trust store of its clients: Java trusts the certificate of a store's own key."""
    file = tmp_path / "truststore.jks"
    quick = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-noprompt")
    names = ("-alias", "broker", "-dname", "CN=broker", "-ext", "SAN=ip:127.0.0.1,dns:localhost", "-keyalg", "EC", "-validity", "2")
    kept = ("-storetype", "JKS", "-keystore", str(file), "-storepass", STORE_PASSWORD, "-keypass", STORE_PASSWORD)
    subprocess.run([str(Path(find_java(), "bin", "keytool")), *quick, "-genkeypair", *names, *kept], check=True, capture_output=True)
    return file


def _secured(folder: Path, store: Path, port: int):
    listener = "listener.name.sasl_ssl"
    options = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{listener}.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        f"{listener}.ssl.keystore.location": store,
        f"{listener}.ssl.keystore.type": "JKS",
        f"{listener}.ssl.keystore.password": STORE_PASSWORD,
    }
    return running_broker(folder, listeners=[f"SASL_SSL://127.0.0.1:{port}"], **options)


def _add_user(broker: Broker) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion("tidemark", info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.alter_user_scram_credentials([wanted]).values():
        done.result(30)


def _documented(port: int, trusted: Path) -> dict[str, object]:
    """The connections of the documentation's page, with the addresses of this test."""
    page = Path(PROJECT, "docs/how-to/read-from-kafka.md").read_text("utf-8")
    [block] = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "SASL_SSL" in block]
    found = yaml.safe_load(block)
    found["kafka"]["options"]["kafka.bootstrap.servers"] = f"127.0.0.1:{port}"
    found["kafka"]["options"]["kafka.ssl.truststore.location"] = str(trusted)
    found["kafka"]["sources"] = {"rides": {"options": {"subscribe": "rides"}}}
    found["kafka"]["sinks"] = {"rides_per_hour": {"topic": "rides-per-hour", "partitions": 1}}
    return found | QUICK_CONNECTIONS


def test_secrets_are_used_and_in_no_log_file_or_command_line_and_a_wrong_password_is_an_error(store: Path, tmp_path: Path):
    [port], project = free_ports(1), tmp_path / "project"
    create(project, "pipeline.yaml")
    (project / "connections.yaml").write_text(yaml.safe_dump(_documented(port, store)))
    with _secured(tmp_path / "broker", store, port) as broker:
        kafka = Kafka(broker)
        _add_user(broker)
        [landed] = (project / "landing" / "rides").iterdir()
        rides = [json.dumps(row) for row in csv.DictReader(landed.read_text().splitlines())]
        landed.unlink()
        kafka.create("rides")
        kafka.produce("rides", [Record(None, ride.encode()) for ride in rides])
        commands = [
            ["wrong", "ingest"],
            ["right", "ingest"],
            ["right", "advance", "rides_per_hour"],
            ["right", "publish", "rides_per_hour", "--kafka"],
            ["wrong", "publish", "rides_per_hour", "--kafka"],
        ]
        ended = _run(project, commands)
        assert [line for line in ended.splitlines() if line.startswith("exit")] == [f"exit {code}" for code in (1, 0, 0, 0, 1)], ended
        assert re.search(r"kafka:rides cannot be listed: SaslAuthenticationException: .*invalid credentials.*`kafka\.\*`", ended), ended
        assert re.search(r"the topic 'rides-per-hour' cannot be used: .*SaslAuthenticationException: .*invalid credentials", ended), ended
        assert kafka.read("rides-per-hour")
    assert "SparkSubmit" in ended, "the command line of the JVM is seen"
    for secret in (PASSWORD, STORE_PASSWORD, WRONG):
        assert secret not in ended
        assert not [path for path in project.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def _run(project: Path, commands: list[list[str]]) -> str:
    """What commands print, run in turn in one process, with the command lines of all processes after each command."""
    own = dict(line.split("=", 1) for line in (project / ".env").read_text().split())
    own |= {"TIDEMARK_CONNECTIONS": str(project / "connections.yaml"), "TRUSTSTORE_PASSWORD": STORE_PASSWORD, "COLUMNS": "10000"}
    jaas = {"right": JAAS.format(PASSWORD), "wrong": JAAS.format(WRONG)}
    own["JAAS_OF"] = json.dumps(jaas)
    words = [sys.executable, "-c", CHILD, json.dumps(commands)]
    done = subprocess.run(words, env=os.environ | own, cwd=project, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
