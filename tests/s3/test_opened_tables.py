"""What a lake in S3 asks the store for, of a table that is opened already."""

import pyarrow as pa
import pytest

from platform_defs.engine.lake.tables import Lake
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.s3


def test_what_a_log_says_of_the_newest_version_is_read_once(lake: Lake, server: S3Server) -> None:
    for number in (1, 2, 3):
        lake.append_small(pa.table({"a": [number]}), "t", {"m": number})

    def look() -> tuple[object, ...]:
        newest = lake.newest_commit("t", "m")
        return newest and newest.value, lake.transaction("t", "one"), lake.transaction("t", "other")

    assert look() == (3, None, None)
    assert server.count(look) == {"LIST": 3}, "one request for each question, whether there is a newer version"
