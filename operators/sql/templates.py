"""Expressions of Spark with placeholders for arguments."""

import re
from collections.abc import Sequence
from functools import lru_cache
from string import ascii_lowercase
from typing import Any

import sqlglot
from sqlglot import exp


def fill(template: str, *arguments: Any) -> Any:
    """The tree of an expression in Spark SQL, with the arguments in place of `:a`, `:b` and so on.

    An operation is put in brackets, because it becomes a part of other expressions. A long argument is written only once, even if the
    template repeats it. Otherwise the text of calls within calls would grow exponentially.

    >>> fill(":a - :a % 1", exp.column("x") + 1).sql(dialect="spark")
    '((x + 1) - (x + 1) % 1)'
    """
    repeated = [argument for letter, argument in zip(ascii_lowercase, arguments, strict=False) if template.count(f":{letter}") > 1]
    if any(map(is_long, repeated)):
        template = _with_named_arguments(template, tuple(isinstance(argument, _CONSTANTS) for argument in arguments))
    tree = _parse(template).copy()
    for placeholder in [*tree.find_all(exp.Placeholder)]:
        argument = arguments[ascii_lowercase.index(placeholder.name)].copy()
        placeholder.replace(argument if _is_call(placeholder.parent) or not _needs_brackets(argument) else exp.Paren(this=argument))
    return exp.Paren(this=tree) if isinstance(tree, exp.Binary) else tree


LONGEST = 40
"""The largest number of nodes of an argument that is repeated."""
_CONSTANTS = exp.Literal | exp.Null | exp.Boolean


def is_long(tree: Any) -> bool:
    """Whether an argument is too long to be repeated."""
    return any(number >= LONGEST for number, _ in enumerate(tree.walk()))


def _with_named_arguments(template: str, are_constants: Sequence[bool]) -> str:
    """A template whose arguments, except constants, are fields of the only element of an array, which a lambda reads.

    >>> _with_named_arguments("IF(:a < 0, :b, :a)", [False, False])
    "GET(TRANSFORM(ARRAY(NAMED_STRUCT('a', :a, 'b', :b)), x -> IF(x.a < 0, x.b, x.a)), 0)"
    """
    letters = [letter for letter, is_constant in zip(ascii_lowercase, are_constants, strict=False) if not is_constant]
    fields = ", ".join(f"'{letter}', :{letter}" for letter in letters)
    body = re.sub(f":([{''.join(letters)}])", r"x.\1", template)
    return f"GET(TRANSFORM(ARRAY(NAMED_STRUCT({fields})), x -> {body}), 0)"


@lru_cache
def _parse(template: str) -> Any:
    return sqlglot.parse_one(template, dialect="spark")


def _is_call(tree: Any) -> bool:
    """Whether commas, or words as in CASE, separate the parts of a tree. AND, OR and RLIKE are functions of sqlglot, but not calls."""
    return isinstance(tree, exp.Func) and not isinstance(tree, exp.Binary)


def _needs_brackets(tree: Any) -> bool:
    return not (_is_call(tree) or isinstance(tree, exp.Column | exp.Literal | exp.Paren | exp.Null))


def number_of_arguments(template: str) -> int:
    """How many arguments a template has, at most three."""
    return sum(f":{letter}" in template for letter in "abc")


def plain_call(name: str, arguments: list[Any]) -> exp.Anonymous:
    """A call that Spark gets as it is written. If the arguments are wrong, the error is that of Spark."""
    return exp.Anonymous(this=name, expressions=arguments)


def is_text(tree: Any) -> bool:
    """Whether an argument is a text in quotes."""
    return isinstance(tree, exp.Literal) and tree.is_string


def is_positive(tree: Any) -> bool:
    """Whether an argument is a positive whole number."""
    return isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdigit() and int(tree.name) > 0
