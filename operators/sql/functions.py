"""Translates calls of Flink's functions that sqlglot would change, or for which Spark's function of the same name has other values."""

import re
from collections.abc import Callable
from functools import partial, reduce
from string import ascii_lowercase
from typing import Any

from sqlglot import exp

from operators.sql.errors import SqlError
from operators.sql.templates import fill, is_text, number_of_arguments, plain_call
from operators.sql.text_functions import (
    extracted_text,
    found_position,
    located_text,
    padded_text,
    replaced_text,
    split_list,
    split_text,
    substring,
    translated_text,
)

_OF_SPARK_TOO = ("TIMESTAMPDIFF", "TIMESTAMPADD")
"""Functions that have the same arguments in Spark and in Flink. sqlglot would change the arguments."""
_FIRST = "IF(:b < 0, GREATEST(SIZE(:a) + :b + 1, 1), GREATEST(:b, 1))"
_LAST = "IF(:c < 0, SIZE(:a) + :c + 1, LEAST(GREATEST(:c, 1), SIZE(:a)))"
_TEMPLATES: dict[str, tuple[str, ...]] = {
    "ARRAY_CONTAINS": ("IF(ISNULL(:b), SIZE(:a) > SIZE(ARRAY_COMPACT(:a)), ARRAY_POSITION(:a, :b) > 0)",),
    "ARRAY_REMOVE": ("IF(ISNULL(:b), ARRAY_COMPACT(:a), ARRAY_REMOVE(:a, :b))",),
    "ARRAY_REVERSE": ("REVERSE(:a)",),
    "ARRAY_SLICE": (
        f"IF(ISNULL(:b), NULL, SLICE(:a, {_FIRST}, SIZE(:a)))",
        f"IF(ISNULL(:b) OR ISNULL(:c), NULL, SLICE(:a, {_FIRST}, GREATEST({_LAST} - {_FIRST} + 1, 0)))",
    ),
    "CONVERT_TZ": ("DATE_FORMAT(FROM_UTC_TIMESTAMP(TO_UTC_TIMESTAMP(TRY_TO_TIMESTAMP(:a), :b), :c), 'yyyy-MM-dd HH:mm:ss')",),
    "ELEMENT": ("IF(SIZE(:a) > 1, RAISE_ERROR('ELEMENT of an array with several elements'), GET(:a, 0))",),
    "FROM_BASE64": ("CAST(UNBASE64(:a) AS STRING)",),
    "INITCAP": (
        "ARRAY_JOIN(TRANSFORM(REGEXP_EXTRACT_ALL(:a, '[A-Za-z0-9]+|[^A-Za-z0-9]+', 0), "
        "w -> IF(w RLIKE '^[A-Za-z0-9]', INITCAP(w), w)), '')",
    ),
    "PARSE_URL": ("TRY_PARSE_URL(:a, :b)", "TRY_PARSE_URL(:a, :b, :c)"),
    "SHA224": ("SHA2(:a, 224)",),
    "SHA256": ("SHA2(:a, 256)",),
    "SHA384": ("SHA2(:a, 384)",),
    "SHA512": ("SHA2(:a, 512)",),
    "URL_DECODE": ("TRY_URL_DECODE(:a)",),
    "WEEK": ("WEEKOFYEAR(:a)",),
}
"""By the name of a function, the expression of Spark for each number of arguments."""
_OF_NULL = {"ARRAY_CONTAINS": "SIZE(:a) > SIZE(ARRAY_COMPACT(:a))", "ARRAY_REMOVE": "(ARRAY_COMPACT(:a))"}
"""By function, the expression for a NULL in place of the element: Spark refuses to search an array for it.

The brackets are for sqlglot, which refuses to replace a call by one with fewer arguments.
"""
_WITHOUT_COUNTERPART = {
    "GROUP_ID": "GROUPING_ID of the keys",
    "INET_ATON": "CAST(SPLIT_INDEX(text, '.', 0) AS BIGINT) * 16777216 + ... for each part of an address",
    "INET_NTOA": "CONCAT_WS('.', CAST(v DIV 16777216 AS STRING), CAST(v DIV 65536 % 256 AS STRING), ...)",
    "IS_ALPHA": "REGEXP(text, '^[A-Za-z]+$')",
    "IS_DECIMAL": "TRY_CAST(text AS DOUBLE) IS NOT NULL",
    "IS_DIGIT": "REGEXP(text, '^[0-9]+$')",
    "JSON_ARRAY": "TO_JSON(ARRAY[...])",
    "JSON_EXISTS": "GET_JSON_OBJECT(json, '$.path') IS NOT NULL, which is false for a null of JSON",
    "JSON_OBJECT": "TO_JSON(NAMED_STRUCT('name', v)), which leaves out nulls",
    "JSON_QUERY": "GET_JSON_OBJECT(json, '$.path'), which returns texts and numbers too",
    "JSON_QUOTE": "CONCAT('\"', text, '\"') for a text without special characters",
    "JSON_STRING": "TO_JSON(v) of an array, a map or a row",
    "JSON_UNQUOTE": "GET_JSON_OBJECT(CONCAT('[', json, ']'), '$[0]')",
    "JSON_VALUE": "GET_JSON_OBJECT(json, '$.path'), which returns objects and arrays too, as text",
    "OBJECT_OF": "NAMED_STRUCT('name', v, ...)",
    "OBJECT_UPDATE": "NAMED_STRUCT('name', v, ...) of all fields",
}
"""For each function of Flink that Spark does not have, what to write instead."""
_OF_BITMAPS = (
    *(f"BITMAP_{name}" for name in ("ANDNOT", "CARDINALITY", "FROM_BYTES", "TO_ARRAY", "TO_BYTES", "TO_STRING")),
    *(f"BITMAP_{name}{end}" for name in ("AND", "BUILD", "OR", "XOR") for end in ("", "_AGG", "_CARDINALITY_AGG")),
)
REFUSED_CALLS = *_WITHOUT_COUNTERPART, *_OF_BITMAPS


