"""Reads JSON files with one object in each line."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, MapType, StringType, StructField, StructType

from assets.contracts import SourceContract
from operators.column_types import types_within
from operators.columns import combine_balanced, quoted_name, temporary
from platform_defs.engine.formats.built_once import built_once
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.json_decimals import decimals, exact_decimals, has_nested_decimal, with_exact_decimals
from platform_defs.engine.formats.raw_rows import HAS_NEW_COLUMNS, TYPE_FAULT, as_text, type_fault
from platform_defs.engine.formats.text import CORRUPT, PARSED, LineColumns, json_options, lines, object_keys, raw_rows_of

_TEXTS, _DIGITS = temporary("texts"), temporary("digits")
_NO_OBJECT = "not a JSON object"
_TEXT_KEYS = "all keys of a JSON object are text"
_HUGE = "contains a decimal with an exponent of five digits or more"
_HUGE_DECIMAL = r"""(?:[:\[,]|\*/)\s*["']?[+-]?[0-9.]+[eE]-[0-9]{5}"""
"""A decimal, also after a comment or in single quotes, with so small an exponent that Spark would compute its power of ten for hours. A
line is checked for it before it is parsed if the contract has nested decimals, because the parser converts those itself."""
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE = rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}"
_ESCAPED_BACKSLASH = r"\\\\"


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
    return raw_rows_of(rows, _json_columns(contract), columns_of_parts, fault)


@built_once
def _json_columns(contract: SourceContract) -> LineColumns:
    unreadable = [f for f in contract.struct.fields if _has_keys_other_than_text(f)]
    readable = [f for f in contract.struct.fields if f not in unreadable]
    schema = as_text(StructType([StructField(f.name, StringType()) if f in unreadable else f for f in contract.struct.fields]))
    schema = schema.add(CORRUPT, StringType())
    options = json_options(contract)
    is_alone, may_parse = _ends_with_object(options), F.lit(True)
    if any(has_nested_decimal(f.dataType) for f in readable):
        may_parse = ~F.rlike("value", F.lit(_HUGE_DECIMAL))
    parsed = F.when(is_alone & may_parse, F.from_json("value", schema, options))
    steps = {PARSED: parsed}
    if len(exact := decimals(contract.struct)):
        steps = {_TEXTS: parsed, _DIGITS: exact_decimals(exact, _TEXTS, options)}
        steps[PARSED] = with_exact_decimals(schema.fieldNames(), exact, _TEXTS, _DIGITS)
    faults = _json_fault(readable, options, is_alone, may_parse), _surrogate_fault(), *map(_fault_of_keys, unreadable)
    return LineColumns.of(contract, {f.name: f.name for f in readable}, steps, *faults, *_name_faults(contract, options))


def _has_keys_other_than_text(field: StructField) -> bool:
    """Whether a column has maps with other keys than text, which Spark's parser of JSON refuses."""
    return any(isinstance(part, MapType) and not isinstance(part.keyType, StringType) for part in types_within(field.dataType))


def _fault_of_keys(field: StructField) -> Column:
    """The fault of a line that has a value in a column with such maps; null if the value is null."""
    return F.when(F.col(f"{PARSED}.{quoted_name(field.name)}").isNotNull(), F.lit(f"{type_fault(field)}: {_TEXT_KEYS}"))


def _json_fault(fields: Sequence[StructField], options: Mapping[str, str], is_alone: Column, may_parse: Column) -> Column:
    """Why a line cannot be parsed: it is not a JSON object, or a nested column has a value of another type.

    The parser does not distinguish the two, so the line is parsed again: without types, and then with the type of each nested column in
    turn. Spark evaluates this only for lines that cannot be parsed.
    """
    nested = [f for f in fields if not isinstance(f.dataType, AtomicType)]
    if not nested:
        return F.lit(_NO_OBJECT)
    untyped = StructType([StructField(f.name, StringType()) for f in nested])
    is_object = is_alone & ~_is_corrupt(untyped, options)
    huge = f"{TYPE_FAULT}{', '.join(f.name for f in nested if has_nested_decimal(f.dataType))} {_HUGE}"
    mistyped = [F.when(_is_corrupt(StructType([f]), options), F.lit(type_fault(f))) for f in nested]
    return F.coalesce(F.when(~is_object, F.lit(_NO_OBJECT)), F.when(~may_parse, F.lit(huge)), *mistyped, F.lit(_NO_OBJECT))


def _is_corrupt(schema: StructType, options: Mapping[str, str]) -> Column:
    parsed = F.from_json("value", StructType([*schema.fields, StructField(CORRUPT, StringType())]), options)
    return parsed.isNull() | parsed[CORRUPT].isNotNull()


def _ends_with_object(options: Mapping[str, str]) -> Column:
    """Whether a line has no text after its object: `from_json` would silently ignore such text, even a second object."""
    text = F.trim("value")
    elements = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<string>", options)
    return (F.instr(text, "}") == F.length(text)) | F.coalesce(F.size(elements) == 1, F.lit(False))


def _surrogate_fault() -> Column:
    """The fault of a line with half of a surrogate pair, which Spark would read as a question mark."""
    suspect = F.contains("value", F.lit("\\u"))
    text = F.regexp_replace("value", _ESCAPED_BACKSLASH, "_")  # each remaining `\u` is an escape
    return F.when(suspect, F.when(text.rlike(_LONE_SURROGATE), F.lit("it contains half of a surrogate pair")))


def _name_faults(contract: SourceContract, options: Mapping[str, str]) -> list[Column]:
    """The faults of names that differ from the contract's only in case and leave a column empty, and of new names that are not allowed."""
    names, keys = contract.struct.fieldNames(), object_keys(options)
    declared = F.array(*map(F.lit, names))
    present = F.transform(F.array_intersect(keys, declared), F.lower)
    miswritten_names = F.filter(
        keys, lambda k: F.lower(k).isin([n.lower() for n in names]) & ~k.isin(names) & ~F.array_contains(present, F.lower(k))
    )
    empty = combine_balanced([F.col(f"{PARSED}.{quoted_name(n)}").isNull() for n in names], lambda a, b: a | b, F.lit(False))
    miswritten = F.when(empty, _fault_of_names(miswritten_names, "it has names in another case than the contract's: "))
    if contract.new_columns == "ignore":
        return [miswritten]
    return [miswritten, _fault_of_names(F.array_except(keys, declared), HAS_NEW_COLUMNS)]


def _fault_of_names(names: Column, reason: str) -> Column:
    """The reason with the names, or null if there are none; the expression of the names is long, so it occurs once."""
    return F.concat(F.lit(reason), F.array_join(F.nullif(names, F.array().cast("array<string>")), ", "))
