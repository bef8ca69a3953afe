"""Flink's functions of texts, as expressions of Spark."""

from typing import Any

from sqlglot import exp

from operators.sql.errors import SqlError
from operators.sql.templates import fill, is_long, is_positive, is_text, plain_call

_LAST_CHARACTER = 255


def extracted_text(arguments: list[Any]) -> Any:
    """REGEXP_EXTRACT: by default the whole match, and null without a match. Spark returns the first group, and an empty text."""
    if len(arguments) < 2:
        return plain_call("REGEXP_EXTRACT", arguments)
    text, pattern, *group = arguments
    number = group[0] if group else exp.Literal.number(0)
    if is_long(text) or is_long(pattern):
        return fill("IF(:a RLIKE :b, REGEXP_EXTRACT(:a, :b, :c), NULL)", text, pattern, number)
    found = plain_call("REGEXP_EXTRACT", [text, pattern, number])
    return exp.If(this=exp.RegexpLike(this=text.copy(), expression=pattern.copy()), true=found, false=exp.Null())


def replaced_text(arguments: list[Any]) -> exp.Anonymous:
    """REGEXP_REPLACE, whose replacement is inserted as it is. Spark reads `$1` in it as a group, and a backslash as an escape."""
    if len(arguments) != 3:
        return plain_call("REGEXP_REPLACE", arguments)
    text, pattern, replacement = arguments
    if is_text(replacement):
        escaped: Any = exp.Literal.string(replacement.name.replace("\\", "\\\\").replace("$", "\\$"))
    else:
        escaped = fill(r"REPLACE(REPLACE(:a, '\\', '\\\\'), '$', '\\$')", replacement)
    return plain_call("REGEXP_REPLACE", [text, pattern, escaped])


def like(text: Any, pattern: Any) -> exp.Like:
    """LIKE without ESCAPE, in which a backslash is a character. In Spark it is an escape."""
    if is_text(pattern):
        return exp.Like(this=text, expression=exp.Literal.string(pattern.name.replace("\\", "\\\\")))
    return exp.Like(this=text, expression=fill(r"REPLACE(:a, '\\', '\\\\')", pattern))


def split_text(arguments: list[Any]) -> Any:
    """SPLIT_INDEX, whose delimiter can be a character's number. It is null for an empty text or delimiter, and an index without a part."""
    if len(arguments) != 3:
        return plain_call("SPLIT_INDEX", arguments)
    text, delimiter, index = arguments
    if is_positive(delimiter) and int(delimiter.name) > _LAST_CHARACTER:
        reason = "Flink accepts the number of a character only up to 255"
        raise SqlError.refused(f"SPLIT_INDEX by {delimiter.name}", reason, f"write a text, or a number up to {_LAST_CHARACTER}")
    delimiter = exp.Literal.string(chr(int(delimiter.name))) if is_positive(delimiter) else delimiter
    return fill(r"IF(:a = '' OR :b = '', NULL, GET(SPLIT(:a, CONCAT('\\Q', :b, '\\E')), :c))", text, delimiter, index)


def split_list(arguments: list[Any]) -> Any:
    """SPLIT, which splits by an empty delimiter after each character."""
    if len(arguments) != 2 or (is_text(arguments[1]) and arguments[1].name):
        return exp.Split.from_arg_list(arguments)
    return fill(r"SPLIT(:a, IF(:b = '', '', CONCAT('\\Q', :b, '\\E')))", *arguments)


def substring(arguments: list[Any]) -> Any:
    """SUBSTRING, which is null for a negative length, and empty for a start before the text. Spark counts the length from that start."""
    if len(arguments) not in (2, 3) or all(is_positive(number) for number in arguments[1:]):
        return exp.Substring.from_arg_list(arguments)
    _, start, *length = arguments
    found = f"SUBSTRING(:a, :b{', :c' if length else ''})"
    found = found if is_positive(start) else f"IF(:b < -LENGTH(:a), '', {found})"
    return fill(f"IF(:c < 0, NULL, {found})" if length and not is_positive(length[0]) else found, *arguments)


def overlay(text: Any, new: Any, start: Any, length: Any) -> Any:
    """OVERLAY, which returns the text unchanged for a start outside of it, and drops the rest of the text for a length below 1."""
    number = ":d" if length else "LENGTH(:b)"
    replaced = f"OVERLAY(:a PLACING :b FROM :c FOR IF({number} < 1, LENGTH(:a), {number}))"
    return fill(f"IF(:c < 1 OR :c > LENGTH(:a), :a, {replaced})", text, new, start, *([length] if length else []))


def padded_text(name: str, arguments: list[Any]) -> Any:
    """LPAD and RPAD, which are null for a negative length, and for an empty text to pad with."""
    if len(arguments) != 3 or (is_positive(arguments[1]) and is_text(arguments[2]) and arguments[2].name):
        return plain_call(name, arguments)
    return fill(f"IF(:b < 0 OR :c = '', NULL, {name}(:a, :b, :c))", *arguments)


def located_text(arguments: list[Any]) -> Any:
    """LOCATE, which searches from the first character if the position is below 1, or if the text to find is empty."""
    if len(arguments) != 3 or (is_positive(arguments[2]) and is_text(arguments[0]) and arguments[0].name):
        return plain_call("LOCATE", arguments)
    return fill("IF(ISNULL(:c), NULL, LOCATE(:a, :b, IF(:c < 1 OR :a = '', 1, :c)))", *arguments)


def found_position(arguments: list[Any]) -> Any:
    """INSTR from the left, for the first occurrence only."""
    if len(arguments) < 2:
        return plain_call("INSTR", arguments)
    if len(arguments) > 3:
        way_out = "write INSTR(text, part), or LOCATE(part, text, n) from the n-th character"
        raise SqlError.refused("INSTR with an occurrence", "Spark has no such function", way_out)
    text, part, *start = arguments
    if start and not is_positive(start[0]):
        reason, way_out = "Spark counts from the left only", "write LOCATE(part, text, n), from the n-th character"
        raise SqlError.refused("INSTR with a position that is no positive number", reason, way_out)
    return located_text([part, text, *start])


def translated_text(arguments: list[Any]) -> Any:
    """TRANSLATE, in which a null in the second or third argument is an empty text."""
    if len(arguments) != 3 or all(is_text(argument) for argument in arguments[1:]):
        return plain_call("TRANSLATE", arguments)
    return fill("TRANSLATE(:a, COALESCE(:b, ''), COALESCE(:c, ''))", *arguments)
