"""The demo empties only its own lake, and only if a demo made every file in it. No test starts Spark."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from assets.pipeline import Pipeline
from platform_defs.cli import demo
from platform_defs.cli.demo_lake import DemoLake, ForeignFolderError
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import HOME, Settings, settings
from platform_defs.shop import shop
from platform_defs.simulator import Shop, simulate
from tests.engine.source_batches import source_batch

LANDED = "orders/part-00000.jsonl"
_UUID = "0d3ad3ec-7b6a-4c0e-9f43-1c1d3c3a2f6e"
_PART = f"part-00000-{_UUID}-c000.snappy.parquet"
_COMMIT = f"commit-{'0a' * 16}"
WRITTEN = [
    "order_wide/_delta_log/00000000000000000000.json",
    f"ledger/{_PART}",
    f"ledger/{_PART}#1",
    f"events/orders/{_COMMIT}/{_PART}",
    f"events/orders/{_COMMIT}/.{_PART}.crc",
    f"quarantine/orders/{_COMMIT}/_temporary/0/_temporary/attempt_202603011200001_0001_m_000000_1/{_PART}",
    "order_wide/_delta_log/..00000000000000000003.crc.tmp.crc",
    f"order_wide/part-00001-{_UUID}.c000.snappy.parquet",
    f"order_wide/_change_data/cdc-00000-{_UUID}.c000.snappy.parquet",
    f"order_wide/_change_data/.cdc-00000-{_UUID}.c000.snappy.parquet.crc",
    f"order_wide/deletion_vector_{_UUID}.bin",
    f"order_wide/.deletion_vector_{_UUID}.bin.crc",
    f"changelog/order_wide/{_COMMIT}/{_PART}",
    f"verdicts/order_wide/{_PART}",
    f"early/order_wide/{_COMMIT}/{_PART}",
    "_accounts/order_wide.json",
    "_accounts/order_wide.json#1",
    "_failures/ingest.json",
    "_failures/tables/order_wide.json",
    "_failures/tables/order_wide.json#1",
    "_failures/sources/orders.json",
    "_failures/sinks/order_wide.json",
]
"""Files that Delta, Spark and deltalake write into a lake; killed writers leave some of them."""


@dataclass(frozen=True)
class Demo:
    """A lake after a demo, without the tables that Spark would write."""

    folder: DemoLake
    engine: Engine

    @property
    def root(self) -> Path:
        return self.folder.root


@cache
def _shop() -> Pipeline:
    """The shop's pipeline, which does not depend on the lake."""
    return shop(Settings())


def _engine(root: Path) -> Engine:
    values = DemoLake(root).settings(Settings(lake=f"{root}-of-the-user"))
    return make_engine(values, _shop())


def _land(folder: DemoLake, name: str = LANDED, text: str = "{}\n") -> Path:
    path = folder.landing / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and "_locks" not in p.parts}


@pytest.fixture
def made_demo(tmp_path: Path) -> Demo:
    folder, engine = DemoLake(tmp_path / "demo"), _engine(tmp_path / "demo")
    folder.begin(engine)
    folder.record_planned_files([LANDED])
    _land(folder)
    folder.record_landed_files()
    for table in ("ledger", "order_wide", "events", "changelog"):
        (folder.root / table).mkdir()
    for name in ("_dagster/x", "_prepared/orders/part-00001.csv", *WRITTEN):
        (folder.root / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / name).touch()
    return Demo(folder, engine)


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_a_lake_of_an_earlier_demo_is_emptied_except_for_locks_and_dagster_home(made_demo: Demo) -> None:
    made_demo.folder.begin(_engine(made_demo.root))
    assert {p.name for p in made_demo.root.iterdir()} == {"_made_by_the_demo", "_locks", "_dagster"}
    assert (made_demo.root / "_dagster/x").exists()
    made_demo.folder.begin(_engine(made_demo.root))


