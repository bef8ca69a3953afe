"""The options with which ranges of offsets are read, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.formats.topics import Partition, _records, offset_range


class Reader:
    """Spark's reader, which returns its options."""

    def format(self, _: str) -> "Reader":
        return self

    def options(self, **options: str) -> SimpleNamespace:
        return SimpleNamespace(load=lambda: options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"0"}),
        ({"kafka.fetch.min.bytes": "200"}, {"200"}),
        ({"kafka.Fetch.Min.Bytes": "200"}, {"200"}),
        ({"kafka.group.protocol": "CONSUMER"}, set()),
    ],
    ids=["default", "of the user", "of the user, in another case", "a client that fetches all the time"],
)
def test_a_fetch_does_not_wait_for_records_after_the_range_unless_the_user_says_so(given: dict[str, str], expected: set[str]) -> None:
    topics, spark = Topics(options={"subscribe": "orders", **given}), SimpleNamespace(read=Reader())
    range_read = offset_range(Partition("orders", 0, "id"), 3, 5, "l", topics)
    options: Any = _records(spark, topics, [range_read])  # pyright: ignore[reportArgumentType]
    assert {value for name, value in options.items() if name.lower() == "kafka.fetch.min.bytes"} == expected
    assert (options["startingOffsets"], options["endingOffsets"]) == ('{"orders": {"0": 3}}', '{"orders": {"0": 5}}')
