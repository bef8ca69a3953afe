"""The part `kafka` of the connections: the topics that sources read."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from assets.contracts import BoundedOutOfOrderness
from assets.names import first_duplicate
from assets.pipeline import Pipeline
from operators.errors import TidemarkError, did_you_mean
from platform_defs.connections.kafka_sinks import KafkaSink
from platform_defs.connections.values import LazyOptions, RegistryOptions, Secret, Value, registry_config, value_text
from platform_defs.declared.models import Strict
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.formats.kafka_options import HEADER, METADATA, Avro, Registry, Topics
from platform_defs.settings.values import PROJECT

_TOPICS = {"subscribe", "subscribepattern"}
_STARTS = {"startingoffsets", "startingtimestamp"}
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
"""The options of Spark's reader that a source can have, besides those of Kafka's client, which start with `kafka.`."""
_MOST_DIGITS = 19
_NUMBERS = {
    "maxoffsetspertrigger": range(1, 1 << 63),
    "startingtimestamp": range(1 << 63),
    "minpartitions": range(1, 1 << 31),
    "maxrecordsperpartition": range(1, 1 << 63),
}
"""By option, in lower case, the legal numbers; they have at most `_MOST_DIGITS` digits."""
_OF_SPARK = (
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafka.group.id",
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
)
"""Options of the client that Spark sets itself or refuses. With `kafka.group.id`, other consumers of the group could take partitions."""


class KafkaError(TidemarkError, ValueError):
    """The topics of a source do not match the pipeline, or the Avro schema of their values cannot be used."""

    @classmethod
    def no_source(cls, name: str, pipeline: Pipeline) -> "KafkaError":
        """The pipeline has no source of the name."""
        sources = pipeline.sources_by_name
        return cls(f"kafka.sources: there is no source {name!r}; legal: {', '.join(sources)}{did_you_mean(name, sources)}")

    @classmethod
    def no_schema(cls, source: str, file: str, fault: str) -> "KafkaError":
        """The file of an Avro schema cannot be read, or does not have the schema of a record that Spark can read."""
        legal = "legal: a file with the Avro schema of a record, a JSON object, in which the fields of each record differ in more than case"
        return cls(f"kafka.sources.{source}.avro: `schema_file` is {file!r}, which {fault}; {legal}")

    @classmethod
    def not_with_topics(cls, source: str, parameter: str, legal: str) -> "KafkaError":
        """A parameter of a source has a value that does not work with topics."""
        return cls(f"kafka.sources.{source}: `{parameter}` of the source does not work with topics; legal: {legal}")

    @classmethod
    def no_column(cls, source: str, column: str, columns: list[str]) -> "KafkaError":
        """The source has no column of the name."""
        return cls(f"kafka.sources.{source}.columns: there is no column {column!r}; legal: {', '.join(columns)}")


def checked_options(options: dict[str, Value]) -> dict[str, Value]:
    """Raise `ValueError` unless each option is known, is given once, and has a legal value. Spark ignores the case of names."""
    lower_names = {name.lower() for name in _OPTIONS}
    if (twice := first_duplicate([*options])) is not None:
        raise ValueError(f"{twice!r} differs from another option in case only; legal: each option once")
    for name in options:
        if name.lower() in _OF_SPARK:
            raise ValueError(f"{name!r} is set or refused by Spark; legal: other options of Kafka's client")
        if not isinstance(options[name], Secret) and (legal := _legal_value(name, str(options[name]))) is not None:
            raise ValueError(f"{name!r} is {options[name]!r}; legal: {legal}")
        if (not name.startswith("kafka.") and name.lower() not in lower_names) or name == "kafka.":
            raise ValueError(f"{name!r} is no option; legal: {', '.join(_OPTIONS)}, kafka.*{did_you_mean(name, _OPTIONS)}")
    if len(starts := [name for name in options if name.lower() in _STARTS]) > 1:
        raise ValueError(f"{' and '.join(map(repr, starts))} are both given; legal: one of them, since a source has one start")
    return options


def _legal_value(name: str, text: str) -> str | None:
    """A description of the legal values of an option of a source; None if the value is legal."""
    option, numbers = name.lower(), _NUMBERS.get(name.lower())
    if numbers is not None and not (text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) in numbers):
        return f"a whole number from {numbers.start} to {numbers.stop - 1}"
    if option == "startingoffsets" and text.lower() not in ("earliest", "latest") and not _is_offsets(text):
        return 'earliest, latest, or JSON such as {"orders": {"0": 23, "1": -1}}'
    if option == "failondataloss" and text.lower() not in ("true", "false"):
        return "true or false"
    if option == "subscribe" and not all(topic.strip() for topic in text.split(",")):
        return "names of topics, separated by commas"
    if option == "subscribepattern" and not text.strip():
        return "a regular expression"
    return None


def _option_text(name: str, value: Value) -> str:
    """The value of an option of a source as text.

    Raises:
        ConnectionsError: its environment variable is not set, or has a value that is not legal.
    """
    text = value_text(name, value)
    if isinstance(value, Secret) and (legal := _legal_value(name, text)) is not None:
        raise ConnectionsError.bad_variable(value.env, name, legal)
    return text


def _is_offsets(text: str) -> bool:
    try:
        offsets_by_topic = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(offsets_by_topic, dict) and all(
        isinstance(offsets, dict) and all(_PARTITION.fullmatch(number) and _is_offset(offset) for number, offset in offsets.items())
        for offsets in offsets_by_topic.values()
    )


def _is_offset(value: object) -> bool:
    """Whether a value is an offset, or -1 or -2, which stand for the latest and the earliest. A truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool) and -2 <= value < 1 << 63


