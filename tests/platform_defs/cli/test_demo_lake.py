"""The demo empties only its own lake, and only if every file in it is the demo's. No Spark."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from platform_defs.cli import demo
from platform_defs.cli.demo_lake import DemoLake, ForeignFolderError
from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake, LakeError
from platform_defs.resources.engine import make_engine
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import HOME, Settings, settings
from tests.engine.entries import source_entry

OWN = "orders/part-00000.jsonl"
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
]
"""Files that Delta, Spark and deltalake write into a lake, some by killed writers."""


@dataclass(frozen=True)
class Made:
    """A lake after a demo, without the tables that Spark would write."""

    folder: DemoLake
    engine: Engine

    @property
    def root(self) -> Path:
        return self.folder.root


def _engine(root: Path) -> Engine:
    values = DemoLake(root).settings(Settings(lake=f"{root}-of-the-user"))
    return make_engine(values, SparkResource())


def _land(folder: DemoLake, name: str = OWN, text: str = "{}\n") -> Path:
    path = folder.landing / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and "_locks" not in p.parts}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    folder, engine = DemoLake(tmp_path / "demo"), _engine(tmp_path / "demo")
    folder.begin(engine)
    folder.plan([OWN])
    _land(folder)
    folder.landed()
    for table in ("ledger", "order_wide", "events", "changelog"):
        (folder.root / table).mkdir()
    for name in ("_dagster/x", "_prepared/orders/part-00001.csv", *WRITTEN):
        (folder.root / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / name).touch()
    return Made(folder, engine)


@pytest.fixture(autouse=True)
def _settings_again() -> Iterator[None]:
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_a_lake_of_an_earlier_demo_is_emptied_except_for_locks_and_dagster_home(made: Made) -> None:
    made.folder.begin(_engine(made.root))
    assert {p.name for p in made.root.iterdir()} == {"_made_by_the_demo", "_locks", "_dagster"}
    assert (made.root / "_dagster/x").exists()
    made.folder.begin(_engine(made.root))


def test_a_killed_demo_recognizes_the_files_it_was_about_to_land(made: Made) -> None:
    made.folder.plan(["orders/part-00001.jsonl", "payments/part-00001.jsonl"])
    _land(made.folder, "orders/part-00001.jsonl")
    _land(made.folder, "payments/.part-00001.jsonl.tmp")
    made.folder.begin(_engine(made.root))
    assert not made.folder.landing.exists()


@pytest.mark.parametrize(
    ("name", "named"),
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
def test_a_file_that_no_demo_made_prevents_deletion(made: Made, name: str, named: str) -> None:
    path = made.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    before = _contents(made.root)
    with pytest.raises(ForeignFolderError, match=f"which contains {named}, which no demo made; nothing was deleted"):
        made.folder.begin(_engine(made.root))
    assert _contents(made.root) == before


def test_a_replaced_file_of_the_demo_prevents_deletion(made: Made) -> None:
    _land(made.folder, text="precious\n")
    with pytest.raises(ForeignFolderError, match=r"rows or a file of 'orders/part-00000\.jsonl'"):
        made.folder.begin(_engine(made.root))


@pytest.mark.parametrize(
    "name", ["events", "landing", "_locks", "_dagster", "_trash-abc", "_made_by_the_demo.new", f"order_wide/{_COMMIT}"]
)
def test_a_link_prevents_deletion_and_is_not_followed(tmp_path: Path, name: str) -> None:
    folder, engine, theirs = DemoLake(tmp_path / "demo"), _engine(tmp_path / "demo"), tmp_path / "theirs"
    folder.begin(engine)
    theirs.mkdir()
    (theirs / "precious").touch()
    link = folder.root / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(theirs)
    with pytest.raises(ForeignFolderError, match=f"which contains '{name}', which no demo made; nothing was deleted"):
        folder.begin(_engine(folder.root))
    assert [p.name for p in theirs.iterdir()] == ["precious"]


def test_a_demo_killed_while_emptying_its_folder_can_start_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(trash: Path) -> None:
        (trash / WRITTEN[0]).unlink()
        raise RuntimeError("killed")

    for _ in range(2):  # the second time, the trash of the first one is moved too
        with monkeypatch.context() as patched:
            patched.setattr("platform_defs.cli.demo_lake.shutil.rmtree", killed)
            with pytest.raises(RuntimeError, match="killed"):
                made.folder.begin(_engine(made.root))
        (made.root / WRITTEN[0]).parent.mkdir(parents=True)
        (made.root / WRITTEN[0]).touch()
    (made.root / "_made_by_the_demo.new").touch()
    made.folder.begin(_engine(made.root))
    assert {p.name for p in made.root.iterdir()} == {"_made_by_the_demo", "_locks", "_dagster"}


def test_a_link_in_the_landing_folder_prevents_deletion(made: Made, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (made.folder.landing / "orders/link").symlink_to(tmp_path / "mine")
    with pytest.raises(ForeignFolderError, match="orders/link"):
        made.folder.begin(_engine(made.root))


def test_rows_from_another_folder_prevent_deletion(made: Made) -> None:
    """The user has set TIDEMARK_LAKE to the demo's lake, and TIDEMARK_LANDING to other files."""
    shutil.rmtree(made.root / "ledger")
    own = made.folder.landing / OWN
    state = f"{own.stat().st_mtime_ns // 1_000_000}|{own.stat().st_size}"
    made.engine.ledger.commit([(source_entry("orders", 1, offsets=(f"file:{own}|{state}",)),)])
    made.folder.require_own(_engine(made.root))
    made.engine.ledger.commit([(source_entry("orders", 2, offsets=("file:/data/in/orders/mine.csv|1|2|unread",)),)])
    with pytest.raises(ForeignFolderError, match=r"rows or a file of 'orders/mine\.csv'"):
        made.folder.begin(_engine(made.root))
    assert made.folder.landing.exists()


