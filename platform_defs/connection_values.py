"""The option values in the file of the connections; a secret value is read from an environment variable."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pydantic import Field

from operators.errors import TidemarkError
from platform_defs.declared.models import Strict
from platform_defs.settings import environment_value

T = TypeVar("T")
VARIABLE = "TIDEMARK_CONNECTIONS"


class ConnectionsError(TidemarkError, ValueError):
    """The file of the connections cannot be read, or does not match its schema."""

    @classmethod
    def of(cls, file: str, reason: object) -> "ConnectionsError":
        """What is wrong with the file."""
        return cls(f"{VARIABLE} is {file!r}: {' '.join(str(reason).split())}")

    @classmethod
    def no_variable(cls, name: str) -> "ConnectionsError":
        """An environment variable that a value names is not set."""
        return cls(f"the connections read the environment variable {name}, which is not set or is empty; set it to the value of the option")


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
    return {name: _text(value) for name, value in values.items()}


class LazyOptions(Mapping[str, T]):
    """Options whose secrets are read when a value is asked for, so that a missing variable stops only what needs it.

    Args:
        values: the options.
        read: reads one of them; raises `ConnectionsError` if its environment variable is not set.
    """

    def __init__(self, values: Mapping[str, Value], read: Callable[[Value], T]) -> None:
        self._values, self._read = values, read

    def __getitem__(self, name: str) -> T:
        return self._read(self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def topic_options(values: Mapping[str, Value]) -> Mapping[str, str]:
    """Options as text, as Spark takes them, with their secrets unread."""
    return LazyOptions(values, _text)


def registry_config(values: Mapping[str, Value]) -> Mapping[str, str | int | bool]:
    """The configuration of Confluent's registry client, in which numbers stay numbers, with its secrets unread."""
    return LazyOptions(values, lambda value: value if isinstance(value, (int, bool)) else _text(value))


def _text(value: Value) -> str:
    if not isinstance(value, Secret):
        return str(value).lower() if isinstance(value, bool) else str(value)
    secret = environment_value(value.env)
    if not secret:
        raise ConnectionsError.no_variable(value.env)
    return secret
