"""Kills the engine at a named fault point, as SIGKILL would."""

from collections.abc import Callable

import pytest

from platform_defs.engine import faults


class Killed(BaseException):
    """The process was killed. No code may catch this exception."""


def kill_at(name: str, nth: int = 1) -> Callable[[], int]:
    """Raise `Killed` when a point is passed for the nth time. Returns a function that returns how often the point was passed so far."""
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
