"""The change data feed of a Delta table as input: each version lands once, and a leaderboard reads the changes."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

from assets.contract_checks import ContractError
from assets.contracts import BoundedOutOfOrderness, DerivedAsset, SourceContract
from operators import Aggregate, TopN
from platform_defs.engine import Engine
from platform_defs.engine.formats.delta_change_feed import ChangeFeedError, LandedVersion, land_changes
from platform_defs.engine.ingest.change_feed import check_feed
from tests.conftest import MakeEngine
from tests.support.bare_lake import bare_engine
from tests.support.clock import Clock
from tests.support.file_walk import landed_files
from tests.support.json_rows import values_of
from tests.support.small_sources import rows_of

CONFIG = {"delta.enableChangeDataFeed": "true"}


def _rows(*rows: tuple[str, int]) -> pa.Table:
    return pa.table({"item": [item for item, _ in rows], "sold": pa.array([sold for _, sold in rows], pa.int64())})


@pytest.fixture
def stock(tmp_path: Path) -> DeltaTable:
    path = str(tmp_path / "stock")
    write_deltalake(path, _rows(("a", 1), ("b", 5), ("c", 3)), configuration=CONFIG)
    return DeltaTable(path)


def _landed_versions(folder: Path) -> list[tuple[int, list[tuple[str, str, int]]]]:
    found = []
    for path in sorted(folder.glob("*.parquet")):
        rows = pq.read_table(path).to_pylist()
        found.append((rows[0]["commit_version"], [(r["change"], r["item"], r["sold"]) for r in rows]))
    return found


def test_each_version_lands_once_with_removals_first(stock: DeltaTable, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    assert land_changes(stock.table_uri, folder) == [LandedVersion(0, 3)]
    stock.update(updates={"sold": "9"}, predicate="item = 'a'")
    stock.delete("item = 'b'")
    assert land_changes(stock.table_uri, folder) == [LandedVersion(1, 2), LandedVersion(2, 1)]
    assert land_changes(stock.table_uri, folder) == []
    versions = _landed_versions(folder)
    assert (versions[0][0], sorted(versions[0][1])) == (0, [("+I", "a", 1), ("+I", "b", 5), ("+I", "c", 3)])
    assert versions[1:] == [(1, [("-U", "a", 1), ("+U", "a", 9)]), (2, [("-D", "b", 5)])]


def test_a_table_without_a_change_feed_is_refused_with_the_fix(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "no_feed"), _rows(("a", 1)))
    with pytest.raises(ChangeFeedError, match=re.escape("The table needs delta.enableChangeDataFeed from the first version read on")):
        land_changes(str(tmp_path / "no_feed"), tmp_path / "landing")
    for name in ("change", "Commit_Version"):
        write_deltalake(str(tmp_path / name), _rows(("a", 1)).append_column(name, pa.array(["x"])), configuration=CONFIG)
        with pytest.raises(ChangeFeedError, match=rf"/{name} has a column '{name}', a name that the landed changes use \(in any case\)"):
            land_changes(str(tmp_path / name), tmp_path / "landing")
    assert [file.name for file in tmp_path.glob("landing/*")] == ["_table.lock"]
    with pytest.raises(ChangeFeedError, match="cannot be read"):
        land_changes(str(tmp_path / "absent"), tmp_path / "other_landing")
    assert not (tmp_path / "other_landing").exists()


def test_a_recreated_table_is_refused_with_the_fix(stock: DeltaTable, tmp_path: Path) -> None:
    """Its versions are numbered from 0 again, so without the check, versions below the highest landed one would be skipped."""
    folder, path = tmp_path / "landing", stock.table_uri
    for sold in ("9", "10"):
        stock.update(updates={"sold": sold}, predicate="item = 'a'")
    assert len(land_changes(path, folder)) == 3
    shutil.rmtree(tmp_path / "stock")
    write_deltalake(path, _rows(("z", 1)), configuration=CONFIG)
    with pytest.raises(ChangeFeedError, match=r"the table was created again, or is another one\. .*Land its changes into a new source"):
        land_changes(path, folder)
    (folder / "_table.json").unlink()  # a folder that an earlier version wrote, without an id
    with pytest.raises(ChangeFeedError, match=r"contains version 2 of .*, whose newest version is 0: the table was created again"):
        land_changes(path, folder)
    (folder / "_table.json").write_text("{}")
    with pytest.raises(ChangeFeedError, match=r"_table\.json does not contain the id"):
        land_changes(path, folder)


def test_a_folder_without_an_id_takes_the_id_of_the_table(stock: DeltaTable, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    land_changes(stock.table_uri, folder)
    (folder / "_table.json").unlink()
    assert land_changes(stock.table_uri, folder) == []
    assert json.loads((folder / "_table.json").read_text()) == {"id": str(stock.metadata().id), "version": 0}


def test_removed_files_do_not_land_again(stock: DeltaTable, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    stock.update(updates={"sold": "9"}, predicate="item = 'a'")
    assert land_changes(stock.table_uri, folder) == [LandedVersion(0, 3), LandedVersion(1, 2)]
    for file in folder.glob("version-*"):
        file.unlink()
    assert land_changes(stock.table_uri, folder) == []
    stock.vacuum(0, enforce_retention_duration=False, dry_run=False)  # the changes of these versions cannot be read any more
    stock.delete("item = 'b'")
    assert [landed.rows for landed in land_changes(stock.table_uri, folder)] == [1]


def test_a_folder_of_an_older_version_takes_the_version_of_its_files(stock: DeltaTable, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    land_changes(stock.table_uri, folder)
    (folder / "_table.json").write_text(json.dumps({"id": str(stock.metadata().id)}))
    assert land_changes(stock.table_uri, folder) == []
    (folder / "version-00000000000000000000.parquet").unlink()
    assert land_changes(stock.table_uri, folder) == []


def test_a_folder_that_cannot_be_used_is_named_with_the_fix(stock: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "landing").write_text("a file")
    message = rf"the changes of .*/stock/ cannot be written to {tmp_path}/landing: .*Legal: a folder that this process may read and write"
    with pytest.raises(ChangeFeedError, match=message):
        land_changes(stock.table_uri, tmp_path / "landing")

    def write(*_: object) -> None:
        raise pa.ArrowInvalid("it cannot be written")

    monkeypatch.setattr(pq, "write_table", write)
    with pytest.raises(ChangeFeedError, match=rf"cannot be written as Parquet to {tmp_path}/other: it cannot be written\. Change the col"):
        land_changes(stock.table_uri, tmp_path / "other")


def test_landed_files_keep_the_order_of_versions_even_if_the_clock_steps_back(stock: DeltaTable, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    land_changes(stock.table_uri, folder)
    [first] = landed_files(str(folder), "stock")
    os.utime(folder / "version-00000000000000000000.parquet", ns=(2 * 10**18, 2 * 10**18))  # the year 2033, then the clock is corrected
    for sold in ("9", "10", "11"):
        stock.update(updates={"sold": sold}, predicate="item = 'a'")
        land_changes(stock.table_uri, folder)
    files = sorted(landed_files(str(folder), "stock"))
    assert [Path(f.path).name[:28] for f in files] == [f"version-{n:020d}" for n in range(4)]
    assert len({f.modified for f in files}) == 4
    assert {f.source for f in files} == {first.source}


def test_one_process_at_a_time_lands_changes_in_a_folder(stock: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run would land the same versions again, with later times: they would sort behind newer versions, or count as changed."""
    folder, write, refused = tmp_path / "landing", pq.write_table, list[str]()
    stock.update(updates={"sold": "9"}, predicate="item = 'a'")

    def run_again(*arguments: Any) -> None:
        with pytest.raises(ChangeFeedError, match=rf"since another process lands changes in {folder}\. Wait until it ends") as error:
            land_changes(stock.table_uri, folder)
        refused.append(str(error.value))
        write(*arguments)

    monkeypatch.setattr(pq, "write_table", run_again)
    assert [landed.version for landed in land_changes(stock.table_uri, folder)] == [0, 1]
    assert len(refused) == 2
    assert land_changes(stock.table_uri, folder) == []


