"""Kills: an engine that dies at a named fault point, as a process does, and a new one in its place."""

from collections.abc import Callable

import pytest

from platform_defs import faults


class Killed(BaseException):
    """The process died; nothing may catch this."""


def kill_at(name: str, nth: int = 1) -> Callable[[], int]:
    """Die at the nth passing of a point. Returns a function that returns how often the point was passed."""
    passed = 0

    def handler(point: str) -> None:
        nonlocal passed
        if point == name:
            passed += 1
            if passed == nth:
                raise Killed(name)

    faults.install(handler)
    return lambda: passed


def run_and_die(act: Callable[[], object], name: str, nth: int = 1) -> None:
    """Run an action until the point kills it; the test fails if the point is never passed."""
    kill_at(name, nth)
    with pytest.raises(Killed, match=name):
        act()
    faults.install(None)
