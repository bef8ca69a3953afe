"""The option values in the file of the connections; a secret value is read from an environment variable."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pydantic import Field

from platform_defs.declared.models import Strict
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.settings import environment_value

T = TypeVar("T")


class Secret(Strict):
    """A value that is read from an environment variable, and is never printed.

    Args:
        env: the variable's name.
    """

    env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")


Value = str | int | bool | Secret


def resolve_secrets(values: Mapping[str, Value]) -> dict[str, str]:
    """Options as text, as Spark takes them.

    Raises:
        ConnectionsError: an environment variable is not set.
    """
    return {name: value_text(name, value) for name, value in values.items()}


class LazyOptions(Mapping[str, T]):
    """Options whose secrets are read when a value is asked for, so that a missing variable stops only what needs it.

    Args:
        values: the options.
        read: reads one of them, given its name and its value; raises `ConnectionsError` if its environment variable is not set, or if the
            variable's value is not legal.
    """

    def __init__(self, values: Mapping[str, Value], read: Callable[[str, Value], T]) -> None:
        self._values, self._read = values, read

    def __getitem__(self, name: str) -> T:
        return self._read(name, self._values[name])

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazyOptions):
            return (self._values, self._read) == (other._values, other._read)
        return super().__eq__(other)

    __hash__ = None  # as every mapping

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def topic_options(values: Mapping[str, Value]) -> Mapping[str, str]:
    """Options as text, as Spark takes them, with their secrets unread."""
    return LazyOptions(values, value_text)


def registry_config(values: Mapping[str, Value]) -> Mapping[str, str | int | bool]:
    """The configuration of Confluent's registry client, in which numbers stay numbers, with its secrets unread."""
    return LazyOptions(values, _number_or_text)


def _number_or_text(name: str, value: Value) -> str | int | bool:
    return value if isinstance(value, (int, bool)) else value_text(name, value)


def value_text(_: str, value: Value) -> str:
    """The value of an option as text.

    Raises:
        ConnectionsError: its environment variable is not set.
    """
    if not isinstance(value, Secret):
        return str(value).lower() if isinstance(value, bool) else str(value)
    secret = environment_value(value.env)
    if not secret:
        raise ConnectionsError.no_variable(value.env)
    return secret