def _checked_part(part: str) -> str:
    if part not in METADATA and not part.startswith(HEADER):
        raise ValueError(f"legal: {', '.join(METADATA)}, {HEADER}NAME")
    return part


Options = Annotated[dict[str, Value], AfterValidator(checked_options)]


def _without_topics(options: dict[str, Value]) -> dict[str, Value]:
    """Raise `ValueError` if the options that all sources share name topics."""
    for name in options:
        if name.lower() in _TOPICS:
            raise ValueError(f"{name!r} is an option of a single source; legal: {name} in kafka.sources.NAME.options")
    return options


class AvroValues(Strict):
    """How Avro values are written.

    Args:
        schema_file: the file with the schema, if all values have the same one; a relative path starts from Tidemark's own folder.
        registry: for values in Confluent's wire format, the configuration of its registry client, such as `url` and `basic.auth.user.info`.
    """

    schema_file: str | None = None
    registry: RegistryOptions | None = None

    @model_validator(mode="after")
    def _check_one(self) -> "AvroValues":
        if (self.schema_file is None) == (self.registry is None):
            raise ValueError("legal: one of schema_file and registry")
        return self

    def described(self, source: str) -> Avro:
        """The values as the engine reads them.

        Args:
            source: the source's name, for an error.

        Raises:
            KafkaError: the file cannot be read, it certainly does not have the schema of a record, or two fields of a record differ only in
                case, which Spark ignores. Spark checks the rest.
        """
        if self.schema_file is None:
            return Avro(registry=Registry(config=registry_config(self.registry or {})))
        try:
            text = Path(PROJECT, self.schema_file).read_text("utf-8")
            fault = _schema_fault(json.loads(text))
        except (OSError, ValueError, RecursionError) as error:
            raise KafkaError.no_schema(source, self.schema_file, f"cannot be read: {error}") from error
        if fault is not None:
            raise KafkaError.no_schema(source, self.schema_file, fault)
        return Avro(schema=text, file=self.schema_file)


