"""The demo through Kafka: the records that it sends, and the connections by which its sources read them."""

import runpy
import sys

import pytest
import yaml
from pyspark.sql import SparkSession

from platform_defs.cli.demo_kafka import connections_text, send
from platform_defs.connections import read
from platform_defs.settings import PROJECT, Settings
from platform_defs.shop import shop
from platform_defs.simulator import SOURCES, Shop, simulate
from tests.support.kafka import Kafka


def test_each_source_reads_the_topic_of_its_name():
    topics = read(connections_text("127.0.0.1:9092")).topics(shop(Settings()))  # pyright: ignore[reportCallIssue]
    assert {name: of.option("subscribePattern") for name, of in topics.items()} == {name: name for name in SOURCES}
    assert all(of.client == {"bootstrap.servers": "127.0.0.1:9092"} for of in topics.values())
    assert set(yaml.safe_load(connections_text("h:1"))) == {"kafka"}


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("platform_defs/cli/demo_kafka.py", "invalid int value: 'many'"),
        ("platform_defs/setup/broker.py", "`port` is 'many'; legal: 0 to 65535"),
    ],
)
def test_an_argument_that_is_no_number_is_refused_in_one_line(
    module: str, error: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", [module, "many"])
    with pytest.raises(SystemExit, match=r"\A2\Z"):
        runpy.run_path(str(PROJECT / module), run_name="__main__")
    assert error in capsys.readouterr().err.splitlines()[-1]


def test_all_rows_of_a_day_are_sent(spark: SparkSession, kafka: Kafka):
    day, parts = simulate(Shop(orders=5)), 2
    assert not all(day.lines(source, part, parts) for source in SOURCES for part in range(parts)), "a source has no rows in some part"
    for source in SOURCES:  # they stay: the producer that Spark keeps would create a deleted topic again
        kafka.create(source)
    for part in range(parts):
        send(spark, kafka.address, day, part, parts)
    for source in SOURCES:
        sent = [record.value.decode() for record in kafka.read(source) if record.value is not None]
        assert sorted(sent) == sorted(line for part in range(parts) for line in day.lines(source, part, parts))
