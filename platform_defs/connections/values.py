"""The values of options in the file of connections; a secret value is read from an environment variable."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

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


def _with_url(registry: dict[str, Value]) -> dict[str, Value]:
    """Raise `ValueError` if the configuration of a registry client has no URL."""
    if not registry.get("url"):
        raise ValueError("there is no url; legal: the configuration of a registry client, with the registry's `url`")
    return registry


RegistryOptions = Annotated[dict[str, Value], AfterValidator(_with_url)]


def resolve_secrets(values: Mapping[str, Value]) -> dict[str, str]:
    """Options as text, as Spark takes them.

    Raises:
        ConnectionsError: an environment variable is not set.
    """
    return {name: value_text(name, value) for name, value in values.items()}


class LazyOptions(Mapping[str, T]):
    """Options whose secrets are read when a value is looked up, so that a missing variable is an error only where its value is needed.

    Args:
        values: the options.
        read: returns the final value of an option, given its name and its value in the file; raises `ConnectionsError` if its environment
            variable is not set, or has a value that is not legal.
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

    __hash__ = None  # not hashable, like every mapping

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def topic_options(values: Mapping[str, Value]) -> Mapping[str, str]:
    """Options as text, as Spark takes them; secrets are read when they are looked up."""
    return LazyOptions(values, value_text)


def registry_config(values: Mapping[str, Value]) -> Mapping[str, str | int | bool]:
    """The configuration of Confluent's registry client, in which numbers stay numbers; secrets are read when they are looked up."""
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
