"""The demo through Kafka: `make demo-kafka` starts a broker, sends a simulated shop day to its topics, and builds every table from them."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import yaml
from pyspark.sql import SparkSession

from operators.errors import TidemarkError
from platform_defs.cli import demo, render, status
from platform_defs.settings import HOME, settings
from platform_defs.settings.values import PREFIX
from platform_defs.setup.broker import running_broker
from platform_defs.simulator import SOURCES, ShopDay
from platform_defs.spark.session import session

FOLDER = HOME / "demo-kafka"
ORDERS, PARTS = 2_000, 4
_PARTITIONS = 3
_RECORDS = pa.schema({"key": pa.string(), "value": pa.string()})
"""The columns of records. They are given because they cannot be inferred from a part of a day without rows."""


def send(spark: SparkSession, address: str, day: ShopDay, part: int, parts: int) -> None:
    """Send a part of a day to Kafka: to one topic for each source, one record for each row.

    Args:
        spark: a session with Kafka's connector.
        address: the broker's address.
        day: the day.
        part: the number of the part, from 0.
        parts: the number of parts.
    """
    for source in SOURCES:
        # distinct keys spread the records evenly over a topic's partitions: a partition that is behind would hold back the watermark
        lines = day.lines(source, part, parts)
        records = spark.createDataFrame(pa.table({"key": [*map(str, range(len(lines)))], "value": lines}, _RECORDS))
        records.write.format("kafka").options(**{"kafka.bootstrap.servers": address, "topic": source}).save()


def connections_text(address: str) -> str:
    """The connections of the demo, as YAML: each source reads the topic of its name."""
    # a pattern: a topic does not exist before its first record, and a missing topic of `subscribe` is reported as a failure
    sources = {name: {"options": {"subscribePattern": name}} for name in SOURCES}
    return yaml.safe_dump({"kafka": {"options": {"kafka.bootstrap.servers": address}, "sources": sources}})


def main(orders: int = ORDERS, parts: int = PARTS) -> int:
    """Run the demo, and print its result; the exit status is 1 if it fails.

    Args:
        orders: orders of the simulated day.
        parts: micro-batches.
    """
    try:
        with (
            TemporaryDirectory(prefix="kafka-") as folder,
            running_broker(Path(folder, "broker"), listeners=(), **{"num.partitions": _PARTITIONS}) as broker,
        ):
            file = Path(folder, "connections.yaml")
            file.write_text(connections_text(broker.address), "utf-8")
            os.environ[f"{PREFIX}CONNECTIONS"] = str(file)
            settings.cache_clear()

            def send_part(day: ShopDay, part: int) -> None:
                send(session(settings()), broker.address, day, part, parts)

            report = demo.run(None, orders=orders, parts=parts, seed=7, lake=str(FOLDER), on_step=render.errors.print, send=send_part)
            status.print_demo(report)
    except TidemarkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    parser = ArgumentParser("make demo-kafka", description="Run the demo through a local Kafka broker.")
    parser.add_argument("orders", type=int, nargs="?", default=ORDERS)
    parser.add_argument("parts", type=int, nargs="?", default=PARTS)
    arguments = parser.parse_args()
    sys.exit(main(arguments.orders, arguments.parts))
