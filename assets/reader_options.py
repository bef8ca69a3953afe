"""The names of Spark's reader options: those that a source may have, and those that would have no effect on it.

Lines of CSV and JSON files are read first, and then parsed by Spark's `from_csv` and `from_json`, so an option of Spark's file readers
applies only if it concerns the parsing of one line. Spark ignores unknown options. Names ignore case.
"""

from operators.errors import did_you_mean

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
    "nanValue",
    "positiveInf",
    "negativeInf",
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
_FILES = "text files are read as lines of UTF-8, decompressed by their suffix, and every file below the source's folder is read"
_SCHEMA = "the columns and their types are those of the contract's `schema`"
_OUTPUT = "it is an option for writing files"
_PARQUET = "Parquet files are read by the types of their own columns"
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