def test_a_killed_demo_recognizes_the_files_it_was_about_to_land(made_demo: Demo) -> None:
    made_demo.folder.record_planned_files(["orders/part-00001.jsonl", "payments/part-00001.jsonl"])
    _land(made_demo.folder, "orders/part-00001.jsonl")
    _land(made_demo.folder, "payments/.part-00001.jsonl.tmp")
    made_demo.folder.begin(_engine(made_demo.root))
    assert not made_demo.folder.landing.exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("landing/orders/mine.csv", "rows or a file of 'orders/mine.csv'"),
        ("landing/orders/.mine.tmp", "rows or a file of 'orders/.mine.tmp'"),
        ("landing/mine/part-00000.jsonl", "rows or a file of 'mine/part-00000.jsonl'"),
        ("precious/x", "'precious'"),
        ("precious.txt", "'precious.txt'"),
        ("_notes.txt", "'_notes.txt'"),
        ("_backup/precious.parquet", "'_backup'"),
        ("_trash-abc/precious", "'_trash-abc/precious'"),
        ("_trash-abc/_trash-def/order_wide/precious", "'_trash-abc/_trash-def/order_wide/precious'"),
        ("_trash-abc/landing/orders/mine.csv", "rows or a file of 'orders/mine.csv'"),
        ("_trash-abc/_dagster/mine", "'_trash-abc/_dagster'"),
        ("_accounts/mine.csv", "'_accounts/mine.csv'"),
        ("_failures/mine.csv", "'_failures/mine.csv'"),
        ("_prepared/mine.csv", "'_prepared/mine.csv'"),
        ("_prepared/orders/mine.csv", "'_prepared/orders/mine.csv'"),
        (f"events/mine/{_PART}", "'events/mine'"),
        ("events/mine/_delta_log/00000000000000000000.json", "'events/mine'"),
        ("events/notes.txt", "'events/notes.txt'"),
        (f"changelog/other_table/{_PART}", "'changelog/other_table'"),
        ("early/x", "'early/x'"),
        ("quarantine/notes.txt", "'quarantine/notes.txt'"),
        ("order_wide/notes.txt", "'order_wide/notes.txt'"),
        ("order_wide/mine.parquet", "'order_wide/mine.parquet'"),
        (f"order_wide/day=1/{_PART}", "'order_wide/day=1'"),
        ("order_wide/_change_data/mine.parquet", "'order_wide/_change_data/mine.parquet'"),
        (f"order_wide/{_COMMIT}/notes.txt", f"'order_wide/{_COMMIT}/notes.txt'"),
        (f"order_wide/{_COMMIT}/_temporary/0/notes.txt", f"'order_wide/{_COMMIT}/_temporary/0/notes.txt'"),
        ("ledger/readme.txt", "'ledger/readme.txt'"),
    ],
)
def test_a_file_that_no_demo_made_prevents_deletion(made_demo: Demo, name: str, expected: str) -> None:
    path = made_demo.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    before = _contents(made_demo.root)
    with pytest.raises(ForeignFolderError, match=f"that no demo made: {expected}. Nothing was deleted"):
        made_demo.folder.begin(_engine(made_demo.root))
    assert _contents(made_demo.root) == before


def test_a_replaced_file_of_the_demo_prevents_deletion(made_demo: Demo) -> None:
    _land(made_demo.folder, text="precious\n")
    with pytest.raises(ForeignFolderError, match=r"rows or a file of 'orders/part-00000\.jsonl'"):
        made_demo.folder.begin(_engine(made_demo.root))


@pytest.mark.parametrize(
    "name", ["events", "landing", "_locks", "_dagster", "_trash-abc", "_made_by_the_demo.new", f"order_wide/{_COMMIT}"]
)
def test_a_link_prevents_deletion_and_is_not_followed(tmp_path: Path, name: str) -> None:
    folder, engine, foreign = DemoLake(tmp_path / "demo"), _engine(tmp_path / "demo"), tmp_path / "foreign"
    folder.begin(engine)
    foreign.mkdir()
    (foreign / "precious").touch()
    link = folder.root / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(foreign)
    with pytest.raises(ForeignFolderError, match=f"that no demo made: '{name}'. Nothing was deleted"):
        folder.begin(_engine(folder.root))
    assert [p.name for p in foreign.iterdir()] == ["precious"]


