"""What the tests share: one Spark session, a fake clock, and lakes in temporary folders."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from platform_defs import faults
from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from platform_defs.resources.spark import session
from platform_defs.settings import Settings
from tests.support.clock import Clock

MakeEngine = Callable[[Sequence[SourceContract], Sequence[DerivedAsset]], Engine]


LONGEST = ("platform_defs/cli/", "chaos/", "laws/", "oracle/", "examples/", "engine/", "operators/")
"""What takes long, the longest first: so that two processes that take file by file end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need Spark, so that the quick ones can be run alone; put those that take long first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: next((n for n, part in enumerate(LONGEST) if f"tests/{part}" in item.nodeid), len(LONGEST)))


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one session of the run."""
    return session(Settings(driver_memory="3g", shuffle_partitions=2), **{"spark.sql.adaptive.enabled": "true"})


@pytest.fixture
def clock() -> Clock:
    """A wall clock that stands still until it is moved."""
    return Clock()


@pytest.fixture
def make_engine(spark: SparkSession, tmp_path: Path, clock: Clock) -> MakeEngine:
    """Make an engine on this test's lake; a second one on it is what a process started anew would see."""
    return _maker(spark, tmp_path, clock)


@pytest.fixture(scope="module")
def make_module_engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MakeEngine:
    """Make an engine on a lake of its own that the tests of a module share."""
    return _maker(spark, tmp_path_factory.mktemp("module"), Clock())


def _maker(spark: SparkSession, folder: Path, clock: Clock) -> MakeEngine:
    def make(sources: Sequence[SourceContract], assets: Sequence[DerivedAsset], max_step: int = 5_000_000) -> Engine:
        folders: Mapping[str, str] = {s.name: str(folder / "landing" / s.name) for s in sources}
        named = {s.name: s for s in sources}, {a.name: a for a in assets}
        return Engine(Lake(str(folder / "lake")), *named, lambda: spark, clock, max_step, folders)

    return make


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    """A test that installs a fault leaves none behind."""
    yield
    faults.install(None)
