"""The quarantine of a lake is listed without Spark."""

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from platform_defs.engine.ingest.quarantine_list import QuarantineList
from platform_defs.engine.lake.tables import Lake
from tests.engine.source_batches import source_batch
from tests.support.memory_ledger import memory_ledger
from tests.support.small_sources import source


def test_the_reason_of_a_file_is_found_if_ledger_and_quarantine_encode_its_path_in_other_ways(tmp_path: Path) -> None:
    """An earlier version encoded more characters than Spark does, and the paths in the quarantine are those of a former folder."""
    lake, ledger, contract = Lake(str(tmp_path / "lake")), memory_ledger(), source("l")
    ledger.commit([(source_batch("l", 1, rows_read=1, quarantined=1, offsets=("./a%E2%80%8Cb.jsonl|5|0|unread",)),)])
    path = "file:///former/l/a%E2%80%8Cb.jsonl"
    row = {"seq": 1, "path": path, "reason": "malformed: the file is empty", "raw": path}
    write_deltalake(lake.path(contract.quarantine), pa.Table.from_pylist([row]))
    [file] = QuarantineList(lake, ledger, {"l": contract}, {"l": str(tmp_path / "l")}).files("l")
    assert file.reason == "malformed: the file is empty"
