"""Records failures in the lake, for `tidemark status`: the newest one of each table's advance, of its publish to Kafka, and of the ingest.

For each source, it records since when some of its input cannot be read. Each failure is a small JSON file below the lake's folder
`_failures`, which no computation reads. An unreadable file is ignored.

- The failure of an advance is over when the table has another step, or a later advance finds nothing to do.
- The failure of a publish is over when a later publish succeeds.
- The failure of an ingest is over when the ledger has another batch, or a later ingest finds nothing to do.
- The failure of a source is over when an ingest can read all of its input.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from operators.errors import TidemarkError
from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.data_files import filesystem, replace_file
from platform_defs.engine.lake.errors import LakeBusy, spark_condition, store_reason
from platform_defs.engine.lake.interrupts import is_cancelled
from platform_defs.engine.lake.lost_jvm import lost_jvm
from platform_defs.engine.lake.tables import Lake
from platform_defs.safe_text import one_line, shortened, without_credentials

FOLDER = "_failures"
_INGEST = f"{FOLDER}/ingest.json"
_LONGEST = 500
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """A failure.

    Args:
        at: when it happened, in epoch ms of the wall clock; for a source, since when some of its input cannot be read.
        error: the class of the error.
        message: its message; of an error whose text may quote rows, only the class and the condition.
        position: the table's progress at that time, or the ledger's newest batch; empty for a publish or a source.
    """

    at: int
    error: str
    message: str
    position: str


@dataclass(frozen=True)
class Failures:
    """Records failures, and returns those that are not over.

    Args:
        workspace: the lake and its ledger; it needs no session.
        clock: the wall clock, in epoch ms.
    """

    workspace: Workspace
    clock: Callable[[], int]

    def of(self, asset: str) -> Failure | None:
        """The newest failure of a table's advance; None if the table has made a step since, or an advance found nothing to do."""
        return self._newest(_of_table(asset), partial(self._position, asset))

    def of_sink(self, asset: str) -> Failure | None:
        """The newest failure of a table's publish to its topic; None if it has been published since."""
        return self._newest(_of_sink(asset), _no_position)

    def of_ingest(self) -> Failure | None:
        """The newest failure of an ingest; None if the ledger has a newer batch, or an ingest found nothing to do."""
        return self._newest(_INGEST, self._head)

    def of_source(self, source: str) -> Failure | None:
        """Since when some input of a source cannot be read, and why the newest try failed; None if all of its input can be read."""
        return self._newest(_of_source(source), _no_position)

    def record_sources(self, failing: Mapping[str, str]) -> None:
        """Record the sources of which some input cannot be read, since when, and why; failures of all other sources are over."""
        for source in self.workspace.sources:
            earlier = self.of_source(source)
            if source in failing:
                since = self.clock() if earlier is None else min(earlier.at, self.clock())  # the clock may have been ahead
                _record(self.workspace.lake, _of_source(source), Failure(since, "UnreadError", _one_short_line(failing[source]), ""))
            elif earlier is not None:
                _forget(self.workspace.lake, _of_source(source))

    @contextmanager
    def recorded_of_sink(self, asset: str) -> Iterator[None]:
        """While a table is published to its topic, record an error before it is raised; on success, delete an earlier failure."""
        with self._recording(_of_sink(asset), _no_position):
            yield
        _forget(self.workspace.lake, _of_sink(asset))

    @contextmanager
    def recorded_of(self, asset: str) -> Iterator[None]:
        """While a table is advanced, record an error before it is raised; on success, delete an earlier failure."""
        with self.recorded_of_account(asset):
            yield
        _forget(self.workspace.lake, _of_table(asset))

    def recorded_of_account(self, asset: str) -> AbstractContextManager[None]:
        """While a table is accounted for, record an error before it is raised."""
        return self._recording(_of_table(asset), partial(self._position, asset))

    @contextmanager
    def recorded_of_ingest(self) -> Iterator[None]:
        """While input is ingested, record an error before it is raised; on success, delete an earlier failure.

        A violation of the conservation law, which a stream can find while it ingests, is a failure of the table, not of the ingest.
        """
        with self._recording(_INGEST, self._head, LawError):
            yield
        self.forget_ingest()

    def forget_ingest(self) -> None:
        """Forget the failure of an ingest, because a later one works."""
        _forget(self.workspace.lake, _INGEST)

    @contextmanager
    def _recording(self, path: str, position: Callable[[], str], *but: type[Exception]) -> Iterator[None]:
        """Record an error before it is raised, except an interrupt, Spark's error of a cancelled job, `LakeBusy`, and the classes `but`."""
        try:
            yield
        except (LakeBusy, *but):
            raise
        except Exception as error:
            if not (is_cancelled() and isinstance(error, (PySparkException, Py4JJavaError))):
                _record(self.workspace.lake, path, Failure(self.clock(), type(error).__name__, describe_error(error), _or_empty(position)))
            raise

    def _newest(self, path: str, position: Callable[[], str]) -> Failure | None:
        """The recorded failure; None if its position is not the present one."""
        try:
            lake = self.workspace.lake
            with filesystem(lake.root, lake.storage_options).open_input_stream(path) as file:
                stored = json.loads(file.read())
            failure = Failure(int(stored["at"]), str(stored["error"]), str(stored["message"]), str(stored["position"]))
        except (OSError, DeltaError, ValueError, KeyError, TypeError):
            return None
        return failure if failure.position == position() else None

    def _position(self, asset: str) -> str:
        """A table's progress."""
        now = stored_progress(self.workspace.lake, self.workspace.assets[asset])
        return f"{now.generation}:{now.step}"

    def _head(self) -> str:
        return str(self.workspace.ledger.head)


