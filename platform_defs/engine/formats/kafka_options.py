"""The topics that a source reads from Kafka, and how they are read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from platform_defs.engine.formats.kafka_client import client_options

METADATA = ("key", "topic", "partition", "offset", "timestamp")
"""The parts of a record, besides its value and headers, that a column of a source can contain."""
HEADER = "headers."
"""The prefix of the part of a record that is one of its headers: the header's name follows."""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A schema registry with the interface of Confluent's.

    Args:
        config: the configuration of Confluent's client, such as `url`; may contain secrets.
    """

    config: Mapping[str, str | int | bool] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Avro:
    """How Avro values are written: with one schema, or in Confluent's wire format with the ids of schemas in a schema registry.

    Args:
        schema: the schema as JSON; None with a registry.
        file: the file that the schema was read from, for error messages; None with a registry.
        registry: the registry; None with one schema.
    """

    schema: str | None = None
    file: str | None = field(default=None, repr=False, compare=False)
    registry: Registry | None = None


@dataclass(frozen=True, kw_only=True)
class Topics:
    """The topics that a source reads.

    Args:
        options: the options of Spark's Kafka reader, by Spark's names, with those of the client (`kafka.`); may contain secrets.
        columns: by column of the source, the part of a record that it contains, one of `METADATA` or `headers.NAME`; all other columns
            contain fields of the record's value.
        avro: how values are written as Avro; None for JSON objects.
        accepted: the new ids of topics that were deleted and created again, and that a user has accepted.
    """

    options: Mapping[str, str] = field(repr=False)
    columns: Mapping[str, str] = field(default_factory=dict)
    avro: Avro | None = None
    accepted: Sequence[str] = ()

    def option(self, name: str, default: str = "") -> str:
        """An option's value; Spark ignores the case of names."""
        return next((self.options[key] for key in self.options if key.lower() == name.lower()), default)

    @property
    def name(self) -> str:
        """The topics, as the options name them."""
        return self.option("subscribe") or self.option("subscribePattern")

    @property
    def subscribed(self) -> list[str]:
        """The topics that are named one by one; empty if a pattern names them."""
        return [name.strip() for name in self.option("subscribe").split(",")] if self.option("subscribe") else []

    def reads(self, topic: str) -> bool:
        """Whether the topic of this name is read; also True if Python cannot match the pattern, since Java may match it."""
        if self.subscribed:
            return topic in self.subscribed
        try:
            return re.fullmatch(self.option("subscribePattern"), topic) is not None
        except re.error:  # Java's regular expressions have forms that Python's lack
            return True

    @property
    def starts_at_earliest(self) -> bool:
        """Whether the first read of the source starts at the earliest offsets."""
        return self.option("startingOffsets", "earliest").lower() == "earliest" and not self.option("startingTimestamp")

    @property
    def client(self) -> dict[str, str]:
        """The options of Kafka's client."""
        return client_options(self.options)

    @property
    def reading(self) -> str:
        """A text that identifies all options that decide which rows are read from a record: it changes if one of these options changes."""
        return repr((sorted(self.columns.items()), self.avro))
