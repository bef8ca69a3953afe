"""Expressions of Spark with placeholders for arguments."""

from functools import lru_cache
from string import ascii_lowercase
from typing import Any

import sqlglot
from sqlglot import exp


def fill(template: str, *arguments: Any) -> Any:
    """The tree of an expression in Spark SQL, with the arguments in place of `:a`, `:b` and so on.

    It is in brackets if it is an operation, because it becomes a part of other expressions.

    >>> fill(":a - :a % 1", exp.column("x") + 1).sql(dialect="spark")
    '((x + 1) - (x + 1) % 1)'
    """
    tree = _parse(template).copy()
    for placeholder in [*tree.find_all(exp.Placeholder)]:
        argument = arguments[ascii_lowercase.index(placeholder.name)].copy()
        placeholder.replace(argument if _is_call(placeholder.parent) or not _needs_brackets(argument) else exp.Paren(this=argument))
    return exp.Paren(this=tree) if isinstance(tree, exp.Binary) else tree


@lru_cache
def _parse(template: str) -> Any:
    return sqlglot.parse_one(template, dialect="spark")


def _is_call(tree: Any) -> bool:
    """Whether a tree separates its parts by commas or words; AND, OR and RLIKE are functions of sqlglot too."""
    return isinstance(tree, exp.Func) and not isinstance(tree, exp.Binary)


def _needs_brackets(tree: Any) -> bool:
    return not (_is_call(tree) or isinstance(tree, exp.Column | exp.Literal | exp.Paren | exp.Null))


def number_of_arguments(template: str) -> int:
    """How many arguments a template has, at most three."""
    return sum(f":{letter}" in template for letter in "abc")


def plain_call(name: str, arguments: list[Any]) -> exp.Anonymous:
    """A call as it is written; Spark's error names wrong arguments."""
    return exp.Anonymous(this=name, expressions=arguments)


def is_text(tree: Any) -> bool:
    """Whether an argument is a text in quotes."""
    return isinstance(tree, exp.Literal) and tree.is_string


def is_positive(tree: Any) -> bool:
    """Whether an argument is a positive whole number."""
    return isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdigit() and int(tree.name) > 0
