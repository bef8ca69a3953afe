"""Checks of the parameters of sources and tables. Each error names the parameter, the value and what is legal."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from pyspark.sql.types import CharType, DatetimeType, NumericType, StringType, StructField, StructType, VarcharType, VariantType

from assets.names import (
    MAX_COLUMNS,
    first_duplicate,
    fold_case,
    folded_name,
    is_storable,
    name_fault,
    nested_structs,
    table_name_fault,
)
from assets.reader_options import legal_values, option_fault
from operators.column_types import can_be_compared
from operators.columns import column_fault
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.errors import OperatorError, did_you_mean
from operators.timing import DAY_MS, Duration, length_ms

EVENT_TIME_RAW = "event_time_raw"
ENGINE_COLUMNS = (SEQ, ARRIVAL, EVENT_TIME, EVENT_TIME_RAW)
LONGEST_DAYS = 3_652_059
"""The longest duration in a contract, in days: the length of the years 1 to 9999."""
_TIMES = (DatetimeType, NumericType, StringType, VarcharType, CharType, VariantType)
"""The types that Spark casts to a timestamp."""
_RENAME = "rename it in the schema, and where the files are made"
_OWNER = re.compile(r"team:[A-Za-z0-9_]+|\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}\b")
_GROUP = re.compile(r"\w+(/\w+)*", re.ASCII)
_TAG, _TAG_VALUE = re.compile(r"([\w.-]{1,63}/)?[\w.-]{1,63}", re.ASCII), re.compile(r"[\w.-]{0,63}", re.ASCII)


class ContractError(OperatorError):
    """A source contract, the definition of a table, or a pipeline of these is not valid."""

    @classmethod
    def duplicate_column(cls, column: str) -> "ContractError":
        """The names of two columns differ only in case. Spark and Delta treat them as one name."""
        return cls.bad_value("schema", column, "names that differ in more than case; rename one of the two columns")

    @classmethod
    def reserved_name(cls, column: str) -> "ContractError":
        """A column has a name that is reserved for the engine."""
        legal = f"names other than {', '.join(ENGINE_COLUMNS)} in any case, and not starting with '_': the engine uses these; rename it"
        return cls.bad_value("schema", column, legal)

    @classmethod
    def unusable_option(cls, option: object, owner: str, reason: str) -> "ContractError":
        """A source has a reader option that is unknown or has no effect.

        Args:
            option: the option's name.
            owner: the owner of the options, such as `source 'orders'`.
            reason: why it is refused, as the end of the sentence "option X, which ...".
        """
        return cls(f"`options` of {owner} has {option!r}, which {reason}")


def check_name(parameter: str, name: object) -> None:
    """Raise `ContractError` unless a name is legal for a source or a table."""
    if legal := name_fault(name):
        raise ContractError.bad_value(parameter, name, legal)


def check_table_name(name: object) -> None:
    """Raise `ContractError` unless a name is legal for a table."""
    if legal := table_name_fault(name):
        raise ContractError.bad_value("name", name, legal)


def check_group(group: object) -> None:
    """Raise `ContractError` unless a group of assets has a name that Dagster accepts."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise ContractError.bad_value("group", group, "letters a to z, digits and '_', in one or more parts separated by '/'")


def check_owners(owners: object) -> None:
    """Raise `ContractError` unless owners are a list of mail addresses or teams, in the form that Dagster accepts."""
    legal = (
        "a list of mail addresses that start with a letter, a digit or '_' and end with a dot and 2 to 7 letters, "
        "or of teams: 'team:' and letters, digits and '_'"
    )
    if not isinstance(owners, list | tuple):
        raise ContractError.bad_value("owners", owners, legal)
    for owner in owners:
        if not isinstance(owner, str) or not _OWNER.fullmatch(owner):
            raise ContractError.bad_value("owners", owner, legal)


def check_tags(tags: object) -> None:
    """Raise `ContractError` unless tags are a mapping of texts that Dagster accepts."""
    legal = "a mapping with keys and values of at most 63 letters, digits, '_', '-' and '.'; a key may start with a prefix and '/'"
    if not isinstance(tags, Mapping):
        raise ContractError.bad_value("tags", tags, legal)
    for key, value in cast(Mapping[object, object], tags).items():
        if not (isinstance(key, str) and _TAG.fullmatch(key) and isinstance(value, str) and _TAG_VALUE.fullmatch(value)):
            raise ContractError.bad_value("tags", {key: value}, legal)


def check_length(parameter: str, value: Duration) -> None:
    """Raise `OperatorError` unless a value is a duration from zero to `LONGEST_DAYS` days."""
    if length_ms(value, parameter) > LONGEST_DAYS * DAY_MS:
        raise ContractError.bad_value(parameter, value, f"a duration of at most {LONGEST_DAYS} days, the length of the years 1 to 9999")


