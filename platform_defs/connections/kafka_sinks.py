"""The part `kafka.sinks` of the connections: the topics to which tables are published."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from assets.names import first_duplicate
from assets.pipeline import Pipeline
from operators.errors import TidemarkError, did_you_mean
from platform_defs.connections.values import RegistryOptions, Value, registry_config, topic_options
from platform_defs.declared.models import Strict
from platform_defs.engine.formats.kafka_options import Registry
from platform_defs.engine.operations.sink import Sink

_OF_SPARK = ("kafka.key.serializer", "kafka.value.serializer", "kafka.transactional.id")
_IDEMPOTENT = "kafka.enable.idempotence"
_NEEDED = {"kafka.acks": ("all", "-1"), _IDEMPOTENT: ("true",)}
"""Options of the producer on which a sink relies, with their legal values: with other values, records can be lost or reordered."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class KafkaSinkError(TidemarkError, ValueError):
    """The topics of tables do not match the pipeline."""

    @classmethod
    def no_table(cls, name: str, pipeline: Pipeline) -> "KafkaSinkError":
        """The pipeline has no table of the name."""
        tables = pipeline.tables_by_name
        return cls(f"kafka.sinks: there is no table {name!r}; legal: {', '.join(tables)}{did_you_mean(name, tables)}")

    @classmethod
    def own_key(cls, name: str) -> "KafkaSinkError":
        """A key is given for an upserted table."""
        return cls(f"kafka.sinks.{name}.key: {name} is an upserted table, whose records have the table's key; legal: no `key`")

    @classmethod
    def no_column(cls, name: str, column: str, columns: Sequence[str]) -> "KafkaSinkError":
        """A key has a column that the table does not have."""
        hint = did_you_mean(column, columns)
        return cls(f"kafka.sinks.{name}.key: there is no column {column!r}; legal: columns of {name}, {', '.join(columns)}{hint}")

    @classmethod
    def same_topic(cls, topic: str, tables: list[str]) -> "KafkaSinkError":
        """Two tables have the same topic."""
        return cls(f"kafka.sinks: {' and '.join(tables)} have the topic {topic!r}; legal: a topic for each table")

    @classmethod
    def name_of_step(cls, table: str, step: str) -> "KafkaSinkError":
        """A table has the name of the step of Dagster that publishes another table."""
        return cls(
            f"kafka.sinks.{table}: the step of Dagster that publishes {table!r} is called {step!r}, which is the name of a table too; "
            "legal: another name for one of the two tables"
        )

    @classmethod
    def bad_option(cls, table: str, reason: object) -> "KafkaSinkError":
        """An option that all sources and sinks share is not legal for a sink."""
        return cls(f"kafka.sinks.{table}: {reason}; an option of `kafka.options` also applies to sinks, unless a sink has its own")

    @classmethod
    def no_server(cls, name: str) -> "KafkaSinkError":
        """No broker is given."""
        return cls(f"kafka.sinks.{name} has no option kafka.bootstrap.servers; legal: HOST:PORT of a broker, here or in kafka.options")


def checked_options(options: dict[str, Value]) -> dict[str, Value]:
    """Raise `ValueError` unless all options are options of Kafka's producer, and none lets records be lost or reordered.

    Spark ignores the case of names.
    """
    if (twice := first_duplicate([*options])) is not None:
        raise ValueError(f"{twice!r} differs from another option in case only; legal: each option once")
    for name, value in options.items():
        if name.lower() in _OF_SPARK:
            raise ValueError(f"{name!r} is set by Spark; legal: other options of Kafka's producer")
        if not name.startswith("kafka."):
            raise ValueError(f"{name!r} is not an option of a sink; legal: kafka.*, the options of Kafka's producer")
        legal = _NEEDED.get(name.lower())
        if legal is not None and str(value).lower() not in legal:
            raise ValueError(f"{name!r} is {value!r}; legal: {' or '.join(legal)}, because a sink must not lose records")
    return options


def _checked_topic(topic: str) -> str:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError("legal: at most 249 letters, digits, '.', '_' and '-', but neither '.' nor '..'")
    return topic


