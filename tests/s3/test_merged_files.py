"""Small files of a table in S3 are merged by a conditional put."""

from typing import Any, cast

import pyarrow as pa
import pytest

from platform_defs.engine.lake.merged_files import can_merge, merge_files
from platform_defs.engine.lake.tables import Lake
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.s3


def test_files_are_merged_unless_another_commit_came_first(lake: Lake, server: S3Server) -> None:
    for n in range(8):
        lake.append_small(pa.table({"n": [n]}), "t", {"key": n})
    opened, late, path = lake.delta("t"), lake.delta("t"), lake.path("t")
    assert opened is not None
    assert late is not None
    assert can_merge(opened, path)
    requests = server.count(lambda: merge_files(opened, path, lake.storage_options, 1 << 20))
    assert requests.total() == 23, "two for each file that is read, six for the merged one, and one for the commit"
    assert not merge_files(late, path, lake.storage_options, 1 << 20)
    merged = lake.delta("t")
    assert merged is not None
    assert merged.version() == 8
    assert merged.get_add_actions(flatten=True)["num_records"].to_pylist() == [8]
    assert merged.to_pyarrow_table()["n"].to_pylist() == [*range(8)]


def test_a_small_table_is_compacted_without_spark(lake: Lake) -> None:
    for n in range(3):
        lake.append_small(pa.table({"n": [n]}), "t", {"key": n})
    lake.optimize(cast(Any, None), "t")
    compacted = lake.delta("t")
    assert compacted is not None
    assert compacted.get_add_actions(flatten=True)["num_records"].to_pylist() == [3]
    assert compacted.to_pyarrow_table()["n"].to_pylist() == [*range(3)]
