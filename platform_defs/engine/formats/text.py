"""Reads text files: CSV and JSON lines.

Files are read line by line, so that the original text of a line that cannot be parsed can be quarantined. CSV columns are matched by the
names in each file's header; a line that repeats the header is not a row. With the option `header` = `false` a CSV file has no header, and
its fields are the columns of the contract in order. A field must not contain a line break.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import groupby
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType, StructField, StructType

from assets.contracts import SourceContract
from operators.columns import combine_balanced, temporary
from operators.engine_columns import ARRIVAL
from platform_defs.engine.formats.csv_style import HEADER, CsvStyle, header_names
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.json_decimals import decimals, exact_decimals, has_nested_decimal, with_exact_decimals
from platform_defs.engine.formats.opening import hadoop_path, read_files
from platform_defs.engine.formats.raw_rows import (
    HAS_NEW_COLUMNS,
    MALFORMED,
    PATH,
    TYPE_FAULT,
    arrival,
    as_text,
    is_text,
    new_column_fault,
    raw,
    record_of,
    reject_rows,
    type_fault,
)

_CORRUPT = temporary("corrupt")
_PARSED = temporary("parsed")
_TEXTS, _DIGITS = temporary("texts"), temporary("digits")
# A contract cannot change these options: with another mode a bad row would be dropped, or would stop the ingest.
_LENIENT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_NO_OBJECT = "not a JSON object"
_NO_HEADER = "for files without a header, set the source's option `header` to `false`"
_HUGE = "contains a decimal with an exponent of five digits or more"
_BLANK = " \t\f\v"
_LONGEST_HEADER = 1 << 20
_MOST_FIELDS = 20_000  # Spark's parser fails with more than 20,480
_ALONE = r"(?<!\\)(?:\\\\)*"  # not escaped itself
_HUGE_DECIMAL = r'[:\[,]\s*"?-?[0-9.]+[eE]-[0-9]{5}'
"""A decimal with so small an exponent that Spark would compute its power of ten for hours. Nested decimals are checked by it, because the
parser converts them itself."""
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE = rf"{_ALONE}(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})"


def json_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of JSON files with one object in each line."""
    return json_rows_of(lines(spark, files, ordered), contract)


def json_rows_of(
    rows: DataFrame, contract: SourceContract, columns_of_parts: Mapping[str, Column] | None = None, fault: Column | None = None
) -> DataFrame:
    """The rows of JSON objects.

    Args:
        rows: the objects' texts as `value`, with `_path` and `arrival`.
        contract: the source's contract.
        columns_of_parts: by name, the raw values of columns that are not read from the object.
        fault: the reason to reject a row before it is parsed, or null.
    """
    schema = as_text(contract.struct).add(_CORRUPT, StringType())
    options = _parser_options(contract, {"allowNonNumericNumbers": "false"})
    is_alone, may_parse = _ends_with_object(options), F.lit(True)
    if any(has_nested_decimal(f.dataType) for f in contract.struct.fields):
        may_parse = ~F.rlike("value", F.lit(_HUGE_DECIMAL))
    parsed = F.when(is_alone & may_parse, F.from_json("value", schema, options))
    if len(exact := decimals(contract.struct)):
        rows = rows.withColumn(_TEXTS, parsed)
        rows = rows.withColumn(_DIGITS, exact_decimals(exact, _TEXTS, options))
        parsed = with_exact_decimals(schema.fieldNames(), exact, _TEXTS, _DIGITS)
    field_of = {c: c for c in contract.struct.fieldNames()}
    fault_if_corrupt = _json_fault(contract, options, is_alone, may_parse)
    return _raw_rows(
        rows,
        contract,
        field_of,
        parsed,
        fault_if_corrupt,
        _surrogate_fault(),
        *_name_faults(contract),
        columns_of_parts=columns_of_parts,
        first=fault,
    )


def _json_fault(contract: SourceContract, options: Mapping[str, str], is_alone: Column, may_parse: Column) -> Column:
    """Why a line cannot be parsed: it is not a JSON object, or a nested column has a value of another type.

    The parser does not distinguish the two, so the line is parsed again: without types, and then with the type of each nested column in
    turn. Spark evaluates this only for lines that cannot be parsed.
    """
    nested = [f for f in contract.struct.fields if not isinstance(f.dataType, AtomicType)]
    if not nested:
        return F.lit(_NO_OBJECT)
    untyped = StructType([StructField(f.name, StringType()) for f in nested])
    is_object = is_alone & ~_is_corrupt(untyped, options)
    huge = f"{TYPE_FAULT}{', '.join(f.name for f in nested if has_nested_decimal(f.dataType))} {_HUGE}"
    mistyped = [F.when(_is_corrupt(StructType([f]), options), F.lit(type_fault(f))) for f in nested]
    return F.coalesce(F.when(~is_object, F.lit(_NO_OBJECT)), F.when(~may_parse, F.lit(huge)), *mistyped, F.lit(_NO_OBJECT))


