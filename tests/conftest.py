"""Shared fixtures: one Spark session, a fake clock, and lakes in temporary folders."""

import atexit
import gc
import os
import re
import shutil
import signal
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import pytest
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine import Engine, faults
from platform_defs.engine.lake.small_queries import small_session
from platform_defs.engine.lake.tables import Lake
from platform_defs.setup.broker import Broker
from platform_defs.setup.ports import is_open
from tests.support.clock import Clock
from tests.support.example_counts import example_count
from tests.support.kafka import Kafka
from tests.support.quick_session import INTERPRETED
from tests.support.shared_jvm import session_of_the_tests, shared_jvm

for _size in ("COLUMNS", "LINES"):  # readline sets them for the processes of pytest-xdist, and the command line would keep that width
    os.environ.pop(_size, None)

# without a deadline, since a busy machine takes long for some examples
hypothesis.settings.register_profile("tests", deadline=None, max_examples=example_count(100))
hypothesis.settings.load_profile("tests")
SHARED = pytest.StashKey[ExitStack]()
OF_BROKER = pytest.StashKey[set[Path]]()
"""The modules with tests that need a broker."""
NEXT_ITEM = pytest.StashKey[pytest.Item | None]()
"""The test after the present one, in this process."""
WITHOUT_SPARK = re.compile(r"not \(?spark\b")
"""Matches the `-m` expression of a run that needs no JVM."""
MakeEngine = Callable[[Sequence[SourceContract], Sequence[DerivedAsset]], Engine]
CopyEngine = Callable[[Engine], Engine]


LONGEST = ("platform_defs/cli/", "cluster/", "chaos/", "lakes/", "docs/", "laws/", "oracle/", "examples/", "engine/", "operators/", "hunt/")
"""Folders with long tests, the longest first, so that processes that run file by file end at about the same time."""


INTERPRETED_FOLDERS = {"operators", "engine", "laws", "chaos", "lakes", "cli", "docs", "kafka", "cluster"}
"""The folders whose tests run interpreted plans: they make many plans for a few rows, and compiling one takes longer than running it.

All other tests, and modules with the mark `compiled`, run with the settings of the product's session, unless they use the fixture
`interpreted_plans`. With the option `--compiled`, all tests do.
"""
INTERPRETED_PLANS = {
    **INTERPRETED,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "2",  # decides how rows are numbered, so it must not depend on the machine's cores
}
"""Settings for interpreted plans. Planning and compiling stages takes most of the time of a step over ten rows."""


_IN_MEMORY, _ENOUGH = Path("/dev/shm"), 6 << 30


def _keep_temporary_files_in_memory() -> None:
    """Put temporary folders into memory, if 6 GiB are free there: tests commit thousands of times, and a commit waits for the disk."""
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK) or os.statvfs(_IN_MEMORY).f_flag & os.ST_NOEXEC:
        return
    if shutil.disk_usage(_IN_MEMORY).free >= _ENOUGH:
        os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = tempfile.tempdir = str(_IN_MEMORY)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs all tests with the plans that users run."""
    parser.addoption("--compiled", action="store_true", help="run no test with interpreted plans")


def pytest_configure(config: pytest.Config) -> None:
    """Start the JVM that pytest's processes share, if there are several and a test may need Spark."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background job: tests interrupt processes that they start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        _exit_without_freeing_objects()
    else:
        _keep_temporary_files_in_memory()
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput") and not WITHOUT_SPARK.match(config.option.markexpr):
        stack = config.stash[SHARED] = ExitStack()
        stack.enter_context(shared_jvm(Path(stack.enter_context(TemporaryDirectory()))))