def check_sql(parameter: str, value: object) -> None:
    """Raise `ContractError` unless a value is text that is not blank. `check_expression` and Spark check its SQL."""
    if not isinstance(value, str) or not value.strip():
        raise ContractError.bad_value(parameter, value, "a SQL expression over columns, such as 'amount > 0'")


def check_columns(declared: Sequence[StructField], names: Sequence[str]) -> None:
    """Raise `ContractError` unless a table can hold a source's columns.

    Args:
        declared: the columns that the contract declares. Those that input files have added to the log were checked when they were added.
        names: the names of the declared and the added columns.
    """
    if not 0 < len(declared) <= MAX_COLUMNS:
        raise ContractError.bad_value("schema", f"{len(declared)} columns", f"1 to {MAX_COLUMNS} columns; put more into structs or maps")
    for column in declared:
        if fold_case(column.name) in ENGINE_COLUMNS or column.name.startswith("_"):
            raise ContractError.reserved_name(column.name)
        if legal := column_fault(column.name):
            raise ContractError.bad_value("schema", column.name, f"{legal}; {_RENAME}")
        _check_type(column)
    if (duplicate := first_duplicate(names)) is not None:
        raise ContractError.duplicate_column(duplicate)


def _check_type(column: StructField) -> None:
    if not is_storable(column.dataType):
        legal = (
            "types that a Delta table stores: no interval, time of day or void, no struct without fields, no decimal without digits, and "
            "no char or varchar within another type; declare it as string and cast where it is used"
        )
        raise ContractError.bad_value("schema", f"{column.name} {column.dataType.simpleString()}", legal)
    for struct in nested_structs(column.dataType):
        names = struct.fieldNames()
        if (duplicate := first_duplicate(names)) is not None:
            raise ContractError.duplicate_column(f"{column.name}.{duplicate}")
        for name in names:
            if legal := column_fault(name, underscore=True):
                raise ContractError.bad_value("schema", f"{column.name}.{name}", f"{legal}; {_RENAME}")


def check_key(key: Sequence[str], schema: StructType, owner: str) -> None:
    """Raise `ContractError` unless the key's columns exist and Spark can compare them.

    Args:
        key: the key's columns.
        schema: the source's columns.
        owner: the owner of the columns for the error, such as `source 'orders'`.
    """
    if not isinstance(key, list | tuple):
        example = f", such as ({key!r},)" if isinstance(key, str) else ""
        raise ContractError.bad_value("unique_key", key, f"a tuple of column names{example}")
    columns = schema.fieldNames()
    for column in key:
        if column not in columns:
            legal = f"the columns of {owner} are {', '.join(columns)}{did_you_mean(column, columns)}"
            raise ContractError.bad_value("unique_key", column, legal)
        if not can_be_compared(schema[column].dataType):
            raise ContractError.bad_value("unique_key", column, "columns whose types contain no map and no variant, at any depth")
    if len({*key}) < len(key):
        raise ContractError.bad_value("unique_key", key, "each column once")


def check_time(parameter: str, expression: str, schema: StructType) -> None:
    """Raise `ContractError` if an expression is only the name of a column, and Spark cannot cast the column's type to a timestamp.

    Args:
        parameter: the parameter that has the expression, for the error.
        expression: SQL.
        schema: the source's columns.
    """
    for column in schema.fields:
        if fold_case(column.name) == folded_name(expression) and not isinstance(column.dataType, _TIMES):
            legal = f"a timestamp, or an expression that computes one; {column.name} is {column.dataType.simpleString()}"
            raise ContractError.bad_value(parameter, expression, legal)


def check_options(options: object, owner: str) -> None:
    """Raise `ContractError` if an option is unknown, has no effect, has an illegal value, or conflicts with how the engine reads lines.

    Args:
        options: the options for Spark's `from_csv` or `from_json`; names ignore case.
        owner: the owner of the options for the error, such as `source 'orders'`.
    """
    if not isinstance(options, Mapping):
        raise ContractError.bad_value("options", options, "a mapping of names of options to their values")
    for option, value in cast(Mapping[object, object], options).items():
        name = str(option).lower()
        if name == "columnnameofcorruptrecord" or (name == "mode" and str(value).upper() != "PERMISSIVE"):
            legal = "other options: the engine itself quarantines lines that cannot be parsed"
            raise ContractError.bad_value("options", {option: value}, legal)
        if (fault := option_fault(option)) is not None:
            raise ContractError.unusable_option(option, owner, fault)
        if (legal := legal_values(name, value)) is not None:
            raise ContractError.bad_value("options", {option: value}, legal)
    names = [*map(str, cast(Mapping[object, object], options))]
    if (duplicate := first_duplicate(names)) is not None:
        legal = f"each option once: {duplicate!r} is given twice, since names ignore case"
        raise ContractError.bad_value("options", dict(cast(Mapping[object, object], options)), legal)
    if {"sep", "delimiter"} <= {fold_case(name) for name in names}:
        legal = "either 'sep' or 'delimiter', which are two names of one option"
        raise ContractError.bad_value("options", dict(cast(Mapping[object, object], options)), legal)
