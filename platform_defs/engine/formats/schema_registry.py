"""Schemas from a registry with the interface of Confluent's, by Confluent's own client."""

from collections.abc import Callable
from functools import lru_cache

from operators.errors import TidemarkError
from platform_defs.engine.formats.kafka_options import Registry
from platform_defs.safe_text import printable, shortened, without_credentials

_NOT_FOUND = 404


class RegistryError(TidemarkError, RuntimeError):
    """The registry of schemas cannot be asked now."""

    @classmethod
    def unreachable(cls, why: object) -> "RegistryError":
        """The registry does not answer, or refuses the request."""
        return cls(f"the registry of schemas cannot be asked: {shortened(printable(without_credentials(str(why))))}")

    @classmethod
    def no_client(cls) -> "RegistryError":
        """Confluent's client is not installed."""
        return cls("the registry of schemas needs Confluent's client, which is not installed; install Tidemark with the extra `kafka`")


def registered(registry: Registry) -> Callable[[int], str | None]:
    """A function that finds schemas in a registry by their ids; None for an id without a schema. It raises `RegistryError`."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # an optional dependency
        from confluent_kafka.schema_registry.error import SchemaRegistryError
    except ImportError as error:
        raise RegistryError.no_client() from error

    @lru_cache(maxsize=1_000)
    def schema_of(schema_id: int) -> str | None:
        try:
            return client.get_schema(schema_id).schema_str
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            raise RegistryError.unreachable(error) from error
        except Exception as error:  # the client raises errors of its HTTP library
            raise RegistryError.unreachable(f"{type(error).__name__}: {error}") from error

    try:
        client = SchemaRegistryClient(dict(registry.config))
    except (ValueError, TypeError) as error:
        raise RegistryError.unreachable(error) from error
    return schema_of