def _schema_fault(schema: Any) -> str | None:
    """Why a file does not have the Avro schema of a record that Spark can read; None if no fault is known."""
    if isinstance(schema, list):
        return "has a union of schemas at its top"
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return "is not the schema of a record"
    for record in _records_in(schema):
        names = [str(field["name"]) for field in record["fields"] if isinstance(field, dict) and "name" in field]
        if (twice := first_duplicate(names)) is not None:
            return f"has the field {twice!r} of the record {record.get('name')!r} twice, ignoring case"
    return None


def _records_in(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas of records in an Avro schema, including the schema itself if it is one."""
    if isinstance(schema, list):
        yield from chain.from_iterable(map(_records_in, schema))
    if isinstance(schema, dict):
        fields = schema.get("fields") if schema.get("type") == "record" else None
        if isinstance(fields, list):
            yield schema
        yield from chain.from_iterable(map(_records_in, [schema.get("type"), schema.get("items"), schema.get("values"), fields]))


class KafkaSource(Strict):
    """The topics that a source reads, in addition to the files in its landing folder.

    Args:
        options: options of Spark's Kafka reader, by Spark's names, and of Kafka's client, with the prefix `kafka.`.
        columns: by column of the source, the part of a record that it contains: key, topic, partition, offset, timestamp, headers.NAME.
        avro: how values are written as Avro; by default they are JSON objects.
        accepted: the new ids of topics that were deleted and created again. Such a topic is read only if its id is listed here.
    """

    options: Options = Field(default_factory=dict)
    columns: dict[str, Annotated[str, AfterValidator(_checked_part)]] = Field(default_factory=dict)
    avro: AvroValues | None = None
    accepted: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_topics(self) -> "KafkaSource":
        given = {name.lower() for name in self.options} & _TOPICS
        if len(given) != 1:
            raise ValueError("legal: either subscribe (topics, separated by commas) or subscribePattern (a regular expression)")
        return self


class Kafka(Strict):
    """The topics that sources read, and the topics to which tables are published.

    Args:
        options: options of all sources and sinks, such as `kafka.bootstrap.servers`.
        sources: by the name of a source, its topics.
        sinks: by the name of a table, its topic.
    """

    options: Annotated[Options, AfterValidator(_without_topics)] = Field(default_factory=dict)
    sources: dict[str, KafkaSource] = Field(default_factory=dict)
    sinks: dict[str, KafkaSink] = Field(default_factory=dict)

    def topics(self, pipeline: Pipeline) -> Mapping[str, Topics]:
        """The topics of the pipeline's sources.

        Raises:
            KafkaError: the pipeline has no such source, a source lacks a column or has a parameter that does not work with topics, or the
                file of an Avro schema cannot be used.
        """
        return {name: self._topics(name, source, pipeline) for name, source in self.sources.items()}

    def _topics(self, name: str, source: KafkaSource, pipeline: Pipeline) -> Topics:
        if name not in pipeline.sources_by_name:
            raise KafkaError.no_source(name, pipeline)
        contract = pipeline.sources_by_name[name]
        if not isinstance(contract.watermark, BoundedOutOfOrderness):
            raise KafkaError.not_with_topics(name, "watermark", "BoundedOutOfOrderness: each partition has its own watermark")
        if contract.new_columns in ("add", "refuse"):
            raise KafkaError.not_with_topics(name, "new_columns", "ignore, quarantine")
        columns = contract.struct.fieldNames()
        for column in source.columns:
            if column not in columns:
                raise KafkaError.no_column(name, column, columns)
        avro = source.avro.described(name) if source.avro else None
        own = {name.lower() for name in source.options}
        own |= _STARTS if own & _STARTS else set()  # a source has one start, so its own replaces the shared one also under another name
        shared = {name: value for name, value in self.options.items() if name.lower() not in own}
        options = LazyOptions({**shared, **source.options}, _option_text)
        return Topics(options=options, columns=source.columns, avro=avro, accepted=tuple(source.accepted))
