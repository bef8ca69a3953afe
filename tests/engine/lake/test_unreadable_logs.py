"""A Delta log that cannot be read: the error names the table and the fix, the fix works, and other assets continue."""

import errno
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from operators import Aggregate, TopK, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.lake import commits, leases, opened_tables, reads, root
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError, store_reason
from platform_defs.engine.lake.tables import Lake
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import HOUR, Event, join, land, law_violations, source

COUNTS = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"}, allowed_lateness="2 hours")
SOURCES = [source("l"), source("r")]
ASSETS = [
    join(),
    DerivedAsset(name="counts", inputs=("l",), operator=COUNTS),
    DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by="n DESC")),
    DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"})),
]
DAMAGES = {
    "counts": {"changelog/sums": "cut", "pairs": "torn"},
    "pairs": {"counts": "torn", "changelog/sums": "checkpoint"},
    "sums": {"pairs": "checkpoint", "counts": "gap"},
}
"""For each table that stays intact the damages of the others."""


def _ingest_part(engine: Engine, part: int) -> None:
    for name in engine.folders:
        land(engine, name, f"{part}.jsonl", [Event(k, part, part * HOUR).line for k in ("a", "b")] + ["no JSON"])
    engine.ingest()


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine(SOURCES, ASSETS)
    for part in range(3):
        _ingest_part(engine, part)
        for name in engine.assets:
            engine.advance(name)
    return engine


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake, which a test damages."""
    return copy_engine(prepared_engine)


def _damage(engine: Engine, table: str, how: str) -> None:
    log = Path(engine.lake.path(table), "_delta_log")
    commits = sorted(log.glob("0*.json"))
    if how == "cut":  # between two lines, so that the rest is valid
        lines = commits[-1].read_bytes().splitlines(keepends=True)
        commits[-1].write_bytes(b"".join(line for line in lines if not line.startswith(b'{"add"')))
    elif how == "torn":
        torn = commits[-1].read_bytes()
        commits[-1].write_bytes(torn[: len(torn) // 2])
    elif how == "gap":
        commits[1].unlink()
    else:
        DeltaTable(engine.lake.path(table)).create_checkpoint()
        [checkpoint] = log.glob("*.checkpoint.parquet")
        checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
    for checksum in log.glob("*.crc"):
        checksum.unlink()


def _copy_tables(tables: Iterable[str], origin: Path, target: Path) -> None:
    for table in tables:
        shutil.rmtree(target / table, ignore_errors=True)
        shutil.copytree(origin / table, target / table)


def _assert_reading_is_refused(engine: Engine, table: str) -> None:
    why = rf"^the Delta log of {table} cannot be read: a file of .*/{table}/_delta_log is missing, damaged or .* `tidemark rebuild"
    for read in (engine.advance, engine.accounts.days, engine.snapshot().accounts.days):
        with pytest.raises(UnreadableLogError, match=why):
            read(table.rsplit("/", maxsplit=1)[-1])


def _delete_and_rebuild(engine: Engine, names: list[str], monkeypatch: pytest.MonkeyPatch, make_engine: MakeEngine) -> Engine:
    """Rebuild tables as the message says, in another process; other tables may be damaged."""
    for name in names:
        shutil.rmtree(engine.lake.path(name))
        shutil.rmtree(engine.lake.path(f"changelog/{name}"), ignore_errors=True)
    monkeypatch.setattr(opened_tables, "_opened", OrderedDict())
    after = make_engine(SOURCES, ASSETS)
    assert {name for name, _ in after.rebuild_tables(names, downstream=True)} == {*names, *["top"] * ("counts" in names)}
    return after


def test_a_table_whose_log_cannot_be_read_is_named_and_can_be_rebuilt(
    engine: Engine, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two of three tables are damaged at a time, and restored afterwards; at last all, and a part of them is rebuilt before the others.

    The tables are not opened yet, as in another process.
    """
    lake = Path(engine.lake.root)
    for part, (intact, damages) in enumerate(DAMAGES.items(), 3):
        _copy_tables(damages, lake, tmp_path / "backup")
        for table, how in damages.items():
            _damage(engine, table, how)
        monkeypatch.setattr(opened_tables, "_opened", OrderedDict())
        after = make_engine(SOURCES, ASSETS)
        if intact != "pairs":  # two ingests damage each table once, and `pairs` still has the first batch to read
            _ingest_part(after, part)
        for table in damages:
            _assert_reading_is_refused(after, table)
        assert after.advance(intact), intact
        assert law_violations(after.snapshot(), intact) == set()
        _copy_tables(damages, tmp_path / "backup", lake)
    for table, how in {**DAMAGES["counts"], **DAMAGES["pairs"]}.items():
        _damage(engine, table, how)
    after = _delete_and_rebuild(engine, ["counts"], monkeypatch, make_engine)
    _assert_reading_is_refused(after, "pairs")
    _assert_reading_is_refused(after, "changelog/sums")
    after = _delete_and_rebuild(engine, ["pairs", "sums"], monkeypatch, make_engine)
    for asset in after.assets:
        after.advance(asset)
        assert law_violations(after, asset) == set()


