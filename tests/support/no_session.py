"""An engine whose commands must answer without a Spark session."""

from dataclasses import replace
from typing import Never

from platform_defs.engine import Engine


def without_session(engine: Engine) -> Engine:
    """The engine of a process that has no session and cannot start one."""
    return replace(engine, connect=_fail)


def _fail() -> Never:
    raise AssertionError("a session is started")
