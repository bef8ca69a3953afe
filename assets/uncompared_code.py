"""The code in the definition of a table that the engine cannot compare, so that `version` must change with it."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from assets.derived_asset import DerivedAsset
from assets.shape import Shape
from operators.contract import ASIDE

_VALUES = (str, int, float, timedelta, date, time, Decimal, Enum, ZoneInfo, UUID, PurePath, re.Pattern, type(None))
"""The kinds of values that a table's identity contains, and compares."""


def code_without_version(table: DerivedAsset) -> tuple[str, ...]:
    """The parts of a table whose code is not compared, if the table has no `version`.

    Returns:
        `shape` if it is a function; `operator` if its class is not one of Tidemark's; else those of its parameters that are functions or
        objects of other classes, and on which results depend. Empty if there are none, or the table has a `version`.
    """
    if table.version:
        return ()
    shapes = ("shape",) if table.shape is not None and not isinstance(table.shape, Shape) else ()
    operator = _parameters_with_code(table.operator) if _is_operator_dataclass(table.operator) else ("operator",)
    return (*shapes, *operator)


def _parameters_with_code(value: Any) -> tuple[str, ...]:
    compared = [field.name for field in fields(value) if field.init and ASIDE not in field.metadata]
    return tuple(name for name in compared if _has_code(getattr(value, name)))


def _has_code(value: Any) -> bool:
    if isinstance(value, _VALUES):
        return False
    if isinstance(value, Mapping):
        return any(map(_has_code, value.values()))
    if isinstance(value, Sequence | Set):
        return any(map(_has_code, value))
    return not _is_operator_dataclass(value) or bool(_parameters_with_code(value))


def _is_operator_dataclass(value: Any) -> bool:
    """Whether a value is a dataclass of the package `operators`."""
    return is_dataclass(value) and type(value).__module__.partition(".")[0] == "operators"