def _exit_without_freeing_objects() -> None:
    """Let this process end after its exit handlers: freeing what it has imported and collected takes seconds."""
    atexit.register(os._exit, 0)  # handlers run in reverse order
    atexit.register(weakref.finalize._exitfunc)  # removes temporary folders; it was registered before, and runs once


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the JVM that pytest's processes share."""
    if SHARED in config.stash:
        config.stash[SHARED].close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Switch the garbage collector off while pytest collects tests, and exempt the objects made until then: none of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # by default, garbage collection takes a tenth of the time of tests without Spark
        atexit.register(gc.unfreeze)  # otherwise DuckDB reports its modules as leaks
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark the tests that need Spark or a Kafka broker, so that the others can be run alone; put the longest tests first.

    Modules that need a broker are next to each other, so that one broker serves them.
    """
    for item in items:
        folder = {"kafka"} & {item.path.parent.name}
        for name in folder | ({"spark", "kafka"} & {*getattr(item, "fixturenames", ())}):
            item.add_marker(name)
    of_broker = config.stash[OF_BROKER] = {item.path for item in items if item.get_closest_marker("kafka")}
    items.sort(key=lambda item: _position(item, item.path in of_broker))


def _position(item: pytest.Item, needs_broker: bool) -> int:
    """The position of a test's module in the run: first the folders with long tests, then modules that need a broker, then all others."""
    if needs_broker:
        return len(LONGEST)
    return next((n for n, part in enumerate(LONGEST) if f"tests/{part}" in item.nodeid), len(LONGEST) + 1)


@pytest.fixture(scope="session")
def _session() -> SparkSession:
    """The only session of the process."""
    return session_of_the_tests()


@pytest.fixture(scope="module")
def spark(_session: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session, with interpreted plans for the tests in `INTERPRETED_FOLDERS`."""
    folders = request.path.relative_to(request.config.rootpath).parts
    compiled = (
        request.config.getoption("compiled") or request.node.get_closest_marker("compiled") or INTERPRETED_FOLDERS.isdisjoint(folders)
    )
    with _settings(_session, {} if compiled else INTERPRETED_PLANS):
        yield _session


@pytest.fixture(scope="module")
def interpreted_plans(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Interpreted plans for a module of another folder, whose tests spend their time on planning and compiling, not on rows."""
    with _settings(spark, {} if request.config.getoption("compiled") else INTERPRETED_PLANS):
        yield


@contextmanager
def _settings(session: SparkSession, changes: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session and of its copy for small queries, and restore them."""
    sessions = [session, small_session(session)]
    before = [{key: one.conf.get(key, None) for key in changes} for one in sessions]
    for one in sessions:
        _set(one, changes)
    try:
        yield
    finally:
        for one, values in zip(sessions, before, strict=True):
            _set(one, values)


def _set(session: SparkSession, values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, value)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Remember the next test."""
    item.config.stash[NEXT_ITEM] = nextitem


@pytest.fixture(scope="session")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of this process, possibly stopped."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def kafka(_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A client of a running broker. A test that kills the broker starts it again.

    The broker is stopped if the next module needs none: an idle broker uses a twentieth of a core.
    """
    if not is_open(_broker.port):
        _broker.start()
    yield Kafka(_broker)
    next_item = request.config.stash.get(NEXT_ITEM, None)
    if next_item is None or next_item.path not in request.config.stash[OF_BROKER]:
        _broker.stop()


@pytest.fixture
def clock() -> Clock:
    """A wall clock that stands still until a test moves it."""
    return Clock()


@pytest.fixture
def make_engine(spark: SparkSession, tmp_path: Path, clock: Clock) -> MakeEngine:
    """Make an engine on this test's lake; a second one on the same lake stands for a new process."""
    return engine_maker(spark, tmp_path, clock)


@pytest.fixture(scope="module")
def make_module_engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MakeEngine:
    """Make an engine on a separate lake that the tests of a module share."""
    return engine_maker(spark, tmp_path_factory.mktemp("module"), Clock())


@pytest.fixture
def copy_engine(make_engine: MakeEngine, tmp_path: Path) -> CopyEngine:
    """Make an engine on a copy of another engine's lake, without its landed files."""

    def copy(original: Engine) -> Engine:
        shutil.copytree(original.lake.root, tmp_path / "lake")
        return make_engine([*original.sources.values()], [*original.assets.values()])

    return copy


def engine_maker(spark: SparkSession, folder: Path, clock: Clock) -> MakeEngine:
    """A function that makes engines on the lake `folder/lake`, whose sources read `folder/landing`."""

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
