"""Checks of an operator's parameters: a wrong type is refused when the operator is constructed, and not by Spark at the first batch."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

from operators.contract import FORMER_NAME
from operators.errors import OperatorError

_Class = TypeVar("_Class", bound=type)
_NAME_RULE = ". Names have no dot and no backtick. Select a field of a struct as a column first"


def check_column(parameter: str, name: object, *, is_optional: bool = False) -> None:
    """Raise `OperatorError` unless a parameter is the name of a column, or None if it is optional."""
    if not (is_name(name) or (is_optional and name is None)):
        raise OperatorError.bad_value(parameter, name, f"the name of a column{', or None' if is_optional else ''}{_hint_of(name)}")


def check_columns(parameter: str, columns: object, *, why_needed: str = "") -> None:
    """Raise `OperatorError` unless a parameter is the name of a column, or a list of different names.

    Args:
        parameter: the parameter's name.
        columns: its value.
        why_needed: why an empty list is refused; empty if it is legal.
    """
    if isinstance(columns, str):
        return check_column(parameter, columns)
    if not _is_list_of(is_name, columns):
        raise OperatorError.bad_value(parameter, columns, f"the name of a column, or a list of names{_hint_of(columns)}")
    names = [name.lower() for name in cast(Sequence[str], columns)]
    if len({*names}) < len(names):
        raise OperatorError.bad_value(
            parameter, columns, "each column once, and names that differ in more than case; remove one of the two"
        )
    if why_needed and not names:
        raise OperatorError.bad_value(parameter, columns, f"at least one column; {why_needed}")
    return None


def check_orders(parameter: str, order: object) -> None:
    """Raise `OperatorError` unless a parameter is the text of an order of rows, or a list of such texts, at least one."""
    if not order or not (isinstance(order, str) or _is_list_of(lambda text: isinstance(text, str), order)):
        raise OperatorError.bad_value(parameter, order, "at least one column, such as 'clicks DESC'; a list of such texts for several")


def check_sql(parameter: str, sql: object, *, is_optional: bool = True) -> None:
    """Raise `OperatorError` unless a parameter is SQL that is not empty, or None if it is optional."""
    if not (isinstance(sql, str) and sql.strip()) and not (is_optional and sql is None):
        raise OperatorError.bad_value(parameter, sql, f"a SQL expression as text{', or None for none' if is_optional else ''}")


def check_prefix(parameter: str, prefix: object) -> None:
    """Raise `OperatorError` unless a parameter can be the beginning of a column's name; it may be empty."""
    if prefix != "" and not is_name(prefix):
        raise OperatorError.bad_value(parameter, prefix, "text without dots and backticks, such as 'left_'")


def check_flag(parameter: str, value: object) -> None:
    """Raise `OperatorError` unless a parameter is true or false."""
    if not isinstance(value, bool):
        raise OperatorError.bad_value(parameter, value, "True or False")


def accepts_former_names(kind: _Class) -> _Class:
    """Let calls of a dataclass use the former names of its fields (`FORMER_NAME`), with a warning. A former name is not an attribute."""
    initialize = kind.__init__
    new_names = {field.metadata[FORMER_NAME]: field.name for field in fields(kind) if FORMER_NAME in field.metadata}

    @wraps(initialize)
    def initialize_by_either_name(self: object, *args: Any, **parameters: Any) -> None:
        for former_name in new_names.keys() & parameters:
            name = new_names[former_name]
            if name in parameters:
                raise OperatorError.bad_value(former_name, parameters[former_name], f"the new name `{name}` alone; remove `{former_name}`")
            warnings.warn(f"the parameter `{former_name}` of {kind.__name__} is now `{name}`; rename it", DeprecationWarning, stacklevel=2)
            parameters[name] = parameters.pop(former_name)
        initialize(self, *args, **parameters)

    kind.__init__ = initialize_by_either_name
    return kind


def _is_list_of(is_legal: Callable[[object], bool], values: object) -> bool:
    return isinstance(values, Sequence) and all(map(is_legal, cast(Sequence[object], values)))


def _hint_of(value: object) -> str:
    """The rule for names, if a value is a text or a list of texts; otherwise empty."""
    return _NAME_RULE if isinstance(value, str) or _is_list_of(lambda name: isinstance(name, str), value) else ""


def is_name(name: object) -> bool:
    """Whether a value can be the name of a column, which has no dot and no backtick."""
    return isinstance(name, str) and bool(name) and "." not in name and "`" not in name