def first_time(extra: Callable[[], None], always: Callable[[], None]) -> Callable[[], None]:
    """A function that calls `always`; before that, its first call also calls `extra`."""
    pending_calls = [extra]

    def call() -> None:
        while pending_calls:
            pending_calls.pop()()
        always()

    return call


def _of_table(asset: str) -> str:
    return f"{FOLDER}/tables/{asset}.json"


def _of_source(source: str) -> str:
    return f"{FOLDER}/sources/{source}.json"


def _of_sink(asset: str) -> str:
    return f"{FOLDER}/sinks/{asset}.json"


def _no_position() -> str:
    """The position of a failure that is over only when it is forgotten."""
    return ""


def _or_empty(position: Callable[[], str]) -> str:
    """A position; empty if it cannot be read. The failure is then over as soon as the position can be read."""
    try:
        return position()
    except (TidemarkError, DeltaError, OSError):
        return ""


def _record(lake: Lake, path: str, failure: Failure) -> None:
    """Replace the recorded failure, if any. If the lake cannot be written to, log a warning."""
    content = json.dumps(asdict(failure)).encode()
    try:
        replace_file(lake.root, path, content, lake.storage_options)
    except (OSError, DeltaError, TidemarkError) as error:
        _log.warning("the failure was not recorded for `tidemark status` in %s: %s", path, describe_error(error))


def _forget(lake: Lake, path: str) -> None:
    """Delete the record of a failure, if there is one."""
    with suppress(OSError, DeltaError, TidemarkError):  # it stays until the next step or batch
        filesystem(lake.root, lake.storage_options).delete_file(path)


def describe_error(error: BaseException) -> str:
    """An error in one line, without text that may quote rows or credentials."""
    if (jvm_error := lost_jvm(error)) is not None:
        return _one_short_line(str(jvm_error))
    if isinstance(error, PySparkException | Py4JJavaError):
        return f"Spark failed with {spark_condition(error)}"
    if isinstance(error, TidemarkError):
        return _one_short_line(str(error) or type(error).__name__)
    if isinstance(error, DeltaError | OSError):
        return _one_short_line(store_reason(error))
    return type(error).__name__


def _one_short_line(text: str) -> str:
    return shortened(one_line(without_credentials(text)), _LONGEST)