def refuse_call(name: str, *_: object) -> Any:
    """Raise the error for a function that Spark does not have."""
    if name in _OF_BITMAPS:  # Spark's functions of two of these names have other bitmaps
        way_out = "write COUNT(DISTINCT v) for the number of values, or SORT_ARRAY(ARRAY_AGG(DISTINCT v)) for the values"
        raise SqlError.refused(name, "Spark does not have Flink's type BITMAP", way_out)
    raise SqlError.refused(name, "Spark has no such function", f"write {_WITHOUT_COUNTERPART[name]}")


def fill_call(name: str, arguments: list[Any]) -> Any:
    """A call by the template that has as many arguments."""
    if len(arguments) == 2 and name in _OF_NULL and isinstance(arguments[1], exp.Null):
        return fill(_OF_NULL[name], arguments[0])
    template = next((text for text in _TEMPLATES[name] if number_of_arguments(text) == len(arguments)), None)
    return plain_call(name, arguments) if template is None else fill(template, *arguments)


def _keep_function(name: str, arguments: list[Any]) -> exp.Anonymous:
    """A call that Spark accepts with the same arguments. The first argument is a unit of time."""
    unit, *others = arguments or [None]
    return plain_call(name, [exp.var(unit.name.upper()) if isinstance(unit, exp.Column) else unit, *others])


def _call(name: str, function: Callable[[list[Any]], Any], arguments: list[Any]) -> Any:
    """The call that a function makes from the arguments; without arguments, the call as it is written."""
    return function(arguments) if arguments else plain_call(name, arguments)


def _extreme(kind: type[exp.Greatest] | type[exp.Least], arguments: list[Any]) -> Any:
    """GREATEST and LEAST, which are null if an argument is. Spark's skip nulls."""
    if not arguments:
        return kind()
    if len(arguments) > len(ascii_lowercase):
        return _extreme(kind, [_extreme(kind, arguments[:20]), *arguments[20:]])
    values = [f":{letter}" for letter, _ in zip(ascii_lowercase, arguments, strict=False)]
    unknown = " OR ".join(f"{value} IS NULL" for value in values)
    return fill(f"IF({unknown}, NULL, {kind.sql_name()}({', '.join(values)}))", *arguments)


def greatest_of(tree: Any) -> exp.Greatest | None:
    """The GREATEST of Spark in the expression that replaces Flink's GREATEST; None for another expression."""
    values = tree.args.get("false") if isinstance(tree, exp.If) else None
    return values if isinstance(values, exp.Greatest) else None