def _without_session(root: Path, sources: list[SourceContract], assets: list[DerivedAsset]) -> Engine:
    """An engine that cannot start a session, with a landing folder for each source."""
    folders: Mapping[str, str] = {s.name: str(root / "landing" / s.name) for s in sources}
    return replace(bare_engine(root, Clock(), sources, assets), folders=folders)


def test_a_source_that_cannot_represent_changes_is_refused(tmp_path: Path, stock: DeltaTable) -> None:
    sources = [
        SourceContract(name="no_change", schema="item string", event_time="current_timestamp()"),
        SourceContract(name="keyed", schema="item string, change string", event_time="current_timestamp()", unique_key=("item",)),
    ]
    engine = _without_session(tmp_path, sources, [])
    for name in ("no_change", "keyed"):
        with pytest.raises(ChangeFeedError, match=f"source '{name}' needs a column 'change', and no `unique_key`"):
            engine.ingestion.land_changes(stock.table_uri, name)


def test_changes_land_in_a_local_folder_only() -> None:
    source = SourceContract(name="stock", schema="item string, change string", event_time="ingested_at")
    check_feed(source, [], "in/stock")
    with pytest.raises(ChangeFeedError, match="the folder of source 'stock' is 's3a://b/stock'; legal: a folder on this machine"):
        check_feed(source, [], "s3a://b/stock")


