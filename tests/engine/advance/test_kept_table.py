"""The commits of kept rows, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from platform_defs.engine.advance.kept_table import KEPT, KeptTable
from platform_defs.engine.lake.errors import LakeError, MissingMetadataError, UnreadableLogError

FAULT = OSError("SlowDown")
FAULTS = LakeError.no_store("s3://b", FAULT), LakeError.not_read(["t"], FAULT), UnreadableLogError.of("t", "p", FAULT)


class Lake:
    """A lake whose newest commit of the kept rows has metadata, or cannot be read."""

    def __init__(self, error: LakeError | None) -> None:
        self.error, self.live, self.commits = error, self, list[dict[str, Any]]()

    def newest_commit(self, table: str, key: str) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(value={"seq": 5})

    def schema(self, table: str) -> None: ...

    def no_rows(self, spark: Any, schema: Any) -> None: ...

    def overwrite(self, rows: Any, table: str, metadata: dict[str, Any]) -> None:
        self.commits.append(metadata)


def _table(lake: Lake) -> KeptTable:
    workspace: Any = SimpleNamespace(lake=lake, spark=None)
    asset: Any = SimpleNamespace(kept="kept_rows/t")
    return KeptTable(workspace, asset)


@pytest.mark.parametrize("error", FAULTS)
def test_kept_rows_are_not_forgotten_while_their_log_cannot_be_read(error: LakeError) -> None:
    """The caller, such as a repair, then fails: later steps would use the kept rows."""
    lake = Lake(error)
    with pytest.raises(type(error), match="SlowDown"):
        _table(lake).forget()
    lake.error = None
    _table(lake).forget()
    assert lake.commits == [{KEPT: {}}]


def test_kept_rows_without_metadata_cannot_be_used_so_they_need_not_be_forgotten() -> None:
    lake = Lake(MissingMetadataError.of("kept_rows/t", KEPT))
    assert _table(lake).usable_metadata() is None
    _table(lake).forget()
    assert lake.commits == []
