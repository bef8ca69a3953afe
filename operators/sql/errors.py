"""The error for SQL that Tidemark cannot plan."""

from typing import Self

from operators.errors import OperatorError

_LONGEST = 120


class SqlError(OperatorError):
    """A statement cannot be parsed, or has no operator; the message says why and what to write instead."""

    @classmethod
    def refused(cls, part: str, reason: str, way_out: str) -> Self:
        """A part of a statement has no operator."""
        return cls(f"{part} is refused: {reason}; {way_out}")

    @classmethod
    def unreadable(cls, text: str, error: Exception) -> Self:
        """A text cannot be parsed as a statement."""
        [reason, *_] = str(error).splitlines() or [""]
        return cls(f"{shorten_text(text)!r} cannot be parsed: {reason.rstrip('.')}")

    @classmethod
    def unknown(cls, kind: str, name: str, legal: str) -> Self:
        """A name is unknown."""
        return cls(f"there is no {kind} {name!r}; legal: {legal}")


def shorten_text(text: str) -> str:
    """A text in one line, at most 120 characters long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
