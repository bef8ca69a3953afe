"""The HTTP endpoint from which Prometheus reads metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from operators.errors import TidemarkError


class EndpointError(TidemarkError, OSError):
    """The endpoint cannot listen."""

    @classmethod
    def of(cls, host: str, port: int, error: OSError) -> "EndpointError":
        """The endpoint cannot listen at a host and a port."""
        reason = error.strerror or str(error) or type(error).__name__
        return cls(
            f"the metrics cannot be served at {host}:{port}: {reason}. Legal: an address of this machine, such as 127.0.0.1 or 0.0.0.0, "
            "and a free port; 0 takes any free one"
        )


@contextmanager
def serving_metrics(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Serve the metrics of a registry while the block runs.

    Args:
        registry: the registry.
        host: the address to listen at; 127.0.0.1 can be reached from this machine only.
        port: the port; 0 for any free one.

    Yields:
        The URL of the metrics.

    Raises:
        EndpointError: the process cannot listen at this address and port.
    """
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError, UnicodeError) as error:  # a port above 65535 is an OverflowError
        raise EndpointError.of(host, port, error if isinstance(error, OSError) else OSError(str(error))) from error
    try:
        url_host = f"[{host}]" if ":" in host else host
        yield f"http://{url_host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
