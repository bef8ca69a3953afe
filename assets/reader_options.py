"""The names of Spark's reader options: those that a source may have, and those that would have no effect on it.

Lines of CSV and JSON files are read first, and then parsed by Spark's `from_csv` and `from_json`, so an option of Spark's file readers
applies only if it concerns the parsing of one line. Spark ignores unknown options. Names ignore case.
"""

import re

from operators.errors import did_you_mean
from operators.time_zones import is_time_zone

_CSV = (
    "header",
    "sep",
    "delimiter",
    "quote",
    "escape",
    "charToEscapeQuoteEscaping",
    "comment",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
    "nullValue",
    "emptyValue",
    "maxColumns",
    "maxCharsPerColumn",
    "unescapedQuoteHandling",
    "inputBufferSize",
)
_JSON = (
    "allowComments",
    "allowUnquotedFieldNames",
    "allowSingleQuotes",
    "allowNumericLeadingZeros",
    "allowNonNumericNumbers",
    "allowBackslashEscapingAnyCharacter",
    "allowUnquotedControlChars",
    "maxNestingDepth",
    "maxNumLen",
    "maxStringLen",
)
_FORMATS_OF_VALUES = (
    "locale",
    "timeZone",
    "dateFormat",
    "timestampFormat",
    "timestampNTZFormat",
    "enableDateTimeParsingFallback",
)
"""They apply to nested columns of JSON only; see `SourceContract`."""
LEGAL = (*_CSV, *_JSON, *_FORMATS_OF_VALUES, "mode")
"""The options that a source may have."""
_FILES = (
    "text files are read as lines of UTF-8, decompressed by their suffix, and every file below the source's folder is read, except those "
    "whose name or folder starts with '_' or '.'"
)
_SCHEMA = "the columns and their types are those of the contract's `schema`"
_OUTPUT = "it is an option for writing files"
_PARQUET = "Parquet files are read by the types of their own columns"
_TEXT = "the columns of CSV are read as text and cast"
NO_EFFECT = {
    **dict.fromkeys(("encoding", "charset", "lineSep", "multiLine", "compression", "codec"), _FILES),
    **dict.fromkeys(("pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter", "path", "basePath"), _FILES),
    **dict.fromkeys(("ignoreCorruptFiles", "ignoreMissingFiles", "ignoreInvalidPartitionPaths"), _FILES),
    **dict.fromkeys(("maxFilesPerTrigger", "maxBytesPerTrigger", "maxFileAge", "maxCachedFiles", "discardCachedInputRatio"), _FILES),
    **dict.fromkeys(("latestFirst", "fileNameOnly", "cleanSource", "sourceArchiveDir"), _FILES),
    **dict.fromkeys(("inferSchema", "samplingRatio", "preferDate", "enforceSchema", "columnPruning", "singleVariantColumn"), _SCHEMA),
    **dict.fromkeys(("primitivesAsString", "prefersDecimal", "dropFieldIfAllNull", "inferTimestamp", "useUnsafeRow"), _SCHEMA),
    **dict.fromkeys(("quoteAll", "escapeQuotes", "extension", "pretty"), _OUTPUT),
    **dict.fromkeys(("ignoreNullFields", "writeNonAsciiCharacterAsCodePoint"), _OUTPUT),
    **dict.fromkeys(("mergeSchema", "datetimeRebaseMode", "int96RebaseMode", "parquet.compression"), _PARQUET),
    **dict.fromkeys(("nanValue", "positiveInf", "negativeInf"), _TEXT),
}
"""Options of Spark's file readers and writers that would have no effect on a source, and why."""
_OTHER_NAMES = {
    "separator": "sep",
    "fieldDelimiter": "delimiter",
    "quotechar": "quote",
    "quoteCharacter": "quote",
    "escapechar": "escape",
    "escapeCharacter": "escape",
    "hasHeader": "header",
    "naValues": "nullValue",
    "nullValues": "nullValue",
}
"""Names that other libraries use for an option of Spark."""
_BOOLEANS = {
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
    "enableDateTimeParsingFallback",
    *(name for name in _JSON if name.startswith("allow")),
}
_CHARACTERS = ("quote", "escape", "comment", "charToEscapeQuoteEscaping")
_LEAST = {
    **dict.fromkeys(("maxColumns", "inputBufferSize", "maxNestingDepth", "maxNumLen", "maxStringLen"), 1),
    "maxCharsPerColumn": -1,
}
"""The least whole number of an option."""
_MOST = 2**31 - 1
_QUOTES = ("STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE", "RAISE_ERROR")
_SEPARATOR = re.compile(r"""(?:[^\\\n\r\0\U00010000-\U0010ffff]|\\[tbf\\"'])+""")
"""A field separator that Spark accepts: one or more characters of the Basic Multilingual Plane, or escapes such as `\\t`."""
_NOT_A_CHARACTER = ("\n", "\r", "\0")
_LEGAL = {name.lower() for name in LEGAL}
_WITHOUT_EFFECT = {name.lower(): reason for name, reason in NO_EFFECT.items()}


def option_fault(option: object) -> str | None:
    """Why a source may not have an option, with the legal ones; None if it may.

    >>> option_fault("SEP")
    >>> option_fault("seperator")[-21:]
    "; did you mean 'sep'?"
    """
    name = option.lower() if isinstance(option, str) else None
    if name in _LEGAL:
        return None
    legal = f"legal: {', '.join(LEGAL)}"
    if name in _WITHOUT_EFFECT:
        return f"has no effect here: {_WITHOUT_EFFECT[name]}; {legal}"
    return f"is no option of Spark's CSV or JSON parser; {legal}{did_you_mean(option, LEGAL, _OTHER_NAMES)}"


def legal_values(option: str, value: object) -> str | None:
    """The legal values of an option; None if `value` is legal.

    Args:
        option: the name of a legal option; names ignore case.
        value: its value.

    >>> legal_values("maxColumns", "0")
    "for 'maxColumns', a whole number from 1 to 2147483647"
    """
    name = next(known for known in LEGAL if known.lower() == option.lower())
    text = str(value)
    if name == "header" and text.lower() not in ("true", "false"):
        return "for 'header', 'true', or 'false' for CSV files without a header, whose fields are in the schema's order"
    if name in _BOOLEANS and text.lower() not in ("true", "false"):
        return f"for {name!r}, 'true' or 'false'"
    if name in ("sep", "delimiter") and not (isinstance(value, str) and _SEPARATOR.fullmatch(text)):
        return f"for {name!r}, one or more characters up to U+FFFF other than line breaks and NUL; write a backslash twice"
    if name in _CHARACTERS and (not isinstance(value, str) or len(text) > 1 or text in _NOT_A_CHARACTER or text > "\uffff"):
        return f"for {name!r}, one character up to U+FFFF other than a line break and NUL, or empty text"
    if name in _LEAST and not _is_number(text, _LEAST[name]):
        no_limit = ", or -1 for no limit" if _LEAST[name] < 0 else ""
        return f"for {name!r}, a whole number from 1 to {_MOST}{no_limit}"
    if name == "unescapedQuoteHandling" and text.upper() not in _QUOTES:
        return f"for {name!r}, {', '.join(_QUOTES)}"
    if name == "timeZone" and not is_time_zone(text):
        return "for 'timeZone', a region such as 'Europe/Berlin', or an offset such as '+01:00'"
    return None


def _is_number(text: str, least: int) -> bool:
    return re.fullmatch(r"[+-]?\d{1,10}", text, re.ASCII) is not None and least <= int(text) <= _MOST and int(text) != 0