def _is_corrupt(schema: StructType, options: Mapping[str, str]) -> Column:
    parsed = F.from_json("value", StructType([*schema.fields, StructField(_CORRUPT, StringType())]), options)
    return parsed.isNull() | parsed[_CORRUPT].isNotNull()


def _parser_options(contract: SourceContract, defaults: Mapping[str, str]) -> dict[str, str]:
    """The options for a parser: a contract's options override the defaults, and `_LENIENT` overrides both. Names ignore case."""
    chosen = {name.lower(): value for name, value in contract.options.items() if name.lower() != HEADER}
    return {name.lower(): value for name, value in defaults.items()} | chosen | {n.lower(): v for n, v in _LENIENT.items()}


def _ends_with_object(options: Mapping[str, str]) -> Column:
    """Whether a line has no text after its object: `from_json` would silently ignore such text, even a second object."""
    text = F.trim("value")
    elements = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<string>", options)
    return (F.instr(text, "}") == F.length(text)) | F.coalesce(F.size(elements) == 1, F.lit(False))


def _surrogate_fault() -> Column:
    """The fault of a line with half of a surrogate pair, which Spark would read as a question mark."""
    suspect = F.contains("value", F.lit("\\u"))
    return F.when(suspect, F.when(F.col("value").rlike(_LONE_SURROGATE), F.lit("it contains half of a surrogate pair")))


def _name_faults(contract: SourceContract) -> list[Column]:
    """The faults of names that differ from the contract's only in case and leave a column empty, and of new names that are not allowed."""
    names, keys = contract.struct.fieldNames(), F.json_object_keys("value")
    declared = F.array(*map(F.lit, names))
    present = F.transform(F.array_intersect(keys, declared), F.lower)
    miswritten_names = F.filter(
        keys, lambda k: F.lower(k).isin([n.lower() for n in names]) & ~k.isin(names) & ~F.array_contains(present, F.lower(k))
    )
    empty = combine_balanced([F.col(f"{_PARSED}.`{n}`").isNull() for n in names], lambda a, b: a | b, F.lit(False))
    miswritten = F.when(empty, _fault_of_names(miswritten_names, "it has names in another case than the contract's: "))
    if contract.new_columns == "ignore":
        return [miswritten]
    return [miswritten, _fault_of_names(F.array_except(keys, declared), HAS_NEW_COLUMNS)]


def _fault_of_names(names: Column, reason: str) -> Column:
    return F.when(F.size(names) > 0, F.concat(F.lit(reason), F.array_join(names, ", ")))


