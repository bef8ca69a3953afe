"""Makes Py4J call the JVM less often, and makes its calls cheaper.

A call takes about 0.1 ms of both processes together, and a small step makes thousands. Py4J itself makes a call for each part of a class's
name and for each method of a class, each time that Python names them; for each element of a list that it passes; and for each object in
the JVM that Python no longer needs. To find out whether a part of a name is a class, the JVM searches all JARs. For each argument Py4J also
checks, by searching for attributes, whether it is a dictionary, a set, or a Python object that implements a Java interface: these checks
take a quarter of the time of a call.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, wraps
from threading import Thread
from typing import Any

from py4j import protocol
from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JavaPackage, JVMView
from py4j.protocol import ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID, Py4JError, register_input_converter

_MOST_ARGUMENTS = 10
"""The most arguments of `java.util.List.of`, which has a method for each number of arguments."""
_OF_THE_SERVER = {ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID}
_MANY_OBJECTS = 500
_INTERVAL_S = 0.2
_MOST_COLUMNS = 2_000


_is_python_proxy = protocol.is_python_proxy
_lookups: dict[Any, Callable[[Any, str], Any]] = {kind: kind.__getattr__ for kind in (JVMView, JavaPackage, JavaClass)}
"""How Py4J finds what a name means in the JVM, below a package or a class."""


class _ObjectsToDelete(deque[tuple[Any, str]]):
    """The objects in the JVM that wait to be deleted: Py4J's client, and the object's name."""


def improve_calls(gateway: Any) -> None:
    """Change how this process finds names in a JVM, passes arguments to it, and deletes objects there.

    Args:
        gateway: the connection to the JVM; a second call with it changes nothing.
    """
    client = gateway._gateway_client
    if isinstance(client.finalizer_deque, _ObjectsToDelete):
        return
    protocol.is_python_proxy = _may_be_python_proxy
    for kind, lookup in _lookups.items():
        kind.__getattr__ = _remembering(lookup)
    register_input_converter(_Lists(gateway), prepend=True)
    register_input_converter(_PrimitiveConverter(), prepend=True)  # the first of all
    client.finalizer_deque = _ObjectsToDelete()  # Py4J's own thread finds nothing more in the earlier one
    Thread(target=_delete_often, args=(gateway, client.finalizer_deque), name="delete-java-objects", daemon=True).start()


def keep_columns(functions: Any) -> None:
    """Let PySpark make the column of a name once: columns never change, and making them is a seventh of all calls into the JVM.

    Args:
        functions: the class with Spark's function `col`.
    """
    if isinstance(functions.col, JavaMember):
        functions.col = lru_cache(_MOST_COLUMNS)(functions.col.__call__)  # the method: a member's `__doc__` is a call into the JVM


def delete_all(gateway: Any) -> None:
    """Delete all objects of this process in the JVM, if it is running; afterwards this process cannot call it any more."""
    finalized = [reference() for reference in [*ThreadSafeFinalizer.finalizers.values()]]
    names = [java_object._target_id for java_object in finalized if java_object is not None]
    waiting = gateway._gateway_client.finalizer_deque
    names += _drained(waiting)
    with suppress(Py4JError, OSError):
        _deletion(gateway)(names)


def _remembering(lookup: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """A lookup that asks the JVM once for each class and method, and for each package whose name is in lower case.

    Py4J takes an unknown class for a package; a JAR that is added later may have it.
    """

    @wraps(lookup)
    def found(self: Any, name: str) -> Any:
        value = lookup(self, name)
        if isinstance(value, JavaClass | JavaMember) or (isinstance(value, JavaPackage) and name.islower()):
            vars(self)[name] = value
        return value

    return found


class _PrimitiveConverter:
    """Passes a text, a number or a boolean unchanged, before Py4J asks its other converters."""

    def can_convert(self, value: object) -> bool:
        """Whether a value is one of them. NumPy's numbers are not, although some are of subclasses: PySpark converts them."""
        return type(value) in (str, int, float, bool)

    def convert(self, value: object, _: Any) -> object:
        """The value itself."""
        return value


class _Lists:
    """Passes a list as a `java.util.ArrayList`, with a call for each ten elements; a short list of objects of the JVM as a `List`."""

    def __init__(self, gateway: Any) -> None:
        self._make, self._of = gateway.jvm.java.util.ArrayList, gateway.jvm.java.util.List.of

    def can_convert(self, value: object) -> bool:
        """Whether a value is a list without None, since `List.of` takes no null."""
        return isinstance(value, list | tuple) and not any(element is None for element in value)

    def convert(self, value: Sequence[object], _: Any) -> Any:
        """The list in the JVM."""
        if not value:
            return self._make()
        if len(value) <= _MOST_ARGUMENTS and all(isinstance(element, JavaObject) for element in value):
            return self._of(*value)  # columns, which Spark only reads; for the numbers of partitions it requires an `ArrayList`
        java_list = self._make(self._of(*value[:_MOST_ARGUMENTS]))
        for start in range(_MOST_ARGUMENTS, len(value), _MOST_ARGUMENTS):
            java_list.addAll(self._of(*value[start : start + _MOST_ARGUMENTS]))
        return java_list


def _may_be_python_proxy(parameter: Any) -> bool:
    """Whether an argument is a Python object that implements a Java interface. An object of the JVM is none."""
    return not isinstance(parameter, JavaObject) and _is_python_proxy(parameter)


def _delete_often(gateway: Any, waiting: _ObjectsToDelete) -> None:
    """Delete the objects that Python no longer needs, many by one call, until the connection ends."""
    with suppress(Py4JError, OSError):
        delete = _deletion(gateway)
        while True:
            if len(waiting) >= _MANY_OBJECTS:
                delete(_drained(waiting))
            time.sleep(_INTERVAL_S)


def _drained(waiting: deque[tuple[Any, str]]) -> list[str]:
    """Remove and return the names of the waiting objects. Another thread may remove some meanwhile."""
    names = list[str]()
    with suppress(IndexError):
        while True:
            names.append(waiting.pop()[1])
    return names


def _deletion(gateway: Any) -> Callable[[Iterable[str]], None]:
    """A function that deletes objects of the JVM, as Py4J does it for a single one. What it needs there is looked up once."""
    server: Any = JavaObject(GATEWAY_SERVER_OBJECT_ID, gateway._gateway_client)
    remove_all = server.getGateway().getBindings().keySet().removeAll
    # an attribute of `gateway.jvm` would be a call for each part of the name, and the JVM would search all JARs for the first ones
    as_list: Any = JavaClass("org.apache.hadoop.util.StringUtils", gateway._gateway_client).getStringCollection
    return lambda names: remove_all(as_list(",".join(set(names) - _OF_THE_SERVER)))
