"""Calls and comparisons of Flink SQL with special syntax, such as `EXTRACT(SECOND FROM ts)`."""

from functools import partial
from typing import Any

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from operators.sql.errors import SqlError
from operators.sql.functions import REFUSED_CALLS, fill_call, refuse_call
from operators.sql.templates import fill
from operators.sql.text_functions import like, overlay, substring

_BASE: Any = Parser
_PARTS = {
    "CENTURY": "CEIL(YEAR(:a) / 100)",
    "DECADE": "FLOOR(YEAR(:a) / 10)",
    "EPOCH": "UNIX_SECONDS(CAST(:a AS TIMESTAMP))",
    "ISODOW": "EXTRACT(DAYOFWEEK_ISO FROM :a)",
    "ISOYEAR": "EXTRACT(YEAROFWEEK FROM :a)",
    "MICROSECOND": "CAST((EXTRACT(SECOND FROM :a) % 1) * 1000000 AS BIGINT)",
    "MILLENNIUM": "CEIL(YEAR(:a) / 1000)",
    "MILLISECOND": "CAST((EXTRACT(SECOND FROM :a) % 1) * 1000 AS BIGINT)",
    "SECOND": "CAST(EXTRACT(SECOND FROM :a) AS BIGINT)",
}
"""By part of a time, what Spark computes for EXTRACT."""
_FLOORS = {
    **{unit: f"DATE_TRUNC('{unit}', :a)" for unit in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")},
    "WEEK": "DATE_TRUNC('WEEK', :a + INTERVAL '1' DAY) - INTERVAL '1' DAY",  # Flink's weeks begin on Sunday
}
"""By unit, what Spark computes for FLOOR(a TO unit)."""
_CEILINGS = {
    unit: f"DATE_TRUNC('{unit}', :a + INTERVAL '1' {unit} - INTERVAL '0.000001' SECOND)" for unit in ("DAY", "HOUR", "MINUTE", "SECOND")
}
"""By unit, what Spark computes for CEIL(a TO unit)."""


def _extract(parser: Any) -> Any:
    tree = _BASE.FUNCTION_PARSERS["EXTRACT"](parser)
    template = _PARTS.get(tree.this.name.upper())
    return tree if template is None else fill(template, tree.expression)


def _rounded(name: str, templates: dict[str, str], parser: Any) -> Any:
    """FLOOR and CEIL of a number, or of a time to a unit."""
    tree = _BASE.FUNCTION_PARSERS[name](parser)
    unit = tree.args.get("to")
    if unit is None:
        return tree
    if unit.name.upper() not in templates:
        way_out = f"write one of {', '.join(templates)}" + ("" if name == "FLOOR" else ", or add an interval to FLOOR")
        raise SqlError.refused(f"{name} TO {unit.name.upper()}", "Spark does not round a time to this unit", way_out)
    return fill(templates[unit.name.upper()], tree.this)


def _initcap(parser: Any) -> Any:
    return fill_call("INITCAP", parser._parse_csv(parser._parse_assignment))


def _overlay(parser: Any) -> Any:
    tree = _BASE.FUNCTION_PARSERS["OVERLAY"](parser)
    return overlay(tree.this, tree.expression, tree.args["from_"], tree.args.get("for_"))


def _substring(parser: Any) -> Any:
    tree = _BASE.FUNCTION_PARSERS["SUBSTRING"](parser)
    return substring([value for name in ("this", "start", "length") if (value := tree.args.get(name)) is not None])


def _parse_like(parser: Any, this: Any) -> Any:
    tree = _BASE.RANGE_PARSERS[TokenType.LIKE](parser, this)
    has_one_pattern = isinstance(tree, exp.Like) and not isinstance(tree.expression, exp.Any | exp.All)
    return like(tree.this, tree.expression) if has_one_pattern else tree


def _parse_is(parser: Any, this: Any) -> Any:
    following = [token.text.upper() for token in (parser._curr, parser._next) if token is not None]
    if following[:1] == ["JSON"] or following == ["NOT", "JSON"]:
        way_out = "write TRY_PARSE_JSON(text) IS NOT NULL; for an object also TRIM(text) LIKE '{%', for an array TRIM(text) LIKE '[%'"
        raise SqlError.refused("IS JSON", "Spark has no such comparison", way_out)
    return _BASE.RANGE_PARSERS[TokenType.IS](parser, this)


def _case(parser: Any) -> exp.Case:
    """CASE, in which a branch can have several values. sqlglot reads only one."""
    comments, value = parser._prev_comments, parser._parse_disjunction()
    branches: list[tuple[list[Any], Any]] = []
    while parser._match(TokenType.WHEN):
        values = [_part_of_case(parser)]
        while value is not None and parser._match(TokenType.COMMA):
            values.append(_part_of_case(parser))
        _expect(parser, TokenType.THEN)
        branches.append((values, _part_of_case(parser)))
    default = _part_of_case(parser) if parser._match(TokenType.ELSE) else None
    _expect(parser, TokenType.END)
    if any(len(values) > 1 for values, _ in branches):
        branches = [([_is_among(value, values)], result) for values, result in branches]
        value = None
    ifs = [exp.If(this=tree, true=result) for [tree], result in branches]
    return parser.expression(exp.Case(this=value, ifs=ifs, default=default), comments=comments)


def _part_of_case(parser: Any) -> Any:
    return parser._parse_disjunction() or parser.raise_error("Expected an expression of CASE")


def _expect(parser: Any, word: TokenType) -> None:
    if not parser._match(word):
        parser.raise_error(f"Expected {word.name} of CASE")


def _is_among(value: Any, values: list[Any]) -> exp.In:
    tree = fill(":a IN (0)", value)
    tree.set("expressions", values)
    return tree


def _parse_similar_to(*_: object) -> Any:
    raise SqlError.refused("SIMILAR TO", "Spark has no such comparison", "write REGEXP(text, '^pattern$') with a regular expression")


FUNCTION_PARSERS: dict[str, Any] = {
    **{name: partial(refuse_call, name) for name in REFUSED_CALLS},
    **{name: partial(_rounded, "CEIL", _CEILINGS) for name in ("CEIL", "CEILING")},
    "EXTRACT": _extract,
    "FLOOR": partial(_rounded, "FLOOR", _FLOORS),
    "INITCAP": _initcap,
    "OVERLAY": _overlay,
    "SUBSTRING": _substring,
}
"""By name, the function that parses the arguments of a call and makes the call of Spark."""
NO_PAREN_FUNCTION_PARSERS: dict[str, Any] = {"CASE": _case}
"""By the name with which an expression without brackets begins, the function that parses the expression."""
RANGE_PARSERS: dict[Any, Any] = {TokenType.IS: _parse_is, TokenType.LIKE: _parse_like, TokenType.SIMILAR_TO: _parse_similar_to}
"""By operator, the function that parses its right side and makes the comparison of Spark."""


def word_of(token: Token) -> str:
    """A token's text in upper case; empty for a name or a string in quotes."""
    return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()
