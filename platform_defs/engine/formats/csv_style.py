"""The CSV dialect of a source: separator, quote and escape, read from Spark's options; parses header lines."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from assets.contracts import SourceContract

HEADER = "header"
"""The option for whether files have a header."""
_ESCAPES = {"t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class CsvStyle:
    """The dialect of a CSV file.

    Args:
        sep: the field separator, one character or several.
        quote: the character that encloses a field; empty for none.
        escape: the character that escapes a quote inside a field.
        has_header: whether a file's first line names its columns; if not, the fields are the schema's columns in order.
    """

    sep: str = ","
    quote: str = '"'
    escape: str = '"'
    has_header: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "CsvStyle":
        r"""The dialect that Spark uses with these options.

        >>> CsvStyle.of({"delimiter": "\\t", "quote": "'"})
        CsvStyle(sep='\t', quote="'", escape='"', has_header=True)
        """
        named = {name.lower(): value for name, value in options.items()}
        sep = named.get("sep", named.get("delimiter", cls.sep))
        quote, escape = _unescaped(named.get("quote", cls.quote)), _unescaped(named.get("escape", cls.escape))
        return cls(_unescaped(sep) or cls.sep, quote, escape, str(named.get(HEADER, True)).lower() == "true")

    def fields(self, line: str) -> list[str]:
        """The fields of a line.

        >>> CsvStyle(sep="||").fields('k||"a""||b"||')
        ['k', 'a"||b', '']
        """
        fields, start = list[str](), 0
        while True:
            field, end = self._quoted(line, start) if self.quote and line.startswith(self.quote, start) else ("", start)
            stop = line.find(self.sep, end)
            if stop < 0:
                return [*fields, field + line[end:]]
            fields.append(field + line[end:stop])
            start = stop + len(self.sep)

    def _quoted(self, line: str, start: int) -> tuple[str, int]:
        """The text of a quoted field, and the position after its closing quote."""
        text, position = list[str](), start + 1
        while position < len(line):
            if line[position] == self.escape and line[position + 1 : position + 2] in {self.quote, self.escape} - {""}:
                text.append(line[position + 1])
                position += 2
            elif line[position] == self.quote:
                return "".join(text), position + 1
            else:
                text.append(line[position])
                position += 1
        return "".join(text), position


def header_names(contract: SourceContract, header: str) -> list[str]:
    """The names in a header line."""
    return CsvStyle.of(contract.options).fields(header) if header else []


def _unescaped(text: str) -> str:
    r"""An option's value as Spark reads it: escapes such as `\t` become one character."""
    plain = text.replace(r"\u0000", "\0")
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), plain) if len(plain) > 1 else plain