def test_an_operator_that_would_count_removals_as_rows_is_refused(tmp_path: Path, stock: DeltaTable) -> None:
    source = SourceContract(name="stock", schema="item string, change string", event_time="ingested_at")
    by_item, by_kind = (Aggregate(by=by, aggregates={"n": "count(*)"}) for by in ("item", ("item", "change")))
    with pytest.raises(ContractError, match="columns other than change, changed_at and step, which the changelog of 'by_kind' adds"):
        _without_session(tmp_path, [source], [DerivedAsset(name="by_kind", inputs=("stock",), operator=by_kind)])
    engine = _without_session(tmp_path, [source], [DerivedAsset(name="counts", inputs=("stock",), operator=by_item)])
    with pytest.raises(ChangeFeedError, match=re.escape("counts reads source 'stock', and Aggregate would treat a deleted row")):
        engine.ingestion.land_changes(stock.table_uri, "stock")


def test_a_leaderboard_reads_the_changes_of_an_external_table(make_engine: MakeEngine, stock: DeltaTable) -> None:
    schema = "item string, sold bigint, change string, commit_version bigint, committed_at timestamp"
    mark = BoundedOutOfOrderness("0 ms")
    source = SourceContract(name="stock", schema=schema, event_time="committed_at", watermark=mark, future_skew=None)
    top = TopN(order_by="sold DESC", rank_end=2, unique_key="item", change="change")
    keyless = TopN(order_by="sold DESC", rank_end=2, change="change")
    assets = [DerivedAsset(name=name, inputs=("stock",), operator=operator) for name, operator in (("best", top), ("same", keyless))]
    engine = make_engine([source], assets)
    folder = Path(engine.folders["stock"])
    changes = [lambda: None, lambda: stock.update(updates={"sold": "9"}, predicate="item = 'a'"), lambda: stock.delete("item = 'b'")]
    expected = [[("b", 1), ("c", 2)], [("a", 1), ("b", 2)], [("a", 1), ("c", 2)]]
    for change, best in zip(changes, expected, strict=True):
        change()
        assert len(engine.ingestion.land_changes(stock.table_uri, "stock")) == 1
        engine.ingest()
        for name in engine.assets:
            engine.advance(name)
        found = values_of({name: engine.views.table(name).select("item", "rank") for name in engine.assets})
        assert found == dict.fromkeys(engine.assets, best)
    published = str(folder.parent / "published")
    assert engine.views.publish("best", published) == 3
    assert engine.views.publish("best", published) == 3
    lines = engine.spark.read.schema("key string, value string, step int").json(published)
    rank, item = (F.get_json_object(*path).alias(path[1][2:]) for path in (("key", "$.rank"), ("value", "$.item")))
    published_rows = rows_of(lines.select("step", rank.cast("int").alias("rank"), item))
    assert published_rows == sorted([(1, 1, "b"), (1, 2, "c"), (2, 1, "a"), (2, 2, "b"), (3, 2, "c")], key=repr)