def test_a_demo_killed_while_emptying_its_folder_can_start_again(made_demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(trash: Path) -> None:
        (trash / WRITTEN[0]).unlink()
        raise RuntimeError("killed")

    for _ in range(2):  # the second time, the trash of the first one is moved too
        with monkeypatch.context() as patched:
            patched.setattr("platform_defs.cli.demo_lake.shutil.rmtree", killed)
            with pytest.raises(RuntimeError, match="killed"):
                made_demo.folder.begin(_engine(made_demo.root))
        (made_demo.root / WRITTEN[0]).parent.mkdir(parents=True)
        (made_demo.root / WRITTEN[0]).touch()
    (made_demo.root / "_made_by_the_demo.new").touch()
    made_demo.folder.begin(_engine(made_demo.root))
    assert {p.name for p in made_demo.root.iterdir()} == {"_made_by_the_demo", "_locks", "_dagster"}


def test_a_link_in_the_landing_folder_prevents_deletion(made_demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (made_demo.folder.landing / "orders/link").symlink_to(tmp_path / "mine")
    with pytest.raises(ForeignFolderError, match="orders/link"):
        made_demo.folder.begin(_engine(made_demo.root))


def test_rows_from_another_folder_prevent_deletion(made_demo: Demo) -> None:
    """The user has set TIDEMARK_LAKE to the demo's lake, and TIDEMARK_LANDING to other files."""
    shutil.rmtree(made_demo.root / "ledger")
    own = made_demo.folder.landing / LANDED
    state = f"{own.stat().st_mtime_ns // 1_000_000}|{own.stat().st_size}"
    made_demo.engine.ledger.commit([(source_batch("orders", 1, offsets=(f"file:{own}|{state}",)),)])
    made_demo.folder.require_own(_engine(made_demo.root))
    made_demo.engine.ledger.commit([(source_batch("orders", 2, offsets=("file:/data/in/orders/mine.csv|1|2|unread",)),)])
    with pytest.raises(ForeignFolderError, match=r"rows or a file of 'orders/mine\.csv'"):
        made_demo.folder.begin(_engine(made_demo.root))
    assert made_demo.folder.landing.exists()


def test_a_second_demo_through_kafka_uses_the_same_lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its rows are not in files: the ledger has ranges of offsets of its topics."""
    root, engine = tmp_path / "demo", _engine(tmp_path / "demo")
    for _ in range(2):
        DemoLake(root).begin(_engine(root))
        demo._simulated(DemoLake(root), simulate(Shop(orders=1)), 1, {}, lambda day, part: None)
        shutil.rmtree(root / "ledger", ignore_errors=True)
        engine.ledger.commit([tuple(source_batch(name, 1, offsets=(f"kafka:{name}/0@ID|0|9",)) for name in ("orders", "payments"))])
    engine.ledger.commit([(source_batch("orders", 2, offsets=("kafka:mine/0@ID|0|9",)),)])
    with pytest.raises(ForeignFolderError, match="rows or a file of 'orders/kafka:mine'"):
        DemoLake(root).begin(_engine(root))


def test_a_folder_without_a_readable_marker_is_not_changed(tmp_path: Path) -> None:
    for mark in (None, "The demo empties this folder each time it starts.\n", "{}", "[]", '{"landed": {"a": 1}}'):
        root = tmp_path / str(hash(mark))
        root.mkdir()
        (root / "precious").touch()
        if mark is not None:
            (root / "_made_by_the_demo").write_text(mark)
        before = _contents(root)
        with pytest.raises(ForeignFolderError, match=r"no readable _made_by_the_demo\. Nothing was deleted"):
            DemoLake(root).begin(_engine(root))
        assert _contents(root) == before
        assert not (root / "_locks").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("precious")
    with pytest.raises(ForeignFolderError, match="that no demo made: a file"):
        DemoLake(tmp_path / "demo").begin(_engine(tmp_path / "demo"))


@pytest.mark.parametrize("writer", ["ledger", "maintenance", "order_wide", "stream"])
def test_nothing_is_deleted_while_a_writer_is_active(made_demo: Demo, writer: str) -> None:
    from platform_defs.engine.ingest.stream import writer_name

    name = writer_name(made_demo.engine.folders) if writer == "stream" else writer
    before = _contents(made_demo.root)
    with Lake(str(made_demo.root)).writer(name), pytest.raises(LakeError, match="has a writer already"):
        made_demo.folder.begin(_engine(made_demo.root))
    assert _contents(made_demo.root) == before


def test_the_demo_replaces_the_lake_landing_and_dagster_home_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LAKE", "LANDING", "DAGSTER_HOME"):
        monkeypatch.setenv(f"TIDEMARK_{name}", str(tmp_path / name.lower()))
    values = demo._settings(None, DemoLake(HOME / "demo"))
    assert (values.lake, values.landing_root) == (f"{HOME}/demo", f"{HOME}/demo/landing")
    assert values.dagster_home == f"{HOME}/demo/_dagster"
    assert (values.first_day, values.last_day) == ("2026-03-01", "2026-03-02"), "the simulated day, and the rest of the payments' bound"
    folders = f"TIDEMARK_LAKE={HOME}/demo TIDEMARK_DAGSTER_HOME={HOME}/demo/_dagster TIDEMARK_LANDING={HOME}/demo/landing"
    command = f"{folders} TIDEMARK_FIRST_DAY=2026-03-01 TIDEMARK_LAST_DAY=2026-03-02 make ui"
    assert demo._ui(values) == command


@pytest.mark.parametrize(
    ("lake", "landing", "demos"),
    [
        ("/data/lake", None, "/data/lake/demo"),
        ("/data/lake/mine", None, "/data/lake"),
        ("/data/lake", "/data/in", "/data/in/orders"),
        ("/data/lake", "/data/demo/landing", "/data/demo"),
    ],
)
def test_a_folder_that_overlaps_the_users_lake_or_landing_is_refused(lake: str, landing: str | None, demos: str) -> None:
    with pytest.raises(ForeignFolderError, match=f"`--lake` is '{demos}', which overlaps TIDEMARK_LA"):
        DemoLake(Path(demos)).settings(Settings(lake=lake, landing=landing))


def test_the_demo_may_use_the_lake_of_the_settings(tmp_path: Path) -> None:
    assert DemoLake(tmp_path).settings(Settings(lake=str(tmp_path))).lake == str(tmp_path)


def test_times_are_compared_in_milliseconds(made_demo: Demo) -> None:
    path = made_demo.folder.landing / LANDED
    os.utime(path, ns=(1, path.stat().st_mtime_ns // 1_000_000 * 1_000_000))
    made_demo.folder.require_own(made_demo.engine)


def test_a_second_demo_uses_the_same_lake_and_changes_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The runs of Dagster are replaced, since they need Spark."""
    ran: list[tuple[str, int]] = []
    users = tmp_path / "users"
    (users / "landing/orders").mkdir(parents=True)
    (users / "landing/orders/mine.csv").write_text("precious")
    for name, folder in (("LAKE", users), ("DAGSTER_HOME", users / "dagster")):
        monkeypatch.setenv(f"TIDEMARK_{name}", str(folder))
    monkeypatch.setattr("dagster.JobDefinition.execute_in_process", lambda job, **_: ran.append((job.name, len(list(files())))))
    monkeypatch.setattr(demo.status, "recounted_status", lambda *_: {})
    monkeypatch.setattr("platform_defs.engine.advance.pending_work.PendingWork.upserted_tables", lambda _: [])
    before = _contents(users)

    def files() -> Iterator[Path]:
        return (tmp_path / "demo/landing").rglob("*.jsonl")

    for _ in range(2):
        report = demo.run(None, orders=20, parts=2, seed=7, lake=str(tmp_path / "demo"), on_step=lambda _: None)
        assert report["ui"].startswith(f"TIDEMARK_LAKE={tmp_path}/demo TIDEMARK_DAGSTER_HOME={tmp_path}/demo/_dagster")
    assert [run for run in ran if run[0] == "ingest"] == [("ingest", 5), ("ingest", 10)] * 2
    assert _contents(users) == before
    assert not (users / "dagster").exists()
    with (tmp_path / "demo/landing/orders/part-00001.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(ForeignFolderError, match=r"rows or a file of 'orders/part-00001\.jsonl'"):
        demo.run(None, orders=20, parts=2, seed=7, lake=str(tmp_path / "demo"))
    assert len(list(files())) == 10
