"""The error for SQL that Tidemark cannot plan."""

import re
from typing import Any, Self

from operators.errors import OperatorError

_LONGEST = 120
_NOT_CLOSED = re.compile(r"Missing (?P<quote>\S+) from \d+:(?P<start>\d+)")
"""What the tokenizer says about a quote that does not end."""
_OPEN_COMMENT = re.compile(r"""'(?:[^']|'')*'|`[^`]*`|--[^\n]*|/\*.*?\*/|(?P<open>/\*)""", re.DOTALL)
"""A comment that does not end; or a text in quotes or another comment that could contain `/*`."""
_INTERNAL = re.compile(r"<Token [^>]*?text: (?P<token>.*?), line: .*>|<class '[\w.]*\.(?P<kind>\w+)'>")
"""A token or a class, as the parser prints it in its messages."""


class SqlError(OperatorError):
    """A statement cannot be planned.

    If it cannot be parsed, the message says where. If a part of it has no operator, the message says why, and what to write instead.
    """

    @classmethod
    def refused(cls, part: str, reason: str, way_out: str) -> Self:
        """A part of a statement has no operator."""
        return cls(f"{part} is refused: {reason}; {way_out}")

    @classmethod
    def unreadable(cls, text: str, error: Exception) -> Self:
        """A text cannot be parsed as a statement.

        Args:
            text: the text.
            error: the error of the parser or of the tokenizer.
        """
        if (match := _NOT_CLOSED.search(str(error.__cause__))) is not None:
            return cls.not_closed(text, int(match["start"]), match["quote"])
        if isinstance(error.__cause__, IndexError):  # the tokenizer has no message for it
            starts = [found.start() for found in _OPEN_COMMENT.finditer(text) if found["open"]]
            if starts:
                return cls.not_closed(text, starts[0], "*/")
            return cls(f"{shorten_text(text)!r} cannot be parsed: a quote or a comment is not closed")
        faults: list[dict[str, Any]] = getattr(error, "errors", None) or []
        [reason, *_] = str(error).splitlines() or [""]
        for fault in faults[:1]:
            description = _INTERNAL.sub(lambda found: found["token"] or found["kind"], fault["description"]).replace("SENTINEL", "the end")
            reason = f"{description} at {fault['highlight']!r} (line {fault['line']}, column {fault['col']})"
        return cls(f"{shorten_text(text)!r} cannot be parsed: {reason.rstrip('.')}")

    @classmethod
    def not_closed(cls, text: str, start: int, end: str) -> Self:
        """What begins at a position of a text, such as a bracket or a comment, does not end with `end`."""
        line = text.count("\n", 0, start) + 1
        return cls(f"{shorten_text(text[start:])!r} in line {line} cannot be parsed: it has no closing {end}")

    @classmethod
    def compiled_parser(cls) -> Self:
        """The parser of sqlglot is compiled, so that the parser of Flink SQL, which extends it, cannot be used."""
        return cls(
            "SQL cannot be parsed: the package `sqlglotc` is installed (by the extra `sqlglot[c]`), which replaces sqlglot's parser by a "
            "compiled one, and Tidemark's parser of Flink SQL cannot extend that. Uninstall it: pip uninstall sqlglotc"
        )

    @classmethod
    def unknown(cls, kind: str, name: str, legal: str) -> Self:
        """A name is unknown.

        Args:
            kind: what the name should be, such as `column`.
            name: the name.
            legal: the known names.
        """
        return cls(f"there is no {kind} {name!r}; legal: {legal}")


def shorten_text(text: str) -> str:
    """A text in one line, at most 120 characters long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