def log10(arguments: list[Any]) -> exp.Anonymous:
    """LOG10. sqlglot would write LOG(10, x), which is 2.9999999999999996 for 1000."""
    return plain_call("LOG10", arguments)


_INSTANTS = {"0": "TIMESTAMP_SECONDS", "3": "TIMESTAMP_MILLIS", "6": "TIMESTAMP_MICROS"}


def _instant(arguments: list[Any]) -> Any:
    """TO_TIMESTAMP_LTZ of a number, by default of milliseconds, or of a text with its format and its time zone."""
    value, *others = arguments
    is_of_text = is_text(value) or (bool(others) and is_text(others[0])) or (len(others) == 2 and not others[0].is_number)
    if len(others) > (2 if is_of_text else 1):
        return plain_call("TO_TIMESTAMP_LTZ", arguments)
    if is_of_text:
        time = _parsed_time([value, *others[:1]])
        return fill("TO_UTC_TIMESTAMP(:a, :b)", time, others[1]) if len(others) > 1 else time
    precision = others[0].sql() if others else "3"
    if precision not in _INSTANTS:
        way_out = "write 0, 3 or 6, for seconds, milliseconds or microseconds; or the format of a text in quotes"
        raise SqlError.refused(f"TO_TIMESTAMP_LTZ with the precision {precision}", "Spark's times have microseconds", way_out)
    if precision != "0" and value.find(exp.Div):  # the quotient of two integers has a fraction, which Spark would refuse
        value = fill("CAST(:a AS BIGINT)", value)
    return plain_call(_INSTANTS[precision], [value])


def _parsed_time(arguments: list[Any]) -> Any:
    """TO_TIMESTAMP, which is null for a text that is no time. Spark's fails."""
    if len(arguments) == 2 and is_text(arguments[1]):
        _check_fraction(arguments[1].name)
    return plain_call("TRY_TO_TIMESTAMP", arguments)


def _check_fraction(pattern: str) -> None:
    """Raise the error for a format that Spark cannot read."""
    if "sS" in pattern:
        reason = "Spark cannot read a fraction right after the seconds"
        way_out = "write a separator before the fraction, in the format and in the text"
        raise SqlError.refused(f"the format {pattern!r}", reason, way_out)


_TWO_DIGITS = re.compile(r"'[^']*'|(?<![A-Za-z])([Md])\1(?![A-Za-z])")
"""A month or day of two digits in a format, between separators; or a text in quotes."""


def _parsed_date(arguments: list[Any]) -> Any:
    """TO_DATE, which is null for a text that is no date. In Flink, MM and dd also read one digit; in Spark only M and d do."""
    if len(arguments) != 2 or not is_text(arguments[1]):
        return plain_call("TRY_TO_DATE", arguments)
    _check_fraction(arguments[1].name)
    pattern = _TWO_DIGITS.sub(lambda found: found[1] or found[0], arguments[1].name)
    return plain_call("TRY_TO_DATE", [arguments[0], exp.Literal.string(pattern)])


_SORTS = {
    (True, True): "SORT_ARRAY(:a)",
    (True, False): "ARRAY_SORT(:a)",
    (False, True): "(REVERSE(ARRAY_SORT(:a)))",  # sqlglot would compare the number of arguments with that of REVERSE
    (False, False): "SORT_ARRAY(:a, FALSE)",
}
"""By whether the order ascends, and whether nulls are first, what Spark computes for ARRAY_SORT."""


def _sorted_array(arguments: list[Any]) -> Any:
    """ARRAY_SORT, by default ascending; nulls are first if it ascends. A lambda in place of the order is passed to Spark as it is."""
    array, *order = arguments
    if len(order) > 2 or (order and isinstance(order[0], exp.Lambda)):
        return plain_call("ARRAY_SORT", arguments)
    if not all(isinstance(flag, exp.Boolean) for flag in order):
        raise SqlError.refused("ARRAY_SORT with an order from a column", "Spark needs a constant", "write TRUE or FALSE")
    ascends = order[0].this if order else True
    return fill(_SORTS[ascends, order[1].this if len(order) > 1 else ascends], array)


