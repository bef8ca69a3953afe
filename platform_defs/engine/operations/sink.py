"""A sink: the topic to which a table is published, and the errors of publishing to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from py4j.protocol import Py4JJavaError

from operators.errors import TidemarkError
from platform_defs.engine.formats.kafka_client import client_options, root_cause
from platform_defs.engine.formats.kafka_options import Registry
from platform_defs.safe_text import printable

_KAFKA = ".kafka."


class SinkError(TidemarkError, RuntimeError):
    """A table cannot be published to a topic."""

    @classmethod
    def no_topic(cls, topic: str) -> "SinkError":
        """The topic does not exist."""
        return cls(
            f"there is no topic {topic!r}; legal: an existing topic. Create it, with `cleanup.policy=compact` for an upserted table; or "
            "set the sink's `partitions`, with which it is created"
        )

    @classmethod
    def foreign(cls, topic: str, partition: int, header: str) -> "SinkError":
        """The newest record of a partition was not written by a sink."""
        return cls(
            f"the newest record in partition {partition} of the topic {topic!r} has no header {header!r}, so another program wrote it. "
            "One topic has the steps of one table; publish it to a new topic"
        )

    @classmethod
    def other_table(cls, asset: str, topic: str, id_in_topic: str, id_of_asset: str) -> "SinkError":
        """The topic has steps of a table with another id."""
        return cls(
            f"the topic {topic!r} has the steps of a table with the id {id_in_topic}, and the id of {asset} is {id_of_asset}: it was "
            "created again, or is another table. One topic cannot have steps of both; publish it to a new topic"
        )

    @classmethod
    def other_step(cls, asset: str, topic: str, step: int, newest: int) -> "SinkError":
        """The table lost a step that the topic contains."""
        return cls(
            f"the topic {topic!r} has step {step} of {asset}, which the table has lost since, or replaced by another one with the same "
            f"number; its newest step is {newest}. One topic cannot have steps of both; publish it to a new topic"
        )

    @classmethod
    def no_version(cls, asset: str, topic: str, step: int) -> "SinkError":
        """The table's log lacks the steps that follow the published ones."""
        return cls(
            f"the topic {topic!r} has {asset} up to step {step}, and the table's log no longer has the steps that follow; legal: a sink "
            "that runs more often than Delta deletes old log entries. Publish it to a new topic, which then has the present rows first"
        )

    @classmethod
    def no_files(cls, asset: str, topic: str, step: int) -> "SinkError":
        """Data files of an earlier version of the table were deleted."""
        return cls(
            f"the topic {topic!r} lacks step {step} of {asset}, and maintenance has deleted data files that its changes need; "
            "legal: a sink that runs more often than old files are deleted (by default after 7 days; the table's property "
            "`delta.deletedFileRetentionDuration` and `retention_hours` of `maintain` change that). Publish it to a new topic, which then "
            "has the present rows first"
        )

    @classmethod
    def no_key(cls, asset: str, key: Sequence[str], columns: Sequence[str]) -> "SinkError":
        """The key has a column that the table lacks."""
        return cls(f"`key` of the sink of {asset} is {list(key)}; legal: columns of the table, {', '.join(columns)}")

    @classmethod
    def no_avro_name(cls, asset: str, columns: Sequence[str]) -> "SinkError":
        """Columns, or fields in them, have names that Avro does not allow."""
        return cls(
            f"the columns {', '.join(columns)} of {asset} cannot be fields of an Avro record; legal: letters a to z, digits and '_', not "
            "starting with a digit. Rename them in the operator, or set the sink's `format` to json"
        )

    @classmethod
    def no_avro_map(cls, asset: str, columns: Sequence[str]) -> "SinkError":
        """Columns have maps that Avro does not allow."""
        return cls(
            f"the columns {', '.join(columns)} of {asset} have maps whose keys are no strings; legal: maps with strings as keys. Convert "
            "the keys in the operator, or set the sink's `format` to json"
        )

    @classmethod
    def not_by_range(cls, asset: str) -> "SinkError":
        """The table neither is upserted nor has closed ranges."""
        return cls(
            f"{asset} has no changelog and no `final_at`, so its new rows cannot be found; legal: another table, or `tidemark export`"
        )

    @classmethod
    def not_read(cls, topic: str, partitions: Sequence[int], seconds: int) -> "SinkError":
        """The newest records of partitions did not arrive in time."""
        return cls(
            f"the newest records of the partitions {', '.join(map(str, partitions))} of the topic {topic!r} did not arrive within "
            f"{seconds} s, so the last published step is not known; nothing was written. Try again"
        )

    @classmethod
    def failed(cls, topic: str, error: Py4JJavaError) -> "SinkError":
        """Kafka's client failed."""
        return cls(
            f"the topic {topic!r} cannot be used: {printable(str(root_cause(error)))}. Check the options `kafka.*` of the connections, "
            "and whether the broker runs"
        )


@dataclass(frozen=True, kw_only=True)
class Sink:
    """The topic to which a table is published, and the format.

    Args:
        topic: the topic.
        options: the options of Spark's Kafka writer, by Spark's names, which start with `kafka.`; may contain secrets.
        format: how keys and values are written.
        key: the columns of the key of an appended table's records; empty for the key of its results, if they have one. An upserted table
            has its own key.
        partitions: the number of partitions with which a missing topic is created; None if it must exist.
        registry: the registry in which the Avro schemas are registered, for Confluent's wire format; None for the encoding alone.
    """

    topic: str
    options: Mapping[str, str] = field(repr=False)
    format: Literal["json", "avro"] = "json"
    key: tuple[str, ...] = ()
    partitions: int | None = None
    registry: Registry | None = None

    @property
    def client(self) -> dict[str, str]:
        """The options of Kafka's client."""
        return client_options(self.options)


class NamingTopicErrors:
    """Replaces an error of Kafka's client by a `SinkError` that names the topic. Other errors stay as they are."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Py4JJavaError) and _KAFKA in str(root_cause(error).getClass().getName()):
            raise SinkError.failed(self._topic, error) from error
