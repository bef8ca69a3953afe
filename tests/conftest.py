"""Shared fixtures: one Spark session, a fake clock, and lakes in temporary folders."""

import shutil
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
CopyEngine = Callable[[Engine], Engine]


LONGEST = ("platform_defs/cli/", "chaos/", "lakes/", "laws/", "oracle/", "examples/", "engine/", "operators/", "hunt/")
"""Folders with long tests, the longest first, so that two processes that run file by file end at about the same time."""


BOOKKEEPING = {"engine", "laws", "chaos", "lakes", "cli"}
"""The folders whose tests make hundreds of small steps: what they assert is which rows a step reads and writes, in what order.

The others (the operators, Flink's answers, the checks, the examples) run the plans of the product's session, and
so do modules with the mark `compiled`: the outcome of every bad value.
"""
INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Compiling and planning each stage takes most of the time of a step over ten rows."""

LOOKED_UP = ("functions", "PythonUtils", "PythonSQLUtils")
"""The classes that PySpark looks up by a short name at every column expression, for which the JVM searches all its JARs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need Spark, so that the quick ones can be run alone; put those that take long first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: next((n for n, part in enumerate(LONGEST) if f"tests/{part}" in item.nodeid), len(LONGEST)))


@pytest.fixture(scope="session")
def _session() -> SparkSession:
    """The one session of the run, with the product's settings."""
    made = session(Settings(driver_memory="3g", shuffle_partitions=2))
    for name in LOOKED_UP:
        setattr(made._jvm, name, getattr(made._jvm, name))
    return made


@pytest.fixture(scope="module")
def spark(_session: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The one session, with interpreted plans for tests of bookkeeping."""
    folders = request.path.relative_to(request.config.rootpath).parts
    compiled = request.node.get_closest_marker("compiled") or BOOKKEEPING.isdisjoint(folders)
    changes = {} if compiled else INTERPRETED
    before = {key: _session.conf.get(key) or "" for key in changes}
    for key, value in changes.items():
        _session.conf.set(key, value)
    yield _session
    for key, value in before.items():
        _session.conf.set(key, value)


@pytest.fixture
def clock() -> Clock:
    """A wall clock that stands still until it is moved."""
    return Clock()


@pytest.fixture
def make_engine(spark: SparkSession, tmp_path: Path, clock: Clock) -> MakeEngine:
    """Make an engine on this test's lake; a second one on the same lake stands for a new process."""
    return _maker(spark, tmp_path, clock)


@pytest.fixture(scope="module")
def make_module_engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MakeEngine:
    """Make an engine on a lake of its own that the tests of a module share."""
    return _maker(spark, tmp_path_factory.mktemp("module"), Clock())


@pytest.fixture
def copy_engine(make_engine: MakeEngine, tmp_path: Path) -> CopyEngine:
    """Make an engine on this test's own copy of a lake that its module has made once, without the files that landed for it."""

    def copy(of: Engine) -> Engine:
        shutil.copytree(of.lake.root, tmp_path / "lake")
        return make_engine([*of.sources.values()], [*of.assets.values()])

    return copy


def _maker(spark: SparkSession, folder: Path, clock: Clock) -> MakeEngine:
    def make(sources: Sequence[SourceContract], assets: Sequence[DerivedAsset], max_step: int = 5_000_000) -> Engine:
        folders: Mapping[str, str] = {s.name: str(folder / "landing" / s.name) for s in sources}
        named = {s.name: s for s in sources}, {a.name: a for a in assets}
        return Engine(Lake(str(folder / "lake")), *named, lambda: spark, clock, max_step, folders)

    return make


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    """Remove any fault handler that a test installed."""
    yield
    faults.install(None)
