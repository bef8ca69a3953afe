"""The option values in the file of the connections; a secret value is read from an environment variable."""

from collections.abc import Mapping

from pydantic import Field

from operators.errors import TidemarkError
from platform_defs.declared.models import Strict
from platform_defs.settings import environment_value

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


def registry_config(values: Mapping[str, Value]) -> dict[str, str | int | bool]:
    """The configuration of Confluent's registry client, in which numbers stay numbers.

    Raises:
        ConnectionsError: an environment variable is not set.
    """
    return {**resolve_secrets(values), **{name: value for name, value in values.items() if isinstance(value, (int, bool))}}


def _text(value: Value) -> str:
    if not isinstance(value, Secret):
        return str(value).lower() if isinstance(value, bool) else str(value)
    secret = environment_value(value.env)
    if not secret:
        raise ConnectionsError.no_variable(value.env)
    return secret
