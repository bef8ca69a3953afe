"""The error for SQL that Tidemark cannot plan."""

from typing import Self

from operators.errors import OperatorError

_LONGEST = 120


class SqlError(OperatorError):
    """A statement cannot be parsed, or has no operator; the message says why and what to write instead."""

    @classmethod
    def refused(cls, part: str, why: str, way_out: str) -> Self:
        """A part of a statement has no operator."""
        return cls(f"{part} is refused: {why}; {way_out}")

    @classmethod
    def unreadable(cls, text: str, error: Exception) -> Self:
        """A text cannot be parsed as a statement."""
        [why, *_] = str(error).splitlines() or [""]
        return cls(f"{shortened(text)!r} cannot be parsed: {why.rstrip('.')}")

    @classmethod
    def unknown(cls, kind: str, name: str, known: str) -> Self:
        """A name is unknown."""
        return cls(f"there is no {kind} {name!r}; legal: {known}")


def shortened(text: str) -> str:
    """A text in one line, at most 120 characters long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
