"""The CSV dialect of a source, such as its separator and its quote, read from Spark's options; parses header lines."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from assets.contracts import SourceContract

HEADER = "header"
"""The option for whether files have a header."""
_SPACES = "".join(map(chr, range(33)))
"""The characters that Spark removes around a field: spaces and control characters."""
_ESCAPES = {"t": "\t", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class CsvStyle:
    """The dialect of a CSV file.

    Args:
        sep: the field separator, one character or several.
        quote: the character that encloses a field; empty for none.
        escape: the character that escapes a quote inside a field.
        has_header: whether a file's first line names its columns; if not, the fields are the schema's columns in order.
        comment: the character with which a comment line begins; empty for none.
        skips_leading: whether spaces before a field are ignored.
        skips_trailing: whether spaces after a field are ignored.
    """

    sep: str = ","
    quote: str = '"'
    escape: str = '"'
    has_header: bool = True
    comment: str = ""
    skips_leading: bool = False
    skips_trailing: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "CsvStyle":
        r"""The dialect of a contract's options: as in Spark, except that by default files have a header and `escape` is a double quote.

        >>> CsvStyle.of({"delimiter": "\\t", "quote": "'"}) == CsvStyle(sep="\t", quote="'")
        True
        """
        named = {name.lower(): value for name, value in options.items()}
        sep = named.get("sep", named.get("delimiter", cls.sep))
        quote, escape = named.get("quote", cls.quote), named.get("escape", cls.escape)
        names = (HEADER, True), ("ignoreleadingwhitespace", False), ("ignoretrailingwhitespace", False)
        has_header, skips_leading, skips_trailing = (str(named.get(name, default)).lower() == "true" for name, default in names)
        return cls(_unescaped(sep), quote, escape, has_header, named.get("comment", ""), skips_leading, skips_trailing)

    def fields(self, line: str) -> list[str]:
        """The fields of a line.

        >>> CsvStyle(sep="||").fields('k||"a""||b"||')
        ['k', 'a"||b', '']
        """
        fields, start = list[str](), 0
        while True:
            start = self._after_spaces(line, start) if self.skips_leading else start
            field, end = self._quoted(line, start) if self.quote and line.startswith(self.quote, start) else ("", start)
            stop = line.find(self.sep, end)
            rest = line[end:] if stop < 0 else line[end:stop]
            if self.skips_trailing or (end > start and not rest.strip(_SPACES)):  # spaces after a closing quote are never part of a field
                rest = rest.rstrip(_SPACES)
            fields.append(field + rest)
            if stop < 0:
                return fields
            start = stop + len(self.sep)

    def _after_spaces(self, line: str, start: int) -> int:
        while start < len(line) and line[start] in _SPACES and not line.startswith(self.sep, start):
            start += 1
        return start

    def _quoted(self, line: str, start: int) -> tuple[str, int]:
        """The text of a quoted field, and the position after its closing quote."""
        text, position = list[str](), start + 1
        while position < len(line):
            if line[position] == self.escape and line[position + 1 : position + 2] in (self.quote, self.escape):
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


def _unescaped(sep: str) -> str:
    r"""A field separator as Spark reads it: escapes such as `\t` become one character."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), sep)