class KafkaSink(Strict):
    """The topic to which a table is published.

    Args:
        topic: the topic.
        format: how keys and values are written: json or avro.
        key: the columns of the key, for a table to which rows are appended; by default the key of its results, if they have one.
        registry: for Avro, the configuration of Confluent's registry client, such as `url`: keys and values are in its wire format.
        partitions: the number of partitions with which a missing topic is created; by default it must exist.
        options: options of Kafka's producer, with the prefix `kafka.`, in addition to those of all sources and sinks.
    """

    topic: Annotated[str, AfterValidator(_checked_topic)]
    format: Literal["json", "avro"] = "json"
    key: list[str] = Field(default_factory=list)
    registry: RegistryOptions | None = None
    partitions: int | None = Field(default=None, ge=1, le=100_000)
    options: Annotated[dict[str, Value], AfterValidator(checked_options)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_registry(self) -> "KafkaSink":
        if self.registry is not None and self.format != "avro":
            raise ValueError("registry is given, and format is json; legal: a registry with the format avro")
        return self


def check_steps(declared: Iterable[str], pipeline: Pipeline) -> None:
    """Raise `KafkaSinkError` if a table of a pipeline has the name of the step of Dagster that publishes another table.

    Args:
        declared: the names of the tables that have a sink.
        pipeline: the pipeline.
    """
    for name in declared:
        step = f"kafka__{name}"  # Dagster joins the parts of the asset key of `topic_key`
        if step in pipeline.tables_by_name:
            raise KafkaSinkError.name_of_step(name, step)


def sinks_of(declared: Mapping[str, KafkaSink], shared: Mapping[str, Value], pipeline: Pipeline) -> dict[str, Sink]:
    """The sinks of a pipeline's tables.

    Args:
        declared: the sinks, by table.
        shared: the options that all sources and sinks share; sinks ignore options of Spark's reader, which do not start with `kafka.`.
        pipeline: the pipeline.

    Raises:
        KafkaSinkError: the pipeline has no such table, or a table with the name of a sink's step; a sink of an upserted table has a `key`;
            a key has a column that its table lacks; two tables have the same topic; an option is not legal; no broker is given.
    """
    check_steps(declared, pipeline)
    of_client = {name: value for name, value in shared.items() if name.startswith("kafka.")}
    for topic in (topics := [sink.topic for sink in declared.values()]):
        if topics.count(topic) > 1:
            raise KafkaSinkError.same_topic(topic, [name for name, sink in declared.items() if sink.topic == topic])
    columns = pipeline.columns_of_tables() if any(sink.key for sink in declared.values()) else {}
    return {name: _sink(name, sink, of_client, pipeline, columns.get(name, sink.key)) for name, sink in declared.items()}


def _sink(name: str, sink: KafkaSink, shared: Mapping[str, Value], pipeline: Pipeline, columns: Sequence[str]) -> Sink:
    if name not in pipeline.tables_by_name:
        raise KafkaSinkError.no_table(name, pipeline)
    if sink.key and pipeline.tables_by_name[name].operator.emits.upserts:
        raise KafkaSinkError.own_key(name)
    for column in sink.key:
        if column not in columns:
            raise KafkaSinkError.no_column(name, column, columns)
    own = {option.lower() for option in sink.options}
    try:
        checked = checked_options({**{option: value for option, value in shared.items() if option.lower() not in own}, **sink.options})
    except ValueError as error:
        raise KafkaSinkError.bad_option(name, error) from error
    if _IDEMPOTENT not in map(str.lower, checked):  # if it is not set, Kafka's client turns it off for options that do not allow it
        checked = checked | {_IDEMPOTENT: True}
    options = topic_options(checked)
    if "kafka.bootstrap.servers" not in {option.lower() for option in options}:
        raise KafkaSinkError.no_server(name)
    registry = None if sink.registry is None else Registry(config=registry_config(sink.registry))
    return Sink(topic=sink.topic, options=options, format=sink.format, key=tuple(sink.key), partitions=sink.partitions, registry=registry)
