"""The writers of a lake in S3: one at a time, and none overwrites the commit of another."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import obstore
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema

from platform_defs.engine.lake import commits
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.engine.lake.leases import Busy, Lease
from platform_defs.engine.lake.objects import store_at
from platform_defs.engine.lake.tables import Lake
from tests.support.s3_server import WITHOUT_CONDITIONS, S3Server

pytestmark = pytest.mark.s3
ROWS = pa.table({"a": [1]})
HOLD = """
import json, sys, time
from platform_defs.engine.lake.tables import Lake
with Lake(sys.argv[1], 2.0, storage_options=json.loads(sys.stdin.readline())).writer("ledger"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_refused_until_the_first_one_is_dead_for_the_duration_of_its_lease(lake: Lake, server: S3Server) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, lake.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder.stdin as given, holder.stdout as printed:
        given.write(json.dumps(server.storage_options) + "\n")
        given.flush()
        assert printed.readline() == "held\n"
        with pytest.raises(LakeBusy, match=f"ledger has a writer already: process {holder.pid} "), lake.writer("ledger"):
            pass
        holder.kill()
        holder.wait()
    began = time.monotonic()
    while lake.current_writer("ledger"):
        assert time.monotonic() - began < 10
        time.sleep(0.1)
    with lake.writer("ledger"):
        assert lake.current_writer("ledger")
    assert lake.current_writer("ledger") is None


def test_of_many_writers_at_once_one_takes_the_lease(lake: Lake) -> None:
    taken, refused = list[Lease](), list[Busy]()
    start = threading.Barrier(8)

    def take(number: int) -> None:
        lease = Lease(lake.path("_leases/x"), f"x{number}", 60.0, storage_options=lake.storage_options)
        start.wait()
        try:
            lease.take()
            taken.append(lease)
        except Busy as busy:
            refused.append(busy)

    writers = [threading.Thread(target=take, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (len(taken), len(refused)) == (1, 7)


def test_a_writer_that_lost_its_lease_commits_nothing(lake: Lake) -> None:
    paused = replace(lake, lease_s=60.0)
    with paused.writer("ledger"):
        [lease] = paused._leases.values()
        lease.now = lambda: time.time() + 3600  # the paused writer's clock: the lease is over, and another writer takes it
        other = Lease(lease.uri, "ledger", 60.0, now=lambda: time.time() + 3600, storage_options=lake.storage_options)
        other.take()
        with pytest.raises(LakeError, match="ledger has another writer now"):
            paused.append_small(ROWS, "t")
    assert lake.version("t") is None


def test_a_lease_takes_few_requests(lake: Lake, server: S3Server) -> None:
    def take_and_release() -> None:
        with lake.writer("ledger"):
            pass

    take_and_release()
    costs = [server.count(take_and_release) for _ in range(20)]
    assert {(cost["PUT"], cost["GET"], cost["LIST"]) for cost in costs} == {(2, 2, 3)}
    deletions = sum(cost["POST"] + cost["DELETE"] for cost in costs)
    assert 0 < deletions <= 4, "records that are not the newest are deleted, many at a time"
    assert server.count(lambda: lake.waiting_process("ledger")) == {"LIST": 1}


def test_a_lease_of_an_earlier_version_is_respected_and_replaced(lake: Lake) -> None:
    """Leases in S3 were Delta tables."""
    uri, options, wall = lake.path("_leases/ledger"), lake.storage_options, [1_000.0]
    schema = Schema.from_arrow(pa.schema([("nothing", pa.string())]))
    DeltaTable.create(uri, schema, storage_options=options)
    record = {"lease": {"id": "other", "holder": "process 7 (tidemark) on host", "purpose": "write", "until": 1_060.0}}
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(record)})
    DeltaTable(uri, storage_options=options).create_write_transaction([], "append", schema, commit_properties=properties)
    one, other = (Lease(uri, "ledger", 60.0, now=lambda: wall[0], storage_options=options) for _ in range(2))
    with pytest.raises(Busy, match="process 7"):
        one.take()
    wall[0] = 1_060.0
    one.take()
    with pytest.raises(Busy, match=f"process {os.getpid()}"):
        other.take()
    assert not DeltaTable.is_deltatable(uri, options)


def test_a_writer_that_was_paused_while_its_record_was_deleted_has_lost_the_lease(lake: Lake) -> None:
    """The number of the paused writer's next record is free again, but newer records exist."""
    wall = [1_000.0]
    paused, other = (Lease(lake.path("_leases/x"), "x", 60.0, now=lambda: wall[0], storage_options=lake.storage_options) for _ in range(2))
    paused.take()
    wall[0] += 61
    other.take()
    for _ in range(20):
        other.renew()
    assert len(cast(Any, other._records)._names()) < 20, "the record after that of the paused writer was deleted"
    paused.renew()
    with pytest.raises(LakeError, match="x has another writer now"):
        paused.check()
    other.check()
    assert other._records.newest() == other._newest


def test_a_record_that_is_deleted_while_it_is_read_is_not_the_newest(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, other = (Lease(lake.path("_leases/x"), "x", 60.0, storage_options=lake.storage_options) for _ in range(2))
    holder.take()
    get = obstore.get

    def get_late(store: Any, path: str) -> Any:
        monkeypatch.undo()
        for _ in range(25):
            holder.renew()
        return get(store, path)

    monkeypatch.setattr(obstore, "get", get_late)
    with pytest.raises(Busy, match="process"):
        other.take()


def test_a_process_is_not_kept_out_by_a_take_of_its_own_that_failed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record was written, but the store did not answer."""
    one, other = (Lease(lake.path("_leases/x"), "x", 60.0, storage_options=lake.storage_options) for _ in range(2))
    put = obstore.put

    def put_without_answer(*arguments: Any, **options: Any) -> Any:
        put(*arguments, **options)
        raise obstore.exceptions.GenericError("503 Slow Down")

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", put_without_answer)
        with pytest.raises(OSError, match="503 Slow Down"):
            one.take()
    other.take()
    other.check()


def test_a_lake_that_is_opened_with_other_credentials_opens_its_tables_again(lake: Lake) -> None:
    lake.append_small(ROWS, "t", {"step": 1})
    first = lake.delta_for_reading("t")
    other = Lake(lake.root, storage_options={**(lake.storage_options or {}), "AWS_SESSION_TOKEN": "another"})
    second = other.delta_for_reading("t")
    assert first is not None
    assert second is not None
    assert (first._storage_options, second._storage_options) == (lake.storage_options, other.storage_options)


def test_an_opened_table_is_checked_for_a_newer_version_with_one_request(lake: Lake, server: S3Server) -> None:
    lake.append_small(ROWS, "t", {"step": 1})
    assert lake.version("t") == 0
    assert server.count(lambda: lake.version("t")) == {"LIST": 1}
    lake.append_small(ROWS, "t", {"step": 2})
    assert server.count(lambda: lake.version("t")).total() <= 5
    assert lake.version("t") == 1
    objects = store_at(lake.path("t"), lake.storage_options)
    obstore.delete(objects, [item["path"] for page in obstore.list(objects) for item in page])
    assert not lake.exists("t")
    lake.append_small(ROWS, "t", {"step": 1})
    assert lake.version("t") == 0


@pytest.mark.parametrize("change", ["delete", "update", "properties"])
def test_a_commit_does_not_list_the_whole_log(lake: Lake, server: S3Server, change: str) -> None:
    """deltalake lists once to commit, and once to read the commit. deltalake's clean-up would list the whole log."""
    lake.append_small(ROWS, "t", {"step": 1})
    seen, session = lake.delta("t"), cast(Any, None)
    assert lake.version("t") == 0
    assert seen is not None
    make: dict[str, Callable[[], object]] = {
        "delete": lambda: lake.delete(session, "t", "a = 1", {"step": 2}, seen),
        "update": lambda: lake.update(session, "t", "a = 1", {"a": "2"}, {"step": 2}, seen),
        "properties": lambda: commits.set_properties(seen, {"delta.enableChangeDataFeed": "true"}),
    }
    assert server.count(make[change])["LIST"] == 2
    assert lake.version("t") == 1


def test_a_merge_uses_the_table_of_the_merge_before(lake: Lake, server: S3Server) -> None:
    lake.append_small(ROWS, "t", {"step": 0})

    def merge(number: int, value: int) -> None:
        opened, rows = lake.small_table("t", ["a"]), pa.table({"a": [value]})
        assert opened is not None
        lake.upsert_fetched(cast(Any, None), opened, "t", rows, ["a"], is_deleted="FALSE", metadata={"step": number}, number=number)

    merge(1, 2)
    assert lake.version("t") == 1
    assert server.count(lambda: lake.small_table("t", ["a"])) == {"LIST": 2}, "one request for the merge, and one for readers"
    merge(2, 3)
    lake.append_small(pa.table({"a": [4]}), "t", {"step": 3})
    merge(3, 5)
    delta = lake.delta("t")
    assert delta is not None
    assert sorted(delta.to_pyarrow_table()["a"].to_pylist()) == [1, 2, 3, 4, 5]
    assert lake.version("t") == 4


def test_of_two_commits_on_one_version_the_store_refuses_the_second(lake: Lake) -> None:
    lake.append_small(ROWS, "t", {"step": 1})
    one, other = lake.delta("t"), lake.delta("t")
    lake.append_small(ROWS, "t", {"step": 2}, expected=one)
    with pytest.raises(LakeError, match="t has a newer version than this process started from"):
        lake.append_small(ROWS, "t", {"step": 2}, expected=other)
    newest = lake.newest_commit("t", "step")
    assert newest is not None
    assert (newest.version, newest.value) == (1, 2)


def test_a_store_that_ignores_the_conditions_of_a_put_is_refused(server: S3Server, no_environment: None) -> None:
    lake = Lake(f"s3a://{WITHOUT_CONDITIONS}/lake", storage_options=server.storage_options)
    with pytest.raises(LakeError, match=r"its store ignores conditional puts .* Nothing was written"), lake.writer("ledger"):
        pass
    assert [found["path"] for page in obstore.list(server.bucket(WITHOUT_CONDITIONS)) for found in page] == [
        "lake/_leases/_conditional_put"
    ]
