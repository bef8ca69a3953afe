"""A signal ends a stream, also if it arrives in a finalizer, where Python ignores the exception of its handler. No test starts Spark."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from platform_defs.engine import Engine
from platform_defs.engine.accounting.accounts import Accounts
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.ingest.ingestion import Ingestion
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.lake import lost_jvm
from platform_defs.engine.lake.interrupts import TERMINATED, ending_on_sigterm
from platform_defs.engine.operations.advance_all import AdvanceAll
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.run import StreamRun
from tests.platform_defs.stream.recorder import Recorder
from tests.support.bare_lake import bare_engine, commit_batch
from tests.support.clock import Clock
from tests.support.small_sources import START, join, source

EVERY = StreamTrigger("1 second")


class Released:
    """An object whose finalizer is interrupted by a signal, as finalizers of Py4J's references to Java objects sometimes are."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    made = bare_engine(tmp_path, clock, [source("l"), source("r")], [join()])
    commit_batch(made, {"l": {"watermark": START}, "r": {"watermark": START}})
    return made


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before, "the handler is set as before"


def _stream(engine: Engine, monkeypatch: pytest.MonkeyPatch, account: Callable[[], Any]) -> tuple[StreamRun, list[str]]:
    """A stream without files, whose table changes at the stream's start; and the intervals that have passed, as a list that grows."""
    stream, intervals = StreamRun(engine, Recorder()), list[str]()

    def ingest(_: Ingestion, every: Any, on_batch: Any, on_quiet: Callable[[], None], on_start: Callable[[], None]) -> list[Any]:
        on_start()
        for _interval in range(3):
            intervals.append("quiet")
            on_quiet()
        return []

    monkeypatch.setattr(AdvanceAll, "__call__", lambda _: stream._law.note_step("pairs", Step(Progress(), Progress(step=1), 1)))
    stream._law.most_saved_s = stream._law.share = 1e9
    monkeypatch.setattr(Accounts, "check", lambda *_: account())
    monkeypatch.setattr(Ingestion, "run", ingest)
    return stream, intervals


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("number", "raised", "text"),
    [(signal.SIGINT, KeyboardInterrupt, "^$"), (signal.SIGTERM, SystemExit, f"^{TERMINATED}$")],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_in_a_finalizer_ends_the_stream(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[BaseException], text: str
) -> None:
    stream, intervals = _stream(engine, monkeypatch, [Released(number)].clear)
    with ending_on_sigterm(), pytest.raises(raised, match=text):
        stream.run(EVERY)
    assert intervals == [], "the stream ends with the turn in which the signal came"


def test_a_signal_whose_handler_fails_ends_the_stream(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's handler calls the JVM to cancel jobs; an error of this call would be taken for an error of the account."""
    monkeypatch.setattr(lost_jvm, "_ENDING_S", 0.1)
    fails = [ConnectionError("no answer")]

    def handler(*_: object) -> None:
        if fails:
            raise fails.pop()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        stream, intervals = _stream(engine, monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            stream.run(EVERY)
    finally:
        signal.signal(signal.SIGINT, before)
    assert intervals == []
