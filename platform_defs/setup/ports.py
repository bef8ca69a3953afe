"""Ports of this machine, for processes that listen on it."""

import socket
from contextlib import ExitStack, suppress

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Different ports on which no process listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind((HOST, 0))
        return [listener.getsockname()[1] for listener in sockets]


def is_open(port: int) -> bool:
    """Whether a process listens on a port."""
    with suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False
