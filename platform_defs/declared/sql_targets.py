"""Reads the options of a table that a statement inserts into: parameters of its operator, and the topic to which it is published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, cast

from assets.contracts import ENGINE_COLUMNS, DerivedAsset
from assets.shape import Shape
from operators.consecutive import Consecutive
from operators.contract import Operator
from operators.errors import OperatorError, did_you_mean
from operators.sql.errors import SqlError
from operators.sql.names import column_sql, require_name
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
_FORMAT_OPTIONS = ("format", "key.format", "value.format")
_REGISTRY_OPTIONS = ("avro-confluent.url", "key.avro-confluent.url", "value.avro-confluent.url")


@dataclass(frozen=True)
class Target:
    """The options of a table that a statement inserts into.

    Args:
        parameters: parameters of the table's operator, by name.
        connector: `kafka` or `upsert-kafka` if the table is published to a topic; otherwise `delta`, or empty.
        sink: the table's part of `kafka.sinks` in the connections; empty if it is not published.
        kafka_options: its part of `kafka.options`.
        key: the columns of PRIMARY KEY.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    connector: str = ""
    sink: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kafka_options: Mapping[str, str] = field(default_factory=dict[str, str])
    key: tuple[str, ...] = ()

    def check(self, table: DerivedAsset) -> None:
        """Raise `SqlError` if the connector or the key is not that of the table's rows.

        As in Flink, upserted tables have a connector of their own. The records of a table that is not upserted can have any key.
        """
        operator = table.operator
        legal = UPSERT_KAFKA if operator.emits.upserts else KAFKA
        if self.sink and self.connector != legal:
            rows = "its rows are updated and deleted" if operator.emits.upserts else "it has no key by which rows are updated"
            raise SqlError.refused(f"the connector {self.connector!r} of table {table.name!r}", rows, f"write 'connector' = '{legal}'")
        names = _key_names(table)
        is_own = len({*self.key}) == len(names) and all({*self.key} & {*names_of_column} for names_of_column in names)
        if operator.emits.upserts and self.sink and self.key and not is_own:
            own_key = [names_of_column[0] for names_of_column in names]
            key = ", ".join(own_key)
            way_out = "leave it out" if {*own_key} & {*ENGINE_COLUMNS} else f"write PRIMARY KEY ({key}) NOT ENFORCED, or leave it out"
            refused = f"PRIMARY KEY ({', '.join(self.key)}) of table {table.name!r}"
            raise SqlError.refused(refused, f"the key of its records is ({key})", way_out)


def _key_names(table: DerivedAsset) -> list[list[str]]:
    """The names of each column of the key of a table's records: those that the query gives to it, and its name in the operator's result."""
    added = table.shape.added if isinstance(table.shape, Shape) else {}
    columns = {name: sql.removesuffix(f" AS {column_sql(name)}") for name, sql in added.items()}
    return [[*(name for name, sql in columns.items() if sql == column_sql(column)), column] for column in table.operator.emits.key]


def declared_target(table: CreateTable) -> Target:
    """The options of a table that a statement inserts into.

    Raises:
        SqlError: an option is unknown, or its value is not legal.
    """
    options = {**table.options}
    connector = options.pop("connector", "")
    if connector not in _CONNECTORS:
        legal = [name for name in _CONNECTORS if name]
        way_out = f"legal: {', '.join(legal)}{did_you_mean(connector, legal)}; for files see `tidemark export`"
        raise SqlError.refused(f"the connector {connector!r} of table {table.name!r}", "tables are Delta tables in the lake", way_out)
    parameters = {_PARAMETERS[option]: _value(table, option, options.pop(option)) for option in [*options] if option in _PARAMETERS}
    if connector not in (KAFKA, UPSERT_KAFKA):
        _check_known(table, options, [*_PARAMETERS, "connector"])
        return Target(parameters, connector)
    kafka_options, sink = client_options(table, options), _sink(table, connector, options)
    of_connector = ["key.fields"] if connector == KAFKA else []
    legal = [*_PARAMETERS, "connector", "topic", *_FORMAT_OPTIONS, *_REGISTRY_OPTIONS, *of_connector, "properties.*"]
    _check_known(table, options, legal)
    return Target(parameters, connector, sink, kafka_options, table.key)


def _check_known(table: CreateTable, options: Mapping[str, str], legal: Sequence[str]) -> None:
    """Raise `SqlError` for the first of the options that remain after the known ones were removed."""
    if options:
        name, value = next(iter(options.items()))
        raise bad_option(table, name, value, f"legal: {', '.join(legal)}{did_you_mean(name, legal)}")


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
    formats = {options.pop(name) for name in _FORMAT_OPTIONS if name in options}
    if len(formats) != 1 or not formats <= _FORMATS.keys():
        raise bad_option(table, "format", ", ".join(sorted(formats)), f"legal: {', '.join(_FORMATS)}, one for keys and values")
    [kind] = formats
    sink: dict[str, Any] = {"topic": options.pop("topic", "")}
    if not sink["topic"]:
        raise bad_option(table, "topic", "", "legal: the name of a topic")
    urls = {options.pop(name) for name in _REGISTRY_OPTIONS if name in options}
    if (len(urls) != 1 and _FORMATS[kind] == "avro") or (urls and _FORMATS[kind] == "json"):
        raise bad_option(table, _REGISTRY_OPTIONS[0], ", ".join(sorted(urls)), "legal: one URL with avro-confluent, none with json")
    if urls:
        sink |= {"format": _FORMATS[kind], "registry": {"url": urls.pop()}}
    key = options.pop("key.fields", "")
    if key and connector == UPSERT_KAFKA:
        raise bad_option(table, "key.fields", key, "legal: none, since an upserted table has its own key")
    key_columns = key.split(";") if key else [*table.key] if connector == KAFKA else []
    key_columns = [require_name(column, [c.name for c in table.columns]) for column in key_columns]
    return sink | ({"key": key_columns} if key_columns else {})


def with_parameters(name: str, operator: Operator, parameters: Mapping[str, Any]) -> Operator:
    """An operator with the parameters that its table declares.

    Raises:
        SqlError: the operator has no such parameter, or refuses a value.
    """
    if not parameters:
        return operator
    if isinstance(operator, Consecutive):
        windows = with_parameters(name, operator.of, parameters)
        if {*parameters} & {"early", "purging"}:
            reason = "a Top-N of windows' results is one operator with them, which shows nothing before a window ends"
            raise SqlError.refused(f"'tidemark.early' or 'tidemark.purging' of table {name!r}", reason, "insert the windows into a table")
        return replace(operator, of=windows)
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
    try:
        return replace(cast(Any, operator), **parameters)
    except OperatorError as error:
        options = ", ".join(option for option, known in _PARAMETERS.items() if known in parameters)
        raise SqlError(f"the options {options} of table {name!r}: {error}") from error
