"""Calls of Flink's functions as Spark's, for those that sqlglot would translate in another way."""

from functools import partial
from typing import Any

from sqlglot import exp

_OF_SPARK_TOO = ("TIMESTAMPDIFF", "TIMESTAMPADD")
"""Functions that have the same arguments in Spark and in Flink. sqlglot would change the arguments."""


def _keep_function(name: str, arguments: list[Any]) -> exp.Anonymous:
    """A call that Spark accepts with the same arguments. The first argument is a unit of time."""
    unit, *others = arguments or [None]
    return exp.Anonymous(this=name, expressions=[exp.var(unit.name.upper()) if isinstance(unit, exp.Column) else unit, *others])


def _extracted_text(arguments: list[Any]) -> exp.If | exp.Anonymous:
    """REGEXP_EXTRACT as in Flink: by default the whole match, and null without a match. Spark's is a group, and an empty text."""
    if len(arguments) < 2:  # Spark's error names the arguments
        return exp.Anonymous(this="REGEXP_EXTRACT", expressions=arguments)
    text, pattern, *group = arguments
    found = exp.Anonymous(this="REGEXP_EXTRACT", expressions=[text, pattern, *(group or [exp.Literal.number(0)])])
    return exp.If(this=exp.RegexpLike(this=text.copy(), expression=pattern.copy()), true=found, false=exp.Null())


def log10(arguments: list[Any]) -> exp.Anonymous:
    """LOG10. sqlglot would write LOG(10, x), which is 2.9999999999999996 for 1000."""
    return exp.Anonymous(this="LOG10", expressions=arguments)


def _instant(arguments: list[Any]) -> exp.Anonymous:
    """TO_TIMESTAMP_LTZ, of seconds if its precision is 0, else of milliseconds."""
    has_seconds = len(arguments) > 1 and arguments[1].name == "0"
    return exp.Anonymous(this="TIMESTAMP_SECONDS" if has_seconds else "TIMESTAMP_MILLIS", expressions=arguments[:1])


def _map_of_text(arguments: list[Any]) -> exp.Anonymous:
    """STR_TO_MAP with Flink's default delimiters."""
    delimiters = [exp.Literal.string(","), exp.Literal.string("=")] if arguments else []
    return exp.Anonymous(this="STR_TO_MAP", expressions=[*arguments, *delimiters[len(arguments) - 1 :]])


def _aggregate_function(name: str, arguments: list[Any]) -> exp.AnonymousAggFunc:
    """A call of an aggregate that sqlglot would take for a function of one row."""
    return exp.AnonymousAggFunc(this=name, expressions=arguments)


def _listed_text(arguments: list[Any]) -> exp.AnonymousAggFunc:
    """LISTAGG with Flink's default separator. Spark's is the empty text."""
    values = arguments[0].expressions if arguments and isinstance(arguments[0], exp.Distinct) else arguments
    if len(values) == 1:
        values.append(exp.Literal.string(","))
    return _aggregate_function("LISTAGG", arguments)


CALLS: dict[str, Any] = {
    **{name: partial(_aggregate_function, name) for name in ("COLLECT", "JSON_ARRAYAGG", "PERCENTILE")},
    **{name: partial(_keep_function, name) for name in _OF_SPARK_TOO},
    "LISTAGG": _listed_text,
    "LOG10": log10,
    "REGEXP_EXTRACT": _extracted_text,
    "STR_TO_MAP": _map_of_text,
    "TO_TIMESTAMP_LTZ": _instant,
}
"""By name, the function that makes the call of Spark from the arguments."""
