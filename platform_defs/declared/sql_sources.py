"""Reads CREATE TABLE statements: the contract of a source, and for a source in Kafka its part of the file of connections."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.contracts import INGESTED_AT, Alignment, BatchExpression, BoundedOutOfOrderness, RowRule, SourceContract
from operators.errors import did_you_mean
from operators.sql.durations import words
from operators.sql.errors import SqlError
from operators.sql.names import column_sql
from operators.sql.tables import Column, CreateTable

FILES, DELTA, KAFKA = "filesystem", "delta", "kafka"
CONNECTORS = (FILES, DELTA, KAFKA)
FORMATS = ("csv", "json", "parquet")
_PROPERTY, _RULE = "properties.", "tidemark.rule."
_CSV_OPTIONS = {
    "csv.field-delimiter": "sep",
    "csv.quote-character": "quote",
    "csv.escape-character": "escape",
    "csv.null-literal": "nullValue",
    "tidemark.header": "header",
}
"""Options of the CSV format, by the name in WITH: the name in Spark."""
_CONTRACT_OPTIONS = {
    "scan.watermark.idle-timeout": "idle_timeout",
    "tidemark.future-skew": "future_skew",
    "tidemark.duplicate-horizon": "duplicate_horizon",
    "tidemark.retention": "retention",
    "tidemark.new-columns": "new_columns",
}
_GROUP, _MAX_DRIFT, _EXPRESSION = "scan.watermark.alignment.group", "scan.watermark.alignment.max-drift", "tidemark.watermark"
_WATERMARK_OPTIONS = (_GROUP, _MAX_DRIFT, _EXPRESSION)
_START, _START_MS = "scan.startup.mode", "scan.startup.timestamp-millis"
_REGISTRY = "avro-confluent.url"
_OPTIONS_OF = {
    FILES: ("path", "table-path", "format", "value.format"),
    DELTA: ("path", "table-path"),
    KAFKA: ("topic", "topic-pattern", "format", "value.format", _REGISTRY, _START, _START_MS, f"{_PROPERTY}NAME"),
}
"""By connector, the options that only its sources have. Files in CSV have `_CSV_OPTIONS`, too."""
_REFUSED = {
    "csv.ignore-parse-errors": "rows that cannot be parsed are quarantined with the reason",
    "json.ignore-parse-errors": "rows that cannot be parsed are quarantined with the reason",
    "json.fail-on-missing-field": "NOT NULL columns without a value are quarantined with the reason",
    "scan.watermark.alignment.update-interval": "sources are compared at each ingest",
    "scan.watermark.emit.strategy": "the watermark is raised with each batch",
    "scan.watermark.emit.on-event.gap": "the watermark is raised with each batch",
    "source.monitor-interval": "new files are found by each `tidemark ingest`, and by the stream at each of its intervals",
}
"""Flink's options that a source does not have: what Tidemark does instead."""
_STARTUP = {"earliest-offset": {"startingOffsets": "earliest"}, "latest-offset": {"startingOffsets": "latest"}}
_SECRETS = ("password", "jaas", "secret", "user.info", "key")
"""Parts of the names of options of Kafka's client whose values may be secret."""
_NO_SECRETS = ("key.deserializer", "key.serializer", "ssl.keystore.location", "ssl.keystore.type")
"""The options of Kafka's client that have such a name, but no secret value."""


@dataclass(frozen=True)
class DeclaredSource:
    """A source that a CREATE TABLE statement declares.

    Args:
        contract: the contract of the source.
        connector: where the rows are: `filesystem`, `delta` or `kafka`.
        path: the path of the files or of the Delta table; empty if no option gives it.
        format: the format of the files or of the records; empty if no option gives it.
        kafka: the source's part of `kafka.sources` in the connections; empty for another connector.
        kafka_options: its part of `kafka.options`.
    """

    contract: SourceContract
    connector: str
    path: str = ""
    format: str = ""
    kafka: Mapping[str, Any] = field(default_factory=dict)
    kafka_options: Mapping[str, str] = field(default_factory=dict)


def declared_source(table: CreateTable) -> DeclaredSource:
    """The source of a CREATE TABLE statement.

    Raises:
        SqlError: an option is unknown, or has no counterpart.
        ContractError: a value of the contract is not legal.
    """
    options = {**table.options}
    connector = options.pop("connector", "")
    if connector not in CONNECTORS:
        legal = f"legal: {', '.join(CONNECTORS)}{did_you_mean(connector, CONNECTORS)}"
        raise SqlError.refused(f"the connector {connector!r} of table {table.name!r}", "there is no such source", legal)
    path = "" if connector == KAFKA else _value_of(table, options, "path", "table-path")
    file_format = "" if connector == DELTA else _value_of(table, options, "format", "value.format")
    kafka, kafka_options = _topics(table, options, file_format) if connector == KAFKA else ({}, {})
    if connector == FILES and file_format not in FORMATS:
        raise bad_option(table, "format", file_format, f"legal: {', '.join(FORMATS)}")
    parameters: dict[str, Any] = {_CONTRACT_OPTIONS[name]: options.pop(name) for name in [*options] if name in _CONTRACT_OPTIONS}
    parameters |= _watermark(table, {name: options.pop(name) for name in _WATERMARK_OPTIONS if name in options})
    rules = {name: options.pop(name) for name in [*options] if name.startswith(_RULE)}
    reader, csv_options = dict[str, str](), _CSV_OPTIONS if connector == FILES and file_format == "csv" else {}
    if csv_options:  # as in Flink, CSV files have no header by default
        reader = {"header": "false"} | {csv_options[name]: options.pop(name) for name in [*options] if name in csv_options}
    if options:
        name, value = next(iter(options.items()))
        legal_options = ["connector", *_OPTIONS_OF[connector], *csv_options, *_CONTRACT_OPTIONS, *_WATERMARK_OPTIONS, f"{_RULE}NAME"]
        raise bad_option(table, name, value, _REFUSED.get(name) or f"legal: {', '.join(legal_options)}{did_you_mean(name, legal_options)}")
    parameters["rules"] = tuple(RowRule(name.removeprefix(_RULE), condition) for name, condition in rules.items())
    return DeclaredSource(_contract(table, reader, parameters), connector, path, file_format, kafka, kafka_options)


