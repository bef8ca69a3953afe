"""The requests to the store for a table that a lake in S3 has opened already."""

import pyarrow as pa
import pytest

from platform_defs.engine.lake.tables import Lake
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.s3


def test_each_question_about_an_opened_table_only_lists_newer_versions(lake: Lake, server: S3Server) -> None:
    for number in (1, 2, 3):
        lake.append_small(pa.table({"a": [number]}), "t", {"m": number})

    def look() -> tuple[object, ...]:
        newest = lake.newest_commit("t", "m")
        return newest and newest.value, lake.transaction("t", "one"), lake.transaction("t", "other")

    assert look() == (3, None, None)
    assert server.count(look) == {"LIST": 3}, "each question lists once, to see whether there is a newer version"
