"""Named points between two writes, where a test may kill the engine. In production they do nothing."""

from collections.abc import Callable

_handler: Callable[[str], None] | None = None


def install(handler: Callable[[str], None] | None) -> None:
    """Call `handler` with the name of every point passed from now on; None to stop."""
    global _handler  # noqa: PLW0603 - one process, one engine; threading a hook through every call would cost more
    _handler = handler


def point(name: str) -> None:
    """Pass a point."""
    if _handler is not None:
        _handler(name)
