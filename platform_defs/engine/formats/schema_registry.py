"""Finds and registers schemas in a schema registry, by Confluent's own client."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from operators.errors import TidemarkError
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.formats.kafka_options import Registry
from platform_defs.safe_text import printable, shortened, without_credentials

_CONFLICT, _UNPROCESSABLE = 409, 422
_NO_SCHEMA = (40403, 40400)
"""The registry's own codes for an unknown schema. The HTTP status 404 alone may come from a proxy, or from a server at a wrong URL."""
_DEFAULTS = {"timeout": 20, "max.retries": 1}
"""By default the client waits for an answer without a limit, and an ingest holds the ledger's lock meanwhile. The timeout is in seconds."""
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


class RegistryError(TidemarkError, RuntimeError):
    """The schema registry does not answer, refuses a request, or needs a client that is not installed."""

    @classmethod
    def unreachable(cls, reason: object) -> "RegistryError":
        """The registry does not answer or refuses the request, or the client's configuration is not valid."""
        return cls(f"the schema registry cannot be used: {_cause(reason)}")

    @classmethod
    def refused(cls, subject: str, reason: object) -> "RegistryError":
        """The registry does not accept a schema, for example because it is incompatible with the subject's earlier schemas."""
        return cls(
            f"the schema registry refuses the schema of the subject {subject!r}: {_cause(reason)}. Nothing was written with it. Legal: "
            "a schema that the subject's compatibility allows. Publish to a new topic, or change the compatibility of the subject"
        )

    @classmethod
    def no_certificate(cls, registry: Registry, error: OSError) -> "RegistryError":
        """A file of certificates or keys cannot be read."""
        files = " or ".join(f"`{name}` ({registry.config[name]!r})" for name in _FILES if name in registry.config) or "the default CA file"
        return cls(
            f"the schema registry cannot be used: {files} cannot be read: {_describe(error)}. Legal: existing files in the format PEM"
        )

    @classmethod
    def no_client(cls) -> "RegistryError":
        """Confluent's client is not installed."""
        return cls("the schema registry needs Confluent's client, which is not installed; install Tidemark with the extra `kafka`")


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of a registry.

    Args:
        text: the schema.
        kind: its type: `AVRO`, `JSON` or `PROTOBUF`.
    """

    text: str
    kind: str


def schema_reader(registry: Registry) -> Callable[[int], RegisteredSchema | None]:
    """A function that returns the schema with a given id in a registry; None if there is none. Both may raise `RegistryError`."""
    client = _client(registry)

    @lru_cache(maxsize=1_000)
    def schema_of(schema_id: int) -> RegisteredSchema | None:
        try:
            schema = client.get_schema(schema_id)
        except Exception as error:  # the client raises errors of its HTTP library too
            if getattr(error, "error_code", None) in _NO_SCHEMA:
                return None
            raise RegistryError.unreachable(_describe(error)) from error
        return RegisteredSchema(schema.schema_str or "", schema.schema_type or "AVRO")

    return schema_of


def schema_registrar(registry: Registry) -> Callable[[str, str], int]:
    """A function that registers an Avro schema (its second argument) for a subject and returns its id. Both may raise `RegistryError`."""
    client = _client(registry)
    from confluent_kafka.schema_registry import Schema

    @lru_cache(maxsize=1_000)
    def id_of(subject: str, schema: str) -> int:
        try:
            return client.register_schema(subject, Schema(schema, "AVRO"))
        except Exception as error:  # the client raises errors of its HTTP library too
            if _status(error) in (_CONFLICT, _UNPROCESSABLE):
                raise RegistryError.refused(subject, error) from error
            raise RegistryError.unreachable(_describe(error)) from error

    return id_of


def _client(registry: Registry) -> Any:
    """Confluent's client. Raises `RegistryError`, also for a secret that is not set."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # an optional dependency
    except ImportError as error:
        raise RegistryError.no_client() from error
    try:
        return SchemaRegistryClient({**_DEFAULTS, **registry.config})
    except (ConnectionsError, ValueError, TypeError) as error:
        raise RegistryError.unreachable(error) from error
    except OSError as error:
        raise RegistryError.no_certificate(registry, error) from error


def _status(error: Exception) -> int | None:
    """The HTTP status of an error of the registry; None for an error of another kind."""
    return getattr(error, "http_status_code", None)


def _describe(error: Exception) -> str:
    return str(error) if _status(error) is not None else f"{type(error).__name__}: {error}"


def _cause(reason: object) -> str:
    return shortened(printable(without_credentials(str(reason))))