def _map_of_text(arguments: list[Any]) -> exp.Anonymous:
    """STR_TO_MAP with Flink's default delimiters."""
    delimiters = [exp.Literal.string(","), exp.Literal.string("=")] if arguments else []
    return plain_call("STR_TO_MAP", [*arguments, *delimiters[len(arguments) - 1 :]])


def _row(arguments: list[Any]) -> exp.Struct:
    """ROW, with Flink's names of fields."""
    return exp.Struct(expressions=[exp.PropertyEQ(this=exp.to_identifier(f"EXPR${n}"), expression=a) for n, a in enumerate(arguments)])


def _element(arguments: list[Any]) -> Any:
    """ELT, which is null without such an element. Spark's fails."""
    number, *values = arguments
    return fill("GET(:a, :b - 1)", exp.Array(expressions=values), number)


_UNION = "MAP_ZIP_WITH(:a, TRANSFORM_VALUES(:b, (k, v) -> ARRAY(v)), (k, v, w) -> IF(ISNULL(w), v, GET(w, 0)))"
"""The union of two maps. A key of both has the value of the second map, also if that is null. `MAP_CONCAT` fails for a key of both."""


def _united_map(arguments: list[Any]) -> Any:
    """MAP_UNION of one map or more. It is null if one of the maps is."""
    return reduce(partial(fill, _UNION), arguments)


def map_of(arguments: list[Any]) -> Any:
    """MAP of keys and values. A key that is given twice has its last value. Spark's MAP fails for it."""
    pairs = [*zip(arguments[::2], arguments[1::2], strict=True)]
    keys = [_constant_key(key) for key, _ in pairs]
    if len(keys) > 1 and not (all(isinstance(key, str) for key in keys) or all(isinstance(key, int) for key in keys)):
        return _united_map([plain_call("MAP", [*pair]) for pair in pairs])
    last_pairs = dict(zip(keys, pairs, strict=True))
    return plain_call("MAP", [part for pair in last_pairs.values() for part in pair])


def _constant_key(tree: Any) -> str | int | None:
    """The value of a key that is a text or a whole number in the query; None for another key."""
    number = tree.this if isinstance(tree, exp.Neg) else tree
    if is_text(tree) or not (isinstance(number, exp.Literal) and number.name.isdigit()):
        return tree.name if is_text(tree) else None
    return int(number.name) if number is tree else -int(number.name)


def _truncated(arguments: list[Any]) -> Any:
    """TRUNCATE without decimal places. A DECIMAL becomes a wider one, and a FLOAT a DOUBLE."""
    value, *places = arguments
    if len(places) > 1:
        raise SqlError.refused(f"TRUNCATE of {len(arguments)} values", "it has one or two", "write TRUNCATE(v)")
    if not places or places[0].name == "0":
        return fill(":a - :a % 1", value)
    return exp.Trunc(this=value, decimals=places[0])


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
    **{name: partial(plain_call, name) for name in ("PARSE_JSON", "TRY_PARSE_JSON")},
    **{name: partial(fill_call, name) for name in _TEMPLATES},
    **{name: partial(padded_text, name) for name in ("LPAD", "RPAD")},
    "ARRAY_SORT": partial(_call, "ARRAY_SORT", _sorted_array),
    "ELT": partial(_call, "ELT", _element),
    "GREATEST": partial(_extreme, exp.Greatest),
    "INSTR": found_position,
    "LEAST": partial(_extreme, exp.Least),
    "LISTAGG": _listed_text,
    "LOCATE": located_text,
    "LOG10": log10,
    "MAP_UNION": partial(_call, "MAP_UNION", _united_map),
    "REGEXP_EXTRACT": extracted_text,
    "REGEXP_REPLACE": replaced_text,
    "ROW": _row,
    "SPLIT": split_list,
    "SPLIT_INDEX": split_text,
    "STR_TO_MAP": _map_of_text,
    "SUBSTR": substring,
    "TO_DATE": _parsed_date,
    "TO_TIMESTAMP": _parsed_time,
    "TO_TIMESTAMP_LTZ": partial(_call, "TO_TIMESTAMP_LTZ", _instant),
    "TRANSLATE": translated_text,
    "TRUNCATE": partial(_call, "TRUNCATE", _truncated),
}
"""By name, the function that makes the call of Spark from the arguments."""
