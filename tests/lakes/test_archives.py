"""What can be checked of the archives without Spark: the registry has each of them, and this version continues their tables."""

import tarfile
from pathlib import Path

import pytest

from tests.lakes import make
from tests.support.no_session import without_session


def test_each_archive_is_in_the_registry_and_below_100_kb() -> None:
    folder = Path(__file__).parent
    sizes = {file.name.removesuffix(".tar.gz"): file.stat().st_size for file in folder.glob("*.tar.gz")}
    assert sizes.keys() == {file.stem for file in folder.glob("*.rows")} == make.ARCHIVES.keys()
    assert {name for name, size in sizes.items() if size >= 100_000} == set()


@pytest.mark.parametrize("name", make.ARCHIVES)
def test_the_definitions_of_an_archive_have_the_identities_that_its_tables_contain(name: str, tmp_path: Path) -> None:
    """Progress cannot be read from a table with another identity than its definition's."""
    with tarfile.open(make.file_of(name)) as packed:
        packed.extractall(tmp_path, filter="data")
    engine = without_session(make.engine(tmp_path, make.ARCHIVES[name]))
    batches = len(make.ARCHIVES[name].batches)
    assert {table: engine.pending.progress(table).seq for table in engine.assets} == dict.fromkeys(engine.assets, batches)
    assert engine.ledger.head == batches