def test_a_folder_without_a_readable_marker_is_not_changed(tmp_path: Path) -> None:
    for mark in (None, "The demo empties this folder each time it starts.\n", "{}", "[]", '{"landed": {"a": 1}}'):
        root = tmp_path / str(hash(mark))
        root.mkdir()
        (root / "precious").touch()
        if mark is not None:
            (root / "_made_by_the_demo").write_text(mark)
        before = _contents(root)
        with pytest.raises(ForeignFolderError, match="no readable _made_by_the_demo, which no demo made"):
            DemoLake(root).begin(_engine(root))
        assert _contents(root) == before
        assert not (root / "_locks").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("precious")
    with pytest.raises(ForeignFolderError, match="which contains a file"):
        DemoLake(tmp_path / "demo").begin(_engine(tmp_path / "demo"))


@pytest.mark.parametrize("writer", ["ledger", "maintenance", "order_wide", "stream"])
def test_nothing_is_deleted_while_a_writer_is_active(made: Made, writer: str) -> None:
    from platform_defs.engine.ingest.stream import writer_name

    name = writer_name(made.engine.folders) if writer == "stream" else writer
    before = _contents(made.root)
    with Lake(str(made.root)).writer(name), pytest.raises(LakeError, match="has a writer already"):
        made.folder.begin(_engine(made.root))
    assert _contents(made.root) == before


def test_the_settings_of_the_user_are_replaced_by_the_demos_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LAKE", "LANDING", "DAGSTER_HOME"):
        monkeypatch.setenv(f"TIDEMARK_{name}", str(tmp_path / name.lower()))
    values = demo._settings(None, DemoLake(HOME / "demo"))
    assert (values.lake, values.landing_root) == (f"{HOME}/demo", f"{HOME}/demo/landing")
    assert values.dagster_home == f"{HOME}/demo/_dagster"
    command = f"TIDEMARK_LAKE={HOME}/demo TIDEMARK_DAGSTER_HOME={HOME}/demo/_dagster TIDEMARK_LANDING={HOME}/demo/landing make ui"
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
def test_a_folder_that_overlaps_the_users_own_is_refused(lake: str, landing: str | None, demos: str) -> None:
    with pytest.raises(ForeignFolderError, match=f"`--lake` is '{demos}', which overlaps TIDEMARK_LA"):
        DemoLake(Path(demos)).settings(Settings(lake=lake, landing=landing))


def test_the_demo_may_use_the_lake_of_the_settings(tmp_path: Path) -> None:
    assert DemoLake(tmp_path).settings(Settings(lake=str(tmp_path))).lake == str(tmp_path)


def test_times_are_compared_in_milliseconds(made: Made) -> None:
    path = made.folder.landing / OWN
    os.utime(path, ns=(1, path.stat().st_mtime_ns // 1_000_000 * 1_000_000))
    made.folder.require_own(made.engine)


def test_two_demos_in_a_row_use_one_lake_and_change_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The demo without Dagster's runs, which need Spark."""
    ran: list[tuple[str, int]] = []
    users = tmp_path / "users"
    (users / "landing/orders").mkdir(parents=True)
    (users / "landing/orders/mine.csv").write_text("precious")
    for name, folder in (("LAKE", users), ("DAGSTER_HOME", users / "dagster")):
        monkeypatch.setenv(f"TIDEMARK_{name}", str(folder))
    monkeypatch.setattr("dagster.JobDefinition.execute_in_process", lambda job, **_: ran.append((job.name, len(list(files())))))
    monkeypatch.setattr(demo.render, "status", lambda *_: {})
    monkeypatch.setattr("platform_defs.engine.advance.pending_work.PendingWork.upserted_tables", lambda _: [])
    before = _contents(users)

    def files() -> Iterator[Path]:
        return (tmp_path / "demo/landing").rglob("*.jsonl")

    for _ in range(2):
        report = demo.run(None, orders=20, parts=2, seed=7, lake=str(tmp_path / "demo"), tick=lambda _: None)
        assert report["ui"].startswith(f"TIDEMARK_LAKE={tmp_path}/demo TIDEMARK_DAGSTER_HOME={tmp_path}/demo/_dagster")
    assert [run for run in ran if run[0] == "ingest"] == [("ingest", 5), ("ingest", 10)] * 2
    assert _contents(users) == before
    assert not (users / "dagster").exists()
    with (tmp_path / "demo/landing/orders/part-00001.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(ForeignFolderError, match=r"rows or a file of 'orders/part-00001\.jsonl'"):
        demo.run(None, orders=20, parts=2, seed=7, lake=str(tmp_path / "demo"))
    assert len(list(files())) == 10