@pytest.mark.parametrize(("table", "how"), [("events/l", "torn"), ("events/r", "gap"), ("quarantine/l", "checkpoint")])
def test_an_unreadable_log_of_a_source_stops_its_readers(engine: Engine, make_engine: MakeEngine, table: str, how: str) -> None:
    _damage(engine, table, how)
    after = make_engine(SOURCES, ASSETS)
    land(after, "l", "3.jsonl", [Event("a", 3, 3 * HOUR).line])
    readers = [after.ingest, after.drain] + [lambda: after.advance("pairs"), lambda: after.accounts.days("pairs")] * table.startswith(
        "events"
    )
    for act in readers:
        with pytest.raises(UnreadableLogError, match=f"the Delta log of {table} cannot be read"):
            act()
    assert after.ledger.head == 3


def test_a_commit_that_lost_its_last_lines_stops_every_computation_from_it(engine: Engine, make_engine: MakeEngine) -> None:
    _damage(engine, "events/l", "cut")
    after = make_engine(SOURCES, ASSETS)
    land(after, "l", "3.jsonl", [Event("a", 3, 3 * HOUR).line])
    for act in (after.ingest, after.drain, lambda: after.advance("pairs")):
        with pytest.raises(UnreadableLogError, match=r"the Delta log of events/l cannot be read: .*commit 2 lists files with 0 rows"):
            act()
    assert after.ledger.head == 3
    assert after.accounts.count_differences("pairs") == {("l", 3): (2, 0)}


def test_a_long_reason_is_cut_and_given_once() -> None:
    assert store_reason(OSError(f"{'x' * 300}: too many open files")) == f"{'x' * 120} ... {'x' * 54}: too many open files"
    assert store_reason(OSError("\n".join(["x" * 150, "y", "z" * 250]))) == f"{'x' * 150}: {'z' * 120} ... {'z' * 75}"


def test_a_store_that_cannot_be_reached_is_an_error_with_the_cause_and_what_is_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise OSError("Generic S3 error\n          \x1b[31m↳\x1b[0m loading credentials\n           \x1b[31m↳\x1b[0m no permission.\n")

    monkeypatch.setattr(reads, "DeltaTable", fail)
    with pytest.raises(LakeError, match=r"^the lake s3a://bucket/lake cannot be used") as raised:
        Lake("s3a://bucket/lake").delta("ledger")
    assert str(raised.value) == (
        "the lake s3a://bucket/lake cannot be used: its store refused, or cannot be reached (Generic S3 error: loading credentials: no "
        "permission). Nothing more was read or written. Legal: a bucket that exists (TIDEMARK_LAKE), an endpoint that answers, and "
        "credentials that may list, read, write and delete its objects: set them in the part `s3` of TIDEMARK_CONNECTIONS, or as AWS_* "
        "variables, and run again"
    )
    monkeypatch.setattr(leases.Lease, "take", fail)
    monkeypatch.setattr(root, "has_conditional_put", lambda *_: True)
    with pytest.raises(LakeError, match="its store refused, or cannot be reached"), Lake("s3a://bucket/lake").writer("ledger"):
        pass
    with pytest.raises(OSError, match="Generic S3 error"):  # a local lake has no store
        Lake("/lake").delta("ledger")


@pytest.mark.parametrize(
    ("in_store", "error", "kind", "match"),
    [
        pytest.param(False, OSError("Generic LocalFileSystem error"), UnreadableLogError, "the Delta log of t cannot be read", id="a disk"),
        pytest.param(False, OSError(errno.EIO, "Input/output error"), LakeError, "t cannot be read now", id="a short fault of a disk"),
        pytest.param(True, OSError("Generic S3 error"), LakeError, "its store refused, or cannot be reached", id="a store"),
    ],
)
def test_a_commit_that_cannot_be_fetched_is_an_error_of_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_store: bool, error: OSError, kind: type[LakeError], match: str
) -> None:
    lake = Lake(f"file://{tmp_path}/lake" if in_store else str(tmp_path / "lake"), leases=in_store)
    lake.append_small(pa.table({"a": [1]}), "t", {"m": 1})

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(commits, "store_of", fail)
    for read in (lambda: lake.newest_commit("t", "m"), lambda: [*lake.commits("t", "m")], lambda: lake.snapshot().newest_commit("t", "m")):
        with pytest.raises(kind, match=match):
            read()