def bad_option(table: CreateTable, name: str, value: str, reason: str) -> SqlError:
    """The error of an option of WITH."""
    return SqlError(f"the option {name!r} of table {table.name!r} is {value!r}; {reason}")


def _value_of(table: CreateTable, options: dict[str, str], *names: str) -> str:
    """Remove options that have the same meaning; returns their value, or empty text if there are none.

    Raises:
        SqlError: two of them have different values.
    """
    values = {name: value for name in names if (value := options.pop(name, ""))}
    if len({*values.values()}) > 1:
        first, second = values
        raise bad_option(table, second, values[second], f"legal: {values[first]!r}, the value of {first}, or only one of the two options")
    return next(iter(values.values()), "")


def _watermark(table: CreateTable, options: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of the contract for the options of the watermark; without an expression, the watermark is that of WATERMARK FOR."""
    group, max_drift, expression = (options.get(name, "") for name in _WATERMARK_OPTIONS)
    if bool(group) != bool(max_drift):
        raise bad_option(table, _GROUP, group, f"legal: a name, with {_MAX_DRIFT}, or neither of them")
    if expression and table.time is None:
        raise bad_option(table, _EXPRESSION, expression, "legal: none without WATERMARK FOR, which names the event time")
    parameters: dict[str, Any] = {"alignment": Alignment(group, max_drift)} if group else {}
    return parameters | ({"watermark": BatchExpression(expression)} if expression else {})


def _contract(table: CreateTable, reader: Mapping[str, str], parameters: Mapping[str, Any]) -> SourceContract:
    time = next((c for c in table.columns if c.name == table.time), None)
    # Flink SQL's watermark is the newest time less the delay; that of `BoundedOutOfOrderness` is 1 ms lower still
    bound = BoundedOutOfOrderness(words(max(0, table.delay - 1)))
    return SourceContract(
        name=table.name,
        schema=", ".join(_ddl(column) for column in table.stored),
        event_time=INGESTED_AT if time is None else time.expression or time.name,
        unique_key=table.key,
        options=reader,
        **{"watermark": bound, **parameters},
    )


def _ddl(column: Column) -> str:
    comment = column.comment.replace("\\", "\\\\").replace("'", "\\'")
    comment_sql = f" COMMENT '{comment}'" if comment else ""
    return f"{column_sql(column.name)} {column.type}{' NOT NULL' if column.is_required else ''}{comment_sql}"


def _topics(table: CreateTable, options: dict[str, str], file_format: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The source's topics, and the options of the client; known options are removed from `options`."""
    source: dict[str, Any] = {"options": _subscription(table, options)}
    if file_format == "avro-confluent":
        source["avro"] = {"registry": {"url": options.pop(_REGISTRY, "")}}
    elif file_format == "json" and _REGISTRY in options:
        raise bad_option(table, _REGISTRY, options[_REGISTRY], "legal: none with json")
    elif file_format != "json":
        raise bad_option(table, "format", file_format, "legal: json, avro-confluent")
    if columns := {c.name: c.metadata for c in table.columns if c.metadata}:
        source["columns"] = columns
    return source, client_options(table, options)


def client_options(table: CreateTable, options: dict[str, str]) -> dict[str, str]:
    """The options of Kafka's client, which are removed from `options`. The consumer group is left out: the ledger has the offsets.

    Raises:
        SqlError: an option may be a secret.
    """
    client_options: dict[str, str] = {}
    for name in [name for name in options if name.startswith(_PROPERTY)]:
        value, client_option = options.pop(name), name.removeprefix(_PROPERTY)
        if client_option.lower() not in _NO_SECRETS and any(secret in client_option.lower() for secret in _SECRETS):
            way_out = f"write it to the file of connections as `kafka.{client_option}: {{env: NAME}}`"
            raise SqlError.refused(f"the option {name!r} of table {table.name!r}", "it may be a secret, and a pipeline is shared", way_out)
        if client_option != "group.id":
            client_options[f"kafka.{client_option}"] = value
    return client_options


def _subscription(table: CreateTable, options: dict[str, str]) -> dict[str, str]:
    topic, pattern = options.pop("topic", ""), options.pop("topic-pattern", "")
    if bool(topic) == bool(pattern):
        legal = "legal: one of topic (names separated by semicolons) and topic-pattern (a regular expression)"
        raise bad_option(table, "topic", topic, legal)
    start = options.pop(_START, "earliest-offset")
    if start == "timestamp":
        start_ms = options.pop(_START_MS, "")
        if not start_ms:
            raise bad_option(table, _START_MS, start_ms, f"legal: epoch milliseconds, since {_START} is timestamp")
        start_options = {"startingTimestamp": start_ms}
    elif start in _STARTUP:
        start_options = _STARTUP[start]
    else:
        legal = f"legal: {', '.join(_STARTUP)}, timestamp; afterwards the ledger has the offsets, and there is no consumer group"
        raise bad_option(table, _START, start, legal)
    if _START_MS in options:
        raise bad_option(table, _START_MS, options[_START_MS], f"legal: none, since {_START} is {start}")
    return {"subscribe": topic.replace(";", ",")} | start_options if topic else {"subscribePattern": pattern} | start_options
