"""Kills: an engine that dies at a named point, as a process does, and one started anew."""

from collections.abc import Callable

import pytest

from platform_defs import faults


class Killed(BaseException):
    """The process died; nothing may catch this."""


def kill_at(name: str, nth: int = 1) -> Callable[[], int]:
    """Die at the nth passing of a point. Returns a function that tells how often the point was passed."""
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
    """Act until the point kills; the test fails if it is never passed."""
    kill_at(name, nth)
    with pytest.raises(Killed, match=name):
        act()
    faults.install(None)
