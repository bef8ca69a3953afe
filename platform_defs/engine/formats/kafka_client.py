"""Kafka's clients in the JVM of a Spark session, which find new records and write to sinks."""

import hashlib
from collections.abc import Mapping
from threading import Lock
from typing import Any, ClassVar

from py4j.protocol import Py4JError, Py4JJavaError

from platform_defs.safe_text import printable, shortened

_TIMEOUT_MS = 20_000
_OF_REQUEST, _OF_CALL = "request.timeout.ms", "default.api.timeout.ms"
_PREFIX = "kafka."


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options for Kafka's client: those options of Spark's reader or writer that have the prefix `kafka.`, without it.

    Names are in lower case, in which Spark passes them to its own clients.
    """
    return {name.removeprefix(_PREFIX).lower(): value for name, value in options.items() if name.startswith(_PREFIX)}


def with_timeouts(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a client with timeouts. A request fails after 20 s, unless the options set another timeout.

    A call may take several requests. Kafka refuses a timeout of a call that is shorter than the timeout of a request.
    """
    given = {name: int(options[name]) for name in (_OF_REQUEST, _OF_CALL) if options.get(name, "").isdecimal()}
    request, call = min(_TIMEOUT_MS, given.get(_OF_CALL, _TIMEOUT_MS)), max(_TIMEOUT_MS, given.get(_OF_REQUEST, _TIMEOUT_MS))
    return {_OF_REQUEST: str(request), _OF_CALL: str(call), **options}


def properties(jvm: Any, options: Mapping[str, str]) -> Any:
    """Options as `java.util.Properties`."""
    java_properties = jvm.java.util.Properties()
    for name, value in options.items():
        java_properties.put(name, value)
    return java_properties


def admin_client(jvm: Any, options: Mapping[str, str]) -> Any:
    """An administration client with the given options, and with timeouts."""
    return jvm.org.apache.kafka.clients.admin.AdminClient.create(properties(jvm, with_timeouts(options)))


class SharedAdmin:
    """One use of an administration client. Simultaneous uses with the same options share one client, in all threads.

    Args:
        jvm: the JVM of a session.
        options: the options of Kafka's client.
    """

    _open: ClassVar[dict[str, tuple[Any, int]]] = {}
    _lock: ClassVar[Lock] = Lock()

    def __init__(self, jvm: Any, options: Mapping[str, str]) -> None:
        # a hash, since the options may be secret and the key may be in the text of an error
        self._key = hashlib.sha256(repr((id(jvm), sorted(options.items()))).encode()).hexdigest()
        self._is_closed = False
        with self._lock:
            self.client, users = self._open.get(self._key) or (admin_client(jvm, options), 0)
            self._open[self._key] = self.client, users + 1

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End this use; a second call has no effect. The last use closes the client."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            client, users = self._open.pop(self._key)
            if users > 1:
                self._open[self._key] = client, users - 1
                return
        client.close()


def described_topic(jvm: Any, admin: Any, name: str) -> Any:
    """Kafka's description of a topic; None if there is no such topic."""
    names = jvm.java.util.ArrayList()
    names.add(name)
    try:
        return admin.describeTopics(names).allTopicNames().get().get(name)
    except Py4JJavaError as error:
        if "UnknownTopicOrPartitionException" not in str(error.java_exception):
            raise
        return None


def root_cause(error: Py4JJavaError) -> Any:
    """The innermost exception of an error of the JVM."""
    cause: Any = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def error_reason(error: Py4JError) -> str:
    """The cause of an error of Kafka's client, in one line and without the client's options, which may be secret."""
    if not isinstance(error, Py4JJavaError):
        return type(error).__name__
    cause = root_cause(error)
    return shortened(printable(f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"))
