"""Processes several assets at once, in threads of one session, so that Spark plans one query while it runs another."""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from graphlib import TopologicalSorter
from typing import TypeVar

from operators.errors import TidemarkError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.lake.interrupts import Stop, cancel_jobs, waiting_until

T = TypeVar("T")
THREADS = 4
"""The most assets that are processed at once."""
_NO_STEP = object()
_CANCEL_EVERY_S = 1.0
_log = logging.getLogger(__name__)


def advance_in_parallel(
    reads: Mapping[str, Sequence[str]], names: Iterable[str], steps: Callable[[str], Generator[Step]], threads: int = THREADS
) -> None:
    """Advance several assets at once, each after its inputs.

    If an asset raises an error, no further step begins. The error is raised when all running steps have ended. If several assets raise
    errors, that of the first asset in `names` is raised, and the others are logged. On an interrupt, Spark's jobs are cancelled, and the
    interrupt is raised when no commit is running.

    Args:
        reads: the inputs of every asset, by its name.
        names: the assets to advance.
        steps: advances one asset, step by step; it is called and iterated in a thread.
        threads: the most assets that are advanced at once.
    """
    to_advance = list(names)
    order = TopologicalSorter({name: [input_name for input_name in inputs if input_name in reads] for name, inputs in reads.items()})
    order.prepare()
    stopped, running, failed = Stop(), dict[Future[None], str](), dict[str, BaseException]()

    def advance(name: str) -> None:
        if name not in to_advance:  # it is in the order only so that its readers wait for its inputs
            return
        with waiting_until(stopped), closing(steps(name)) as steps_of_asset:
            while not stopped.is_set() and next(steps_of_asset, _NO_STEP) is not _NO_STEP:
                pass

    with ThreadPoolExecutor(threads) as pool, _ended_on_interrupt(running, stopped):
        while order.is_active() and not failed:
            running |= {pool.submit(advance, name): name for name in order.get_ready()}
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                order.done(running[future])
                failed |= _error_of(future, running.pop(future))
        stopped.set()  # no further step after an error
        for future, name in running.items():
            failed |= _error_of(future, name)
    _raise_first([(name, failed[name]) for name in to_advance if name in failed])


@contextmanager
def _ended_on_interrupt(running: Mapping[Future[None], str], stopped: Stop) -> Iterator[None]:
    """End the running work before an interrupt is raised."""
    try:
        yield
    except BaseException:
        stopped.cancel()
        while wait(running, timeout=_CANCEL_EVERY_S).not_done:
            cancel_jobs()
        raise


def _error_of(future: Future[None], name: str) -> dict[str, BaseException]:
    error = future.exception()
    return {} if error is None else {name: error}


def _raise_first(failed: Sequence[tuple[str, BaseException]]) -> None:
    for name, error in failed[1:]:
        reason = str(error) if isinstance(error, TidemarkError) else type(error).__name__  # an error of Spark may quote rows
        _log.error("%s failed too: %s", name, reason)
    for _, error in failed[:1]:
        raise error


def compute_in_parallel(names: Iterable[str], compute: Callable[[str], T], threads: int = THREADS) -> dict[str, T]:
    """Compute something for several assets at once; returns the results by name.

    After an error or an interrupt, no further computation begins; it is raised when the running ones have ended. If several computations
    fail, the error of the first of them in `names` is raised.
    """
    pool = ThreadPoolExecutor(threads)
    try:
        futures = {name: pool.submit(compute, name) for name in names}
        wait(futures.values(), return_when=FIRST_EXCEPTION)
    finally:
        pool.shutdown(cancel_futures=True)
    return {name: future.result() for name, future in futures.items()}  # cancelled ones come after the one that failed