def csv_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of CSV files; files with the same header are read together."""
    style = CsvStyle.of(contract.options)
    blank = "".join(c for c in _BLANK if c not in style.sep)
    if not style.has_header:
        declared = [f.name for f in contract.struct.fields if not contract.is_added(f)]
        return _csv_rows(lines(spark, files, ordered, blank), contract, declared, "the source's schema")
    headers = {f: header(spark, f) for f in files}
    frames: list[DataFrame] = []
    for header_line, group in groupby(sorted(files, key=lambda f: headers[f]), key=lambda f: headers[f]):
        frames.append(_rows_below(lines(spark, list(group), ordered, blank), contract, header_line))
    return reduce(DataFrame.unionByName, frames)


def _rows_below(rows: DataFrame, contract: SourceContract, header: str) -> DataFrame:
    """The rows below a header. If the header is not usable, all lines are rejected, even the header itself, which may be a row."""
    names = header_names(contract, header)
    below = rows.where(~F.col("value").isin(header, f"\ufeff{header}"))
    if (reason := _header_fault(contract, names)) is not None:
        return reject_rows(rows, contract, reason)
    if (reason := new_column_fault(contract, names)) is not None:
        return reject_rows(below, contract, reason)
    return _csv_rows(below, contract, names, "its file's header")


def _csv_rows(rows: DataFrame, contract: SourceContract, names: Sequence[str], named_by: str) -> DataFrame:
    """The rows of lines whose fields have the given names.

    Args:
        rows: the lines.
        contract: the source's contract.
        names: the names of the fields.
        named_by: the origin of the names, for the reason to reject a line with more or fewer fields.
    """
    if (fault := _nested_fault(contract, names)) is not None:
        return reject_rows(rows, contract, fault)
    lower = [c.lower() for c in names]
    plain = [f.name for f in contract.struct.fields if isinstance(f.dataType, AtomicType)]
    field_of = {c: f"c{lower.index(c.lower())}" for c in plain if c.lower() in lower}
    ddl = ", ".join(f"`{c}` STRING" for c in [*[f"c{n}" for n in range(len(names))], _CORRUPT])
    style = CsvStyle.of(contract.options)
    options = _parser_options(contract, {"escape": style.escape})
    fields = (F.length("value") - F.length(F.replace("value", F.lit(style.sep), F.lit("")))) / len(style.sep)
    parsed = F.when((F.octet_length("value") < _MOST_FIELDS) | (fields < _MOST_FIELDS), F.from_csv("value", ddl, options))
    fault = F.lit(f"not {len(names)} fields, as {named_by} has")
    return _raw_rows(rows, contract, field_of, parsed, fault, _quote_fault(style))


def _header_fault(contract: SourceContract, names: Sequence[str]) -> str | None:
    lower = [c.lower() for c in names]
    missing = [f.name for f in contract.struct.fields if f.name.lower() not in lower and not contract.is_added(f)]
    if missing:
        way_out = f"; {_NO_HEADER}" if {f.name.lower() for f in contract.struct.fields}.isdisjoint(lower) else ""
        return f"the file's header lacks {', '.join(missing)}{way_out}"
    return "the file's header has a name twice" if len(set(lower)) != len(lower) else None


def _nested_fault(contract: SourceContract, names: Sequence[str]) -> str | None:
    """The fault of a file whose schema has nested columns, which no field of a CSV file can contain."""
    lower = [c.lower() for c in names]
    nested = [f for f in contract.struct.fields if f.name.lower() in lower and not isinstance(f.dataType, AtomicType)]
    if all(contract.is_added(f) for f in nested):
        return None
    return f"no field of a CSV file can contain {', '.join(f.name for f in nested)}"


def _quote_fault(style: CsvStyle) -> Column:
    """The fault of a line with a part of a quoted field that contains a line break; Spark would read the part as a whole field."""
    text = F.col("value")
    for escaped in (style.escape * 2, style.escape + style.quote) if style.escape != style.quote else ():
        text = F.replace(text, F.lit(escaped), F.lit(""))
    number_of_quotes = F.length(text) - F.length(F.replace(text, F.lit(style.quote), F.lit("")))
    return F.when(number_of_quotes % 2 == 1, F.lit("a quoted field does not end on its line; a field must not contain a line break"))


def lines(spark: SparkSession, files: Sequence[File], ordered: Sequence[File], blank: str = _BLANK) -> DataFrame:
    """The lines that are not blank, as `value`, each with its position: the start of its split, and the line's number in that split."""
    start, path = F.col("_metadata.file_block_start"), F.col("_metadata.file_path")
    line = F.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    columns = "value", path.alias(PATH), arrival(files, ordered, path, start + line)
    all_lines = read_files(spark, files, lambda reader, paths: reader.text(paths).select(*columns))
    return all_lines.where(F.btrim("value", F.lit(blank)) != "")


def _raw_rows(
    rows: DataFrame,
    contract: SourceContract,
    field_of: Mapping[str, str],
    parsed: Column,
    fault_if_corrupt: Column,
    *faults: Column,
    columns_of_parts: Mapping[str, Column] | None = None,
    first: Column | None = None,
) -> DataFrame:
    """Parsed lines as raw rows.

    Args:
        rows: the lines.
        contract: the source's contract.
        field_of: by column of the contract, the field of `parsed` with its value; a column without a field is null.
        parsed: a line's fields.
        fault_if_corrupt: the reason for a line that cannot be parsed.
        faults: further reasons to reject a line, each null if it does not apply.
        columns_of_parts: by name, the raw values of columns that have no field.
        first: a reason to reject a line that precedes all others, or null.
    """
    columns_of_parts = columns_of_parts or {}
    is_corrupt = F.col(_PARSED).isNull() | F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    first_faults = [] if first is None else [first]
    malformed = F.coalesce(*first_faults, F.when(~is_text(), F.lit("not UTF-8")), F.when(is_corrupt, fault_if_corrupt), *faults)
    parsed_rows = rows.withColumn(_PARSED, parsed).withColumn(MALFORMED, malformed)
    fields = as_text(contract.struct).fields
    columns = [(columns_of_parts[f.name] if f.name in columns_of_parts else _field(field_of.get(f.name), f)).alias(f.name) for f in fields]
    return parsed_rows.select(*columns, raw(), PATH, MALFORMED, ARRIVAL, *record_of(rows))


def _field(column: str | None, field: StructField) -> Column:
    return F.lit(None).cast(field.dataType) if column is None else F.when(F.col(MALFORMED).isNull(), F.col(f"{_PARSED}.`{column}`"))


def header(spark: SparkSession, file: File) -> str:
    """A file's first line that is not blank, without a byte order mark; at most `_LONGEST_HEADER` bytes are read."""
    path, conf = hadoop_path(spark, file)
    codec = cast(Any, spark._jvm).org.apache.hadoop.io.compress.CompressionCodecFactory(conf).getCodec(path)
    stream = path.getFileSystem(conf).open(path)
    try:
        start: bytes = (codec.createInputStream(stream) if codec else stream).readNBytes(_LONGEST_HEADER)
    finally:
        stream.close()
    lines_at_start = re.split(r"[\r\n]+", start.decode("utf-8", "replace").removeprefix("\ufeff"))
    return next((line for line in lines_at_start if line.strip()), "")
