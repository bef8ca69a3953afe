"""Works on several assets at once, in threads of one session: Spark plans one query while it runs another."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from graphlib import TopologicalSorter
from threading import Event
from typing import TypeVar

from platform_defs.engine.advance.advance import Step

T = TypeVar("T")
THREADS = 4
"""The most assets that are worked on at once."""


def advance_side_by_side(
    reads: Mapping[str, Sequence[str]], names: Iterable[str], steps: Callable[[str], Generator[Step]], threads: int = THREADS
) -> None:
    """Advance several assets at once, each after those of them that it reads.

    If an asset raises an error, or this call is interrupted, no further step begins. The error is raised when all running steps have ended.

    Args:
        reads: the inputs of each asset, by its name.
        names: the assets to advance.
        steps: advances one asset, step by step; it is called and iterated in a thread.
        threads: the most assets that are advanced at once.
    """
    chosen = list(names)
    order = TopologicalSorter({name: [of for of in reads[name] if of in chosen] for name in chosen})
    order.prepare()
    stopped, end, running = Event(), object(), dict[Future[None], str]()

    def advance(name: str) -> None:
        with closing(steps(name)) as made:
            while not stopped.is_set() and next(made, end) is not end:
                pass

    with ThreadPoolExecutor(threads) as pool:
        try:
            while order.is_active():
                running |= {pool.submit(advance, name): name for name in order.get_ready()}
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(done)
                    done.result()
                    order.done(name)
        finally:
            stopped.set()


def computed_side_by_side(names: Iterable[str], compute: Callable[[str], T], threads: int = THREADS) -> dict[str, T]:
    """Compute something for several assets at once; returns the results by name.

    If one of them raises an error, or this call is interrupted, no further one begins.
    """
    pool = ThreadPoolExecutor(threads)
    try:
        found = {name: pool.submit(compute, name) for name in names}
        return {name: done.result() for name, done in found.items()}
    finally:
        pool.shutdown(cancel_futures=True)
