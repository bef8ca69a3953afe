"""Reads the options of a table that a statement inserts into: parameters of its operator, and the topic to which it is published."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, cast

from assets.contracts import DerivedAsset
from operators.consecutive import Consecutive
from operators.contract import Operator
from operators.errors import OperatorError, did_you_mean
from operators.sql.errors import SqlError
from operators.sql.tables import CreateTable
from operators.triggers import read_trigger
from platform_defs.declared.sql_sources import DELTA, KAFKA, bad_option, client_options

UPSERT_KAFKA = "upsert-kafka"
_CONNECTORS = ("", DELTA, KAFKA, UPSERT_KAFKA)
_FORMATS = {"json": "json", "avro-confluent": "avro"}
_TRIGGERS = ("early", "purging")
_PARAMETERS = {
    f"tidemark.{parameter.replace('_', '-')}": parameter
    for parameter in ("allowed_lateness", "late_rows", "early", "purging", "max_age", "result_time", "ttl", "ttl_by", "after_ttl")
}
"""The options that are parameters of an operator."""
_TOPIC_OPTIONS = ("topic", "format", "key.format", "value.format", "key.fields", "avro-confluent.url")


@dataclass(frozen=True)
class Target:
    """What the WITH clause of a table says that a statement inserts into.

    Args:
        parameters: parameters of the table's operator, by name.
        connector: `kafka` or `upsert-kafka` if the table is published to a topic; otherwise `delta`, or empty.
        sink: the table's part of `kafka.sinks` in the connections; empty if it is not published.
        kafka_options: its part of `kafka.options`.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    connector: str = ""
    sink: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kafka_options: Mapping[str, str] = field(default_factory=dict[str, str])

    def check(self, table: DerivedAsset) -> None:
        """Raise `SqlError` if the connector is not that of the table's rows: Flink has one for upserted tables, and one for all others."""
        legal = UPSERT_KAFKA if table.operator.emits.upserts else KAFKA
        if self.sink and self.connector != legal:
            rows = "its rows are updated and deleted" if table.operator.emits.upserts else "it has no key by which rows are updated"
            raise SqlError.refused(f"the connector {self.connector!r} of table {table.name!r}", rows, f"write 'connector' = '{legal}'")


def declared_target(table: CreateTable) -> Target:
    """What the WITH clause of a table says that a statement inserts into.

    Raises:
        SqlError: an option is unknown, or its value is not legal.
    """
    options = {**table.options}
    connector = options.pop("connector", "")
    if connector not in _CONNECTORS:
        way_out = "leave out its WITH clause; for files see `tidemark export`"
        raise SqlError.refused(f"the connector {connector!r} of table {table.name!r}", "tables are Delta tables in the lake", way_out)
    parameters = {_PARAMETERS[option]: _value(table, option, options.pop(option)) for option in [*options] if option in _PARAMETERS}
    is_published = connector in (KAFKA, UPSERT_KAFKA)
    kafka_options = client_options(table, options) if is_published else {}
    sink = _sink(table, connector, options) if is_published else {}
    legal = [*_PARAMETERS, "connector", *([*_TOPIC_OPTIONS, "properties.*"] if is_published else ())]
    for name, value in options.items():
        raise bad_option(table, name, value, f"legal: {', '.join(legal)}{did_you_mean(name, legal)}")
    return Target(parameters, connector, sink, kafka_options)


def _value(table: CreateTable, option: str, text: str) -> Any:
    parameter = _PARAMETERS[option]
    if parameter in _TRIGGERS:
        try:
            return read_trigger(text)
        except OperatorError as error:
            raise bad_option(table, option, text, str(error)) from None
    return text


def _sink(table: CreateTable, connector: str, options: dict[str, str]) -> dict[str, Any]:
    """The table's part of `kafka.sinks`; known options are removed from `options`."""
    formats = {options.pop(name) for name in ("format", "key.format", "value.format") if name in options}
    if len(formats) != 1 or not formats <= _FORMATS.keys():
        legal = f"legal: {', '.join(_FORMATS)}, one for keys and values"
        raise bad_option(table, "format", ", ".join(sorted(formats)), legal)
    [written] = formats
    sink: dict[str, Any] = {"topic": options.pop("topic", "")}
    if not sink["topic"]:
        raise bad_option(table, "topic", "", "legal: the name of a topic")
    if _FORMATS[written] != "json":
        sink |= {"format": _FORMATS[written], "registry": {"url": options.pop("avro-confluent.url", "")}}
    if connector == KAFKA and (key := options.pop("key.fields", "") or ";".join(table.key)):
        sink["key"] = key.split(";")
    return sink


def with_parameters(name: str, operator: Operator, parameters: Mapping[str, Any]) -> Operator:
    """An operator with the parameters that its table declares.

    Raises:
        SqlError: the operator has no such parameter.
        OperatorError: the operator refuses a value.
    """
    if not parameters:
        return operator
    if isinstance(operator, Consecutive):
        return replace(operator, of=with_parameters(name, operator.of, parameters))
    names = [f.name for f in fields(operator)] if is_dataclass(operator) else []
    for parameter in parameters:
        if parameter not in names:
            legal = [option for option, known in _PARAMETERS.items() if known in names]
            kind, option = type(operator).__name__, next(o for o, known in _PARAMETERS.items() if known == parameter)
            raise SqlError.refused(
                f"the option {option!r} of table {name!r}",
                f"its operator {kind} has no {parameter}",
                f"legal: {', '.join(legal) or 'none'}",
            )
    return replace(cast(Any, operator), **parameters)
